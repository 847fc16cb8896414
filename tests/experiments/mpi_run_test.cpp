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

TEST_F(MpiRun, AWrongNumberOfProcessesIsBadUsage) {
  const std::string file = write("e.toml", with_servers);
  const auto outcome = syncopate("run " + file + " --results results methods.backup-workers.servers=2", 3);
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, testing::HasSubstr("must be 4 (2 workers and 2 servers)"));
  EXPECT_FALSE(std::filesystem::exists(directory / "results"));
}

}  // namespace
}  // namespace syncopate
