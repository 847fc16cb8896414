#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "results/result_table.hpp"

namespace syncopate {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

class Tidy : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(directory_); }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  FoundRun run(const std::string& method, std::uint64_t seed, const std::string& metrics) const {
    FoundRun found;
    found.directory = directory_ / (method + std::to_string(seed));
    std::filesystem::create_directories(found.directory);
    std::ofstream(found.directory / "metrics.csv") << metrics;
    found.summary.experiment = "e";
    found.summary.method = method;
    found.summary.seed = seed;
    found.summary.hash = "h";
    found.summary.end_time_s = 2.5;
    found.summary.steps = 5;
    return found;
  }

  std::filesystem::path directory_ =
      std::filesystem::temp_directory_path() / ("syncopate_tidy" + std::to_string(getpid()));
};

TEST_F(Tidy, HasARowForEachRunAndEachEvaluation) {
  const std::vector<FoundRun> runs = {run("A, B", 1, "# schema\nstep,loss\n0,2\n5,1\n"),
                                      run("C", 2, "step,loss\n0,3\n")};
  const TidyTables tables = tidy_tables(runs);
  EXPECT_THAT(lines_of(tables.evaluations_csv),
              ElementsAre("experiment,method,seed,clock,hash,step,loss", "e,\"A, B\",1,virtual,h,0,2",
                          "e,\"A, B\",1,virtual,h,5,1", "e,C,2,virtual,h,0,3"));
  const auto of_runs = lines_of(tables.runs_csv);
  ASSERT_EQ(of_runs.size(), 3u);
  EXPECT_THAT(of_runs[0], testing::StartsWith("experiment,method,seed,clock,hash,status,final_test_accuracy,"));
  EXPECT_THAT(of_runs[1], testing::StartsWith("e,\"A, B\",1,virtual,h,finished,,"));
  EXPECT_THAT(of_runs[1], HasSubstr(",2.5,0.5,"));  // end_time_s, step_time_s
}

// What differs between methods alone is what they are; what differs within one is a column.
TEST_F(Tidy, HasAColumnForWhatVaries) {
  std::vector<FoundRun> runs = {run("A", 1, "step\n"), run("A", 2, "step\n"), run("B", 3, "step\n")};
  runs[0].configuration = {{"cluster.workers", "8"}, {"training.model", "\"mlp\""}};
  runs[1].configuration = {{"cluster.workers", "16"}, {"training.model", "\"a, b\""}};
  runs[2].configuration = {{"cluster.workers", "8"}, {"training.model", "\"mlp\""}};
  runs[0].of_method = {{"threshold_s", "0.1"}, {"algorithm", "\"x\""}};
  runs[1].of_method = {{"threshold_s", "0.2"}, {"algorithm", "\"x\""}};
  runs[2].of_method = {{"algorithm", "\"y\""}};
  runs[0].summary.sweep = {{"methods.A.threshold_s", "a tenth"}, {"variant", "slow"}};
  runs[1].summary.sweep = {{"methods.A.threshold_s", "a fifth"}, {"variant", "fast"}};
  EXPECT_THAT(lines_of(tidy_tables(runs).evaluations_csv).front(),
              testing::StartsWith(
                  "experiment,method,seed,clock,hash,cluster.workers,method.threshold_s,training.model,variant,"));
  const auto rows = lines_of(tidy_tables(runs).runs_csv);
  EXPECT_THAT(rows[1], HasSubstr(",h,8,a tenth,mlp,slow,finished,"));
  EXPECT_THAT(rows[2], HasSubstr(",h,16,a fifth,\"a, b\",fast,finished,"));
  EXPECT_THAT(rows[3], HasSubstr(",h,8,,mlp,,finished,"));
}

TEST_F(Tidy, NeedsAllEvaluations) {
  std::vector<FoundRun> runs = {run("A", 1, "step\n")};
  std::filesystem::remove(runs[0].directory / "metrics.csv");
  EXPECT_THROW(tidy_tables(runs), std::runtime_error);
  runs = {run("A", 1, "step\n"), run("A", 2, "steps\n")};
  EXPECT_THROW(tidy_tables(runs), std::runtime_error);
}

}  // namespace
}  // namespace syncopate
