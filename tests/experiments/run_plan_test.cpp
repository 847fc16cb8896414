// The plan that is printed before an experiment runs: how many runs, how much time, how much space.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <regex>

#include "algorithms/synchronous/sync_sgd.hpp"
#include "experiments/execution/cost.hpp"
#include "results/run.hpp"
#include "tests/algorithms/named_rounds.hpp"
#include "tests/experiments/program.hpp"
#include "tests/experiments/runner_case.hpp"

namespace syncopate {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// Returns a run of 60 micro-batches: 10 steps of 2 workers with 3 micro-batches each.
syncopate::Run planned(const std::string& method, const std::string& kind = "k", std::int64_t steps = 10) {
  syncopate::Run run;
  run.method = method;
  run.timing_class = kind;
  run.cluster.workers = 2;
  run.cluster.micro_batches = 3;
  run.budget.steps = Step{steps};
  return run;
}

KnownTime known(const std::string& method, double host_s, double micro_batches = 20) {
  return {.kind = "k", .method = method, .micro_batches = micro_batches, .host_s = host_s};
}

TEST(TimeByFinishedRuns, IsInProportionToMicroBatches) {
  const std::vector<KnownTime> times = {known("a", 2)};  // 0.1 s per micro-batch
  EXPECT_DOUBLE_EQ(time_by_finished_runs(planned("a"), times).value(), 6);
}

TEST(TimeByFinishedRuns, GoesByRunsOfTheSameMethodWhereThereAreAny) {
  const std::vector<KnownTime> times = {known("a", 2), known("b", 4), known("b", 8)};
  EXPECT_DOUBLE_EQ(time_by_finished_runs(planned("a"), times).value(), 6);
  EXPECT_DOUBLE_EQ(time_by_finished_runs(planned("b"), times).value(), 60 * 6 / 20.0);
  EXPECT_DOUBLE_EQ(time_by_finished_runs(planned("c"), times).value(), 60 * 4 / 20.0) << "all of its kind";
  EXPECT_FALSE(time_by_finished_runs(planned("a", "another kind"), times));
}

TEST(TimeByFinishedRuns, IsNotMovedByARunThatWasSuspended) {
  const std::vector<KnownTime> times = {known("a", 2), known("a", 2000), known("a", 2.2)};
  EXPECT_DOUBLE_EQ(time_by_finished_runs(planned("a"), times).value(), 6.6);
}

TEST(TimeByFinishedRuns, IsTheMedianTimeWhereTheBudgetDoesNotDetermineSteps) {
  syncopate::Run run = planned("b");
  run.budget.steps.reset();
  run.budget.bytes = Bytes{1000};
  const std::vector<KnownTime> times = {known("b", 4), known("b", 8, 200)};
  EXPECT_DOUBLE_EQ(time_by_finished_runs(run, times).value(), 6);
}

TEST(PlanText, HasNoMoreDigitsThanAnEstimate) {
  const auto text = [](double time_s, double bytes) {
    return plan_text({.runs = 12, .finished = 3, .time_s = time_s, .bytes = bytes});
  };
  EXPECT_EQ(text(240, 2.1e6),
            "12 runs, 3 finished; about 4 min on this machine, by finished runs; about 2.1 MB on the disk");
  EXPECT_THAT(text(0.2, 12e3), AllOf(HasSubstr("; less than a second on"), HasSubstr("; about 12 kB")));
  EXPECT_THAT(text(99, 123e3), AllOf(HasSubstr("about 99 s"), HasSubstr("about 123 kB")));
  EXPECT_THAT(text(100, 999.9e6), AllOf(HasSubstr("about 1.7 min"), HasSubstr("about 1 GB")));
  EXPECT_THAT(text(7000, 1e3), AllOf(HasSubstr("about 1.9 h"), HasSubstr("about 1 kB")));
  EXPECT_THAT(text(1e6, 1e3), HasSubstr("about 278 h"));
  EXPECT_THAT(plan_text({.runs = 1}), StartsWith("1 run; time and disk space are unknown"));
  EXPECT_EQ(plan_text({.runs = 2, .finished = 2}, "trial"), "2 trials, 2 finished");
}

TEST(TimingClass, IsModelDataAndMicroBatch) {
  const auto kind = [](const std::string& text) { return timing_class(parse_toml(text, "f")); };
  const std::string text =
      "[cluster]\nworkers = 3\n[training]\nmodel = \"mlp\"\nmicro_batch_size = 8\nclip_norm = "
      "1.0\n[models.mlp]\nhidden = 4\n";
  EXPECT_EQ(kind(text), kind("seeds = [9]\n" + text + "[models.cnn]\nwidth = 1\n"));
  EXPECT_NE(kind(text), kind(text + "depth = 2\n"));
  const std::string plain = "[training]\nmodel = \"mlp\"\n";
  EXPECT_NE(kind(plain), kind(plain + "device = \"cuda\"\n")) << "a run on the processor says nothing about a GPU";
  EXPECT_NE(kind(plain), kind(plain + "precision = \"bfloat16\"\n"));
}

class TimeByArithmetic : public RunnerTest {
 protected:
  // Adds a run of 1,000 steps of two workers with two micro-batches.
  syncopate::Run& network() {
    syncopate::Run& run = add("m", 1, std::make_shared<SyncSgd>());
    run.budget.steps = Step{1000};
    run.training.samples_per_micro_batch = 8;
    run.training.parameter_bytes = Bytes{4'000'000};
    run.training.memory.multiply_adds = 1e7;
    run.evaluation.train_samples = 0;
    return run;
  }
};

// 32,000 samples of 60 million operations take 26 s at 75 billion operations a second.
TEST_F(TimeByArithmetic, CountsOperationsOfGradients) {
  syncopate::Run& run = network();
  const double one = time_by_arithmetic(run, 1).value();
  EXPECT_GT(one, 32e3 * 6e7 / 75e9);
  EXPECT_LT(one, 1.5 * 32e3 * 6e7 / 75e9);
  EXPECT_NEAR(time_by_arithmetic(run, 4).value(), one / 4, 0.01 * one);
  run.budget.steps = Step{2000};
  EXPECT_NEAR(time_by_arithmetic(run, 1).value(), 2 * one, 0.01 * one);
}

TEST_F(TimeByArithmetic, CountsEvaluations) {
  syncopate::Run& run = network();
  const double without = time_by_arithmetic(run, 1).value();
  run.evaluation.every_steps = Step{100};  // counts as 2 + 1000 / 100 evaluations
  run.training.memory.test_samples = 10'000;
  EXPECT_NEAR(time_by_arithmetic(run, 1).value() - without, 12 * 10e3 * 2e7 / 75e9, 0.5);
}

TEST_F(TimeByArithmetic, GoesByAMicroBatchThatWasMeasured) {
  syncopate::Run& run = network();
  EXPECT_NEAR(time_by_arithmetic(run, 1, 0.01).value(), 4000 * 0.01, 4);
  run.training.memory.is_known = false;  // as for a user's own module
  EXPECT_FALSE(time_by_arithmetic(run, 1));
  EXPECT_NEAR(time_by_arithmetic(run, 1, 0.01).value(), 4000 * 0.01, 4);
}

// The rates are those of a processor. A GPU's passes take their turns, however many threads there are.
TEST_F(TimeByArithmetic, IsUnknownOnAnotherDeviceUnlessAMicroBatchWasMeasured) {
  syncopate::Run& run = network();
  run.training.arithmetic.device = "cuda";
  EXPECT_FALSE(time_by_arithmetic(run, 1));
  EXPECT_NEAR(time_by_arithmetic(run, 1, 0.01).value(), 4000 * 0.01, 4);
  EXPECT_NEAR(time_by_arithmetic(run, 4, 0.01).value(), 4000 * 0.01, 4);
  const double without = time_by_arithmetic(run, 1, 0.024).value();
  run.evaluation.every_steps = Step{100};
  run.training.memory.test_samples = 10'000;  // each takes a third of a sample's gradient, 1 ms, 12 times
  EXPECT_NEAR(time_by_arithmetic(run, 1, 0.024).value() - without, 12 * 10'000 * 0.001, 0.5);
}

TEST_F(TimeByArithmetic, AMicroBatchThatCannotBeMeasuredLeavesTheTimeOfADeviceUnknown) {
  syncopate::Run& run = network();
  run.training.trains_network = true;
  run.training.arithmetic.device = "cuda";
  const std::vector<syncopate::Run> runs = {run};
  const RunPlan plan =
      plan_of(runs, std::vector{1}, {},
              {.results = options_.results_directory, .threads = 1, .measure = [](const syncopate::Run&) {
                 return std::optional<double>();
               }});
  EXPECT_FALSE(plan.time_s);
  EXPECT_THAT(plan_text(plan), HasSubstr("1 run; the time is unknown until some are finished; about "));
}

// A step reads the parameters and the gradient, and writes the parameters: 3 x 4e8 bytes at 1e10 bytes per second. Two
// workers of Local SGD each do so; synchronous SGD does so once.
TEST_F(TimeByArithmetic, CountsTheStepsOfEachWorkersModel) {
  syncopate::Run& run = network();
  run.training.parameter_bytes = Bytes{400'000'000};
  const double together = time_by_arithmetic(run, 1).value();
  run.algorithm = std::make_shared<LocalSgd>(make_constant_period(4), StatePolicies{});
  EXPECT_NEAR(time_by_arithmetic(run, 1).value() - together, 1000 * 3 * 4e8 / 1e10, 0.5);
}

// The recorded arrivals have one row per step and worker, whatever the number of micro-batches.
TEST_F(TimeByArithmetic, ArrivalsOnTheDiskAreOfStepsNotOfMicroBatches) {
  syncopate::Run& run = network();
  const auto of_arrivals = [&](int micro_batches) {
    run.cluster.micro_batches = micro_batches;
    run.recording.arrivals = false;
    const double without = disk_bytes(run, false).value();
    run.recording.arrivals = true;
    return disk_bytes(run, false).value() - without;
  };
  EXPECT_GT(of_arrivals(2), 1000 * 2 * 4);
  EXPECT_DOUBLE_EQ(of_arrivals(2), of_arrivals(6));
}

TEST_F(TimeByArithmetic, ACommonPhaseCountsOnceForAllRunsThatStartFromIt) {
  const auto phase = std::make_shared<const syncopate::Run>(network());
  const double alone = time_by_arithmetic(*phase, 1).value();
  std::vector<syncopate::Run> runs;
  for (const char* const hash : {"1", "2", "3"}) {
    runs.push_back(*phase);
    runs.back().hash = hash;
    runs.back().common_phase = phase;
  }
  const RunPlan plan =
      plan_of(runs, std::vector(runs.size(), 1), {}, {.results = options_.results_directory, .threads = 1});
  EXPECT_NEAR(plan.time_s.value(), 4 * alone, 1e-6 * alone);
}

// The budget is the time of 1,000 steps with two micro-batches each.
TEST_F(TimeByArithmetic, CountsTheStepsOfSeconds) {
  syncopate::Run& run = network();
  const double of_steps = time_by_arithmetic(run, 1).value();
  run.budget.steps.reset();
  run.budget.seconds = 2.0 * 1000 * to_seconds(run.cluster.compute_time->base(Rank{0}));
  EXPECT_NEAR(time_by_arithmetic(run, 1).value(), of_steps, 0.01 * of_steps);
  run.budget.seconds.reset();
  run.budget.bytes = Bytes{1000};
  EXPECT_FALSE(time_by_arithmetic(run, 1));
}

class PlanProgram : public ProgramTest {};

TEST_F(PlanProgram, SaysFirstWhatARunWillTake) {
  const std::string file = write("e.toml", time_only);
  EXPECT_THAT(syncopate("check " + file).out,
              HasSubstr("\n# 1 run; less than a second on this machine, by arithmetic; about "));
  const ProgramOutcome first = syncopate("run " + file + " budget.steps=200");
  EXPECT_THAT(first.err, AllOf(StartsWith("1 run; less than a second on this machine, by arithmetic; about "),
                               HasSubstr("\nrun 1 of 1: sync-sgd, seed 1: begins\n")));
  const ProgramOutcome more = syncopate("run " + file + " budget.steps=200 seeds=3");
  EXPECT_THAT(more.err, StartsWith("3 runs, 1 finished; less than a second on this machine, by finished runs; about "));
  EXPECT_THAT(syncopate("check " + file + " budget.steps=200 seeds=4").out,
              HasSubstr("\n# 4 runs, 3 finished; less than"));
  EXPECT_THAT(syncopate("run " + file + " budget.steps=200 seeds=3").err, Not(HasSubstr("on this machine")));
  EXPECT_EQ(syncopate("run --quiet " + file + " budget.steps=200 seeds=4").err, "");
}

// No run is finished, so the space is only estimated. Delays differ by micro-batch, because equal ones would compress
// better.
TEST_F(PlanProgram, TheRowsSayHowMuchSpaceRunsOfWhichNothingIsKnownTake) {
  const std::string file =
      write("e.toml", std::string(time_only) + "[[delays]]\nkind = \"exponential\"\nmean = 0.003\n");
  for (const char* const recorded :
       {"", " recording.durations=true", " recording.trace=true", " recording.arrivals=true"}) {
    const std::string arguments = file + " budget.steps=1500" + recorded;
    const std::string said = syncopate("check " + arguments).out;
    const std::regex space("by arithmetic; about ([0-9.]+) kB on the disk");
    std::smatch found;
    ASSERT_TRUE(std::regex_search(said, found, space)) << said;
    ASSERT_EQ(syncopate("run --quiet " + arguments).status, 0);
    double size = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory / "results"))
      if (entry.is_regular_file() && entry.path().parent_path().filename().string().starts_with("seed="))
        size += static_cast<double>(entry.file_size());
    EXPECT_GT(1000 * std::stod(found[1]), size / 2) << recorded;
    EXPECT_LT(1000 * std::stod(found[1]), size * 2) << recorded;
    std::filesystem::remove_all(directory / "results");
  }
}

TEST_F(PlanProgram, CheckMeasuresWhereItIsAskedTo) {
  const std::string file = write("n.toml", R"(name = "n"
[cluster]
workers = 4
micro_batch_s = 0.01
[network]
kind = "free"
[training]
model = "linear"
dataset = "gaussian-mixture"
learning_rate = { schedule = "constant", peak = 0.05 }
optimizer.name = "sgd"
[budget]
steps = 20
[[methods]]
algorithm = "sync-sgd"
)");
  EXPECT_THAT(syncopate("check " + file).out,
              AllOf(HasSubstr(" on this machine, by arithmetic; about "),
                    HasSubstr(" kB on the disk; --measure times a micro-batch for some seconds to improve this")));
  EXPECT_THAT(syncopate("check --measure " + file).out, HasSubstr(" on this machine, by the time of a micro-batch; "));
  EXPECT_FALSE(std::filesystem::exists(directory / "results")) << "nothing is kept of it";
}

// A sum of P = 1 MB among four workers sends 6 MB: 100 times with synchronous SGD, 10 times with Local SGD. The bytes
// of backup workers depend on delays.
TEST_F(PlanProgram, CheckSaysTheBytesOfARunAsFarAsTheyAreKnown) {
  const std::string file =
      write("b.toml", std::string(time_only) +
                          "[[methods]]\nalgorithm = \"local-sgd\"\nperiod = { rule = \"constant\", steps = 10 }\n"
                          "[[methods]]\nalgorithm = \"backup-workers\"\nbackups = 1\n") +
      " budget.steps=100 seeds=2 ";
  const std::string small = file + "training.parameters=250000";
  EXPECT_THAT(syncopate("check " + small).out,
              HasSubstr("\n# bytes sent in a run: 60 MB (local-sgd) to 600 MB (sync-sgd); for \"backup-workers\" see "
                        "`predict`\n"));
  EXPECT_THAT(syncopate("check --only local-sgd " + small).out, HasSubstr("\n# bytes sent in a run: 60 MB\n"));
  EXPECT_THAT(syncopate("check --only backup-workers " + small).out,
              HasSubstr("\n# bytes sent in a run: not known in advance; see `predict`\n"));
  EXPECT_THAT(syncopate("check --only sync-sgd " + file + "training.parameters=250000,500000").out,
              HasSubstr("\n# bytes sent in a run: 600 MB (sync-sgd, parameters = 250k) to 1.2 GB (sync-sgd, parameters "
                        "= 500k)\n"));
}

}  // namespace
}  // namespace syncopate
