#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "algorithms/quorum/backup_workers.hpp"
#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/predicted_run.hpp"
#include "tests/algorithms/three_workers.hpp"
#include "workers/time/distributions.hpp"

namespace syncopate {
namespace {

using Late = LateWork;
using CountedFrom = BackupOptions::CountedFrom;

BackupWorkers timeout(double timeout_s, CountedFrom from, Late late) {
  constexpr int all = 1000;  // at least the number of workers of any test here
  return BackupWorkers(all, {.late = late, .timeout = from_seconds(timeout_s), .counted_from = from});
}

TEST(BackupTimeout, OfAnEndlessTimeEqualsSynchronousSgdBitForBit) {
  SimulatedRun setup = three_workers(20);
  setup.micro_batches = 2;
  setup.momentum = 0.9;
  const auto expected = setup.run(SyncSgd()).parameters;
  for (const CountedFrom from : {CountedFrom::start, CountedFrom::first})
    for (const Late late : {Late::finish, Late::cancel}) {
      const auto outcome = setup.run(timeout(1e9, from, late));
      EXPECT_EQ(outcome.parameters, expected);
      EXPECT_EQ(sum(outcome.totals.dropped), 0);
      EXPECT_EQ(outcome.totals.end, start_time + from_seconds(20 * (3.1 + 2.6)));  // no step waits for the time-out
    }
}

TEST(BackupTimeout, OfNoTimeEqualsBackupWorkersOfWhichOneIsTakenBitForBit) {
  SimulatedRun setup = three_workers(20);
  setup.momentum = 0.9;
  for (const Late late : {Late::finish, Late::cancel}) {
    const auto expected = setup.run(BackupWorkers(1, {.late = late}));
    for (const CountedFrom from : {CountedFrom::start, CountedFrom::first}) {
      const auto outcome = setup.run(timeout(0, from, late));
      EXPECT_EQ(outcome.parameters, expected.parameters);
      EXPECT_EQ(outcome.log, expected.log);
      EXPECT_EQ(outcome.totals.bytes, expected.totals.bytes);
    }
  }
}

// Gradients arrive 1.5, 1.6 and 3.1 s after their model was sent.
TEST(BackupTimeout, AStepTakesWhatHasComeWhenTheTimeIsOver) {
  EXPECT_EQ(three_workers(2).run(timeout(2, CountedFrom::start, Late::cancel)).log,
            (Log{"step 1 at 2.000 s: kept 2, dropped 0", "step 2 at 4.000 s: kept 2, dropped 0"}));
  // A step has at least one gradient, even if that comes after the time-out.
  EXPECT_EQ(three_workers(1).run(timeout(0.5, CountedFrom::start, Late::cancel)).log,
            Log{"step 1 at 1.500 s: kept 1, dropped 0"});
  // If the time-out counts from the first gradient, a step takes 1.5 s plus the time-out.
  EXPECT_EQ(three_workers(2).run(timeout(0.5, CountedFrom::first, Late::cancel)).log,
            (Log{"step 1 at 2.000 s: kept 2, dropped 0", "step 2 at 4.000 s: kept 2, dropped 0"}));
  EXPECT_EQ(three_workers(1).run(timeout(1.7, CountedFrom::first, Late::cancel)).log,
            Log{"step 1 at 3.100 s: kept 3, dropped 0"});
}

TEST(BackupTimeout, AGradientThatArrivesJustThenCounts) {
  EXPECT_EQ(three_workers(1).run(timeout(1.6, CountedFrom::start, Late::cancel)).log,
            Log{"step 1 at 1.600 s: kept 2, dropped 0"});
  EXPECT_EQ(three_workers(1).run(timeout(1.599'999'999, CountedFrom::start, Late::cancel)).log,
            Log{"step 1 at 1.600 s: kept 1, dropped 0"});
}

// Worker 2's gradient of step 0 arrives at 3.1 s, within the second step, and is dropped. Worker 2 then computes at the
// model of step 1 until 6.2 s, and is late again.
TEST(BackupTimeout, LateWorkThatGoesOnIsDroppedOnArrival) {
  const auto outcome = three_workers(4).run(timeout(2, CountedFrom::start, Late::finish));
  EXPECT_EQ(outcome.log, (Log{
                             "step 1 at 2.000 s: kept 2, dropped 0",
                             "step 2 at 4.000 s: kept 2, dropped 1",
                             "step 3 at 6.000 s: kept 2, dropped 0",
                             "step 4 at 8.000 s: kept 2, dropped 1",
                         }));
  // Models: 3 at first, 2 after each of three steps, 2 to the late worker. Gradients: 4 x 2 kept, 2 late.
  EXPECT_EQ(outcome.totals.bytes, Bytes{(3 + 2 * 3 + 2 + 4 * 2 + 2) * 16});
  expect_accounts_sum_to_the_time(outcome.totals);
}

TEST(BackupTimeout, TheStepIsTheMeanOverWhatHasCome) {
  SimulatedRun setup = three_workers(1);
  setup.rate = 0.5;
  const auto outcome = setup.run(timeout(2, CountedFrom::start, Late::finish));
  for (std::size_t i = 0; i < 4; ++i) {
    const double mean = (PullObjective::target({Rank{0}, 0, 0}, i) + PullObjective::target({Rank{1}, 0, 0}, i)) / 2;
    EXPECT_NEAR(outcome.parameters[i], 1 - 0.5 * (1 - mean), 1e-6);
  }
}

TEST(BackupTimeout, DoesNotWaitForThoseWhoHaveLeft) {
  for (const Late late : {Late::finish, Late::cancel}) {
    SimulatedRun setup = three_workers(6);
    setup.data_of = {4, 2, 1};
    const auto outcome = setup.run(timeout(100, CountedFrom::start, late));
    EXPECT_EQ(outcome.totals.kept, (Counts{4, 2, 1}));
    EXPECT_LT(outcome.totals.end, start_time + from_seconds(20));
    expect_accounts_sum_to_the_time(outcome.totals);
  }
}

TEST(BackupTimeout, WaitsForOneWorkerWhereAllAreDown) {
  for (const Late late : {Late::finish, Late::cancel}) {
    SimulatedRun setup = three_workers(2);
    setup.outages = std::make_shared<OutagePlan>(
        1, std::vector<OutageEntry>{{.workers = {Rank{0}, Rank{1}, Rank{2}},
                                     .when = ScheduledOutage{from_seconds(0.5), from_seconds(10)},
                                     .loses_state = true}});
    const auto outcome = setup.run(timeout(2, CountedFrom::start, late));
    EXPECT_GE(outcome.rounds.at(0).end, start_time + from_seconds(11));
    EXPECT_EQ(outcome.rounds.size(), 2u);
    expect_accounts_sum_to_the_time(outcome.totals);
  }
}

// E[min(t, the maximum of `workers` exponential times of mean 1 s)] is the sum of (1 - e^-t)^k / k over k = 1 ...
// `workers`.
double expected_slowest_until(double t, int workers) {
  double sum = 0;
  for (int k = 1; k <= workers; ++k) sum += std::pow(1 - std::exp(-t), k) / k;
  return sum;
}

// A gradient arrives 2 s and an exponential time after its step began, so the first of 12 arrives after 2 + 1/12 s on
// average. From then on the other 11 take exponential times again (memoryless).
TEST(BackupTimeout, UnderExponentialTimesHasAClosedForm) {
  for (const CountedFrom from : {CountedFrom::start, CountedFrom::first})
    for (const double timeout_s : {1.0, 3.0, 6.0}) {
      SCOPED_TRACE(testing::Message() << timeout_s << " s from " << (from == CountedFrom::start ? "start" : "first"));
      const PredictedRun setting{.workers = 12, .micro_batches = 1, .delays = {exponential_delay(1)}, .steps = 512};
      const auto simulated = setting.simulate(timeout(timeout_s, from, Late::cancel));
      double step_s = 2 + 1.0 / 12, kept = 1.0 / 12;
      if (from == CountedFrom::first) {
        step_s += expected_slowest_until(timeout_s, 11);
        kept += 11.0 / 12 * (1 - std::exp(-timeout_s));
      } else if (timeout_s > 2) {
        step_s = 2 + expected_slowest_until(timeout_s - 2, 12);
        kept = 1 - std::exp(-(timeout_s - 2));
      }
      EXPECT_NEAR(simulated.step_s, step_s, 4 * simulated.error_s + 0.5 / 512);  // 0.5 s for the first model
      EXPECT_NEAR(simulated.drop_rate, 1 - kept, 0.015);
    }
  // In a step of several micro-batches, those that were not begun do not count as dropped.
  const PredictedRun several{.workers = 12, .micro_batches = 4, .delays = {exponential_delay(1)}, .steps = 512};
  const auto simulated = several.simulate(timeout(6, CountedFrom::start, Late::cancel));
  EXPECT_LT(simulated.drop_rate, 1 - simulated.kept);
}

// Each model arrives 0.5 s after it was sent, and a step takes 2.1 s. Worker 0 communicates for 1 s of it, with a
// gradient and a model. Workers 1 and 2 are done 1.25 and 1.75 s after the model arrived, and communicate for the 0.85
// and 0.35 s until the next model arrives. Worker 3 still computes then.
TEST(BackupTimeout, WhoStillComputesDoesNotAwaitTheNextModel) {
  const PredictedRun setting{
      .workers = 4, .micro_batches = 1, .factors = {1, 1.25, 1.75, 5}, .delays = {}, .steps = 512};
  const BackupWorkers method = timeout(2.1, CountedFrom::start, Late::cancel);
  EXPECT_NEAR(setting.simulate(method).communication_s, (1 + 0.85 + 0.35) / 4, 0.5 / 512);
}

TEST(BackupTimeout, NeedsATime) {
  EXPECT_NE(read_method("algorithm = \"backup-timeout\"").faults, "");
  EXPECT_NE(read_method("algorithm = \"backup-timeout\"\ntimeout_s = -1").faults, "");
  EXPECT_EQ(read_method("algorithm = \"backup-timeout\"\ntimeout_s = 0\ncounted_from = \"first\"").faults, "");
}

}  // namespace
}  // namespace syncopate
