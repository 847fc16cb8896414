// Runs of Streaming DiLoCo that do not go their usual way: workers that lose their state or leave while averages are
// under way, budgets other than of steps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "algorithms/local_sgd/streaming_diloco.hpp"
#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/fragment_recursion.hpp"
#include "tests/algorithms/method_settings.hpp"

namespace syncopate {
namespace {

using testing::AllOf;
using testing::HasSubstr;

StreamingDiloco streaming(int period, int fragments, int delay) {
  return {make_constant_period(period), make_plain_outer(0.8), {Fragments(fragments), delay, 0.25}, {}};
}

std::shared_ptr<const OutagePlan> outage(int worker, double at_s, double duration_s, bool loses_state) {
  return std::make_shared<OutagePlan>(
      1, std::vector<OutageEntry>{{.workers = {Rank{worker}},
                                   .when = ScheduledOutage{from_seconds(at_s), from_seconds(duration_s)},
                                   .loses_state = loses_state}});
}

// Two fragments, rounds of 8 steps of 1 s, averages that are taken in 3 steps after they start at steps 4 and 8.
TEST(StreamingRuns, AWorkerThatLosesItsStateGoesOnFromItsCopyOfTheLastStartOrFinish) {
  struct Loss {
    double at_s;
    std::set<std::pair<int, int>> lost;
  };
  // In its first step; in step 7, when its copy is that of step 4 and the average of then is under way; in step 10,
  // when that of step 8 is.
  for (const Loss& loss : {Loss{0.5, {}}, Loss{6.5, {{1, 4}, {1, 5}}}, Loss{9.5, {{1, 8}}}}) {
    SCOPED_TRACE(loss.at_s);
    SimulatedRun setup{.budget = {.steps = 16}};
    setup.outages = outage(1, loss.at_s, 0.25, true);
    const auto outcome = setup.run(streaming(8, 2, 3));
    FragmentRun run{.period = 8, .delay = 3, .mixing = 0.25, .rates = std::vector(16, 0.1), .lost = loss.lost};
    run.outer = [](double last, double mean, double) { return last - 0.8 * (last - mean); };
    for (std::size_t i = 0; i < 4; ++i) {
      const double model = run.model(i);
      EXPECT_NEAR(outcome.parameters[i], model, 1e-5 * std::abs(model));
    }
    EXPECT_EQ(outcome.totals.dropped, (std::vector<std::int64_t>{0, std::ssize(loss.lost), 0}));
    EXPECT_EQ(outcome.published, Step{16});
    expect_exact_accounts(outcome);
  }
}

TEST(StreamingRuns, AnOutageThatKeepsTheStateChangesTimeAlone) {
  SimulatedRun setup{.budget = {.steps = 16}};
  const auto whole = setup.run(streaming(8, 2, 3));
  setup.outages = outage(1, 5.5, 4, false);
  const auto outcome = setup.run(streaming(8, 2, 3));
  EXPECT_EQ(outcome.parameters, whole.parameters);
  EXPECT_EQ(to_seconds(outcome.totals.end), 16 + 4 + 0.5);
  expect_exact_accounts(outcome);
}

std::string reason(const SimulatedRun& setup, const Algorithm& algorithm) {
  try {
    setup.run(algorithm);
  } catch (const std::exception& fault) {
    return fault.what();
  }
  return "";
}

// It leaves at the end of a round, with averages under way or without, and the others go on to the next one.
TEST(StreamingRuns, AWorkerWhoseDataAreUsedUpEndsTheRunWithAReason) {
  for (const int steps : {3, 5, 9, 12}) {
    const SimulatedRun setup{.budget = {.steps = 24}, .data_of = {std::nullopt, Step{steps}, std::nullopt}};
    for (const int delay : {0, 3, 8})
      EXPECT_THAT(reason(setup, streaming(8, 2, delay)),
                  AllOf(HasSubstr("worker 1 left at"), HasSubstr("every worker")))
          << steps << ", " << delay;
  }
}

TEST(StreamingRuns, WorkersWhoseDataAreUsedUpTogetherEndTogether) {
  for (const int steps : {1, 3, 4, 5, 8, 11})
    for (const int delay : {0, 3, 8}) {
      const SimulatedRun setup{.budget = {.steps = 16}, .data_of = {Step{steps}, Step{steps}, Step{steps}}};
      EXPECT_EQ(reason(setup, streaming(8, 2, delay)), "") << steps << ", " << delay;
      const auto outcome = setup.run(streaming(8, 2, delay));
      EXPECT_EQ(outcome.published, Step{steps});
      EXPECT_EQ(sum(outcome.totals.kept), 3 * steps);
    }
}

// However short a budget is, and whatever it counts, all workers take part in the same averages, also where one is
// still within a budget of seconds and another is not.
TEST(StreamingRuns, EndTogetherUnderEveryBudget) {
  std::vector<Budget> budgets;
  for (const double seconds : {0.5, 2.0, 3.0, 4.5, 7.2, 20.0}) {
    budgets.push_back({.seconds = seconds});
    for (const int steps : {4, 7, 8}) budgets.push_back({.steps = steps, .seconds = seconds});
  }
  for (const std::int64_t samples : {1, 5, 6, 7, 40}) budgets.push_back({.samples = samples});
  for (const std::int64_t averages : {1, 2, 5}) budgets.push_back({.bytes = Bytes{averages * 2 * 2 * 8}});
  budgets.push_back({.steps = 1});
  for (const auto& delays : {std::vector{0.0, 0.4, 1.3}, std::vector{0.0, 0.9, 0.9}})
    for (const Budget& budget : budgets)
      for (const double network_s : {0.3, 0.5, 5.0})
        for (const auto& [period, delay] : {std::pair{4, 0}, std::pair{4, 1}, std::pair{4, 4}, std::pair{2, 1}}) {
          SCOPED_TRACE(testing::Message() << "network " << network_s << ", " << period << ", " << delay);
          const SimulatedRun setup{
              .network_s = network_s, .budget = budget, .delays = {std::make_shared<DelayOfWorker>(delays)}};
          const StreamingDiloco method = streaming(period, 2, delay);
          ASSERT_EQ(reason(setup, method), "");
          const auto outcome = setup.run(method);
          expect_exact_accounts(outcome);
          EXPECT_GT(sum(outcome.totals.kept), 0);
          EXPECT_EQ(outcome.publications.back().time, outcome.totals.end);
          EXPECT_EQ(outcome.publications.back().samples, sum(outcome.totals.kept));
          EXPECT_EQ(outcome.totals.bytes, Bytes{outcome.totals.collectives * 2 * 2 * 8});
          EXPECT_EQ(outcome.totals.collectives % 2, 0);
          if (budget.bytes) {
            EXPECT_GE(outcome.totals.bytes, *budget.bytes);
          }
          if (budget.samples) {
            EXPECT_GE(sum(outcome.totals.kept), *budget.samples);
          }
        }
}

// A rule that goes by the rate asks a worker that the budget has stopped what it asks the others.
TEST(StreamingRuns, EndTogetherWhereTheRateDecidesHowLongRoundsAre) {
  SimulatedRun setup{.delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.9, 0.4})}};
  setup.learning_rate = std::make_shared<LearningRate>(
      LearningRate::Options{.shape = LearningRate::Shape::linear, .peak = 0.2, .total_steps = 30});
  const std::shared_ptr<const SyncPeriod> rule = make_power_period({.power = 1, .coefficient = 0.5});
  for (const int delay : {0, 1, 2})
    for (double seconds = 1; seconds < 40; seconds += 0.7) {
      setup.budget = {.steps = 30, .seconds = seconds};
      const StreamingDiloco method(rule, make_plain_outer(0.8), {Fragments(2), delay, 0.0}, {});
      EXPECT_EQ(reason(setup, method), "") << seconds << " s, delay " << delay;
    }
}

// Without a delay all take the same course, also where several fragments have their turn after the same step.
TEST(StreamingRuns, WithoutADelayTakeAsLongOnOneProgramForAllWorkers) {
  for (const auto& [period, fragments] : {std::pair{4, 2}, std::pair{2, 3}, std::pair{5, 4}}) {
    const StreamingDiloco method = streaming(period, fragments, 0);
    EXPECT_EQ(method.traits().same_course_from, Step{0});
    EXPECT_EQ(streaming(period, fragments, 1).traits().same_course_from, std::nullopt);
    SimulatedRun setup{.budget = {.steps = 13},
                       .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.4, 1.3})}};
    setup.objective = nullptr;
    const auto on_fibers = setup.run(method);
    setup.in_lockstep = true;
    const auto on_one = setup.run(method);
    EXPECT_EQ(on_one.log, on_fibers.log);
    EXPECT_EQ(on_one.totals.end, on_fibers.totals.end);
  }
}

TEST(StreamingRuns, BeginAfterSynchronousStepsWhereTheRuleSaysSo) {
  const SimulatedRun setup{.budget = {.steps = 7}};
  const auto reading = read_method(
      "algorithm = \"streaming-diloco\"\nfragments = 2\ndelay = 1\nouter = { name = \"plain\" }\n"
      "period = { rule = \"post-local\", switch_step = 3, steps = 2 }");
  ASSERT_EQ(reading.faults, "");
  EXPECT_EQ(setup.run(*reading.algorithm).log,
            (std::vector<std::string>{"step 1 at 1.500 s: kept 3, dropped 0", "step 2 at 3.000 s: kept 3, dropped 0",
                                      "step 3 at 4.500 s: kept 3, dropped 0", "step 4 at 6.000 s: kept 3, dropped 0",
                                      "step 5 at 7.000 s: kept 3, dropped 0", "step 6 at 8.000 s: kept 3, dropped 0",
                                      "step 7 at 9.000 s: kept 3, dropped 0"}));
}

}  // namespace
}  // namespace syncopate
