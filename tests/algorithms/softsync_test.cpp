#include "algorithms/asynchronous/softsync.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "algorithms/asynchronous/async_sgd.hpp"
#include "tests/algorithms/duration_laws.hpp"
#include "tests/algorithms/three_workers.hpp"

namespace syncopate {
namespace {

TEST(Softsync, WithUpdatesOfOneGradientEqualsAsynchronousSgdBitForBit) {
  for (const auto weight : {StalenessWeight::none, StalenessWeight::inverse}) {
    SimulatedRun setup = three_workers(10);
    setup.micro_batches = 2;
    setup.momentum = 0.9;
    const auto async = setup.run(AsyncSgd({.rate = {.weight = weight}}));
    const auto softsync = setup.run(Softsync(1, {.weight = weight}));
    EXPECT_EQ(softsync.parameters, async.parameters);
    EXPECT_EQ(softsync.log, async.log);
    EXPECT_EQ(softsync.totals.staleness, async.totals.staleness);
    EXPECT_EQ(softsync.totals.bytes, async.totals.bytes);
  }
}

TEST(Softsync, AFastWorkerGivesTwoGradientsToOneUpdate) {
  const auto outcome = three_workers(3).run(Softsync(3));
  // Arrivals by worker: 1.5 (0), 1.6 (1), 3.0 (0) | 3.1 (2), 3.2 (1), 4.5 (0) | 4.8 (1), 6.0 (0), 6.2 s (2).
  EXPECT_EQ(outcome.log, (Log{
                             "step 1 at 3.000 s: kept 3, dropped 0",
                             "step 2 at 4.500 s: kept 3, dropped 0",
                             "step 3 at 6.200 s: kept 3, dropped 0",
                         }));
  EXPECT_EQ(outcome.totals.kept, (Counts{4, 3, 2}));
  EXPECT_EQ(outcome.totals.staleness, (Counts{5, 4}));
  EXPECT_EQ(outcome.publications.size(), 3u);
  expect_accounts_sum_to_the_time(outcome.totals);
}

TEST(Softsync, WeightsActOnEachGradientBeforeTheMean) {
  SimulatedRun setup = three_workers(2);
  setup.rate = 0.3;
  const auto outcome =
      setup.run(Softsync(3, {.weight = StalenessWeight::inverse_plus_one, .scaling = RateScaling::none}));
  for (std::size_t i = 0; i < 4; ++i) {
    const auto target = [&](int worker, int own_step) { return PullObjective::target({Rank{worker}, own_step, 0}, i); };
    const double first = 1 - 0.3 * ((1.0 - target(0, 0)) + (1 - target(1, 0)) + (1 - target(0, 1))) / 3;
    // In the second mean, the gradients of workers 2 and 1 are taken at the initial model, and stale by one.
    const double second = ((1.0 - target(2, 0)) / 2 + (1.0 - target(1, 1)) / 2 + (first - target(0, 2))) / 3;
    EXPECT_NEAR(outcome.parameters[i], first - 0.3 * second, 1e-5);
  }
}

TEST(Softsync, NoSampleIsComputedTwiceThoughAVersionIsReadTwice) {
  auto objective = std::make_shared<PullObjective>();
  SimulatedRun setup = three_workers(8);
  setup.micro_batches = 2;
  setup.objective = objective;
  setup.run(Softsync(3));
  EXPECT_EQ(objective->evaluations, 8 * 3 * 2);
  EXPECT_EQ(static_cast<std::int64_t>(objective->evaluated.size()), objective->evaluations);
}

TEST(Softsync, EqualBudgetsMeanEqualSamplesAlsoWhereTheWorkersDoNotDivideEvenly) {
  for (const int splitting : {1, 2, 3, 4, 7}) {  // gradients per update: 7, 3, 2, 1, 1
    const SimulatedRun setup{.workers = 7, .budget = {.steps = 6}};
    const int per_update = 7 / splitting;
    const auto outcome = setup.run(Softsync(per_update));
    EXPECT_EQ(outcome.published, Step{6});
    EXPECT_EQ(outcome.samples, (42 + per_update - 1) / per_update * per_update);  // whole updates
    EXPECT_DOUBLE_EQ(outcome.learning_rate, 0.1 * per_update / 7);
  }
}

TEST(Softsync, WhenAllHaveLeftTheLastUpdateTakesWhatThereIs) {
  SimulatedRun setup = three_workers(10);
  setup.data_of = {2, 1, 1};
  const auto outcome = setup.run(Softsync(3));
  EXPECT_EQ(outcome.totals.kept, (Counts{2, 1, 1}));
  EXPECT_EQ(outcome.samples, 4);
  for (std::size_t i = 0; i < 4; ++i) {
    const auto target = [&](int worker, int own_step) { return PullObjective::target({Rank{worker}, own_step, 0}, i); };
    const double first = 1 - 0.1 * ((1.0 - target(0, 0)) + (1 - target(1, 0)) + (1 - target(0, 1))) / 3;
    EXPECT_NEAR(outcome.parameters[i], first - 0.1 * (1.0 - target(2, 0)), 1e-5);  // the only gradient in its mean
  }
  expect_accounts_sum_to_the_time(outcome.totals);
}

// Between two gradients of a worker each other worker delivers one on average, whatever the times. With c gradients per
// update the mean staleness is (N - 1) / c. Over a run the sum telescopes, so only the first and the last gradient of
// each worker deviate, each by no more than the largest staleness.
TEST(Softsync, TheMeanStalenessIsOneLessThanTheWorkersOverTheGradientsOfAnUpdate) {
  constexpr int workers = 30;
  for (const auto& law : {exponential_law(), lognormal_law(), near_constant_law()})
    for (const int splitting : {1, 2, 4, 15, 30}) {  // c = 30, 15, 7, 2, 1 gradients per update
      const SimulatedRun setup{.workers = workers,
                               .base_s = 1e-9,
                               .network_s = 0,
                               .budget = {.steps = 1000},
                               .delays = {law},
                               .objective = nullptr};
      const Counts counts = setup.run(Softsync(workers / splitting)).totals.staleness;
      double gradients = 0, mean = 0;
      for (std::size_t tau = 0; tau < counts.size(); ++tau) {
        gradients += static_cast<double>(counts[tau]);
        mean += static_cast<double>(tau) * static_cast<double>(counts[tau]);
      }
      mean /= gradients;
      EXPECT_GE(gradients, 30'000);
      const double most = workers * static_cast<double>(counts.size()) / gradients;
      EXPECT_NEAR(mean, (workers - 1.0) / (workers / splitting), most) << "splitting " << splitting;
    }
}

}  // namespace
}  // namespace syncopate
