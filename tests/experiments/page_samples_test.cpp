// Output shown on pages is the program's output (page_samples.hpp). Commands in blocks ```console must be cheap, and
// print the same on every machine. Blocks ```console quickstart show results of the quick start, which the slow tests
// run (quickstart_slow_test.cpp).
#include "tests/experiments/page_samples.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "experiments/commands/commands.hpp"
#include "results/run_directory.hpp"
#include "tests/experiments/program.hpp"

namespace syncopate {
namespace {

namespace fs = std::filesystem;

const fs::path source = SYNCOPATE_SOURCE_DIR;

using PageSamples = ProgramTest;

TEST_F(PageSamples, AreWhatTheProgramPrints) {
  fs::create_directory_symlink(source / "experiments", directory / "experiments");
  int samples = 0;
  for (const fs::path& page : pages())
    for (const Sample& sample : samples_of(page, "console")) {
      SCOPED_TRACE(sample.place);
      const std::string command = "$ ./dev ";
      ASSERT_FALSE(sample.lines.empty());
      ASSERT_TRUE(sample.lines.front().starts_with(command)) << sample.lines.front();
      const ProgramOutcome outcome = syncopate(sample.lines.front().substr(command.size()));
      EXPECT_EQ(outcome.status, 0) << outcome.err;
      const std::vector<std::string> shown(sample.lines.begin() + 1, sample.lines.end());
      EXPECT_EQ(first_difference(shown, lines_of(outcome.out)), "") << outcome.out;
      ++samples;
    }
  EXPECT_GE(samples, 4);
}

TEST(SampleLines, AreComparedInTheirOrder) {
  EXPECT_EQ(first_difference({"a", "...", "c"}, {"a", "b", "b", "c"}), "");
  EXPECT_EQ(first_difference({"a", "c"}, {"a", "b", "c"}), "c");
  EXPECT_EQ(first_difference({"...", "c", "a", "..."}, {"a", "b", "c"}), "a");
  EXPECT_EQ(first_difference({"a"}, {"a", "b"}), "(the output goes on with \"b\")");
  EXPECT_EQ(first_difference({"a ..."}, {"a b c"}), "");
  EXPECT_EQ(first_difference({"a ... c"}, {"a b c"}), "");
  EXPECT_EQ(first_difference({"a ... c"}, {"a b d"}), "a ... c");
  EXPECT_EQ(first_difference({"b ..."}, {"a b c"}), "b ...");
}

// No cheap command prints these lines, so they are built here from the same numbers.
TEST(SampleLines, OfStatusAreItsOwn) {
  const std::string page = text_of(source / "experiments/README.md");
  const PlannedRun run{.hash = "0", .label = "DropCompute", .seed = 3, .directory = {}};
  const PlannedRun other{.hash = "1", .label = "backup workers", .seed = 1, .directory = {}};
  const ExperimentStatus status{
      .name = "quickstart",
      .runs = 12,
      .finished = 5,
      .running = {{.run = run, .host = "node1", .process = 4711, .since = "2024-05-01T12:00:00Z", .share_done = 0.45}},
      .failed = {{.run = other, .reason = "not enough memory"}},
      .remaining = 5,
      .left_s = 190};
  const std::string text = status_text({status});
  const std::string until = ", until ";
  const std::size_t when = text.find(until) + until.size();  // where the page has the local time of another machine
  const std::string heading = text.substr(0, when), others = text.substr(text.find('\n'));
  EXPECT_THAT(page, testing::HasSubstr("\n```\n" + heading));
  EXPECT_THAT(page, testing::HasSubstr(others + "```\n"));
}

TEST(SampleLines, OfAFullDiskAreItsOwn) {
  const std::error_code full = std::make_error_code(std::errc::no_space_on_device);
  const std::string text = disk_fault(".", fs::filesystem_error("write", full));
  const std::string page = text_of(source / "experiments/README.md");
  EXPECT_THAT(page, testing::HasSubstr("\n```\nresults/runs/quickstart" + text.substr(1) + "\n```\n"));
}

}  // namespace
}  // namespace syncopate
