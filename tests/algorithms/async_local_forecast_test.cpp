// What formulas say of asynchronous Local SGD, and how many steps its workers take by their speed.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "algorithms/asynchronous/async_local_sgd.hpp"
#include "tests/algorithms/predicted_run.hpp"
#include "tests/algorithms/three_workers.hpp"
#include "workers/time/distributions.hpp"

namespace syncopate {
namespace {

using Rounding = DynamicSteps::Rounding;
constexpr double toys[] = {0.58, 0.75, 1.51, 3.33};  // seconds per step of the authors' published toy

TEST(StepsBySpeed, AreThoseOfTheFastestTimesTheShareOfItsSpeed) {
  // 20 x 0.58 / c: 20, 15.47, 7.68, 3.48.
  const std::vector<std::int64_t> up = {20, 16, 8, 4}, down = {20, 15, 7, 3};
  StepsBySpeed rounded_up(DynamicSteps{.rounding = Rounding::up}, 20, 4),
      rounded_down(DynamicSteps{.rounding = Rounding::down}, 20, 4);
  for (const Rank worker : Ranks(4)) {
    EXPECT_EQ(rounded_up.of(worker), Step{20}) << "before its first difference";
    for (StepsBySpeed* const steps : {&rounded_up, &rounded_down}) steps->measure(worker, 20, 20 * toys[worker.value]);
  }
  for (const Rank worker : Ranks(4)) {
    const auto i = static_cast<std::size_t>(worker.value);
    EXPECT_EQ(rounded_up.of(worker), Step{up[i]});
    EXPECT_EQ(rounded_down.of(worker), Step{down[i]});
  }
  EXPECT_EQ((DynamicSteps{.rounding = Rounding::down, .minimum = Step{5}}.at(0.58 / 3.33, 20)), Step{5});
}

TEST(StepsBySpeed, GoByAllThatAWorkerHasDelivered) {
  StepsBySpeed steps(DynamicSteps{}, 10, 2);
  steps.measure(Rank{0}, 10, 10);
  steps.measure(Rank{1}, 10, 5);
  EXPECT_EQ(steps.of(Rank{0}), Step{5});
  steps.measure(Rank{1}, 5, 20);  // 15 steps in 25 s: worker 0 is the fastest now
  EXPECT_EQ(steps.of(Rank{0}), Step{10});
  EXPECT_EQ(steps.of(Rank{1}), Step{6});
}

TEST(StepsBySpeed, OfEqualWorkersAreAllOfThem) {
  for (const auto rounding : {Rounding::up, Rounding::down}) {
    const SimulatedRun setup{.workers = 5, .base_s = 0.7, .budget = {.steps = 30}};
    const auto fixed = setup.run(AsyncLocalSgd({.local_steps = 3}));
    const auto dynamic =
        setup.run(AsyncLocalSgd({.local_steps = 3, .steps_by_speed = DynamicSteps{.rounding = rounding}}));
    EXPECT_EQ(dynamic.log, fixed.log);
    EXPECT_EQ(dynamic.parameters, fixed.parameters);
    EXPECT_EQ(dynamic.totals.bytes.value(), fixed.totals.bytes.value() + 8 * fixed.totals.messages);
  }
}

// Steps of 1, 1.1 and 2.6 s, H = 4. After a first round of four steps each (4.5, 4.9, 10.9 s) worker 2 takes
// ceil(4 / 2.6) = 2, and comes again 5.7 s later; the others go on with four.
TEST(StepsBySpeed, AreToldWithTheNextModel) {
  SimulatedRun setup = three_workers(13);
  const auto outcome = setup.run(AsyncLocalSgd({.local_steps = 4, .steps_by_speed = DynamicSteps{}}));
  std::vector<double> times;
  for (const Publication& publication : outcome.publications) times.push_back(to_seconds(publication.time));
  const std::vector<double> expected = {4.5, 4.9, 9, 9.8, 10.9, 13.5, 14.7, 16.6, 18, 19.6, 22.3};
  ASSERT_EQ(times.size(), expected.size());
  for (std::size_t i = 0; i < times.size(); ++i) EXPECT_NEAR(times[i], expected[i], 1e-6);
  EXPECT_EQ(outcome.totals.kept, (Counts{16, 16, 8}));
}

// Golden: without communication the toy's four workers together take 3.35 times the steps of synchronous SGD.
TEST(AsyncLocalForecast, GivesTheToysSpeedUpOverSynchronousSgd) {
  const PredictedRun toy{.workers = 4,
                         .micro_batches = 1,
                         .factors = {toys[0], toys[1], toys[2], toys[3]},
                         .delays = {},
                         .steps = 2000,
                         .network_s = 0};
  for (const bool dynamic : {false, true}) {
    AsyncLocalOptions options{.local_steps = 20};
    if (dynamic) options.steps_by_speed = DynamicSteps{};
    const auto predictions = toy.predict(AsyncLocalSgd(options));
    ASSERT_EQ(predictions.size(), 1u);
    EXPECT_NEAR(predictions[0].effective_speedup(), 3.35, 0.005);
    EXPECT_NEAR(3.33 / toy.simulate(AsyncLocalSgd(options)).step_s, 3.35, 0.02);
  }
}

struct Case {
  AsyncLocalOptions options;
  double mean_staleness;
};

// Ten workers of three speeds and random times; a message takes half a second.
TEST(AsyncLocalForecast, IsThePaceAndTheStalenessOfTheSimulation) {
  const std::vector<Case> cases = {{{.local_steps = 4}, 9},
                                   {{.local_steps = 7, .update = make_buffered_update({.size = 3})}, 3},
                                   {{.local_steps = 12, .steps_by_speed = DynamicSteps{}}, 9}};
  PredictedRun setting{.workers = 10,
                       .micro_batches = 2,
                       .factors = {1, 1, 1, 1, 1.7, 1.7, 1.7, 3.1, 3.1, 3.1},
                       .delays = {exponential_delay(0.4)},
                       .steps = 6000};
  for (const auto& [options, mean_staleness] : cases) {
    const AsyncLocalSgd method(options);
    const auto predictions = setting.predict(method);
    ASSERT_EQ(predictions.size(), 1u);
    const auto simulated = setting.simulate(method);
    EXPECT_NEAR(predictions[0].step_time_s / simulated.step_s, 1, 0.01);
    EXPECT_NEAR(predictions[0].communication_s / simulated.communication_s, 1, 0.01);
    EXPECT_DOUBLE_EQ(predictions[0].mean_staleness.value_or(NAN), mean_staleness);
    const SimulatedRun run{.workers = 10,
                           .micro_batches = 2,
                           .budget = {.steps = 6000},
                           .worker_factors = setting.factors,
                           .delays = setting.delays,
                           .objective = nullptr};
    const Counts counts = run.run(method).totals.staleness;
    double sum = 0, differences = 0;
    for (std::size_t s = 0; s < counts.size(); ++s) {
      sum += static_cast<double>(s) * static_cast<double>(counts[s]);
      differences += static_cast<double>(counts[s]);
    }
    EXPECT_NEAR(sum / differences, mean_staleness, 0.05 * mean_staleness);
  }
}

// Rounds of 12, 7 and 5 steps: 12 / 1.7 = 7.06, and 12 / 3.1 = 3.87 is less than the least.
TEST(AsyncLocalForecast, HasEachWorkersRound) {
  const DynamicSteps rule{.rounding = Rounding::down, .minimum = Step{5}};
  const AsyncLocalSgd method({.local_steps = 12, .steps_by_speed = rule});
  const PredictedRun setting{
      .workers = 3, .micro_batches = 2, .factors = {1, 1.7, 3.1}, .delays = {}, .steps = 4000, .network_s = 0.5};
  const double pace = 12 / (12 * 2.0 + 1) + 7 / (7 * 3.4 + 1) + 5 / (5 * 6.2 + 1);
  EXPECT_NEAR(setting.predict(method).at(0).step_time_s, 3 / pace, 1e-9);
  EXPECT_NEAR(setting.simulate(method).step_s * pace / 3, 1, 0.005);
}

TEST(AsyncLocalForecast, SaysWhyThereIsNone) {
  const PredictedRun setting{.workers = 4, .steps = 100};
  EXPECT_NE(setting.why_not_predicted(AsyncLocalSgd({.maximum_staleness = Step{3}})), "");
  EXPECT_NE(setting.why_not_predicted(AsyncLocalSgd({.grace = from_seconds(1)})), "");
}

}  // namespace
}  // namespace syncopate
