// The built program under mpirun: the records of several ranks are combined in one directory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/experiments/program.hpp"
#include "workers/base/arrays.hpp"
#include "workers/mpi/mpi_session.hpp"

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
  // Returns the steps in the table's rows. There must be only one run.
  std::vector<int> steps_of(const char* table) const {
    std::istringstream lines(read(run_directory() / table));
    std::vector<int> steps;
    std::string line;
    std::getline(lines, line);  // skips the heading
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

// The mean of the processes' own models is computed after the run. It equals the mean on the simulated cluster.
TEST_F(MpiRun, ModelsThatWorkersHaveOfTheirOwnAreEvaluatedTogether) {
  const std::string file = write("e.toml", with_servers);
  const auto numbers_of = [&](const std::string& table, std::size_t column) {
    std::istringstream lines(read(run_directory() / table));
    std::vector<double> numbers;
    std::string line, cell;
    std::getline(lines, line);
    while (std::getline(lines, line)) {
      std::istringstream cells(line);
      for (std::size_t i = 0; i <= column; ++i) std::getline(cells, cell, ',');
      numbers.push_back(std::stod(cell));
    }
    return numbers;
  };
  for (const std::string evaluated : {"average", "own"}) {
    const std::string command = "run " + file + " --quiet --results results cluster.workers=3 " +
                                "\"methods=[{algorithm='decentralized-sgd',evaluated='" + evaluated + "'}]\"";
    std::vector<std::vector<double>> losses, distances;
    for (const int ranks : {1, 3}) {
      const auto outcome = syncopate(command + (ranks == 1 ? " --cluster simulated" : ""), ranks);
      ASSERT_EQ(outcome.status, 0) << outcome.err;
      EXPECT_THAT(steps_of("metrics.csv"), ElementsAre(0, 3, 6));
      losses.push_back(numbers_of("metrics.csv", 4));
      distances.push_back(numbers_of("measurements.csv", 3));
      std::filesystem::remove_all(directory / "results");
    }
    ASSERT_EQ(distances[0].size(), 2u);
    ASSERT_EQ(distances[1].size(), 2u);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(losses[1][i], losses[0][i], 1e-5 * losses[0][i]) << evaluated;
    for (std::size_t i = 0; i < 2; ++i) EXPECT_NEAR(distances[1][i], distances[0][i], 1e-4 * distances[0][i]);
  }
}

// Each worker's texts determine the rows to send, and so the bytes. Whole rows are sent; otherwise the loss would
// differ from the loss without compression.
TEST_F(MpiRun, RowsOfEmbeddingsThatTextsTouchAreSentAsOnTheSimulatedCluster) {
  std::ostringstream lines;
  for (int i = 0; i < 120; ++i)
    lines << (i % 3 == 0 ? "a" : "b") << "\tword" << i % 7 << " word" << i * i % 40 << " " << (i % 3 == 0 ? "x" : "y")
          << "\n";
  write("lines.txt", lines.str());
  const std::string file = write("e.toml", with_servers);
  const std::string command =
      "run " + file +
      " --quiet --results results cluster.workers=3 cluster.micro_batches=2 "
      "\"training={model='text-transformer',dataset='text-lines',micro_batch_size=2,optimizer={name='sgd'},"
      "learning_rate={schedule='constant',peak=0.1}}\" "
      "\"datasets.text-lines={file='lines.txt',labelled=true,least=1}\" "
      "\"models.text-transformer={width=8,depth=1,heads=2,mlp_width=8}\" \"methods=[{algorithm='sync-sgd'";
  struct Found {
    double loss = 0;
    std::int64_t bytes = 0;
  };
  const auto found = [&](const std::string& method, int ranks) {
    const auto outcome = syncopate(command + method + "}]\"" + (ranks == 1 ? " --cluster simulated" : ""), ranks);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    const auto summary = nlohmann::json::parse(read(run_directory() / "summary.json"));
    std::filesystem::remove_all(directory / "results");
    return Found{summary["final_test_loss"], summary["communicated_bytes"]};
  };
  const std::string sparse = ",compression={name='sparse-rows'}";
  const Found dense = found("", 1), simulated = found(sparse, 1), under_mpi = found(sparse, 3);
  EXPECT_NEAR(simulated.loss, dense.loss, 1e-5 * dense.loss);
  EXPECT_NEAR(under_mpi.loss, dense.loss, 1e-5 * dense.loss);
  EXPECT_EQ(under_mpi.bytes, simulated.bytes);
  EXPECT_NE(simulated.bytes, dense.bytes);
}

// On the wall clock, each row is the first step that ended at or after a multiple of the interval, according to the end
// times in steps.csv. If processes have their own models, each multiple has one row.
TEST_F(MpiRun, EvaluationsAtTimesAreThoseOfTheFirstStepAtOrAfterThem) {
  const std::string file = write("e.toml", with_servers);
  const auto column_of = [&](const std::string& table, const std::string& name) {
    std::istringstream lines(read(run_directory() / table));
    std::vector<double> numbers;
    std::string line, cell;
    std::getline(lines, line);
    std::istringstream heading(line);
    std::size_t column = 0;
    while (std::getline(heading, cell, ',') && cell != name) ++column;
    while (std::getline(lines, line)) {
      std::istringstream cells(line);
      for (std::size_t i = 0; i <= column; ++i) std::getline(cells, cell, ',');
      numbers.push_back(std::stod(cell));
    }
    return numbers;
  };
  const double every = 0.08;
  for (const std::string method : {"sync-sgd", "decentralized-sgd"}) {
    const std::string command =
        "run " + file + " --quiet --results results cluster.pace=emulate cluster.micro_batch_s=0.02 " +
        "budget.steps=20 \"evaluation={every_seconds=0.08}\" \"methods=[{algorithm='" + method + "'}]\"";
    const auto outcome = syncopate(command, 2);
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    const auto times = column_of("metrics.csv", "time_s"), steps = column_of("metrics.csv", "step");
    ASSERT_GE(times.size(), 4u) << "20 steps take at least 0.4 s";
    EXPECT_EQ(steps.back(), 20);
    for (std::size_t i = 1; i + 1 < times.size(); ++i)
      EXPECT_GT(std::floor(times[i] / every), std::floor(times[i - 1] / every)) << method;
    if (method == "sync-sgd") {
      const auto ends = column_of("steps.csv", "time_s");
      for (std::size_t i = 1; i + 1 < times.size(); ++i) {
        const double due = every * (std::floor(times[i - 1] / every) + 1);
        EXPECT_GE(times[i], due);
        if (steps[i] == 1) continue;  // on a busy machine this step alone may take longer than the interval
        EXPECT_LT(ends.at(static_cast<std::size_t>(steps[i]) - 2), due) << "the step before it";
      }
    }
    std::filesystem::remove_all(directory / "results");
  }
}

// Only rank 0 reads the last model of a finished common phase, or gets that of a new one. All ranks start from it.
TEST_F(MpiRun, ACommonPhaseEndsForAllRanksWhereItDoesOnVirtualTime) {
  const std::string file = write("e.toml", with_servers);
  const auto last_model = [&](const std::string& results, int ranks) {
    const std::string command = "run " + file + " --quiet training.common.steps=4 recording.parameters=true --results ";
    const auto outcome = syncopate(command + results, ranks);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory / results)) {
      const auto folder = entry.path().parent_path().parent_path();
      if (entry.path().filename() != "parameters.npy" || folder.filename() == "common-phase") continue;
      const auto values = floats_from_npy(read(entry.path()));
      std::filesystem::remove_all(folder);  // the next command repeats the run from the existing phase
      return values;
    }
    return std::vector<float>{};
  };
  const auto simulated = last_model("virtual", 0);
  ASSERT_EQ(simulated.size(), 100u);
  const auto near = testing::Pointwise(testing::FloatNear(1e-5f), simulated);
  EXPECT_THAT(last_model("results", 3), near);
  EXPECT_THAT(last_model("results", 3), near);
}

// The arithmetic of a small quadratic fits into half a second, but no arithmetic fits into a nanosecond.
TEST_F(MpiRun, ARunWhoseArithmeticDoesNotFitIntoItsTimesSaysSo) {
  const std::string file = write("e.toml", with_servers);
  const std::string command = "run " + file + " --quiet --results results cluster.pace=emulate ";
  const auto outcome = syncopate(command + "cluster.micro_batch_s=1e-9", 3);
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, testing::HasSubstr("backup-workers, seed 1: 100.0 % of the micro-batches took longer"));
  const auto slow = nlohmann::json::parse(read(run_directory() / "summary.json"))["overruns"];
  EXPECT_EQ(slow["micro_batches"], slow["of"]);
  EXPECT_GE(slow["of"], 2 * 6);
  EXPECT_GT(slow["excess_s"], 0);
  EXPECT_THAT(slow["warning"], testing::HasSubstr("took longer than their drawn durations"));
  std::filesystem::remove_all(directory / "results");

  const auto fitting = syncopate(command + "cluster.micro_batch_s=0.5", 3);
  ASSERT_EQ(fitting.status, 0) << fitting.err;
  EXPECT_THAT(fitting.out, testing::Not(testing::HasSubstr("declared")));
  const auto overruns = nlohmann::json::parse(read(run_directory() / "summary.json"))["overruns"];
  EXPECT_EQ(overruns["micro_batches"], 0);
  EXPECT_EQ(overruns["excess_s"], 0.0);
  EXPECT_TRUE(overruns["warning"].is_null());
}

// Worker n's micro-batches take 10, 20 and 30 ms in turn, two per step. Worker 2 has none in step 2.
TEST_F(MpiRun, ATraceIsReplayedAndRecordedAgain) {
  std::ostringstream trace;
  trace << "worker,step,micro_batch,duration_s\n";
  for (int worker = 0; worker < 3; ++worker)
    for (int step = 0; step < 3; ++step)
      for (int m = 0; m < 2; ++m)
        if (worker < 2 || step < 2)
          trace << worker << "," << step << "," << m << "," << 0.01 * (1 + (worker + step) % 3) << "\n";
  write("trace.csv", trace.str());
  const std::string file = write("e.toml", with_servers);
  const std::string command = "run " + file +
                              " --quiet --results results \"methods=[{algorithm='sync-sgd'}]\" "
                              "\"cluster={workers=3,micro_batches=2,trace={file='trace.csv',end='stop'}}\" ";
  const auto replayed = syncopate(command + "cluster.trace.like.2=1", 3);
  ASSERT_EQ(replayed.status, 0) << replayed.err;
  EXPECT_THAT(steps_of("steps.csv"), ElementsAre(1, 2, 3));  // fewer than the 6 steps of the budget
  const auto summary = nlohmann::json::parse(read(run_directory() / "summary.json"));
  const double end_s = summary["end_time_s"];
  EXPECT_GE(end_s, 2 * (0.02 + 0.03 + 0.03));
  EXPECT_EQ(summary["overruns"]["of"], 3 * 3 * 2);

  // With the recorded durations, the simulated cluster takes the same time except for collectives.
  std::filesystem::copy_file(run_directory() / "durations.csv.gz", directory / "recorded.csv.gz");
  std::filesystem::remove_all(directory / "results");
  const auto simulated =
      syncopate(command + "cluster.trace.file=recorded.csv.gz cluster.trace.end=error budget.steps=3");
  ASSERT_EQ(simulated.status, 0) << simulated.err;
  const auto again = nlohmann::json::parse(read(run_directory() / "summary.json"));
  EXPECT_LE(again["end_time_s"], end_s);
  EXPECT_GE(again["end_time_s"], 2 * (0.02 + 0.03 + 0.03));
  std::filesystem::remove_all(directory / "results");

  const auto missing = syncopate(command, 3);
  EXPECT_EQ(missing.status, 1);
  EXPECT_THAT(missing.err, testing::HasSubstr("worker 2, step 2, micro-batch 0: the trace"));
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
  EXPECT_THAT(outcome.err, testing::HasSubstr("cluster.trailing_s, work only on the simulated cluster"));
  const auto overlapped = syncopate("run " + file +
                                        " --results results \"methods=[{algorithm='sync-sgd'}]\" "
                                        "\"network={kind='ring', latency_s=0, bandwidth_bytes_per_s=1e9, "
                                        "overlap={buckets=2}}\"",
                                    2);
  EXPECT_EQ(overlapped.status, 2);
  EXPECT_THAT(overlapped.err, testing::HasSubstr("network.overlap works only on the simulated cluster"));
  EXPECT_FALSE(std::filesystem::exists(directory / "results"));
}

// Ranks that a launcher has started but that do not find each other, and ranks that exceed the machine's cores.

using testing::HasSubstr;
using testing::StartsWith;

class LaunchedRanks : public ProgramTest {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    write("e.toml", time_only);
  }
  // Starts the program as one of several tasks that cannot find the others.
  ProgramOutcome task(const std::string& environment, const std::string& options) const {
    return shell("env -u OMPI_COMM_WORLD_SIZE " + environment +
                 " timeout 100 '" SYNCOPATE_PROGRAM "' run e.toml --quiet --results results " + options);
  }
};

TEST_F(LaunchedRanks, ThatDoNotSeeEachOtherRunNothing) {
  const ProgramOutcome by_srun = task("SLURM_STEP_NUM_TASKS=3", "--cluster simulated");
  EXPECT_EQ(by_srun.status, 2);
  EXPECT_EQ(by_srun.out, "");
  EXPECT_EQ(by_srun.err, "srun started 3 tasks that do not see each other: try `srun --mpi=pmix`\n");
  EXPECT_EQ(task("SLURM_STEP_NUM_TASKS=3", "cluster.workers=1").status, 2) << "as many ranks as it needs";
  const ProgramOutcome by_another = task("PMI_SIZE=4", "--cluster simulated");
  EXPECT_EQ(by_another.status, 2);
  EXPECT_THAT(by_another.err, StartsWith("the launcher started 4 processes that do not see each other: "));
  EXPECT_FALSE(std::filesystem::exists(directory / "results"));
  EXPECT_EQ(task("SLURM_STEP_NUM_TASKS=3", "--share").status, 0) << "it needs no MPI";
  EXPECT_EQ(task("SLURM_STEP_NUM_TASKS=1", "").status, 0) << "a task alone";
}

TEST(RanksForCores, AreFourForEachAndSixteenInAnyCase) {
  for (const auto& [cores, most] :
       {std::pair(1, 16), std::pair(2, 16), std::pair(4, 16), std::pair(8, 32), std::pair(64, 256)}) {
    EXPECT_EQ(too_many_ranks(most, cores), "") << cores;
    EXPECT_THAT(too_many_ranks(most + 1, cores), HasSubstr("must be at most " + std::to_string(most))) << cores;
  }
  EXPECT_THAT(too_many_ranks(200, 2), StartsWith("200 ranks on one machine, which has 2 cores for them; "));
}

// All ranks are bound to one core, so that the number in the message is the same on any machine.
TEST_F(LaunchedRanks, ThatAreTooManyForTheCoresAreRefused) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  ASSERT_EQ(sched_getaffinity(0, sizeof(cores), &cores), 0);
  int first = 0;
  while (!CPU_ISSET(first, &cores)) ++first;
  const auto launch = [&](const std::string& options) {
    return shell(SYNCOPATE_QUIET_MPI " taskset -c " + std::to_string(first) +
                 " timeout 110 " SYNCOPATE_MPIEXEC " --oversubscribe --bind-to none -n 17 '" SYNCOPATE_PROGRAM
                 "' run e.toml --quiet --results results cluster.workers=17 " +
                 options);
  };
  const ProgramOutcome refused = launch("");
  EXPECT_EQ(refused.status, 2) << refused.err;
  EXPECT_THAT(refused.err, StartsWith("17 ranks on one machine, which has 1 core for them; must be at most 16; "));
  EXPECT_FALSE(std::filesystem::exists(directory / "results"));
  const ProgramOutcome made = launch("--oversubscribe");
  EXPECT_EQ(made.status, 0) << made.err;
}

}  // namespace
}  // namespace syncopate
