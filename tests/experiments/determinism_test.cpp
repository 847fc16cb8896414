// The same seed gives the same bytes, whatever the number of threads: the real program, real data, the
// four methods of the quick start.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/experiments/program.hpp"

namespace syncopate {
namespace {

using Determinism = ProgramTest;

TEST_F(Determinism, ThreadsDoNotChangeAByteOfAnyMethodsMetrics) {
  const std::string run = "run '" SYNCOPATE_SOURCE_DIR "/experiments/quickstart.toml' 'seeds=[3]'";
  const std::string rest = " budget.epochs=0.6 evaluation.every_steps=10 evaluation.train_samples=2000 --quiet";
  for (const char* threads : {"1", "2"}) {
    const auto outcome = syncopate(run + rest + " --threads " + threads + " --results by_" + threads);
    ASSERT_EQ(outcome.status, 0) << outcome.err;
  }
  int runs = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory / "by_1")) {
    if (entry.path().filename() != "metrics.csv" && entry.path().filename() != "steps.csv") continue;
    const auto name = std::filesystem::relative(entry.path(), directory / "by_1");
    const std::string with_one = read(std::filesystem::path("by_1") / name);
    EXPECT_GT(std::count(with_one.begin(), with_one.end(), '\n'), 4) << name;
    EXPECT_EQ(with_one, read(std::filesystem::path("by_2") / name)) << name;
    ++runs;
  }
  EXPECT_EQ(runs, 2 * 4);
}

}  // namespace
}  // namespace syncopate
