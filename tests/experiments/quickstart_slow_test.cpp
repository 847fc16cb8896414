// The quick start at its full length, with one seed: every method learns.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "tests/experiments/program.hpp"

namespace syncopate {
namespace {

using Quickstart = ProgramTest;

TEST_F(Quickstart, EveryMethodEndsWithAtLeast88PercentAccuracy) {
  const auto outcome =
      syncopate("run '" SYNCOPATE_SOURCE_DIR "/experiments/quickstart.toml' 'seeds=[1]' --quiet --results results");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  std::set<std::string> methods;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory / "results")) {
    if (entry.path().filename() != "summary.json") continue;
    const auto summary = nlohmann::json::parse(read(std::filesystem::relative(entry.path(), directory)));
    const std::string method = summary["method"];
    methods.insert(method);
    EXPECT_EQ(summary["status"], "finished") << method;
    EXPECT_GE(summary["final_test_accuracy"].get<double>(), 0.88) << method;
  }
  EXPECT_EQ(methods.size(), 4u);
}

}  // namespace
}  // namespace syncopate
