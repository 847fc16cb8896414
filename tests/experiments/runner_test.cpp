#include "experiments/execution/runner.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <new>
#include <nlohmann/json.hpp>
#include <set>

#include "algorithms/local_sgd/local_sgd.hpp"
#include "algorithms/quorum/backup_workers.hpp"
#include "algorithms/synchronous/sync_sgd.hpp"
#include "results/run_directory.hpp"
#include "tests/experiments/runner_case.hpp"
#include "workers/base/files.hpp"
#include "workers/base/process.hpp"
#include "workers/models/quadratic.hpp"

namespace syncopate {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST_F(RunnerTest, LeavesAllFilesOfARun) {
  add("A", 1, std::make_shared<Synchronous>());
  EXPECT_EQ(start(), 0);
  std::set<std::string> names;
  for (const auto& file : fs::directory_iterator(directory(0))) names.insert(file.path().filename());
  EXPECT_THAT(names, testing::ElementsAre("config.toml", "files.json", "metadata.json", "metrics.csv", "steps.csv",
                                          "summary.json"));
  EXPECT_EQ(read(0, "config.toml"), experiment_.runs[0].resolved_toml);
  EXPECT_EQ(nlohmann::json::parse(read(0, "metadata.json"))["cluster"], "simulated");
  EXPECT_THAT(out_, HasSubstr("\nA "));
  EXPECT_EQ(err_, fmt::format("run 1 of 1: A, seed 1: begins\n"
                              "run 1 of 1: A, seed 1: finished after 25 s virtual, {:.3g} s host, loss {:.4g}\n",
                              summary(0)["host_s"].get<double>(), summary(0)["final_test_loss"].get<double>()));
}

TEST_F(RunnerTest, SumsUpTheRunInItsSummary) {
  add("A", 1, std::make_shared<Synchronous>());
  start();
  const auto json = summary(0);
  EXPECT_EQ(json["status"], "finished");
  EXPECT_EQ(json["steps"], 10);
  EXPECT_EQ(json["rounds"], 10);
  EXPECT_EQ(json["kept_micro_batches"], 2 * 2 * 10);
  EXPECT_EQ(json["dropped_micro_batches"], 0);
  EXPECT_DOUBLE_EQ(json["end_time_s"], 10 * (2 * 1.0 + 0.5));
  EXPECT_DOUBLE_EQ(json["worker_seconds"]["summed"]["compute"], 2 * 10 * 2.0);
  EXPECT_DOUBLE_EQ(json["worker_seconds"]["summed"]["communicate"], 2 * 10 * 0.5);
  EXPECT_DOUBLE_EQ(json["worker_seconds"]["summed"]["total"], 2 * 25.0);
}

TEST_F(RunnerTest, WritesARowPerRoundAndPerDueEvaluation) {
  add("A", 1, std::make_shared<Synchronous>());
  start();
  const std::string steps = read(0, "steps.csv");
  EXPECT_THAT(steps, HasSubstr("\n1,2.5,2.5,4,0,1,"));
  EXPECT_THAT(steps, HasSubstr("\n10,25,2.5,4,0,1,"));
  const std::string metrics = read(0, "metrics.csv");
  for (const char* row : {"\n0,", "\n4,", "\n8,", "\n10,"}) EXPECT_THAT(metrics, HasSubstr(row));
  EXPECT_EQ(std::count(metrics.begin(), metrics.end(), '\n'), 5);
}

TEST_F(RunnerTest, GivesTheSameMetricsWithAnyNumberOfThreads) {
  add("A", 1, std::make_shared<Synchronous>());
  start();
  const std::string with_one_thread = read(0, "metrics.csv");
  options_.threads = 3;
  options_.rerun = true;
  start();
  EXPECT_EQ(read(0, "metrics.csv"), with_one_thread);
}

TEST_F(RunnerTest, RepeatsOnlyWhatIsMissing) {
  const auto algorithm = std::make_shared<Synchronous>();
  add("A", 1, algorithm);
  start();
  add("A", 2, algorithm);
  EXPECT_EQ(start(), 0);
  EXPECT_EQ(algorithm->runs, 2 * 2) << "two workers of two runs";
  EXPECT_THAT(err_, HasSubstr("1 of 2 runs are there already"));
  EXPECT_THAT(out_, testing::ContainsRegex("A .* 2\n")) << "the table counts both";
  EXPECT_EQ(start(), 0);
  EXPECT_EQ(algorithm->runs, 2 * 2);
}

TEST_F(RunnerTest, RepeatsARunThatLacksARecordingThatIsAskedForExplicitly) {
  const auto algorithm = std::make_shared<Synchronous>();
  RecordingPlan& recording = add("A", 1, algorithm).recording;
  const auto has = [&](const char* name) { return fs::exists(directory(0) / name); };
  const auto runs_again = [&] {
    const int before = algorithm->runs;
    EXPECT_EQ(start(), 0);
    return algorithm->runs > before;
  };
  EXPECT_TRUE(runs_again());
  EXPECT_FALSE(has("trace.json.gz") || has("durations.csv.gz"));
  recording.trace = true;
  EXPECT_TRUE(runs_again());
  EXPECT_TRUE(has("trace.json.gz") && !has("durations.csv.gz"));
  EXPECT_FALSE(runs_again());
  recording.trace_events = 10;
  EXPECT_TRUE(runs_again());
  recording.trace = false;
  EXPECT_FALSE(runs_again());
  EXPECT_TRUE(has("trace.json.gz"));
  recording.durations = true;
  EXPECT_TRUE(runs_again());
  EXPECT_TRUE(has("durations.csv.gz"));
  recording.durations = false;
  EXPECT_FALSE(runs_again());
}

TEST_F(RunnerTest, RepeatsEverythingWhenAsked) {
  const auto algorithm = std::make_shared<Synchronous>();
  add("A", 1, algorithm);
  start();
  options_.rerun = true;
  EXPECT_EQ(start(), 0);
  EXPECT_EQ(algorithm->runs, 2 * 2);
  EXPECT_THAT(err_, Not(HasSubstr("already")));
}

TEST_F(RunnerTest, WarnsOnceAboutRunsOfAnotherCommit) {
  for (std::uint64_t seed : {1, 2}) add("A", seed, std::make_shared<Synchronous>());
  start();
  for (std::size_t run : {0, 1}) {
    auto json = summary(run);
    json["commit"] = "0000000000000000000000000000000000000000";
    FileContents files;
    for (const auto& entry : std::filesystem::directory_iterator(directory(run)))
      if (entry.path().filename() != list_of_files) files[entry.path().filename()] = *read_file(entry.path());
    files["summary.json"] = json.dump();
    files[list_of_files] = listed(files);
    write_directory(directory(run), files);
  }
  EXPECT_EQ(start(), 0);
  EXPECT_THAT(err_, HasSubstr("warning: 2 of them were made by another commit"));
  EXPECT_THAT(err_, HasSubstr("--rerun"));
}

TEST_F(RunnerTest, GoesOnAfterARunThatFails) {
  const auto failing = std::make_shared<Synchronous>([](Worker&) { throw std::runtime_error("no luck"); });
  add("bad", 7, failing);
  add("good", 1, std::make_shared<Synchronous>());
  EXPECT_EQ(start(), 1);
  EXPECT_EQ(summary(1)["status"], "finished");
  EXPECT_EQ(summary(0)["status"], "failed");
  EXPECT_EQ(summary(0)["reason"], "no luck");
  EXPECT_THAT(read(0, "steps.csv"), HasSubstr("\n3,7.5,")) << "what was recorded is kept";
  EXPECT_THAT(out_, testing::ContainsRegex("bad +7  failed  no luck\n"));

  EXPECT_EQ(start(), 1) << "a failed run is repeated";
  EXPECT_EQ(failing->runs, 2 * 2);
}

TEST_F(RunnerTest, ReportsADeadlockAsAFailure) {
  add("stuck", 1, std::make_shared<Synchronous>([](Worker& worker) {
        if (worker.rank() == Rank{0}) worker.receive();
      }));
  EXPECT_EQ(start(), 1);
  EXPECT_EQ(summary(0)["status"], "failed");
  EXPECT_THAT(out_, testing::ContainsRegex("stuck +1  failed  [^ ]"));
}

TEST_F(RunnerTest, FaultyDataAreOneMessageForAllRunsAndNothingRuns) {
  const auto algorithm = std::make_shared<Synchronous>();
  add("A", 1, algorithm);
  for (std::uint64_t seed : {2, 3}) {
    add("A", seed, algorithm).training.make_objective = []() -> std::shared_ptr<const Objective> {
      throw DataFault("train-images: truncated");
    };
  }
  EXPECT_EQ(start(), 2);
  EXPECT_EQ(err_, "train-images: truncated\n");
  EXPECT_EQ(out_, "");
  EXPECT_EQ(algorithm->runs, 0);
  EXPECT_FALSE(fs::exists(options_.results_directory));
}

TEST_F(RunnerTest, MemoryThatIsNotThereFailsOneRun) {
  add("large", 1, std::make_shared<Synchronous>()).training.make_objective = []() -> std::shared_ptr<const Objective> {
    throw std::bad_alloc();
  };
  add("small", 1, std::make_shared<Synchronous>());
  EXPECT_EQ(start(), 1);
  EXPECT_EQ(summary(0)["status"], "failed");
  EXPECT_EQ(summary(1)["status"], "finished");
}

// One vector beside the model; a gigabyte each.
TEST_F(RunnerTest, MemoryThatIsNotThereIsToldWithWhatIsNeeded) {
  auto& run = add("large", 1, std::make_shared<Synchronous>());
  run.training.make_objective = []() -> std::shared_ptr<const Objective> { throw std::bad_alloc(); };
  run.training.parameter_bytes = Bytes{1'000'000'000};
  run.training.optimizer = make_sgd({.momentum = 0.5});
  EXPECT_EQ(start(), 1);
  EXPECT_EQ(summary(0)["reason"],
            "the memory does not suffice: the model and its optimizer's state take 2 GB, and where the 2 workers hold "
            "models of their own 4 GB, beside gradients");
  // Without a model what collectives carry is no model's.
  run.training.time_only = true;
  EXPECT_EQ(start(), 1);
  EXPECT_EQ(summary(0)["reason"], "the memory does not suffice for 2 workers");
}

TEST_F(RunnerTest, ReportsDivergence) {
  auto& run = add("wild", 1, std::make_shared<Synchronous>(), 1e30);
  run.budget.steps = Step{100};
  EXPECT_EQ(start(), 1);
  EXPECT_EQ(summary(0)["status"], "diverged");
  EXPECT_THAT(out_, testing::ContainsRegex("wild +1  diverged  the model is not finite after step"));
}

TEST_F(RunnerTest, KeepsWhatIsFiniteOfADivergedRun) {
  // The parameters grow by a factor of about 1e4 each step, so that after ten they are beyond single precision.
  auto& run = add("wild", 1, std::make_shared<SyncSgd>(), 1e4);
  run.budget.steps = Step{1000};
  EXPECT_EQ(start(), 1);
  const auto json = summary(0);
  EXPECT_EQ(json["status"], "diverged");
  EXPECT_LT(json["steps"], 1000);
  EXPECT_TRUE(json["final_test_loss"].is_null());
  EXPECT_TRUE(json["best_test_loss"].is_number());
  const std::string metrics = read(0, "metrics.csv");
  EXPECT_THAT(metrics, HasSubstr("\n4,")) << "finite";
  const auto last = metrics.rfind('\n', metrics.size() - 2) + 1;
  EXPECT_EQ(metrics.substr(last, metrics.find(',', last) - last), std::to_string(json["steps"].get<int>()));
}

TEST_F(RunnerTest, ReportsDivergenceOfARunThatPublishesOnlyAtItsEnd) {
  const LocalSgd once(make_constant_period(1000), {});
  auto& run = add("wild", 1, std::make_shared<LocalSgd>(once), 1e4);
  run.budget.steps = Step{1000};
  EXPECT_EQ(start(), 1);
  const auto json = summary(0);
  EXPECT_EQ(json["status"], "diverged");
  EXPECT_EQ(json["reason"], "the model is not finite after step 1000");
  EXPECT_EQ(json["rounds"], 1);
  EXPECT_EQ(json["kept_micro_batches"], 2 * 2 * 1000);
  EXPECT_THAT(read(0, "metrics.csv"), testing::ContainsRegex("\n0,[^\n]*\n1000,[^\n]*\n$"));
}

TEST_F(RunnerTest, SaysHowStaleGradientsWere) {
  add("server", 1, std::make_shared<BackupWorkers>(2));
  ASSERT_EQ(start(), 0) << err_;
  const auto staleness = summary(0)["staleness"];
  EXPECT_EQ(staleness["histogram"], std::vector<int>{2 * 10}) << "two workers, ten steps, all in time";
  EXPECT_EQ(staleness["mean"], 0);
}

// Each worker alone, until its data or the budget are used up.
struct Alone : Algorithm {
  void run(Worker& worker) const override {
    while (worker.budget_left()) worker.descend(worker.compute_step_gradient() / worker.micro_batches());
    const auto self = static_cast<std::size_t>(worker.rank().value);
    steps[self] = worker.step();
    number[self] = worker.uniform(Step{0}, Drawn::together);
  }
  mutable std::array<Step, 2> steps;
  mutable std::array<double, 2> number{};
};

TEST_F(RunnerTest, TellsWorkersHowLongTheirDataLast) {
  const auto alone = std::make_shared<Alone>();
  add("A", 1, alone).cluster.data_of = {std::nullopt, Step{3}};
  EXPECT_EQ(start(), 0) << out_;
  EXPECT_THAT(alone->steps, testing::ElementsAre(Step{10}, Step{3}));
}

TEST_F(RunnerTest, GivesMethodsRandomNumbersOfTheRunsSeed) {
  const auto first = std::make_shared<Alone>(), second = std::make_shared<Alone>();
  add("A", 1, first);
  add("A", 2, second);
  EXPECT_EQ(start(), 0);
  EXPECT_EQ(first->number[0], first->number[1]) << "shared by all workers";
  EXPECT_NE(first->number[0], second->number[0]);
}

TEST_F(RunnerTest, LeavesFinishedRunsAndNothingElseWhenInterrupted) {
  add("A", 1, std::make_shared<Synchronous>());
  // Long enough for any cluster to look at the flag.
  add("A", 2, std::make_shared<Synchronous>([](Worker&) { set_interrupted(true); })).budget.steps = Step{1'000'000};
  add("A", 3, std::make_shared<Synchronous>());
  EXPECT_EQ(start(), 130);
  EXPECT_TRUE(fs::exists(directory(0) / "summary.json"));
  EXPECT_FALSE(fs::exists(directory(1)));
  EXPECT_FALSE(fs::exists(directory(2)));
  EXPECT_EQ(std::distance(fs::directory_iterator(directory(0).parent_path()), {}), 1) << "no hidden leftovers";
  EXPECT_THAT(err_, HasSubstr("the same command continues with the others, from their newest checkpoints if they have "
                              "any (1 of 3 runs are finished)\n"));
}

TEST_F(RunnerTest, RefusesAResultsDirectoryThatIsAFile) {
  const auto algorithm = std::make_shared<Synchronous>();
  add("A", 1, algorithm);
  std::ofstream(options_.results_directory) << "in the way";
  EXPECT_EQ(start(), 2);
  EXPECT_EQ(algorithm->runs, 0);
  EXPECT_THAT(err_, HasSubstr(options_.results_directory + ": is a file"));
  EXPECT_EQ(std::count(err_.begin(), err_.end(), '\n'), 1);
}

TEST_F(RunnerTest, QuietPrintsOnlyTheTable) {
  add("A", 1, std::make_shared<Synchronous>());
  options_.quiet = true;
  EXPECT_EQ(start(), 0);
  EXPECT_EQ(err_, "");
  EXPECT_THAT(out_, HasSubstr("\nA "));
}

TEST_F(RunnerTest, LeavesTheTableBesideTheRuns) {
  add("A", 1, std::make_shared<Synchronous>());
  add("B", 1, std::make_shared<Synchronous>());
  EXPECT_EQ(start(), 0);
  const auto written = [this](const char* name) {
    std::ifstream file(experiment_directory(options_.results_directory, experiment_.name) / name);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  EXPECT_EQ("\n" + written("table.txt"), out_);
  EXPECT_THAT(written("table.md"), testing::AllOf(HasSubstr("| A | "), HasSubstr("| B | ")));
  EXPECT_EQ(written("table-mpi.txt"), "");
}

TEST_F(RunnerTest, ATableThatCannotBeSavedIsAWarningOfANewRunAlone) {
  add("A", 1, std::make_shared<Synchronous>());
  fs::create_directories(experiment_directory(options_.results_directory, experiment_.name) / "table.txt");
  EXPECT_EQ(start(), 0);
  EXPECT_THAT(err_, HasSubstr("warning: the table is not saved: "));
  EXPECT_EQ(start(), 0);
  EXPECT_THAT(err_, Not(HasSubstr("warning: the table")));
}

TEST_F(RunnerTest, RunsWithoutAModel) {
  auto& run = add("A", 1, std::make_shared<Synchronous>());
  run.training.make_objective = nullptr;
  run.training.parameter_bytes = Bytes{1000};
  run.training.samples_per_micro_batch = 16;
  EXPECT_EQ(start(), 0);
  EXPECT_EQ(summary(0)["samples"], 2 * 2 * 10 * 16);
  EXPECT_TRUE(summary(0)["final_test_loss"].is_null());
  EXPECT_EQ(summary(0)["communicated_bytes"], 10 * 2 * (2 - 1) * 1000);
}

// Steps of 2 s and a network of 0.5 s, without delays: the formula is exact.
TEST_F(RunnerTest, FinishedRunsHaveTheirPredictionsBesideThem) {
  add("A", 1, std::make_shared<SyncSgd>());
  add("B", 1, std::make_shared<Synchronous>());
  EXPECT_EQ(start(), 0);
  const auto predicted = summary(0)["predicted"];
  ASSERT_EQ(predicted.size(), 2u);
  for (const auto& formula : predicted) {
    EXPECT_DOUBLE_EQ(formula["step_time_s"], 2.5);
    EXPECT_DOUBLE_EQ(formula["total_time_s"], summary(0)["end_time_s"]);
    EXPECT_EQ(formula["drop_rate"], 0);
  }
  EXPECT_FALSE(summary(1).contains("predicted"));
  EXPECT_THAT(out_, HasSubstr("2.500 (2.500)"));
  EXPECT_THAT(out_, HasSubstr("2.500 (-)"));
}

TEST_F(RunnerTest, TheMpiClusterNeedsALauncher) {
  add("A", 1, std::make_shared<Synchronous>());
  options_.cluster = ClusterChoice::mpi;
  EXPECT_EQ(start(), 2);
  EXPECT_THAT(err_, HasSubstr("mpirun"));
}

}  // namespace
}  // namespace syncopate
