// The simulation's time, drops and communication in closed form, for methods whose papers print no formula.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "algorithms/asynchronous/async_sgd.hpp"
#include "algorithms/asynchronous/softsync.hpp"
#include "algorithms/local_sgd/branch_train_merge.hpp"
#include "algorithms/local_sgd/elastic_averaging.hpp"
#include "algorithms/quorum/backup_all_reduce.hpp"
#include "algorithms/quorum/backup_workers.hpp"
#include "algorithms/synchronous/random_drop.hpp"
#include "tests/algorithms/named_rounds.hpp"
#include "tests/algorithms/predicted_run.hpp"
#include "workers/theory/paper_formulas.hpp"
#include "workers/time/delays.hpp"
#include "workers/time/distributions.hpp"

namespace syncopate {
namespace {

constexpr int workers = 5;
constexpr double latency_s = 0.1, bytes_per_s = 40, parameter_bytes = 16;
// On a ring a model takes the latency and the time of its bytes; a request without values takes only the latency.
constexpr double message_s = latency_s + parameter_bytes / bytes_per_s;
constexpr double all_reduce_of(int members) {
  return 2 * (members - 1) * (latency_s + parameter_bytes / members / bytes_per_s);
}

std::shared_ptr<const SyncPeriod> every(int steps) { return make_constant_period(steps); }

HierarchicalSgd groups_of(int size, int group_period, int period) {
  return HierarchicalSgd({size, Step{group_period}}, every(period));
}

// Seconds of communication per step with groups: a period of 8 steps has the group averages that fit before its end,
// and one average over all workers.
double of_groups(int size, int group_period) {
  double own_s = 0;  // averaged over the workers
  for (int first = 0; first < workers; first += size) {
    const int members = std::min(size, workers - first);
    own_s += all_reduce_of(members) * members / workers;
  }
  return ((8 - 1) / group_period * own_s + all_reduce_of(workers)) / 8;
}

PredictedRun on_a_ring(int steps, std::vector<std::shared_ptr<const DelayProcess>> delays) {
  return {.workers = workers,
          .micro_batches = 4,
          .delays = std::move(delays),
          .steps = steps,
          .network = make_ring_network(latency_s, bytes_per_s, {.contention = false})};
}

struct Method {
  const char* name;
  std::shared_ptr<const Algorithm> algorithm;
  double communication_s;               // per step
  double step_s = 4 + communication_s;  // 4 s of computing
};

std::vector<Method> methods() {
  using Exchange = ElasticOptions::Exchange;
  const double all_s = all_reduce_of(workers);
  const double slices_s = latency_s + 8 / bytes_per_s;  // three servers' slices of 4, 4 and 8 bytes
  return {
      {"random", std::make_shared<RandomDrop>(0.2, 0), all_s},
      {"backup workers", std::make_shared<BackupWorkers>(workers), 2 * message_s},
      {"three servers", std::make_shared<BackupWorkers>(workers, BackupOptions{.servers = 3}), 2 * slices_s},
      {"backup all-reduce", std::make_shared<BackupAllReduce>(workers), all_s},
      {"async", std::make_shared<AsyncSgd>(AsyncSgd::Options{}), 2 * message_s},
      {"softsync", std::make_shared<Softsync>(2), 2 * message_s},
      {"EASGD", std::make_shared<ElasticAveraging>(ElasticOptions{.alpha = 0.1, .period = 8}), all_s / 8},
      {"asynchronous EASGD",
       std::make_shared<ElasticAveraging>(
           ElasticOptions{.exchange = Exchange::asynchronous, .alpha = 0.1, .period = 8}),
       (latency_s + message_s) / 8},  // a request and the centre
      {"outer", std::make_shared<OuterLocalSgd>(every(8), make_plain_outer(1), StatePolicies{}), all_s / 8},
      // The groups of 3 and 2 workers meet after 8 steps, and wait for the three averages of the larger group.
      {"groups", std::make_shared<HierarchicalSgd>(groups_of(3, 2, 8)), of_groups(3, 2),
       4 + (3 * all_reduce_of(3) + all_s) / 8},
      {"drop local", std::make_shared<DropLocalSgd>(every(8), DropOptions{}), all_s / 8},
  };
}

TEST(SimulatedPace, WithoutSpreadIsThatOfComputingAndCommunication) {
  const PredictedRun setting = on_a_ring(480, {});
  for (const auto& [name, algorithm, communication_s, step_s] : methods()) {
    SCOPED_TRACE(name);
    const auto simulated = setting.simulate(*algorithm);
    // The tolerance is for the barrier at the end, or for messages under way then.
    EXPECT_NEAR(simulated.communication_s, communication_s, 0.01 * communication_s);
    EXPECT_NEAR(simulated.step_s, step_s, 0.005 * step_s);
  }
}

TEST(SimulatedPace, OfGroupsOfUnequalSizeHasTheirOwnAverages) {
  const PredictedRun setting = on_a_ring(512, {pareto_delay(1.5, 0.5)});
  for (const auto& [size, group_period] : {std::pair(3, 2), {4, 2}, {2, 3}, {5, 4}, {1, 4}})
    EXPECT_NEAR(setting.simulate(groups_of(size, group_period, 8)).communication_s, of_groups(size, group_period), 1e-6)
        << size;
}

// Worker 0 is done after 1 s, so its gradient and the next model are under way from 1 to 2 s after its last model came.
// Worker 1's gradient is under way from 1.25 s on, worker 2's from 1.75 s on.
TEST(SimulatedPace, WhoIsCancelledDoesNotAwaitTheNextModel) {
  const BackupWorkers first_of_all(1, {.late = LateWork::cancel});
  const PredictedRun setting{
      .workers = 4, .micro_batches = 1, .factors = {1, 1.25, 1.75, 5}, .delays = {}, .steps = 512};
  EXPECT_NEAR(setting.simulate(first_of_all).communication_s, (1 + 0.75 + 0.25) / 4, 0.5 / 512);
}

// Workers' rates add up. A message takes 0.25 s each way. Unlike workers have rates of three times 1 / 6.5 s and once 1
// / 10.5 s.
TEST(SimulatedPace, OfAsynchronousWorkersIsTheirMean) {
  const PredictedRun alike{.network_s = 0.25};
  EXPECT_NEAR(alike.simulate(AsyncSgd({})).step_s, 6 + 2 * 0.25, 0.01);
  const PredictedRun unlike{.workers = 4, .factors = {1, 1, 1, 2}, .network_s = 0.25};
  EXPECT_NEAR(unlike.simulate(AsyncSgd({})).step_s, 4 / (3 / 6.5 + 1 / 10.5), 0.03);
}

// The maximum of 16 normal times lies 1.765991393 deviations above the mean. The maximum of 4 lies 1.029375373 above
// the mean and deviates by 0.701224 (standard tables). A step is 6 +- 0.4 s.
constexpr double of_4 = 1.029375373, deviation_of_4 = 0.701224, of_16 = 1.765991393;

TEST(SimulatedPace, OfGroupsWaitsForTheirOwnSlowest) {
  const PredictedRun setting{.steps = 3200};
  // A group has four sums of 4 steps, of +- 0.8 s each, and three averages; one average of all groups follows.
  const double group_s = 4 * (4 * 6 + 0.8 * of_4) + 3 * 0.5, group_deviation = 2 * 0.8 * deviation_of_4;
  const double round_s = group_s + group_deviation * of_4 + 0.5;
  const auto simulated = setting.simulate(groups_of(4, 4, 16));
  // Sums of maxima are nearly normal. The skew of their maximum adds some hundredths of a second per round.
  EXPECT_NEAR(simulated.step_s, round_s / 16, 3 * simulated.error_s + 0.002);
  EXPECT_LT(simulated.error_s, 0.006);
}

// The last group is always the slowest. A round takes this group's sums of steps, its three averages, and an average of
// all workers.
TEST(SimulatedPace, OfGroupsGoesByTheSlowestGroup) {
  const PredictedRun setting{.delays = {noise, scoped_delay(constant_delay(1), {.workers = {12, 13, 14, 15}})},
                             .steps = 3200};
  const double round_s = 4 * (4 * 10 + 0.8 * of_4) + 3 * 0.5 + 0.5;
  const auto simulated = setting.simulate(groups_of(4, 4, 16));
  EXPECT_NEAR(simulated.step_s, round_s / 16, 3 * simulated.error_s);
}

// With one group of all workers, rounds have the group period. With groups of one worker, they have the whole period.
// If both periods are equal, the method is Local SGD.
TEST(SimulatedPace, OfGroupsHasItsLimits) {
  const PredictedRun setting{.steps = 1600};
  const double local_s = 6 + (0.4 * std::sqrt(8.0) * of_16 + 0.5) / 8;
  for (const auto& [method, step_s] : {std::pair(groups_of(16, 4, 8), 6 + (0.8 * of_16 + 0.5) / 4),
                                       {groups_of(1, 4, 8), local_s},
                                       {groups_of(4, 8, 8), local_s}}) {
    const auto simulated = setting.simulate(method);
    EXPECT_NEAR(simulated.step_s, step_s, 3 * simulated.error_s);
  }
}

TEST(SimulatedPace, OfRoundsUntilAThresholdLosesWhatEndsLate) {
  using Clock = DropOptions::Clock;
  const PredictedRun setting{.steps = 3200};
  const MicroBatchLaw law{1.5, 0.2};
  const auto simulated = [&](Clock clock, double threshold_s) {
    return setting.simulate(DropLocalSgd(every(8), {.threshold = from_seconds(threshold_s), .clock = clock}));
  };
  // Each of 16 x 3,200 steps keeps 4 or 3 micro-batches, so the share's standard error is below 0.5 / 4 / sqrt(51,200).
  constexpr double error = 3 * 0.00055;
  for (const double threshold_s : {48.5, 50.0}) {
    const auto of_round = simulated(Clock::period, threshold_s);
    EXPECT_NEAR(of_round.drop_rate, 1 - expected_micro_batches(32, threshold_s, law) / 32, error) << threshold_s;
    EXPECT_LE(of_round.step_s, (threshold_s + 0.5) / 8 + 1e-9);
  }
  for (const double threshold_s : {5.0, 5.9, 6.1, 6.5}) {
    const auto of_step = simulated(Clock::step, threshold_s);
    EXPECT_NEAR(of_step.drop_rate, 1 - expected_micro_batches(4, threshold_s, law) / 4, error) << threshold_s;
    EXPECT_LE(of_step.step_s, threshold_s + 0.5 / 8 + 1e-9);
  }
  for (const Clock clock : {Clock::period, Clock::step}) {
    const auto never = simulated(clock, std::numeric_limits<double>::infinity());
    EXPECT_NEAR(never.step_s, 6 + (0.4 * std::sqrt(8.0) * of_16 + 0.5) / 8, 3 * never.error_s);
    EXPECT_EQ(never.drop_rate, 0);
  }
}

TEST(SimulatedPace, OfOtherMethodsInRoundsIsThatOfTheirSlowestSums) {
  const PredictedRun setting{.steps = 800};
  const double round_s = 48 + 0.4 * std::sqrt(8.0) * of_16 + 0.5;
  const auto elastic = setting.simulate(ElasticAveraging({.alpha = 0.05, .period = 8}));
  EXPECT_NEAR(elastic.step_s, round_s / 8, 3 * elastic.error_s + 0.002);
  const auto merge = setting.simulate(BranchTrainMerge(100, Merge::average, {}));
  const double total_s = 100 * (6 + 0.4 * of_16 + 0.5) + 700 * 6 + 0.4 * std::sqrt(700.0) * of_16 + 0.5;
  EXPECT_NEAR(merge.step_s, total_s / 800, 3 * merge.error_s + 0.002);
  // A step takes 6 s on average, and every 8 steps have two messages of 0.5 s. A worker's 800 steps deviate by 0.4 s
  // each; the run ends with the last step of all workers.
  const ElasticAveraging at_own_pace({.exchange = ElasticOptions::Exchange::asynchronous, .alpha = 0.05, .period = 8});
  EXPECT_NEAR(setting.simulate(at_own_pace).step_s, 6 + 2 * 0.5 / 8, 3 * 0.4 / std::sqrt(800));
}

}  // namespace
}  // namespace syncopate
