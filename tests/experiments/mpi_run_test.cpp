// The built program under mpirun: what several ranks record comes together in one directory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/experiments/program.hpp"

namespace syncopate {
namespace {

using testing::ElementsAre;

constexpr const char* with_servers = R"(name = "served"
[cluster]
workers = 2
micro_batch_s = 0.001
[network]
kind = "free"
[training]
model = "quadratic"
[training.learning_rate]
schedule = "constant"
peak = 0.1
[training.optimizer]
name = "sgd"
[budget]
steps = 6
[evaluation]
every_steps = 3
[[methods]]
algorithm = "backup-workers"
backups = 0
)";

class MpiRun : public ProgramTest {
 protected:
  // Steps that a table of the only run has rows for.
  std::vector<int> steps_of(const char* table) const {
    std::istringstream lines(read(run_directory() / table));
    std::vector<int> steps;
    std::string line;
    std::getline(lines, line);  // the heading
    while (std::getline(lines, line)) steps.push_back(std::stoi(line));
    return steps;
  }
  std::filesystem::path run_directory() const {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory / "results")) {
      if (entry.path().filename() == "summary.json") return entry.path().parent_path();
    }
    return {};
  }
};

TEST_F(MpiRun, RowsAndModelsComeTogetherWhoeverRecordsThem) {
  const std::string file = write("e.toml", with_servers);
  for (const int servers : {1, 2}) {
    const std::string method = "methods.backup-workers.servers=" + std::to_string(servers);
    const auto outcome = syncopate("run " + file + " --quiet --results results " + method, 2 + servers);
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_THAT(steps_of("steps.csv"), ElementsAre(1, 2, 3, 4, 5, 6)) << servers;
    EXPECT_THAT(steps_of("metrics.csv"), ElementsAre(0, 3, 6)) << servers;
    const auto summary = nlohmann::json::parse(read(run_directory() / "summary.json"));
    EXPECT_EQ(summary["kept_micro_batches_per_worker"], (std::vector<int>{6, 6})) << servers;
    EXPECT_EQ(summary["staleness"]["histogram"], std::vector<int>{2 * 6}) << servers;
    std::filesystem::remove_all(directory / "results");
  }
}

// No arithmetic fits into a nanosecond; that of a small quadratic fits into 100 ms.
TEST_F(MpiRun, ARunWhoseArithmeticDoesNotFitIntoItsTimesSaysSo) {
  const std::string file = write("e.toml", with_servers);
  const std::string command = "run " + file + " --quiet --results results cluster.pace=emulate ";
  const auto outcome = syncopate(command + "cluster.micro_batch_s=1e-9", 3);
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, testing::HasSubstr("backup-workers, seed 1: times are not those declared: 100.0 % of"));
  const auto slow = nlohmann::json::parse(read(run_directory() / "summary.json"))["overruns"];
  EXPECT_EQ(slow["micro_batches"], slow["of"]);
  EXPECT_GE(slow["of"], 2 * 6);
  EXPECT_GT(slow["excess_s"], 0);
  EXPECT_THAT(slow["warning"], testing::HasSubstr("times are not those declared"));
  std::filesystem::remove_all(directory / "results");

  const auto fitting = syncopate(command + "cluster.micro_batch_s=0.1", 3);
  ASSERT_EQ(fitting.status, 0) << fitting.err;
  EXPECT_THAT(fitting.out, testing::Not(testing::HasSubstr("declared")));
  const auto overruns = nlohmann::json::parse(read(run_directory() / "summary.json"))["overruns"];
  EXPECT_EQ(overruns["micro_batches"], 0);
  EXPECT_EQ(overruns["excess_s"], 0.0);
  EXPECT_TRUE(overruns["warning"].is_null());
}

TEST_F(MpiRun, AWrongNumberOfProcessesIsBadUsage) {
  const std::string file = write("e.toml", with_servers);
  const auto outcome = syncopate("run " + file + " --results results methods.backup-workers.servers=2", 3);
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, testing::HasSubstr("must be 4 (2 workers and 2 servers)"));
  EXPECT_FALSE(std::filesystem::exists(directory / "results"));
}

TEST_F(MpiRun, WhatOnlyTheSimulatedClusterKnowsIsBadUsage) {
  const std::string file = write("e.toml", with_servers);
  const auto outcome =
      syncopate("run " + file + " --results results cluster.trailing_s=0.1 \"methods=[{algorithm='sync-sgd'}]\"", 2);
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, testing::HasSubstr("cluster.trailing_s, are for the simulated cluster alone"));
  EXPECT_FALSE(std::filesystem::exists(directory / "results"));
}

}  // namespace
}  // namespace syncopate
