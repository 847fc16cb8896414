// Which samples are kept, as several processes tell it together: that of the simulated cluster where a method's course
// is the same, and in any case as many as the accounts say.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "tests/experiments/program.hpp"

namespace syncopate {
namespace {

using Json = nlohmann::json;

// Worker 2 takes four times as long: too long for the threshold's second micro-batch, and for any quorum.
constexpr const char* all_kinds = R"(name = "kinds"
[cluster]
workers = 3
micro_batches = 2
micro_batch_s = 0.02
worker_factors = [1, 1, 4]
pace = "emulate"
[network]
kind = "free"
[training]
model = "linear"
dataset = "text-lines"
micro_batch_size = 4
learning_rate = { schedule = "constant", peak = 0.1 }
optimizer = { name = "sgd" }
[datasets.text-lines]
file = "lines.txt"
labelled = true
[budget]
steps = 5
[recording]
samples = true
[[methods]]
algorithm = "sync-sgd"
[[methods]]
algorithm = "dropcompute"
threshold_s = 0.12
[[methods]]
algorithm = "local-sgd"
period = { rule = "constant", steps = 2 }
[[methods]]
algorithm = "random-drop"
drop_rate = 0.5
from_step = 0
[[methods]]
algorithm = "backup-workers"
backups = 1
[[methods]]
label = "two servers"
algorithm = "backup-workers"
backups = 1
servers = 2
[[methods]]
algorithm = "async-sgd"
maximum_staleness = 2
[[methods]]
algorithm = "backup-all-reduce"
backups = 1
[[methods]]
algorithm = "decentralized-sgd"
)";

struct KeptOnRanks : ProgramTest {
  void SetUp() override {
    ProgramTest::SetUp();
    std::string lines;
    for (int i = 0; i < 300; ++i) {
      lines += std::string(1, static_cast<char>('a' + i * i % 3)) + "\tword" + std::to_string(i);
      for (int j = 0; j < i * i % 13; ++j) lines += " word";
      lines += "\n";
    }
    write("lines.txt", lines);
    file = write("e.toml", all_kinds);
  }

  // Summaries by method.
  std::map<std::string, Json> run(int ranks, const std::string& overrides = "") const {
    const std::string results = ranks > 0 ? "mpi" : "virtual";
    std::filesystem::remove_all(directory / results);
    const auto outcome = syncopate("run " + file + " --quiet --results " + results + " " + overrides, ranks);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    std::map<std::string, Json> summaries;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory / results))
      if (entry.path().filename() == "summary.json") {
        const Json summary = Json::parse(read(entry.path()));
        summaries[summary["method"]] = summary;
      }
    return summaries;
  }

  std::string file;
};

std::int64_t sum(const Json& list) {
  const auto numbers = list.get<std::vector<std::int64_t>>();
  return std::accumulate(numbers.begin(), numbers.end(), std::int64_t{0});
}

TEST_F(KeptOnRanks, IsWhatTheAccountsAndTheSimulatedClusterSay) {
  const auto simulated = run(0), mpi = run(5);
  ASSERT_EQ(simulated.size(), 9u);
  ASSERT_EQ(mpi.size(), 9u);
  for (const auto& [method, summary] : mpi) {
    SCOPED_TRACE(method);
    for (const Json& one : {summary, simulated.at(method)}) {
      const Json& told = one.at("samples_kept");
      EXPECT_EQ(sum(told["by_class"]["kept"]), 4 * one["kept_micro_batches"].get<std::int64_t>());
      EXPECT_EQ(sum(told["by_length"]["kept"]), 4 * one["kept_micro_batches"].get<std::int64_t>());
      EXPECT_EQ(told["by_length"]["test_loss"].size(), told["by_length"]["longest"].size());
    }
    if (method == "async-sgd") continue;  // who comes first decides
    const Json& told = summary["samples_kept"];
    const Json& expected = simulated.at(method)["samples_kept"];
    EXPECT_EQ(told["by_class"], expected["by_class"]);
    EXPECT_EQ(told["by_length"]["kept"], expected["by_length"]["kept"]);
    EXPECT_EQ(told["by_length"].contains("offered"), expected["by_length"].contains("offered"));
    if (!told["by_length"].contains("offered")) continue;
    EXPECT_EQ(told["by_length"]["offered"], expected["by_length"]["offered"]);
    EXPECT_NEAR(
        static_cast<double>(sum(told["by_class"]["kept"])) / static_cast<double>(sum(told["by_class"]["offered"])),
        1 - summary["drop_rate"].get<double>(), 1e-12);
    for (std::size_t bin = 0; bin < told["by_length"]["longest"].size(); ++bin) {
      const Json &found = told["by_length"]["test_loss"][bin], &wanted = expected["by_length"]["test_loss"][bin];
      ASSERT_EQ(found.is_null(), wanted.is_null());
      if (wanted.is_null()) continue;
      EXPECT_NEAR(found.get<double>(), wanted.get<double>(), 1e-4);
    }
  }
  EXPECT_LT(sum(mpi.at("dropcompute")["samples_kept"]["by_class"]["kept"]),
            sum(mpi.at("dropcompute")["samples_kept"]["by_class"]["offered"]));
}

// Nothing says there which micro-batches a sum is of: what has come to its end is told of, where all of that is kept.
TEST_F(KeptOnRanks, WithoutAModelIsToldWhereWhatHasEndedIsKept) {
  const std::string alone = "training.model=none training.parameters=10";
  const auto simulated = run(0, alone), mpi = run(5, alone);
  for (const auto& summaries : {simulated, mpi})
    for (const auto& [method, summary] : summaries) {
      SCOPED_TRACE(method);
      const bool is_told =
          method == "sync-sgd" || method == "dropcompute" || method == "local-sgd" || method == "decentralized-sgd";
      EXPECT_EQ(summary.contains("samples_kept"), is_told);
      if (!is_told || !summary.contains("samples_kept")) continue;
      EXPECT_EQ(sum(summary["samples_kept"]["by_class"]["kept"]),
                4 * summary["kept_micro_batches"].get<std::int64_t>());
      EXPECT_EQ(summary["samples_kept"], simulated.at(method)["samples_kept"]);
    }
}

}  // namespace
}  // namespace syncopate
