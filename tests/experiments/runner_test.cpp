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
#include <map>
#include <new>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "algorithms/quorum/backup_workers.hpp"
#include "algorithms/registry.hpp"
#include "algorithms/synchronous/sync_sgd.hpp"
#include "results/found_runs.hpp"
#include "results/run_directory.hpp"
#include "tests/algorithms/named_rounds.hpp"
#include "tests/experiments/held_by_workers.hpp"
#include "tests/experiments/loaded_text.hpp"
#include "tests/experiments/program.hpp"
#include "tests/experiments/run_results.hpp"
#include "tests/experiments/runner_case.hpp"
#include "workers/base/files.hpp"
#include "workers/base/process.hpp"
#include "workers/models/architectures.hpp"

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
  EXPECT_THAT(err_, HasSubstr("1 of 2 runs already exist"));
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

// The run needs the model and one more vector (the momentum). Each takes a gigabyte.
TEST_F(RunnerTest, MemoryThatIsNotThereIsToldWithWhatIsNeeded) {
  auto& run = add("large", 1, std::make_shared<Synchronous>());
  run.training.make_objective = []() -> std::shared_ptr<const Objective> { throw std::bad_alloc(); };
  run.training.parameter_bytes = Bytes{1'000'000'000};
  run.training.optimizer = make_sgd({.momentum = 0.5});
  EXPECT_EQ(start(), 1);
  EXPECT_EQ(summary(0)["reason"],
            "not enough memory: the model and its optimizer's state take 2 GB; if each of the 2 workers holds a model, "
            "these take 4 GB; gradients come on top");
  // In a time-only run, `parameter_bytes` is only the payload of collectives, and no model is in memory.
  run.training.time_only = true;
  EXPECT_EQ(start(), 1);
  EXPECT_EQ(summary(0)["reason"], "not enough memory for 2 workers");
}

TEST_F(RunnerTest, ReportsDivergence) {
  auto& run = add("wild", 1, std::make_shared<Synchronous>(), 1e30);
  run.budget.steps = Step{100};
  EXPECT_EQ(start(), 1);
  EXPECT_EQ(summary(0)["status"], "diverged");
  EXPECT_THAT(out_, testing::ContainsRegex("wild +1  diverged  the model is not finite after step"));
}

TEST_F(RunnerTest, KeepsWhatIsFiniteOfADivergedRun) {
  // Each step multiplies the parameters by about 1e4, so after ten steps they exceed single precision.
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

// Each worker trains alone until its data or the budget are used up.
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
  // The run is so long that every cluster checks for the interruption.
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
  EXPECT_THAT(err_, HasSubstr("warning: the table cannot be saved: "));
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

// A step takes 2 s and the network 0.5 s. There are no delays, so the formula is exact.
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

// Tests when a finished run is accepted, and which of its files are needed.

using testing::HasSubstr;
using testing::Not;

class FinishedRuns : public RunnerTest {
 protected:
  void SetUp() override {
    RunnerTest::SetUp();
    algorithm_ = std::make_shared<Synchronous>();
    add("A", 1, algorithm_);
    add("A", 2, algorithm_);
    ASSERT_EQ(start(), 0);
    algorithm_->runs = 0;
  }

  // Returns the number of runs that a new start executes.
  int repeated() {
    algorithm_->runs = 0;
    EXPECT_EQ(start(), 0) << err_;
    return algorithm_->runs / 2;  // two workers per run have begun
  }

  // Returns everything below the results directory, with the times of last changes.
  std::map<fs::path, fs::file_time_type> state() const {
    std::map<fs::path, fs::file_time_type> times;
    for (const auto& entry : fs::recursive_directory_iterator(options_.results_directory))
      times[entry.path()] = entry.last_write_time();
    times[options_.results_directory] = fs::last_write_time(options_.results_directory);
    return times;
  }

  std::shared_ptr<Synchronous> algorithm_;
};

TEST_F(FinishedRuns, AreNotRepeated) { EXPECT_EQ(repeated(), 0); }

TEST_F(FinishedRuns, AreRepeatedWhereAFileIsDamagedWhichIsNamed) {
  for (const char* name : {"metrics.csv", "steps.csv", "summary.json", "config.toml", "metadata.json", "files.json"}) {
    std::ofstream(directory(1) / name) << "";
    EXPECT_EQ(repeated(), 1) << name;
    EXPECT_THAT(err_, HasSubstr((directory(1) / name).string() + ": ")) << name;
    EXPECT_THAT(err_, HasSubstr("the run is repeated\n"));
    EXPECT_THAT(err_, Not(HasSubstr(directory(0).string())));
    EXPECT_THAT(err_, HasSubstr("1 of 2 runs already exist"));
    EXPECT_EQ(damage_of(directory(1)), "") << name;
    EXPECT_EQ(repeated(), 0) << name;
  }
}

TEST_F(FinishedRuns, AreRepeatedWhereAFileIsGone) {
  fs::remove(directory(0) / "steps.csv");
  options_.quiet = true;
  EXPECT_EQ(repeated(), 1);
  EXPECT_EQ(err_, (directory(0) / "steps.csv").string() + ": is not there; the run is repeated\n") << "also if quiet";
}

TEST_F(FinishedRuns, AreRepeatedWhereTheSummaryIsADirectory) {
  fs::remove(directory(0) / "summary.json");
  fs::create_directory(directory(0) / "summary.json");
  EXPECT_EQ(repeated(), 1);
  EXPECT_THAT(err_, HasSubstr((directory(0) / "summary.json").string() + ": "));
  EXPECT_THAT(err_, HasSubstr("is a directory"));
  EXPECT_TRUE(fs::is_regular_file(directory(0) / "summary.json"));
}

TEST_F(FinishedRuns, AreTabulatedWithoutAnythingBeingWritten) {
  const std::string table = out_;
  const auto before = state();
  EXPECT_EQ(repeated(), 0);
  EXPECT_EQ(out_, table);
  EXPECT_EQ(state(), before);
}

TEST_F(FinishedRuns, NeedNoDataToBeTabulated) {
  for (auto& run : experiment_.runs)
    run.training.make_objective = []() -> std::shared_ptr<const Objective> {
      throw std::runtime_error("data were loaded");
    };
  EXPECT_EQ(repeated(), 0);
}

// Names of directories contain half of the hash, so a run with another last digit has the same directory.
TEST_F(FinishedRuns, OfAnotherConfigurationAreNotBelieved) {
  experiment_.runs[0].hash.back() = 'f';
  EXPECT_EQ(repeated(), 1);
  EXPECT_THAT(err_, HasSubstr("1 of 2 runs already exist"));
  EXPECT_EQ(repeated(), 0);
}

TEST_F(FinishedRuns, AreRepeatedWhereTheyLackWhatIsToBeRecorded) {
  RecordingPlan& plan = experiment_.runs[0].recording;
  plan.parameters = true;
  EXPECT_EQ(repeated(), 1);
  EXPECT_TRUE(fs::exists(directory(0) / "parameters.npy"));
  EXPECT_EQ(repeated(), 0);
  plan.trace = true;
  plan.trace_seconds = 2;
  EXPECT_EQ(repeated(), 1);
  EXPECT_EQ(repeated(), 0);
  EXPECT_EQ(summary(0)["recorded"]["trace"]["seconds"], 2);
  for (const std::optional<double> seconds : {std::optional(3.0), std::optional(1.0), std::optional<double>()}) {
    plan.trace_seconds = seconds;
    EXPECT_EQ(repeated(), 1) << "the trace went up to another time";
    EXPECT_EQ(repeated(), 0);
  }
}

// A method's position in the file determines the order of figures. It may have changed since the run was executed.
TEST_F(FinishedRuns, HaveTheirMethodsPresentPlace) {
  experiment_.runs[0].method_index = 7;
  const auto found = finished_before(directory(0), experiment_.runs[0]);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->method_index, 7u);
}

// A process was killed between two renamings: the run's old directory has a hidden name, and the new one is not in
// place.
TEST_F(FinishedRuns, AreFoundUnderTheNameThatAKilledProcessLeft) {
  ProcessIdentity killed = this_process();
  killed.number = 999'999'999;
  fs::rename(directory(0), hidden_sibling(directory(0), replaced_kind, killed));
  fs::remove_all(directory(1));
  EXPECT_EQ(repeated(), 1);
  EXPECT_THAT(err_, HasSubstr("1 of 2 runs already exist"));
}

TEST_F(FinishedRuns, CannotBeBehindALinkThatLeadsNowhere) {
  const fs::path results = options_.results_directory;
  fs::remove_all(results);
  fs::create_directory_symlink("/nowhere/at/all", results);
  EXPECT_EQ(start(), 2);
  EXPECT_EQ(err_, fmt::format("{0}: is a link to /nowhere/at/all, which is not there; the results directory {0}/test "
                              "cannot be created\n",
                              results.string()));
  fs::remove(results);
  fs::create_directory_symlink(results, results);
  EXPECT_EQ(start(), 2);
  EXPECT_THAT(err_, HasSubstr(results.string() + ": is reached by links that lead back to themselves"));
  fs::remove(results);
}

TEST_F(FinishedRuns, CannotBeWhereAFileIs) {
  fs::remove_all(directory(0).parent_path());
  std::ofstream(directory(0).parent_path()) << "a file";
  EXPECT_EQ(start(), 2);
  EXPECT_EQ(err_, directory(0).parent_path().string() +
                      ": is a file; must be a directory, because results are written there\n");
}

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

constexpr const char* quadratic = R"(seeds = [1]
[cluster]
workers = 2
micro_batch_s = 0.01
[network]
kind = "free"
[training]
model = "quadratic"
learning_rate = {{ schedule = "constant", peak = {} }}
optimizer = {{ name = "sgd" }}
[budget]
steps = 5
[evaluation]
every_steps = 5
[[methods]]
algorithm = "sync-sgd"
label = "{}"
)";

class ReusableRuns : public ProgramTest {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    first_ = start("first", file("first", "one"));
    ASSERT_EQ(first_.status, 0) << first_.err;
  }

  static std::string file(const std::string& name, const std::string& label, double rate = 0.1) {
    return fmt::format("name = \"{}\"\n", name) + fmt::format(quadratic, rate, label);
  }
  ProgramOutcome start(const std::string& name, const std::string& text, const std::string& options = "") const {
    return syncopate("run " + write(name + ".toml", text) + " " + options);
  }
  // Returns the directory of the method's only run.
  fs::path directory_of(const std::string& experiment, const std::string& method) const {
    const fs::path of_method = directory / "results/runs" / experiment / method;
    EXPECT_TRUE(fs::exists(of_method)) << of_method;
    return fs::directory_iterator(of_method)->path();
  }
  std::string text_of(const fs::path& path) const { return read(fs::relative(path, directory)); }
  nlohmann::json json_of(const fs::path& path) const { return nlohmann::json::parse(text_of(path)); }
  bool was_copied(const std::string& experiment, const std::string& method) const {
    return json_of(directory_of(experiment, method) / "metadata.json").contains("copied_from");
  }

  ProgramOutcome first_;
};

TEST_F(ReusableRuns, AreCopiedUnderTheNewNames) {
  const ProgramOutcome second = start("second", file("second", "two"));
  EXPECT_EQ(second.status, 0);
  EXPECT_THAT(second.err, HasSubstr("1 of 1 runs already exist in results/runs (1 copied from other experiments)"));
  EXPECT_THAT(second.err, Not(HasSubstr("begins")));
  EXPECT_THAT(second.out, HasSubstr("two"));
  const fs::path from = directory_of("first", "one");
  const fs::path to = directory_of("second", "two");
  const auto summary = json_of(to / "summary.json");
  EXPECT_EQ(summary["experiment"], "second");
  EXPECT_EQ(summary["method"], "two");
  EXPECT_NE(summary["hash"], json_of(from / "summary.json")["hash"]);
  const auto metadata = json_of(to / "metadata.json");
  EXPECT_EQ(metadata["configuration_hash"], summary["hash"]);
  EXPECT_EQ(metadata["copied_from"], fs::relative(from, directory / "results/runs").generic_string());
  EXPECT_THAT(text_of(to / "config.toml"), HasSubstr("name = \"second\""));
  EXPECT_THAT(text_of(to / "config.toml"), HasSubstr("label = \"two\""));
  for (const char* rows : {"steps.csv", "metrics.csv"}) EXPECT_EQ(text_of(to / rows), text_of(from / rows));
}

TEST_F(ReusableRuns, AreWhatWouldHaveBeenComputed) {
  start("second", file("second", "two"));
  auto copied = json_of(directory_of("second", "two") / "summary.json");
  start("second", file("second", "two"), "--rerun");
  ASSERT_FALSE(was_copied("second", "two"));
  auto computed = json_of(directory_of("second", "two") / "summary.json");
  for (auto* summary : {&copied, &computed})
    for (const char* of_host : {"host_s", "samples_per_host_s"}) summary->erase(of_host);
  EXPECT_EQ(copied, computed);
}

TEST_F(ReusableRuns, AreTakenForFinishedOnes) {
  start("second", file("second", "two"));
  const ProgramOutcome again = start("second", file("second", "two"));
  EXPECT_THAT(again.err, HasSubstr("1 of 1 runs already exist in results/runs; --rerun"));
  EXPECT_EQ(syncopate("table results/runs/second").status, 0);
}

TEST_F(ReusableRuns, AreFoundWhereAMethodHasTheKeysItself) {
  start("second", file("second", "two", 0.3) + "training = { learning_rate = { peak = 0.1 } }\n");
  EXPECT_TRUE(was_copied("second", "two"));
  EXPECT_TRUE(json_of(directory_of("second", "two") / "summary.json").contains("own_training"));
}

TEST_F(ReusableRuns, AreFoundAfterAMethodGotAnotherLabel) {
  start("first", file("first", "one of another name"));
  EXPECT_TRUE(was_copied("first", "one-of-another-name"));
}

TEST_F(ReusableRuns, AreOthersWithOtherNumbers) {
  start("second", file("second", "two", 0.2));
  EXPECT_FALSE(was_copied("second", "two"));
}

TEST_F(ReusableRuns, AreMadeWhereTheyLackWhatIsToBeRecorded) {
  start("second", file("second", "two") + "[recording]\nparameters = true\n");
  EXPECT_FALSE(was_copied("second", "two"));
  start("third", file("third", "three") + "[recording]\ntrace = true\n");
  EXPECT_FALSE(was_copied("third", "three"));
  start("fourth", file("fourth", "four") + "[recording]\nparameters = true\n");
  EXPECT_TRUE(was_copied("fourth", "four"));
  EXPECT_TRUE(fs::exists(directory_of("fourth", "four") / "parameters.npy"));
}

TEST_F(ReusableRuns, AreNotCopiedWhereTheyAreDamaged) {
  std::ofstream(directory_of("first", "one") / "steps.csv") << "";
  const ProgramOutcome second = start("second", file("second", "two"));
  EXPECT_EQ(second.status, 0);
  EXPECT_FALSE(was_copied("second", "two"));
}

TEST_F(ReusableRuns, AreCopiedAsCommonPhases) {
  constexpr const char* common = "[training.common]\nsteps = 3\n";
  start("second", file("second", "two") + common);
  EXPECT_FALSE(was_copied("second", "common-phase"));
  start("third", file("third", "three", 0.2) + common + "learning_rate = { peak = 0.1 }\n");
  EXPECT_TRUE(was_copied("third", "common-phase"));
  EXPECT_FALSE(was_copied("third", "three"));
}

// A run is reported as diverged once its model is no longer finite, with every method, compression and way to drop.

// At this rate the gradients grow so fast that the second step exceeds single precision.
const std::string wild = R"(name = "wild"
budget.steps = 40
evaluation = { every_steps = 4 }
network = { kind = "fixed", latency_s = 0.1 }
[cluster]
workers = 4
micro_batches = 2
micro_batch_s = 1.0
worker_factors = [1, 1.3, 1.1, 1.8]
[training]
model = "quadratic"
learning_rate = { schedule = "constant", peak = 1e30 }
optimizer = { name = "sgd", momentum = 0.9 }
[models.quadratic]
dimension = 20
condition = 1
noise = 1
)";

class Divergence : public LoadedText {
 protected:
  // If steps have bounded length (clipped gradients, Adam, a vote), models stay finite, and their loss shows the
  // divergence.
  static void expect_diverged(const syncopate::Run& run) {
    const Outcome outcome = outcome_of(run);
    const RunSummary summary = summarise(run, outcome);
    if (summary.status == RunStatus::finished) {
      EXPECT_GT(summary.final_test_loss.value(), 1e30) << run.resolved_toml;
    } else {
      EXPECT_EQ(to_string(summary.status), std::string("diverged")) << run.resolved_toml;
      EXPECT_THAT(summary.reason, testing::StartsWith("the model is not finite after step")) << run.resolved_toml;
    }
  }
};

TEST_F(Divergence, OfEveryMethodIsSaid) {
  const auto load_text = [this](const std::string& text) { return load(text); };
  for (const AlgorithmRow& row : algorithms())
    expect_diverged(held::of_example(wild, row.name, row.example, load_text).runs.front());
}

TEST_F(Divergence, OfWhatIsCompressedOrAveragedBesidesIsSaid) {
  for (held::Methods methods : {held::with_state, held::with_more_compressions}) {
    std::erase_if(methods, [](const std::string& method) {
      return method.find("powersgd") != std::string::npos;
    });  // compresses only matrices, which this model lacks
    for (const syncopate::Run& run : load(wild + held::text_of(methods)).runs) expect_diverged(run);
  }
}

TEST_F(Divergence, OfMethodsThatLeaveOutliersOutIsSaid) {
  const std::string edit = "algorithm = \"edit\"\nouter = { name = \"diloco\", rate = 0.7, momentum = 0.8 }\n";
  const std::string by_steps = edit + "period = { rule = \"constant\", steps = 4 }\n";
  const held::Methods methods = {by_steps + "scope = \"model\"\n", by_steps + "clip_norm = 0.5\n",
                                 by_steps + "outlier_factor = 1.0\noutlier_warmup = 2\noutlier_smoothing = 0.5\n",
                                 edit + "sync_seconds = 6.0\n"};
  for (const syncopate::Run& run : load(wild + held::text_of(methods)).runs) expect_diverged(run);
}

}  // namespace
}  // namespace syncopate
