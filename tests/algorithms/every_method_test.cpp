// What holds of every method of the registry, run from the example in its row: nothing here names one.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/predicted_run.hpp"
#include "workers/time/distributions.hpp"

namespace syncopate {
namespace {

std::string text_of(const AlgorithmRow& row) { return fmt::format("algorithm = \"{}\"\n{}", row.name, row.example); }

MethodReading read(const AlgorithmRow& row) {
  return read_method(text_of(row), {.workers = 4, .micro_batches = 2, .total_steps = Step{12}});
}

// Calls `check` for each method.
template <typename Check>
void for_every_method(const Check& check) {
  for (const AlgorithmRow& row : algorithms()) {
    SCOPED_TRACE(text_of(row));
    const MethodReading reading = read(row);
    ASSERT_EQ(reading.faults, "") << "the row's `example` holds the keys that the method must be given, for 4 workers";
    check(*reading.algorithm);
  }
}

// Micro-batches of 1 s and a random time more, on workers of unlike speed.
const SimulatedRun setup{.workers = 4,
                         .micro_batches = 2,
                         .network_s = 0.1,
                         .budget = {.steps = 12},
                         .worker_factors = {1, 1.3, 1.1, 1.8},
                         .delays = {exponential_delay(0.5)}};

TEST(EveryMethod, ComesToTheEndOfItsBudgetAndBooksEveryWorkerSecondOnce) {
  for_every_method([](const Algorithm& method) {
    const auto outcome = setup.run(method);
    EXPECT_EQ(outcome.published, Step{12});
    EXPECT_GT(sum(outcome.totals.kept), 0);
    expect_exact_accounts(outcome);
  });
}

TEST(EveryMethod, DoesTheSameTwice) {
  for_every_method([](const Algorithm& method) {
    const auto once = setup.run(method), twice = setup.run(method);
    EXPECT_EQ(once.log, twice.log);
    EXPECT_EQ(once.parameters, twice.parameters);
    EXPECT_EQ(once.totals.bytes, twice.totals.bytes);
  });
}

TEST(EveryMethod, TakesAsLongWithoutAModelUnlessItFollowsValues) {
  for_every_method([](const Algorithm& method) {
    if (method.traits().follows_values) return;
    SimulatedRun without = setup;
    without.objective = nullptr;
    const auto timed = without.run(method);
    EXPECT_EQ(timed.totals.end, setup.run(method).totals.end);
    EXPECT_EQ(timed.totals.kept, setup.run(method).totals.kept);
  });
}

// The largest difference between two runs' parameters, relative to them.
double difference(const SimulatedRun::Outcome& a, const SimulatedRun::Outcome& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.parameters.size(); ++i)
    largest = std::max(largest, std::abs(1.0 - b.parameters[i] / a.parameters[i]));
  return largest;
}

TEST(EveryMethod, ThatDoesNotFollowTheClockComputesTheSameUnderAnyDelays) {
  for_every_method([](const Algorithm& method) {
    if (method.traits().follows_clock) return;
    SimulatedRun other = setup;
    other.delays = {std::make_shared<DelayOfWorker>(std::vector{3.0, 0.0, 0.2, 0.7})};
    EXPECT_LT(difference(setup.run(method), other.run(method)), 1e-5);
  });
}

// One program for all workers, and one for each.
TEST(EveryMethod, WhoseWorkersTakeTheSameCourseTakesAsLongOnOneProgram) {
  for_every_method([](const Algorithm& method) {
    SimulatedRun alone = setup;
    alone.objective = nullptr;
    const auto on_fibers = alone.run(method);
    alone.in_lockstep = true;
    EXPECT_EQ(alone.run(method).log, on_fibers.log);
  });
}

TEST(EveryMethod, HasAForecastOrTheReasonWhyNot) {
  for_every_method([](const Algorithm& method) {
    const PredictedRun run{.workers = 4, .micro_batches = 2, .steps = 12};
    run.with_input([&](const PredictionInput& input) {
      const Forecast forecast = method.forecast(input);
      EXPECT_NE(forecast.predictions.empty(), forecast.why_none.empty());
      for (const Prediction& prediction : forecast.predictions) EXPECT_GT(prediction.step_time_s, 0);
      return 0;
    });
  });
}

TEST(EveryMethod, SaysWhichModelItPublishes) {
  for (const AlgorithmRow& row : algorithms()) EXPECT_NE(row.evaluated, "") << row.name;
}

TEST(EveryMethod, IsComparedWithOneOfThem) {
  int baselines = 0;
  for_every_method([&](const Algorithm& method) { baselines += method.traits().is_baseline ? 1 : 0; });
  EXPECT_EQ(baselines, 1);
  EXPECT_TRUE(make_baseline()->traits().is_baseline) << "what stands in for it where a file does not name it";
}

}  // namespace
}  // namespace syncopate
