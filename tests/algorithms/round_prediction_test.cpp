// Formulas of rounds and of quorums against closed forms and the simulated cluster. Of 16 normal times the maximum lies
// 1.765991393 deviations above the mean; of 4, 1.029375373, with a deviation of 0.701224 (standard tables).
#include "algorithms/local_sgd/round_prediction.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <utility>

#include "algorithms/local_sgd/branch_train_merge.hpp"
#include "algorithms/local_sgd/drop_local_sgd.hpp"
#include "algorithms/local_sgd/elastic_averaging.hpp"
#include "algorithms/local_sgd/hierarchical_sgd.hpp"
#include "algorithms/quorum/backup_all_reduce.hpp"
#include "algorithms/quorum/backup_workers.hpp"
#include "tests/algorithms/predicted_run.hpp"
#include "workers/time/delays.hpp"
#include "workers/time/distributions.hpp"
#include "workers/time/network.hpp"

namespace syncopate {
namespace {

constexpr double of_4 = 1.029375373, deviation_of_4 = 0.701224, of_16 = 1.765991393;

std::shared_ptr<const SyncPeriod> every(int steps) { return make_constant_period(steps); }

HierarchicalSgd groups_of(int size, int group_period, int period) {
  return HierarchicalSgd({.group_size = size, .group_period = group_period, .period = every(period)});
}

Prediction only(const std::vector<Prediction>& predictions) {
  EXPECT_EQ(predictions.size(), 1u);
  return predictions.at(0);
}

// A step is 6 +- 0.4 s; what the delays declare is exact, so that no sampling error is left in the formula.
TEST(RoundPrediction, GroupsWaitForTheirOwnSlowest) {
  const PredictedRun setting{.steps = 3200};
  const HierarchicalSgd method = groups_of(4, 4, 16);
  const Prediction prediction = only(setting.predict(method));
  // Four sums of 4 steps, of +- 0.8 s each; three groups' averages and one of all.
  const double group_s = 4 * (4 * 6 + 0.8 * of_4) + 3 * 0.5, group_deviation = 2 * 0.8 * deviation_of_4;
  const double round_s = group_s + group_deviation * of_4 + 0.5;
  EXPECT_NEAR(prediction.step_time_s, round_s / 16, 2e-5);
  EXPECT_DOUBLE_EQ(prediction.communication_s, 4 * 0.5 / 16);
  // The sums of maxima are nearly normal: their maximum's skew adds some hundredths of a second per round.
  const auto simulated = setting.simulate(method);
  EXPECT_NEAR(prediction.step_time_s, simulated.step_s, 3 * simulated.error_s + 0.002);
  EXPECT_LT(simulated.error_s, 0.006);
}

// The last group is always the last: three averages within it, and its own sums.
TEST(RoundPrediction, EveryGroupHasItsOwnWorkersTimes) {
  const PredictedRun setting{.delays = {noise, scoped_delay(constant_delay(1), {.workers = {12, 13, 14, 15}})},
                             .steps = 3200};
  const HierarchicalSgd method = groups_of(4, 4, 16);
  const double round_s = 4 * (4 * 10 + 0.8 * of_4) + 3 * 0.5 + 0.5;
  EXPECT_NEAR(only(setting.predict(method)).step_time_s, round_s / 16, 2e-5);
  const auto simulated = setting.simulate(method);
  EXPECT_NEAR(simulated.step_s, round_s / 16, 3 * simulated.error_s);
}

// One group: rounds of the group period. Groups of one: of the whole period. A period within a group's: Local SGD.
TEST(RoundPrediction, LimitsOfGroupsAreExact) {
  const PredictedRun setting{.steps = 1600};
  EXPECT_NEAR(only(setting.predict(groups_of(16, 4, 8))).step_time_s, 6 + (0.8 * of_16 + 0.5) / 4, 1e-6);
  const double alone = 6 + (0.4 * std::sqrt(8.0) * of_16 + 0.5) / 8;
  EXPECT_NEAR(only(setting.predict(groups_of(1, 4, 8))).step_time_s, alone, 1e-6);
  EXPECT_NEAR(only(setting.predict(groups_of(4, 8, 8))).step_time_s, 6 + (0.4 * std::sqrt(8.0) * of_16 + 0.5) / 8,
              1e-6);
  for (const auto& method : {groups_of(16, 4, 8), groups_of(1, 4, 8), groups_of(4, 8, 8)}) {
    const auto simulated = setting.simulate(method);
    EXPECT_NEAR(only(setting.predict(method)).step_time_s, simulated.step_s, 3 * simulated.error_s);
  }
  // 5 workers of a group of its own size: the last group is smaller, and its average costs less on a ring.
  const PredictedRun ring{.workers = 5, .delays = {}, .steps = 80, .network = make_ring_network(0.1, 1e9)};
  const auto uneven = groups_of(4, 2, 8);
  EXPECT_NEAR(only(ring.predict(uneven)).step_time_s, ring.simulate(uneven).step_s, 1e-6);
}

TEST(RoundPrediction, WhereGroupsShareALinkThereIsNoFormulaButAReason) {
  const PredictedRun setting{.network = make_parameter_server_network(16, {0.1, 1e9})};
  EXPECT_TRUE(setting.predict(groups_of(4, 4, 16)).empty());
  EXPECT_NE(setting.why_not_predicted(groups_of(4, 4, 16)).find("shared links"), std::string::npos);
}

TEST(RoundPrediction, AThresholdCutsRoundsOrTheirSteps) {
  using Clock = DropLocalOptions::Clock;
  const PredictedRun setting{.steps = 3200};
  const double inf = std::numeric_limits<double>::infinity();
  const double local_s = 6 + (0.4 * std::sqrt(8.0) * of_16 + 0.5) / 8;
  struct Case {
    Clock clock;
    double threshold_s;
  };
  for (const auto& [clock, threshold_s] : {Case{Clock::period, 48.5}, Case{Clock::period, 50}, Case{Clock::step, 6.1},
                                           Case{Clock::step, 6.5}, Case{Clock::period, inf}, Case{Clock::step, inf}}) {
    SCOPED_TRACE(threshold_s);
    const DropLocalSgd method(every(8), {.threshold = from_seconds(threshold_s), .clock = clock});
    const auto predictions = setting.predict(method);
    const Prediction& prediction = predictions.at(0);
    const auto simulated = setting.simulate(method);
    // Where normal sums miss what is drawn, the drawn rounds follow.
    EXPECT_LE(predictions.size(), clock == Clock::step && threshold_s < 6.5 ? 2u : 1u);
    if (predictions.size() > 1) {
      EXPECT_NEAR(predictions[1].step_time_s, simulated.step_s, 3 * (simulated.error_s + predictions[1].step_error_s));
    }
    // Eight steps of which many are cut are not quite normal: a few thousandths of a step.
    // Of 400 rounds of at most 48.5 s hardly one ends earlier, so that there is no error to go by.
    const double skew_s = clock == Clock::step ? 0.003 * 6 : 1e-4;
    EXPECT_NEAR(prediction.step_time_s, simulated.step_s, 3 * simulated.error_s + skew_s);
    // 16 x 3,200 steps, which keep 4 micro-batches or 3: the share's standard error is below 0.5 / 4 / sqrt(51,200).
    EXPECT_NEAR(*prediction.drop_rate, simulated.drop_rate, 3 * 0.00055);
    EXPECT_DOUBLE_EQ(prediction.communication_s, 0.5 / 8);
    if (threshold_s == inf) {
      EXPECT_NEAR(prediction.step_time_s, local_s, 1e-6);
      EXPECT_EQ(prediction.drop_rate, 0);
    } else {
      EXPECT_LT(prediction.step_time_s, local_s);
      EXPECT_GT(*prediction.drop_rate, 0.001);
    }
  }
}

TEST(RoundPrediction, OtherMethodsThatGoInRounds) {
  const PredictedRun setting{.steps = 800};
  const double round_s = 48 + 0.4 * std::sqrt(8.0) * of_16 + 0.5;
  const ElasticAveraging elastic({.alpha = 0.05, .period = 8});
  EXPECT_NEAR(only(setting.predict(elastic)).step_time_s, round_s / 8, 1e-6);
  const BranchTrainMerge merge(100, Merge::average, {});
  const double total_s = 100 * (6 + 0.4 * of_16 + 0.5) + 700 * 6 + 0.4 * std::sqrt(700.0) * of_16 + 0.5;
  EXPECT_NEAR(only(setting.predict(merge)).step_time_s, total_s / 800, 1e-6);
  // 6 s on average, and two messages of 0.5 s every 8 steps. A worker's 800 steps are +- 0.4 s each; the run ends with
  // the last step of all together.
  const ElasticAveraging at_own_pace({.exchange = ElasticOptions::Exchange::asynchronous, .alpha = 0.05, .period = 8});
  EXPECT_NEAR(only(setting.predict(at_own_pace)).step_time_s, 6 + 2 * 0.5 / 8, 1e-9);
  EXPECT_NEAR(setting.simulate(at_own_pace).step_s, 6 + 2 * 0.5 / 8, 3 * 0.4 / std::sqrt(800));
  for (const Algorithm* method : std::initializer_list<const Algorithm*>{&elastic, &merge}) {
    const auto simulated = setting.simulate(*method);
    EXPECT_NEAR(only(setting.predict(*method)).step_time_s, simulated.step_s, 3 * simulated.error_s + 0.002);
  }
}

// With every worker waited for nobody is late, and the order statistic is exact: two slices of 8 of 16 bytes.
TEST(QuorumPrediction, SeveralServersSendTheirSlicesSideBySide) {
  for (const int servers : {1, 2}) {
    const PredictedRun setting{.network = make_ring_network(0.1, 40, {.contention = false})};
    const BackupWorkers method(16, {.servers = servers});
    const Prediction prediction = only(setting.predict(method));
    const double message_s = 0.1 + 16.0 / servers / 40;
    EXPECT_DOUBLE_EQ(prediction.communication_s, 2 * message_s);
    // Sampled maxima of 512 steps, 0.2 s apart: 0.009.
    EXPECT_NEAR(prediction.step_time_s, 6 + 0.4 * of_16 + 2 * message_s, 0.03);
    const auto simulated = setting.simulate(method);
    EXPECT_NEAR(simulated.step_s, 6 + 0.4 * of_16 + 2 * message_s, 3 * simulated.error_s);
  }
}

// Two servers of four workers, each late as one: the fifth gradient is there when the slower server is, after the
// greater of two exponential times, 0.5 (1 + 1/2), and not after the fifth of eight.
TEST(QuorumPrediction, WorkersWhoAreLateTogetherAreNotIndependent) {
  const PredictedRun setting{.workers = 8,
                             .micro_batches = 1,
                             .delays = {scoped_delay(exponential_delay(0.5), {.group_size = 4})},
                             .steps = 4000,
                             .network_s = 0.1};
  const BackupWorkers cancels(5, {.late = BackupOptions::Late::cancel});
  const Prediction prediction = only(setting.predict(cancels));
  EXPECT_EQ(prediction.formula, "order statistic, late together");
  EXPECT_NEAR(prediction.step_time_s, 1 + 0.75 + 0.2, 3 * 0.025);  // 0.56 s / sqrt(512)
  const auto simulated = setting.simulate(cancels);
  EXPECT_NEAR(simulated.step_s, 1 + 0.75 + 0.2, 3 * simulated.error_s);
}

// Two of eight are slower than any other ever is: the sixth of all is the slowest of six, 1 + (1 + ... + 1/6) / 2.
TEST(QuorumPrediction, WorkersThatAreSlowForGoodAreNeverAmongTheFirst) {
  const PredictedRun setting{.workers = 8,
                             .micro_batches = 1,
                             .delays = {exponential_delay(0.5), scoped_delay(constant_delay(30), {.workers = {2, 7}})},
                             .steps = 4000,
                             .network_s = 0.1};
  double expected = 1;
  for (int i = 1; i <= 6; ++i) expected += 0.5 / i;
  const BackupWorkers cancels(6, {.late = BackupOptions::Late::cancel});
  const Prediction prediction = only(setting.predict(cancels));
  EXPECT_EQ(prediction.formula, "order statistic, unlike workers");
  EXPECT_NEAR(prediction.step_time_s, expected + 0.2, 3 * 0.027);  // 0.61 s / sqrt(512)
  const auto simulated = setting.simulate(cancels);
  EXPECT_NEAR(simulated.step_s, expected + 0.2, 3 * simulated.error_s);
  EXPECT_NEAR(only(setting.predict(BackupWorkers(6))).step_time_s, prediction.step_time_s, 1e-12);
  EXPECT_GT(prediction.sync_step_time_s, 31);
}

}  // namespace
}  // namespace syncopate
