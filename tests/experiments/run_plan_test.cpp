// What is said of an experiment before it runs: how many runs, how long, how much space.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <regex>
#include <thread>

#include "experiments/execution/cost.hpp"
#include "results/run.hpp"
#include "tests/experiments/program.hpp"
#include "tests/experiments/runner_case.hpp"

namespace syncopate {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// 10 steps of 2 workers with 3 micro-batches: 60 micro-batches.
syncopate::Run planned(const std::string& method, const std::string& kind = "k", std::int64_t steps = 10) {
  syncopate::Run run;
  run.method = method;
  run.timing_class = kind;
  run.cluster.workers = 2;
  run.cluster.micro_batches = 3;
  run.budget.steps = Step{steps};
  return run;
}

KnownCost known(const std::string& method, double host_s, double bytes, std::int64_t steps = 5) {
  return {.kind = "k",
          .method = method,
          .steps = steps,
          .micro_batches = static_cast<double>(steps) * 4,
          .cost = {.host_s = host_s, .bytes = bytes}};
}

TEST(ExpectedCost, GoesByTimePerMicroBatchAndSpacePerStep) {
  // 2 s for 20 micro-batches: 0.1 s each; 500 bytes for 5 steps.
  const std::vector<KnownCost> costs = {known("a", 2, 500)};
  const auto cost = expected_cost(planned("a"), costs);
  ASSERT_TRUE(cost);
  EXPECT_DOUBLE_EQ(cost->host_s, 6);
  EXPECT_DOUBLE_EQ(cost->bytes, 1000);
}

TEST(ExpectedCost, WhatDoesNotGrowWithTheStepsIsThereOnce) {
  std::vector<KnownCost> costs = {known("a", 2, 500)};
  costs.front().fixed_bytes = 300;  // 200 bytes for 5 steps
  EXPECT_DOUBLE_EQ(expected_cost(planned("a"), costs)->bytes, 300 + 400);
}

TEST(ExpectedCost, GoesByRunsOfTheSameMethodWhereThereAreAny) {
  const std::vector<KnownCost> costs = {known("a", 2, 500), known("b", 4, 1000), known("b", 8, 3000)};
  EXPECT_DOUBLE_EQ(expected_cost(planned("a"), costs)->host_s, 6);
  EXPECT_DOUBLE_EQ(expected_cost(planned("b"), costs)->host_s, 60 * 12 / 40.0);
  EXPECT_DOUBLE_EQ(expected_cost(planned("c"), costs)->host_s, 60 * 14 / 60.0) << "all of its kind";
  EXPECT_FALSE(expected_cost(planned("a", "another kind"), costs));
}

TEST(ExpectedCost, IsTheMeanWhereTheBudgetDoesNotCountSteps) {
  syncopate::Run run = planned("b");
  run.budget.steps.reset();
  run.budget.seconds = 3;
  const std::vector<KnownCost> costs = {known("b", 4, 1000), known("b", 8, 3000, 50)};
  EXPECT_DOUBLE_EQ(expected_cost(run, costs)->host_s, 6);
  EXPECT_DOUBLE_EQ(expected_cost(run, costs)->bytes, 2000);
}

TEST(RunPlan, IsTheSumOverRuns) {
  const std::vector<syncopate::Run> runs = {planned("a"), planned("a", "k", 20)};
  const std::vector<const syncopate::Run*> to_do = {&runs[0], &runs[1]};
  const RunPlan work = run_plan(to_do, {known("a", 2, 500)}, {});
  ASSERT_TRUE(work.cost);
  EXPECT_DOUBLE_EQ(work.cost->host_s, 6 + 12);
  EXPECT_DOUBLE_EQ(work.cost->bytes, 1000 + 2000);
  EXPECT_FALSE(work.is_measured);
}

TEST(RunPlan, MeasuresOnceForAKindOfWhichNothingIsKnown) {
  const std::vector<syncopate::Run> runs = {planned("a"), planned("b")};
  const std::vector<const syncopate::Run*> to_do = {&runs[0], &runs[1]};
  int asked = 0;
  const RunPlan work = run_plan(to_do, {}, [&](const syncopate::Run&) {
    ++asked;
    return known("a", 2, 500);
  });
  EXPECT_EQ(asked, 1);
  EXPECT_TRUE(work.is_measured);
  EXPECT_DOUBLE_EQ(work.cost->host_s, 12);
  EXPECT_FALSE(run_plan(to_do, {}, {}).cost) << "nothing is made up";
  EXPECT_FALSE(run_plan(to_do, {}, [](const syncopate::Run&) { return std::nullopt; }).cost);
}

TEST(PlanText, HasNoMoreDigitsThanAnEstimate) {
  const auto text = [](double host_s, double bytes) {
    return plan_text({.runs = 12, .finished = 3, .cost = RunCost{.host_s = host_s, .bytes = bytes}});
  };
  EXPECT_EQ(text(240, 2.1e6),
            "12 runs, 3 finished; about 4 min on this machine, by finished runs; about 2.1 MB on the disk");
  EXPECT_THAT(text(0.2, 12e3), AllOf(HasSubstr("; less than a second on"), HasSubstr("; about 12 kB")));
  EXPECT_THAT(text(99, 123e3), AllOf(HasSubstr("about 99 s"), HasSubstr("about 123 kB")));
  EXPECT_THAT(text(100, 999.9e6), AllOf(HasSubstr("about 1.7 min"), HasSubstr("about 1 GB")));
  EXPECT_THAT(text(7000, 1e3), AllOf(HasSubstr("about 1.9 h"), HasSubstr("about 1 kB")));
  EXPECT_THAT(text(1e6, 1e3), HasSubstr("about 278 h"));
  EXPECT_THAT(plan_text({.runs = 1}), StartsWith("1 run; how long they take"));
  EXPECT_EQ(plan_text({.runs = 2, .finished = 2}, "trial"), "2 trials, 2 finished");
}

TEST(TimingClass, IsModelDataAndMicroBatch) {
  const auto kind = [](const std::string& text) { return timing_class(parse_toml(text, "f")); };
  const std::string text =
      "[cluster]\nworkers = 3\n[training]\nmodel = \"mlp\"\nmicro_batch_size = 8\nclip_norm = "
      "1.0\n[models.mlp]\nhidden = 4\n";
  EXPECT_EQ(kind(text), kind("seeds = [9]\n" + text + "[models.cnn]\nwidth = 1\n"));
  EXPECT_NE(kind(text), kind(text + "depth = 2\n"));
}

class MeasuredCost : public RunnerTest {};

// Each step sleeps for 2 ms on each of two workers, one after the other.
TEST_F(MeasuredCost, IsThatOfAllStepsByTheFirstFew) {
  class Slow : public Algorithm {
   public:
    void run(Worker& worker) const override {
      while (worker.budget_left()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        Gradient gradient = worker.compute_step_gradient();
        worker.all_reduce_sum(gradient);
        worker.descend(gradient / (worker.size() * worker.micro_batches()));
        worker.publish();
      }
    }
  };
  syncopate::Run& run = add("slow", 1, std::make_shared<Slow>());
  run.budget.steps = Step{1000};
  const auto begin = std::chrono::steady_clock::now();
  const auto cost = measured_cost(run, {.threads = 1});
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
  ASSERT_TRUE(cost);
  EXPECT_EQ(cost->steps, 1000);
  EXPECT_DOUBLE_EQ(cost->micro_batches, 4000);
  EXPECT_GT(cost->cost.host_s, 4.0 * 0.9);
  EXPECT_LT(cost->cost.host_s, 4.0 * 5) << "on a busy machine";
  EXPECT_LT(spent.count(), 3.0 * 5);
  EXPECT_FALSE(fs::exists(options_.results_directory)) << "nothing is kept";
}

// A step takes 2.5 s of the cluster's time.
TEST_F(MeasuredCost, IsMeasuredUnderAnyBudget) {
  syncopate::Run& run = add("long", 1, std::make_shared<Synchronous>());
  run.budget.steps.reset();
  run.budget.seconds = 25'000;
  const auto cost = measured_cost(run, {.threads = 1});
  ASSERT_TRUE(cost);
  EXPECT_NEAR(static_cast<double>(cost->steps), 10'000, 20);
  EXPECT_NEAR(cost->micro_batches, 40'000, 80);
  run.budget.seconds = 5'000;  // the first samples are shorter than a step
  const auto of_fewer = measured_cost(run, {.threads = 1});
  ASSERT_TRUE(of_fewer);
  EXPECT_NEAR(static_cast<double>(of_fewer->steps), 2'000, 20);
  run.budget.seconds = 100;
  EXPECT_FALSE(measured_cost(run, {.threads = 1})) << "of 40 steps the first tell nothing";
}

TEST_F(MeasuredCost, CountsMeasurements) {
  class SlowNorms : public Quadratic {
   public:
    using Quadratic::Quadratic;
    std::vector<double> derivative(const float* parameters, const float* buffers, Split split, std::int64_t begin,
                                   std::int64_t end, std::span<const double> direction) const override {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      return Quadratic::derivative(parameters, buffers, split, begin, end, direction);
    }
  };
  syncopate::Run& run = add("measured", 1, std::make_shared<Synchronous>());
  run.training.make_objective = [] { return std::make_shared<SlowNorms>(QuadraticOptions{.dimension = 2}, 1); };
  run.budget.steps = Step{1000};
  run.measurements.every_steps = Step{10};
  run.measurements.model.gradient_norm = true;
  const auto cost = measured_cost(run, {.threads = 1});
  ASSERT_TRUE(cost);
  EXPECT_GT(cost->cost.host_s, 101 * 0.020 * 0.8);
  EXPECT_LT(cost->cost.host_s, 101 * 0.020 * 5) << "on a busy machine";
}

TEST_F(MeasuredCost, IsLeftOutWhereItWouldTellNothing) {
  syncopate::Run& run = add("short", 1, std::make_shared<Synchronous>());  // ten steps
  EXPECT_FALSE(measured_cost(run, {.threads = 1}));
  syncopate::Run& failing =
      add("failing", 1, std::make_shared<Synchronous>([](Worker&) { throw std::runtime_error("broken"); }));
  failing.budget.steps = Step{1000};
  EXPECT_FALSE(measured_cost(failing, {.threads = 1}));
}

class PlanProgram : public ProgramTest {};

TEST_F(PlanProgram, SaysFirstWhatARunWillTake) {
  const std::string file = write("e.toml", time_only);
  EXPECT_THAT(syncopate("check " + file).out,
              HasSubstr("\n# 1 run; how long they take is not known before some are finished; about "));
  const ProgramOutcome first = syncopate("run " + file + " budget.steps=200");
  EXPECT_THAT(first.err,
              AllOf(StartsWith("1 run; less than a second on this machine, by the first's first steps; about "),
                    HasSubstr("\nrun 1 of 1: sync-sgd, seed 1: begins\n")));
  const ProgramOutcome more = syncopate("run " + file + " budget.steps=200 seeds=3");
  EXPECT_THAT(more.err, StartsWith("3 runs, 1 finished; less than a second on this machine, by finished runs; about "));
  EXPECT_THAT(syncopate("check " + file + " budget.steps=200 seeds=4").out,
              HasSubstr("\n# 4 runs, 3 finished; less than"));
  EXPECT_THAT(syncopate("run " + file + " budget.steps=200 seeds=3").err, Not(HasSubstr("on this machine")));
  EXPECT_EQ(syncopate("run --quiet " + file + " budget.steps=200 seeds=4").err, "");
}

// Before anything is run; delays of their own for each micro-batch, since equal ones are shorter when compressed.
TEST_F(PlanProgram, TheRowsSayHowMuchSpaceRunsOfWhichNothingIsKnownTake) {
  const std::string file =
      write("e.toml", std::string(time_only) + "[[delays]]\nkind = \"exponential\"\nmean = 0.003\n");
  for (const char* const recorded :
       {"", " recording.durations=true", " recording.trace=true", " recording.arrivals=true"}) {
    const std::string arguments = file + " budget.steps=1500" + recorded;
    const std::string said = syncopate("check " + arguments).out;
    const std::regex space("finished; about ([0-9.]+) kB on the disk; with --measure");
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
  const std::string file = write("e.toml", time_only);
  EXPECT_THAT(syncopate("check --measure " + file + " budget.steps=200").out,
              HasSubstr("\n# 1 run; less than a second on this machine, by the first's first steps; about "));
  EXPECT_FALSE(std::filesystem::exists(directory / "results")) << "nothing is kept of it";
}

// Of a budget of 200 steps, whose files have a row for each.
TEST_F(PlanProgram, TheFirstStepsSayHowMuchSpaceARunTakes) {
  const std::string file = write("e.toml", time_only);
  const std::string said = syncopate("run " + file + " budget.steps=2000").err;
  double size = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory / "results"))
    if (entry.is_regular_file()) size += static_cast<double>(entry.file_size());
  const std::string mark = "; about ", line = said.substr(0, said.find('\n'));
  const double told = 1000 * std::stod(line.substr(line.rfind(mark) + mark.size()));
  EXPECT_THAT(line, HasSubstr(" kB on the disk"));
  EXPECT_NEAR(told, size, 0.15 * size);
}

}  // namespace
}  // namespace syncopate
