// Formulas against the simulated cluster. Where the law is exactly the formula's, they agree within the simulation's
// standard error; where it is not, the difference is stated.
#include "algorithms/method/prediction.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "algorithms/asynchronous/async_sgd.hpp"
#include "algorithms/local_sgd/local_sgd.hpp"
#include "algorithms/quorum/backup_all_reduce.hpp"
#include "algorithms/quorum/backup_workers.hpp"
#include "algorithms/synchronous/drop_compute.hpp"
#include "algorithms/synchronous/drop_threshold.hpp"
#include "algorithms/synchronous/random_drop.hpp"
#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/predicted_run.hpp"
#include "workers/time/distributions.hpp"

namespace syncopate {
namespace {

using Setting = PredictedRun;

// E[max of 16 standard normal times] is 1.765991393 and Eq. 4's 1.800454239; a step's sum is 6 +- 0.4 s.
TEST(Prediction, SynchronousSgdByEquation4AndBySampledMaxima) {
  const Setting setting;
  const auto predictions = setting.predict(SyncSgd());
  ASSERT_EQ(predictions.size(), 2u);
  EXPECT_EQ(predictions[0].formula, "Eq. 4");
  // The sampled mean and deviation are those of 15,625 steps: standard errors 0.0032 and 0.0023 x 1.8.
  EXPECT_NEAR(predictions[0].step_time_s, 6 + 0.4 * 1.800454239 + 0.5, 0.02);
  EXPECT_EQ(predictions[1].formula, "sampled E[T]");
  const double exact = 6 + 0.4 * 1.765991393 + 0.5;  // a maximum's deviation is about 0.2: 0.009 over 500 steps
  EXPECT_NEAR(predictions[1].step_time_s, exact, 0.03);
  EXPECT_NEAR(setting.simulate(SyncSgd()).step_s, exact, 0.02);
  for (const Prediction& prediction : predictions) {
    EXPECT_DOUBLE_EQ(prediction.effective_speedup(), 1);
    EXPECT_EQ(prediction.drop_rate, 0);
    EXPECT_DOUBLE_EQ(prediction.communication_share(), 0.5 / prediction.step_time_s);
  }
}

TEST(Prediction, DropComputeWithAFixedThreshold) {
  const Setting setting;
  const DropCompute method(from_seconds(6.1), Preempt::discard, 1.0 / 3);
  const auto predictions = setting.predict(method);
  ASSERT_EQ(predictions.size(), 2u);
  const double kept = expected_micro_batches(4, 6.1, {1.5, 0.2}) / 4;
  for (const Prediction& prediction : predictions) {
    EXPECT_NEAR(prediction.kept, kept, 0.004);
    EXPECT_NEAR(prediction.step_time_s, 6.1 + 0.5, 1e-12);
    EXPECT_NEAR(prediction.effective_speedup(), prediction.kept * prediction.sync_step_time_s / 6.6, 1e-12);
  }
  const auto simulated = setting.simulate(method);
  EXPECT_NEAR(simulated.step_s, 6.6, 0.005);  // hardly a step ends before the threshold
  EXPECT_NEAR(simulated.drop_rate, 1 - kept, 0.004);
}

// Without spread there is no threshold to find; with it, steps before it is set take what synchronous SGD's take.
TEST(Prediction, DropComputeWithAnAutomaticThreshold) {
  const Setting setting{.micro_batches = 12, .steps = 400};
  const AutomaticThresholdOptions options{.warmup_steps = 10, .calibration_steps = 90};
  const DropCompute method(DropComputeOptions{.threshold = make_automatic_threshold(options)});
  EXPECT_EQ(method.traits().settles_after, Step{100});
  const auto predictions = setting.predict(method);
  ASSERT_EQ(predictions.size(), 2u);
  const auto simulated = setting.simulate(method);
  const Prediction& sampled = predictions[1];
  EXPECT_NEAR(sampled.step_time_s / simulated.step_s, 1, 0.01);
  EXPECT_NEAR(*sampled.drop_rate, simulated.drop_rate, 0.01);
  EXPECT_LT(sampled.step_time_s, sampled.sync_step_time_s);
  EXPECT_GT(sampled.effective_speedup(), 1);

  const Setting even{.delays = {}, .steps = 400};
  for (const Prediction& prediction : even.predict(method)) {
    EXPECT_EQ(prediction.drop_rate, 0);
    EXPECT_DOUBLE_EQ(prediction.step_time_s, 4.5);
  }
}

// 1 s + Exp(2): X_(6:8) = 1 + (1/8 + 1/7 + ... + 1/3) / 2.
TEST(Prediction, BackupWorkersByTheOrderStatistic) {
  const Setting setting{
      .workers = 8, .micro_batches = 1, .delays = {exponential_delay(0.5)}, .steps = 4000, .network_s = 0.1};
  double expected = 1;
  for (int i = 3; i <= 8; ++i) expected += 0.5 / i;
  const BackupWorkers cancels(6, {.late = BackupOptions::Late::cancel}), finishes(6);
  const auto exact = setting.predict(cancels), bound = setting.predict(finishes);
  ASSERT_EQ(exact.size(), 1u);
  // 4,096 sampled times: the quantile's standard error is about 0.5 sqrt(3 / 4096) = 0.014.
  EXPECT_NEAR(exact[0].step_time_s, expected + 0.2, 0.04);
  EXPECT_DOUBLE_EQ(exact[0].kept, 6.0 / 8);
  EXPECT_NEAR(setting.simulate(cancels).step_s, expected + 0.2, 0.03);
  ASSERT_EQ(bound.size(), 1u);
  EXPECT_EQ(bound[0].step_time_s, exact[0].step_time_s);
  EXPECT_NE(bound[0].formula.find("lower bound"), std::string::npos);
  // Tabulated without communication: 1.793 instead of 1.608 where late work goes on.
  EXPECT_GT(setting.simulate(finishes).step_s, expected + 0.2);
  EXPECT_NEAR(setting.predict(BackupAllReduce(6)).at(0).step_time_s, expected + 0.1, 0.04);
}

// The first is done after 1 s, so that its gradient and the next model are on their way from 1 to 2 s after the last one;
// the second's gradient is from 1.25 s on, the third's from 1.75 s.
TEST(Prediction, WhoIsCancelledDoesNotAwaitTheNextModel) {
  const BackupWorkers first_of_all(1, {.late = BackupOptions::Late::cancel});
  const Setting even{.workers = 4, .micro_batches = 1, .factors = {1, 1.25, 1.75, 5}, .delays = {}, .steps = 512};
  const auto predictions = even.predict(first_of_all);
  ASSERT_EQ(predictions.size(), 1u);
  EXPECT_NEAR(predictions[0].communication_s, (1 + 0.75 + 0.25) / 4, 1e-9);
  for (const int quorum : {1, 3, 6, 8}) {
    const Setting unlike{.workers = 8,
                         .micro_batches = 2,
                         .factors = {1, 1, 1, 1, 1, 1, 2, 3},
                         .delays = {exponential_delay(0.5)},
                         .steps = 512};
    const BackupWorkers cancels(quorum, {.late = BackupOptions::Late::cancel});
    const double simulated_s = unlike.simulate(cancels).communication_s;
    EXPECT_NEAR(unlike.predict(cancels).at(0).communication_s, simulated_s, 0.5 / 512) << quorum;
  }
}

// Rounds of 8 steps of 4 micro-batches: 48 + 0.2 sqrt(32) x 1.765991393, and one average each.
TEST(Prediction, LocalSgdByTheSlowestSumOfARound) {
  const Setting setting;
  const LocalSgd method(make_constant_period(8), {});
  const auto predictions = setting.predict(method);
  ASSERT_EQ(predictions.size(), 1u);
  const double expected = (48 + 0.2 * std::sqrt(32.0) * 1.765991393 + 0.5) / 8;
  EXPECT_NEAR(predictions[0].step_time_s, expected, 0.02);
  EXPECT_DOUBLE_EQ(predictions[0].communication_s, 0.5 / 8);
  EXPECT_NEAR(setting.simulate(method).step_s, expected, 0.02);
}

// The rule's own rounds: 100 of one step, then 190 of 10.
TEST(Prediction, RoundsFollowTheRuleOfThePeriod) {
  const Setting setting{.delays = {}};
  const auto predictions = setting.predict(LocalSgd(make_post_local_period(100, 10), {}));
  ASSERT_EQ(predictions.size(), 1u);
  EXPECT_NEAR(predictions[0].step_time_s, (2000 * 4 + 290 * 0.5) / 2000, 1e-9);
}

TEST(Prediction, AsynchronousWorkersGoAtTheirMeanPace) {
  const Setting setting{.network_s = 0.25};
  const auto predictions = setting.predict(AsyncSgd({}));
  ASSERT_EQ(predictions.size(), 1u);
  EXPECT_NEAR(predictions[0].step_time_s, 6 + 2 * 0.25, 0.015);
  EXPECT_NEAR(setting.simulate(AsyncSgd({})).step_s, 6.5, 0.01);
  EXPECT_TRUE(setting.predict(AsyncSgd({.maximum_staleness = 3})).empty());
}

TEST(Prediction, RandomDropSavesNoTime) {
  const Setting setting;
  const auto sync = setting.predict(SyncSgd()), drop = setting.predict(RandomDrop(0.2, Step{1000}));
  ASSERT_EQ(drop.size(), sync.size());
  EXPECT_EQ(drop[0].step_time_s, sync[0].step_time_s);
  EXPECT_DOUBLE_EQ(*drop[0].drop_rate, 0.1);  // in the second half alone
  EXPECT_DOUBLE_EQ(drop[0].effective_speedup(), 0.9);
  for (const int from : {2000, 5000}) {  // as many steps as the run has, or more
    const auto never = setting.predict(RandomDrop(0.2, Step{from}));
    EXPECT_EQ(never[0].drop_rate, 0);
    EXPECT_EQ(never[0].kept, 1);
  }
}

// One of four workers is half as fast: it always is the slowest, and sets the pace.
TEST(Prediction, WorkersThatDifferAreToldApart) {
  const Setting setting{.workers = 4, .factors = {1, 1, 1, 2}};
  const auto predictions = setting.predict(SyncSgd());
  ASSERT_EQ(predictions.size(), 2u);
  EXPECT_EQ(predictions[0].formula, "normal workers, unlike");
  EXPECT_NEAR(predictions[0].step_time_s, 4 * 2.5 + 0.5, 0.06);  // 0.4 / sqrt(512) x 3
  EXPECT_NEAR(predictions[1].step_time_s, 4 * 2.5 + 0.5, 0.06);
  // Half its micro-batches end within 5.01 s, and 3.3 of the others': Eq. 5 for each.
  const auto drop = setting.predict(DropCompute(from_seconds(5.01), Preempt::discard, 1.0 / 3));
  const double fast = expected_micro_batches(4, 5.01, {1.5, 0.2}), slow = expected_micro_batches(4, 5.01, {2.5, 0.2});
  EXPECT_NEAR(drop.at(0).kept, (3 * fast + slow) / 16, 0.01);
  // Rates add up: three of 1 / 6.5, one of 1 / 10.5 (a message takes 0.25 s each way).
  const Setting slower{.workers = 4, .factors = {1, 1, 1, 2}, .network_s = 0.25};
  EXPECT_NEAR(slower.predict(AsyncSgd({})).at(0).step_time_s, 4 / (3 / 6.5 + 1 / 10.5), 0.03);
}

TEST(Prediction, TheTimeOfABudgetIsThatOfItsFirstLimit) {
  const Setting setting;
  const ComputeTime compute_time(1, 1.0, {}, {});
  const SampledTimes times = sample_times(compute_time, 4, 2, Step{10});
  const auto network = make_fixed_network(0);
  const LearningRate rate(LearningRate::Options{.peak = 0.1});
  PredictionInput input{.workers = 4, .micro_batches = 2, .times = times, .network = *network, .learning_rate = rate};
  input.samples_per_micro_batch = 8;
  const Prediction half{.formula = "f", .step_time_s = 3, .kept = 0.5};
  input.budget = {.steps = 100};
  EXPECT_EQ(time_of_budget(input, half), 300);
  input.budget.samples = 640;  // 32 samples per step: 20 steps
  EXPECT_EQ(time_of_budget(input, half), 60);
  input.budget.seconds = 50;
  EXPECT_EQ(time_of_budget(input, half), 50);
  input.budget = {.steps = 100, .seconds = 1000};
  EXPECT_EQ(time_of_budget(input, half), 300);
  input.budget = {.samples = 640};
  EXPECT_EQ(time_of_budget(input, half), 60);
  input.budget.seconds = 61;
  EXPECT_EQ(time_of_budget(input, half), 60);
  input.budget = {.seconds = 50};
  EXPECT_EQ(time_of_budget(input, half), 50);
  input.budget = {.bytes = Bytes{1000}};
  EXPECT_EQ(time_of_budget(input, half), std::nullopt);
}

}  // namespace
}  // namespace syncopate
