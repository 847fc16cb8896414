#include "algorithms/quorum/k_batch_sync.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/predicted_run.hpp"
#include "workers/time/distributions.hpp"
#include "workers/time/network.hpp"
#include "workers/time/outages.hpp"

namespace syncopate {
namespace {

using Log = std::vector<std::string>;
using Counts = std::vector<std::int64_t>;

// algorithms/README.md prints this test.
TEST(KBatchSync, WithEqualWorkersAndAllOfThemEqualsSynchronousSgd) {
  const SimulatedRun setup{.workers = 4, .network_s = 0.25, .momentum = 0.9, .budget = {.steps = 20}};
  EXPECT_EQ(setup.run(KBatchSync(4)).parameters, setup.run(SyncSgd()).parameters);
}

// Each of the N equal workers gives two of 2 N gradients at one version, so the update uses twice as many samples.
TEST(KBatchSync, WithTwiceAsManyGradientsAsWorkersEqualsSynchronousSgdOfTwoMicroBatches) {
  const SimulatedRun setup{.workers = 3, .network_s = 0.25, .rate = 0.3, .budget = {.steps = 2}};
  const auto outcome = setup.run(KBatchSync(6));  // one update
  EXPECT_EQ(outcome.log, Log{"step 2 at 2.500 s: kept 6, dropped 0"});
  for (std::size_t i = 0; i < 4; ++i) {
    double mean_target = 0;
    for (int worker = 0; worker < 3; ++worker)
      for (int step = 0; step < 2; ++step) mean_target += PullObjective::target({Rank{worker}, step, 0}, i) / 6;
    EXPECT_NEAR(outcome.parameters[i], 1 - 0.3 * (1 - mean_target), 1e-6);
  }
}

// Exponential times have no memory. So gradients arrive at the rate N / mu, whatever is cancelled: an update of K takes
// K mu / N, and a step of the budget, N gradients, takes mu. The mean of 24,000 gradients has an error of 0.65 %.
TEST(KBatchSync, AStepTakesAsLongAsKArrivalsOfAllWorkersTogether) {
  for (const int gradients : {1, 4, 9}) {
    const SimulatedRun setup{.workers = 6,
                             .base_s = 1e-9,
                             .network_s = 0,
                             .budget = {.steps = 4000},
                             .delays = {exponential_delay(2)},
                             .objective = nullptr};
    const auto outcome = setup.run(KBatchSync(gradients));
    const double updates = 4000 * 6.0 / gradients;
    EXPECT_NEAR(to_seconds(outcome.totals.end) / updates, gradients * 2 / 6.0, 0.02 * gradients * 2 / 6.0) << gradients;
  }
}

// A step ends at the first time t at which the sum of floor(t / t_i) is K. With t_i of 1 s, 1.5 s and 4 s, K = 7
// gradients (4 + 2 + 1) have arrived at 4 s.
TEST(KBatchSync, OfConstantTimesAStepTakesTheFirstTimeByWhichThereAreKGradients) {
  struct Case {
    int gradients;
    double step_s;
  };
  for (const auto& [gradients, step_s] : {Case{1, 1}, Case{2, 1.5}, Case{3, 2}, Case{4, 3}, Case{5, 3}, Case{7, 4}}) {
    const SimulatedRun setup{.workers = 3,
                             .network_s = 0,
                             .budget = {.steps = gradients},  // three workers, so 3 updates
                             .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.5, 3.0})},
                             .objective = nullptr};
    EXPECT_EQ(setup.run(KBatchSync(gradients)).totals.end, start_time + from_seconds(3 * step_s)) << gradients;
  }
}

// The server's link takes 1 s per gradient. Four workers compute eight in that time, so each step must wait for more
// gradients of earlier versions than the step before.
TEST(KBatchSync, FailsWhereGradientsQueueUpBeforeAServersLink) {
  const SimulatedRun setup{.workers = 4,
                           .base_s = 0.5,
                           .network = make_parameter_server_network(4, {0, 16}),
                           .budget = {.steps = 100},
                           .objective = nullptr};
  try {
    setup.run(KBatchSync(9));
    FAIL();
  } catch (const RunFailure& failure) {
    EXPECT_THAT(failure.what(), testing::HasSubstr("the last 4000 gradients were rejected as stale"));
  }
  EXPECT_NO_THROW(SimulatedRun({.workers = 4,
                                .base_s = 5,
                                .network = make_parameter_server_network(4, {0, 16}),
                                .budget = {.steps = 100},
                                .objective = nullptr})
                      .run(KBatchSync(9)));
}

// Micro-batches take 1 s and 4.25 s, messages 0.25 s. Workers have the model at 0.25 s. Worker 0 gives both gradients,
// which arrive at 1.5 and 2.5 s. At 2.75 s the next model cancels worker 0's third gradient and worker 1's first.
TEST(KBatchSync, OneWorkerMayGiveAllGradientsOfAStep) {
  const SimulatedRun setup{
      .workers = 2, .network_s = 0.25, .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 3.25})}};
  const auto outcome = setup.run(KBatchSync(2));
  EXPECT_EQ(outcome.log, (Log{"step 1 at 2.500 s: kept 2, dropped 0", "step 2 at 5.000 s: kept 2, dropped 0"}));
  EXPECT_EQ(outcome.totals.kept, (Counts{4, 0}));
  EXPECT_EQ(outcome.totals.bytes, Bytes{2 * (2 + 2) * 16});  // per step two models and two gradients of 16 bytes
  expect_exact_accounts(outcome);
}

// Micro-batches take 1 s and 1.1 s. Worker 1's gradient arrives at 1.6 s, 0.1 s after the update, and its next one 0.1
// s after the next update, with which the budget's step of two gradients ends.
TEST(KBatchSync, AGradientThatArrivesAfterTheUpdateIsDropped) {
  const SimulatedRun setup{.workers = 2,
                           .network_s = 0.25,
                           .budget = {.steps = 1},
                           .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.1})}};
  EXPECT_EQ(setup.run(KBatchSync(1)).log, Log{"step 1 at 3.000 s: kept 2, dropped 1"});
}

// A cancelled micro-batch has no gradient, so its samples are not used up. Worker 0 leaves after eight completed steps,
// however many are cancelled, and worker 1 continues alone.
TEST(KBatchSync, WorkersLeaveOnceTheirOwnDataAreUsedUp) {
  const SimulatedRun setup{.workers = 2,
                           .network_s = 0.25,
                           .budget = {.steps = 6},
                           .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 3.25})},
                           .data_of = {Step{8}, std::nullopt}};
  EXPECT_EQ(setup.run(KBatchSync(2)).totals.kept, (Counts{8, 4}));
}

TEST(KBatchSync, EndsWhenAllWorkersHaveLeftInTheMiddleOfAStep) {
  const SimulatedRun setup{.workers = 2, .network_s = 0.25, .budget = {.steps = 60}, .data_of = {Step{5}, Step{4}}};
  const auto outcome = setup.run(KBatchSync(4));
  EXPECT_EQ(outcome.samples, 8);  // the ninth gradient makes no step
  expect_exact_accounts(outcome);
}

// Worker 1 is down from 1 s to 11 s. Meanwhile the other worker's gradients make all steps.
TEST(KBatchSync, DoesNotWaitForAWorkerThatIsDown) {
  for (const bool loses_state : {false, true}) {
    SimulatedRun setup{.workers = 2, .network_s = 0.25, .budget = {.steps = 4}};
    setup.outages = std::make_shared<OutagePlan>(
        1, std::vector<OutageEntry>{{.workers = {Rank{1}},
                                     .when = ScheduledOutage{from_seconds(1), from_seconds(10)},
                                     .loses_state = loses_state}});
    const auto outcome = setup.run(KBatchSync(2));
    EXPECT_EQ(outcome.totals.kept, (Counts{8, 0}));
    EXPECT_EQ(outcome.totals.end, start_time + from_seconds(4 * 2.5));
    expect_exact_accounts(outcome);
  }
}

// An update takes 3 s, as above for 4 gradients of workers with 1 s and 1.5 s, and two messages of 0.5 s. All workers
// compute until the next model arrives, so only the wait for the first model is booked as communication.
TEST(KBatchSync, OfConstantTimesHasAClosedForm) {
  const PredictedRun setting{.workers = 3,
                             .micro_batches = 1,
                             .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.5, 3.0})},
                             .steps = 400};
  const auto simulated = setting.simulate(KBatchSync(4));
  EXPECT_NEAR(simulated.step_s, 3 / 4.0 * (3 + 2 * 0.5), 0.01);
  EXPECT_NEAR(simulated.communication_s, 0.5 / 400, 1e-9);
}

TEST(KBatchSync, NeedsAtLeastOneGradient) {
  EXPECT_EQ(read_method("algorithm = \"k-batch-sync\"\ngradients = 100").faults, "");  // more than workers
  EXPECT_NE(read_method("algorithm = \"k-batch-sync\"\ngradients = 0").faults, "");
  EXPECT_NE(read_method("algorithm = \"k-batch-sync\"").faults, "");
}

}  // namespace
}  // namespace syncopate
