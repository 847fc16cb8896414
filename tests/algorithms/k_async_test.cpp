#include "algorithms/asynchronous/k_async.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "algorithms/asynchronous/async_sgd.hpp"
#include "algorithms/asynchronous/softsync.hpp"
#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/duration_laws.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/predicted_run.hpp"
#include "tests/algorithms/three_workers.hpp"

namespace syncopate {
namespace {

TEST(KAsync, OfAllWorkersEqualsSynchronousSgdBitForBit) {
  SimulatedRun setup = three_workers(20);
  setup.micro_batches = 2;
  setup.momentum = 0.9;
  EXPECT_EQ(setup.run(KAsync(3)).parameters, setup.run(SyncSgd()).parameters);
}

TEST(KAsync, OfOneGradientEqualsAsynchronousSgdBitForBit) {
  SimulatedRun setup = three_workers(10);
  setup.micro_batches = 2;
  setup.momentum = 0.9;
  for (const auto weight : {StalenessWeight::none, StalenessWeight::inverse}) {
    const auto async = setup.run(AsyncSgd({.rate = {.weight = weight}}));
    const auto k_async = setup.run(KAsync(1, {.weight = weight}));
    EXPECT_EQ(k_async.parameters, async.parameters);
    EXPECT_EQ(k_async.log, async.log);
    EXPECT_EQ(k_async.totals.staleness, async.totals.staleness);
    EXPECT_EQ(k_async.totals.bytes, async.totals.bytes);
  }
}

// Gradients arrive 1.5, 1.6 and 3.1 s after their model was sent. The first two make the update at 1.6 s. Worker 0's
// next gradient arrives at 3.1 s, together with worker 2's first, which is one update old, and they make the second
// update. Worker 1's next gradient arrives at 3.2 s and waits alone until 4.6 s.
TEST(KAsync, WhoHasDeliveredWaitsForTheUpdateAndTheOthersGoOn) {
  SimulatedRun setup = three_workers(2);
  setup.rate = 0.3;
  const auto outcome = setup.run(KAsync(2));
  EXPECT_EQ(outcome.log, (Log{"step 1 at 3.100 s: kept 4, dropped 0", "step 2 at 4.600 s: kept 2, dropped 0"}));
  EXPECT_EQ(outcome.totals.kept, (Counts{3, 2, 1}));
  EXPECT_EQ(outcome.totals.staleness, (Counts{4, 2}));
  // A step of the budget is three gradients, so an update of two is two thirds of a step.
  for (std::size_t i = 0; i < 4; ++i) {
    const auto target = [&](int worker, int own_step) { return PullObjective::target({Rank{worker}, own_step, 0}, i); };
    constexpr double rate = 0.3 * 2 / 3;
    const double first = 1 - rate * ((1.0 - target(0, 0)) + (1 - target(1, 0))) / 2;
    const double second = first - rate * ((first - target(0, 1)) + (1.0 - target(2, 0))) / 2;
    const double third = second - rate * ((first - target(1, 1)) + (second - target(0, 2))) / 2;
    EXPECT_NEAR(outcome.parameters[i], third, 1e-5);
  }
  expect_accounts_sum_to_the_time(outcome.totals);
}

// Worker 0 is down from 0.5 to 1 s. If it keeps its state, its gradient arrives at 2 s. If it loses its state, it asks
// for the model at 1 s, and its gradient arrives at 2.75 s. This gradient and worker 1's of 1.6 s make the first
// update. Worker 2's gradient arrives at 3.1 s. Worker 0's next one arrives 1.5 s after the first update. It makes the
// second update and ends the budget's first step.
TEST(KAsync, AnUpdateWaitsForAWorkerThatIsDown) {
  for (const bool loses_state : {false, true}) {
    SimulatedRun setup = three_workers(2);
    setup.outages = std::make_shared<OutagePlan>(
        1, std::vector<OutageEntry>{{.workers = {Rank{0}},
                                     .when = ScheduledOutage{from_seconds(0.5), from_seconds(0.5)},
                                     .loses_state = loses_state}});
    const auto outcome = setup.run(KAsync(2));
    EXPECT_EQ(outcome.log.front(), fmt::format("step 1 at {:.3f} s: kept 4, dropped 0", loses_state ? 4.25 : 3.5));
    EXPECT_EQ(outcome.totals.staleness, (Counts{4, 2}));
    expect_accounts_sum_to_the_time(outcome.totals);
  }
}

// Exponential times have no memory, so an update takes the K-th of N times that begin together. For N = 16, K = 12 and
// a mean of 1 s that is H_16 - H_4 = 1.2974 s (harmonic numbers). K gradients of any workers take 12 / 16 = 0.75 s.
TEST(KAsync, UnderExponentialTimesAnUpdateTakesTheOrderStatistic) {
  constexpr int updates = 20'000;
  const SimulatedRun setup{.workers = 16,
                           .base_s = 1e-9,
                           .network_s = 0,
                           .budget = {.steps = updates * 12 / 16},
                           .delays = {exponential_law()},
                           .objective = nullptr};
  const auto update_s = [&](const Algorithm& method) { return to_seconds(setup.run(method).totals.end) / updates; };
  EXPECT_NEAR(update_s(KAsync(12)), 1.2974, 0.015);
  EXPECT_NEAR(update_s(Softsync(12)), 0.75, 0.009);
}

TEST(KAsync, TakesWhatThereIsOnceFewerThanKWorkersAreLeft) {
  SimulatedRun setup = three_workers(10);
  setup.data_of = {2, 1, 1};
  const auto outcome = setup.run(KAsync(2));
  EXPECT_EQ(outcome.totals.kept, (Counts{2, 1, 1}));
  EXPECT_EQ(outcome.samples, 4);
  expect_accounts_sum_to_the_time(outcome.totals);
}

// Steps take 1 s and each message 0.5 s, so a worker's next gradient arrives 2 s after its last one. All four arrive
// together and make two updates of two gradients: a step of the budget takes 2 s.
TEST(KAsync, OfConstantTimesHasAClosedForm) {
  const PredictedRun setting{.workers = 4, .micro_batches = 1, .delays = {}, .steps = 512};
  EXPECT_NEAR(setting.simulate(KAsync(2)).step_s, 2, 0.5 / 512);
}

TEST(KAsync, CannotWaitForMoreWorkersThanThereAre) {
  const auto reading = read_method("algorithm = \"k-async\"\ngradients = 5");
  EXPECT_NE(reading.faults.find("must be an integer from 1 to 4"), std::string::npos) << reading.faults;
  EXPECT_EQ(read_method("algorithm = \"k-async\"\ngradients = 4").faults, "");
}

TEST(KBatchAsync, IsSoftsyncOfThatManyGradients) {
  SimulatedRun setup = three_workers(12);
  setup.momentum = 0.9;
  const auto softsync = setup.run(Softsync(3));
  const auto reading = read_method("algorithm = \"k-batch-async\"\ngradients = 3", {.workers = 3});
  ASSERT_EQ(reading.faults, "");
  EXPECT_EQ(setup.run(*reading.algorithm).parameters, softsync.parameters);
}

TEST(KBatchAsync, MayTakeMoreGradientsThanThereAreWorkers) {
  const auto outcome = three_workers(5).run(Softsync(5));
  EXPECT_EQ(outcome.publications.size(), 3u);
  EXPECT_EQ(outcome.samples, 15);
  EXPECT_DOUBLE_EQ(outcome.learning_rate, 0.1 * 5 / 3);
}

}  // namespace
}  // namespace syncopate
