#include "algorithms/quorum/backup_workers.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <deque>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/step_times.hpp"
#include "workers/time/distributions.hpp"

namespace syncopate {
namespace {

using Late = LateWork;
using Of = MovingAverageOptions::Of;

BackupWorkers averaged(int quorum, const BackupOptions& options, const MovingAverageOptions& average) {
  BackupWorkers method(quorum, options);
  method.average_publications(average);
  return method;
}

TEST(BackupWorkers, WithoutBackupsEqualsSynchronousSgdBitForBit) {
  const SimulatedRun setup{.workers = 4,
                           .micro_batches = 2,
                           .momentum = 0.9,
                           .budget = {.steps = 20},
                           .delays = {std::make_shared<DelayOfWorker>(std::vector{0.3, 0.0, 0.2, 0.1})}};
  const auto expected = setup.run(SyncSgd()).parameters;
  for (const Late late : {Late::finish, Late::cancel}) {
    const auto outcome = setup.run(BackupWorkers(4, {.late = late}));
    EXPECT_EQ(outcome.parameters, expected);
    EXPECT_EQ(sum(outcome.totals.dropped), 0);
    expect_exact_accounts(outcome);
  }
}

TEST(BackupWorkers, GradientsAtOneVersionAreFusedAsInSynchronousSgd) {
  std::vector<std::int64_t> calls;
  for (const bool with_server : {false, true}) {
    auto objective = std::make_shared<PullObjective>();
    SimulatedRun setup{.workers = 40, .momentum = 0.9, .budget = {.steps = 5}, .objective = objective};
    with_server ? setup.run(BackupWorkers(40)) : setup.run(SyncSgd());
    calls.push_back(objective->calls);
  }
  EXPECT_EQ(calls[0], 5 * 2);  // 5 steps; the 40 samples of a step make two chunks
  EXPECT_EQ(calls[1], calls[0]);
}

TEST(BackupWorkers, ALateGradientsBytesCountWhenItArrives) {
  SimulatedRun setup{.network_s = 0.25,
                     .budget = {.steps = 2},
                     .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.1, 1.6})}};
  const auto outcome = setup.run(BackupWorkers(2));
  EXPECT_EQ(outcome.rounds[0].bytes, Bytes{(3 + 2) * 16});  // three models, two gradients of 16 bytes
  EXPECT_EQ(outcome.rounds[1].bytes,
            Bytes{(2 + 1 + 1 + 2) * 16});  // two models, the late gradient, the model that answers it, two gradients
}

TEST(BackupWorkers, LateGradientsAreDroppedOnArrivalAndTheirWorkerAdoptsTheNewestModel) {
  // A model takes 0.25 s to a worker, a gradient 0.25 s back. The workers compute for 1, 1.1 and 2.6 s.
  SimulatedRun setup{.network_s = 0.25,
                     .budget = {.steps = 4},
                     .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.1, 1.6})}};
  const auto outcome = setup.run(BackupWorkers(2));
  // A step takes 0.25 + 1.1 + 0.25 = 1.6 s. Worker 2's gradient of step 0 arrives at 0.25 + 2.6 + 0.25 = 3.1 s, in the
  // second step (1.6 to 3.2 s). Worker 2 then computes at the model of step 1 until 5.95 s, and is late again.
  EXPECT_EQ(outcome.log, (std::vector<std::string>{
                             "step 1 at 1.600 s: kept 2, dropped 0",
                             "step 2 at 3.200 s: kept 2, dropped 1",
                             "step 3 at 4.800 s: kept 2, dropped 0",
                             "step 4 at 6.400 s: kept 2, dropped 1",
                         }));
  EXPECT_EQ(outcome.totals.kept, (std::vector<std::int64_t>{4, 4, 0}));
  EXPECT_EQ(outcome.totals.accounts[2][Activity::compute], Duration{});
}

TEST(BackupWorkers, TheStepIsTheMeanOverTheQuorum) {
  SimulatedRun setup{.network_s = 0.25,
                     .rate = 0.5,
                     .budget = {.steps = 1},
                     .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 9.0, 0.1})}};
  const auto outcome = setup.run(BackupWorkers(2));
  for (std::size_t i = 0; i < 4; ++i) {
    const double mean = (PullObjective::target({Rank{0}, 0, 0}, i) + PullObjective::target({Rank{2}, 0, 0}, i)) / 2;
    EXPECT_NEAR(outcome.parameters[i], 1 - 0.5 * (1 - mean), 1e-6);
  }
}

TEST(BackupWorkers, DroppedGradientsAreNeverComputed) {
  auto objective = std::make_shared<PullObjective>();
  SimulatedRun setup{.network_s = 0.25,
                     .budget = {.steps = 10},
                     .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.1, 1.6})},
                     .objective = objective};
  setup.run(BackupWorkers(2));
  EXPECT_EQ(objective->evaluations, 20);
}

// A version's samples do not depend on which workers are late. A worker skips the samples of versions that it misses.
TEST(BackupWorkers, ALateWorkerSkipsTheSamplesOfTheVersionsThatItHasMissed) {
  for (const Late late : {Late::finish, Late::cancel}) {
    auto objective = std::make_shared<PullObjective>();
    const SimulatedRun setup{.workers = 4,
                             .network_s = 0.25,
                             .budget = {.steps = 20},
                             .delays = {exponential_delay(1.0)},
                             .objective = objective};
    setup.run(BackupWorkers(2, {.late = late}));
    std::vector<int> of_version(20);
    for (const MicroBatch& sample : objective->evaluated)
      ++of_version.at(static_cast<std::size_t>(sample.step.value()));
    EXPECT_EQ(of_version, std::vector<int>(20, 2));
  }
}

TEST(BackupWorkers, CancelledWorkStopsWhenTheNewModelComes) {
  // Times are as for the late gradients above, but each new model goes to all workers, and arrives 0.25 s after its
  // step.
  const SimulatedRun setup{.network_s = 0.25,
                           .budget = {.steps = 4},
                           .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.1, 1.6})}};
  const auto outcome = setup.run(BackupWorkers(2, {.late = Late::cancel}));
  EXPECT_EQ(outcome.log, (std::vector<std::string>{
                             "step 1 at 1.600 s: kept 2, dropped 0",
                             "step 2 at 3.200 s: kept 2, dropped 0",
                             "step 3 at 4.800 s: kept 2, dropped 0",
                             "step 4 at 6.400 s: kept 2, dropped 0",
                         }));
  // Worker 2 computes from 0.25 s on, is stopped at 1.85, 3.45 and 5.05 s, and then computes until the end.
  EXPECT_EQ(outcome.totals.kept, (std::vector<std::int64_t>{4, 4, 0}));
  EXPECT_EQ(outcome.totals.dropped, (std::vector<std::int64_t>{0, 0, 4}));
  EXPECT_EQ(outcome.totals.accounts[2][Activity::discarded], from_seconds(6.15));
  EXPECT_EQ(outcome.totals.accounts[2][Activity::communicate], from_seconds(0.25));
  EXPECT_EQ(outcome.totals.bytes, Bytes{4 * (3 + 2) * 16});
  expect_exact_accounts(outcome);
}

TEST(BackupWorkers, AGradientThatCrossesTheNewModelIsDroppedAlsoWithCancellation) {
  // Worker 2's first gradient leaves at 1.55 s, before the new model comes, and arrives at 1.8 s, after the step.
  const SimulatedRun setup{.network_s = 0.25,
                           .budget = {.steps = 2},
                           .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.1, 0.3})}};
  const auto outcome = setup.run(BackupWorkers(2, {.late = Late::cancel}));
  EXPECT_EQ(outcome.log, (std::vector<std::string>{
                             "step 1 at 1.600 s: kept 2, dropped 0",
                             "step 2 at 3.200 s: kept 2, dropped 1",
                         }));
  expect_exact_accounts(outcome);
}

// Computes both averages of the parameters in double precision; none of the N workers is late.
TEST(BackupWorkers, TheAverageTakesInTheModelBeforeOrAfterEachUpdate) {
  constexpr double rate = 0.3, decay = 0.8;
  const SimulatedRun setup{.workers = 3, .rate = rate, .budget = {.steps = 12}};
  const auto before = setup.run(averaged(3, {}, {.decay = decay}));
  const auto after = setup.run(averaged(3, {}, {.decay = decay, .of = Of::after_update}));
  for (std::size_t i = 0; i < 4; ++i) {
    double theta = 1, average_before = 1, average_after = 1;
    for (int step = 0; step < 12; ++step) {
      average_before = decay * average_before + (1 - decay) * theta;
      double mean_target = 0;
      for (int worker = 0; worker < 3; ++worker) mean_target += PullObjective::target({Rank{worker}, step, 0}, i) / 3;
      theta -= rate * (theta - mean_target);
      average_after = decay * average_after + (1 - decay) * theta;
    }
    EXPECT_NEAR(before.parameters[i], average_before, 1e-4);
    EXPECT_NEAR(after.parameters[i], average_after, 1e-4);
  }
  expect_exact_accounts(before);
}

TEST(BackupWorkers, AnAverageWithoutMemoryIsTheModelAndLagsOneStepInThePaper) {
  SimulatedRun setup{.workers = 4, .momentum = 0.9, .budget = {.steps = 9}};
  const auto after = setup.run(averaged(3, {}, {.decay = 0, .of = Of::after_update}));
  const auto lagging = setup.run(averaged(3, {}, {.decay = 0}));
  EXPECT_EQ(after.parameters, setup.run(BackupWorkers(3)).parameters);
  setup.budget.steps = Step{8};
  EXPECT_EQ(lagging.parameters, setup.run(BackupWorkers(3)).parameters);
}

TEST(BackupWorkers, TheLearningRateMayGrowWithTheQuorum) {
  SimulatedRun setup{.workers = 5, .momentum = 0.9, .rate = 0.02, .budget = {.steps = 10}};
  const auto scaled = setup.run(BackupWorkers(3, {.rate = BackupOptions::Rate::times_quorum}));
  EXPECT_DOUBLE_EQ(scaled.learning_rate, 3 * 0.02);
  setup.rate = 3 * 0.02;
  EXPECT_EQ(scaled.parameters, setup.run(BackupWorkers(3)).parameters);
}

// The first three steps have three gradients each, the next two have two, the last three have one. A step of n
// gradients goes n times as far along their mean, so it is along their sum. The published rate includes this factor.
TEST(BackupWorkers, ALearningRateTimesTheQuorumFallsWithTheWorkersThatAreLeft) {
  constexpr double rate = 0.1, decay = 0.5;
  const SimulatedRun setup{.rate = rate, .budget = {.steps = 100}, .data_of = {Step{3}, Step{5}, Step{8}}};
  std::vector<double> theta(4, 1.0), average(4, 1.0), rates;
  for (int step = 0; step < 8; ++step) {
    const int first = step < 3 ? 0 : step < 5 ? 1 : 2;
    for (std::size_t i = 0; i < theta.size(); ++i) {
      double sum = 0;
      for (int worker = first; worker < 3; ++worker)
        sum += theta[i] - PullObjective::target({Rank{worker}, step, 0}, i);
      theta[i] -= rate * sum;
      average[i] = decay * average[i] + (1 - decay) * theta[i];
    }
    rates.push_back(rate * (3 - first));
  }
  for (const Late late : {Late::finish, Late::cancel}) {
    const BackupOptions options{.late = late, .rate = BackupOptions::Rate::times_quorum};
    const auto outcome = setup.run(BackupWorkers(3, options));
    ASSERT_EQ(outcome.publications.size(), rates.size());
    for (std::size_t i = 0; i < rates.size(); ++i)
      EXPECT_DOUBLE_EQ(outcome.publications[i].learning_rate, rates[i]) << i;
    const auto of_average = setup.run(averaged(3, options, {.decay = decay, .of = Of::after_update}));
    for (std::size_t i = 0; i < theta.size(); ++i) {
      EXPECT_NEAR(outcome.parameters[i], theta[i], 1e-4);
      EXPECT_NEAR(of_average.parameters[i], average[i], 1e-4);
    }
  }
}

TEST(BackupWorkers, WorkersWithUnequalDataEndCleanlyAndWithoutBackupsNothingIsDropped) {
  const SimulatedRun setup{.rate = 0.3,
                           .budget = {.steps = 100},
                           .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.3, 0.1})},
                           .data_of = {Step{3}, Step{5}, Step{8}}};
  // Each step is along the mean of the gradients of the workers that still have data.
  std::vector<double> theta(4, 1.0);
  for (int step = 0; step < 8; ++step)
    for (std::size_t i = 0; i < theta.size(); ++i) {
      double target = 0;
      const int first = step < 3 ? 0 : step < 5 ? 1 : 2;
      for (int worker = first; worker < 3; ++worker) target += PullObjective::target({Rank{worker}, step, 0}, i);
      theta[i] -= 0.3 * (theta[i] - target / (3 - first));
    }
  for (const Late late : {Late::finish, Late::cancel}) {
    const auto outcome = setup.run(BackupWorkers(3, {.late = late}));
    EXPECT_EQ(outcome.totals.kept, (std::vector<std::int64_t>{3, 5, 8}));
    EXPECT_EQ(outcome.totals.dropped, (std::vector<std::int64_t>{0, 0, 0}));
    EXPECT_EQ(outcome.rounds.size(), 8u);
    for (std::size_t i = 0; i < theta.size(); ++i) EXPECT_NEAR(outcome.parameters[i], theta[i], 1e-4);
    expect_exact_accounts(outcome);
  }
}

TEST(BackupWorkers, TheQuorumFallsOnceFewerWorkersAreLeft) {
  const SimulatedRun setup{.workers = 4,
                           .network_s = 0.1,
                           .budget = {.steps = 20},
                           .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.0, 0.0, 0.5})},
                           .data_of = {Step{2}, Step{4}, std::nullopt, std::nullopt}};
  for (const Late late : {Late::finish, Late::cancel}) {
    const auto outcome = setup.run(BackupWorkers(3, {.late = late}));
    ASSERT_EQ(outcome.rounds.size(), 20u);
    for (std::size_t step = 0; step < 20; ++step) EXPECT_EQ(outcome.rounds[step].kept, step < 4 ? 3 : 2) << step;
    EXPECT_EQ(sum(outcome.totals.kept), 4 * 3 + 16 * 2);
    expect_exact_accounts(outcome);
  }
}

TEST(BackupWorkers, AsManyLostWorkersAsBackupsDoNotBlock) {
  const SimulatedRun setup{.workers = 5,
                           .budget = {.steps = 3},
                           .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, HUGE_VAL, 0.0, HUGE_VAL, 0.0})}};
  for (const Late late : {Late::finish, Late::cancel}) {
    const auto outcome = setup.run(BackupWorkers(3, {.late = late}));
    EXPECT_EQ(outcome.rounds.size(), 3u);
    EXPECT_EQ(outcome.totals.kept, (std::vector<std::int64_t>{3, 0, 3, 0, 3}));
    expect_exact_accounts(outcome);
    try {
      setup.run(BackupWorkers(4, {.late = late}));
      FAIL() << "one lost worker more than there are backups must block";
    } catch (const RunFailure& failure) {
      EXPECT_THAT(failure.what(), testing::HasSubstr("workers 1, 3: waiting in a micro-batch"));
      EXPECT_THAT(failure.what(),
                  testing::HasSubstr("server: waiting in receive (algorithms/quorum/backup_workers.hpp:"));
    }
  }
}

TEST(BackupWorkers, EveryGradientIsKeptOrDroppedWithItsWorker) {
  const SimulatedRun setup{.workers = 6,
                           .micro_batches = 2,
                           .network_s = 0.05,
                           .budget = {.steps = 200},
                           .delays = {exponential_delay(0.5)},
                           .objective = nullptr};
  const auto outcome = setup.run(BackupWorkers(4));
  EXPECT_EQ(sum(outcome.totals.kept), 200 * 4 * 2);
  EXPECT_EQ(outcome.totals.staleness, (std::vector<std::int64_t>{200 * 4}));  // kept gradients are never stale
  std::int64_t dropped_in_rows = 0;
  for (const StepRow& round : outcome.rounds) dropped_in_rows += round.dropped;
  // Micro-batches in progress at the end are in no row. They are at most those of the two backups.
  EXPECT_GE(sum(outcome.totals.dropped), dropped_in_rows);
  EXPECT_LE(sum(outcome.totals.dropped), dropped_in_rows + 2 * 2);
  for (std::size_t worker = 0; worker < 6; ++worker) {
    EXPECT_GT(outcome.totals.dropped[worker], 0);
    EXPECT_LE(outcome.totals.kept[worker], 200 * 2);  // the micro-batches of 200 gradients at most
  }
  expect_exact_accounts(outcome);
}

TEST(BackupWorkersStepTimes, WithCancellationAreTheOrderStatistics) {
  for (const auto& [workers, quorum, steps] : {std::tuple(100, 96, 2000), {8, 6, 20000}, {4, 2, 20000}}) {
    const auto [mean_s, deviation_s] = order_statistic(quorum, workers);
    // Steps are independent, because all workers begin each step together.
    expect_mean_step_with_exponential_delays({workers, quorum, steps, mean_s, deviation_s / std::sqrt(steps)},
                                             BackupWorkers(quorum, {.late = Late::cancel}));
  }
}

TEST(BackupWorkersStepTimes, WithoutBackupsAreThoseOfTheSlowest) {
  const auto [mean_s, deviation_s] = order_statistic(100, 100);
  expect_mean_step_with_exponential_delays({100, 100, 2000, mean_s, deviation_s / std::sqrt(2000)}, BackupWorkers(100));
}

// Each case has workers, gradients per step, steps, mean and error. The mean is over 24 runs of a separate simulation
// of the rule (a queue of arrivals, in Python) with this number of steps. The error is the standard deviation between
// these runs, because steps depend on earlier ones.
TEST(BackupWorkersStepTimes, WithoutCancellationMatchASeparateSimulation) {
  for (const StepTimeCase& c : {StepTimeCase{100, 96, 2000, 2.6143, 0.0049}, StepTimeCase{8, 6, 20000, 1.7911, 0.0020},
                                StepTimeCase{4, 2, 20000, 1.5094, 0.0021}})
    expect_mean_step_with_exponential_delays(c, BackupWorkers(c.quorum));
}

// With a quorum of N, a step takes the largest of N times that are uniform between 1 and 1.05 s. Its mean is 1 + 0.05 N
// / (N + 1), its standard deviation 0.05 sqrt(N / (N + 2)) / (N + 1).
TEST(BackupWorkersStepTimes, SlowWorkersCostNothing) {
  for (const auto& [workers, quorum, steps] : {std::tuple(100, 96, 500), {8, 6, 5000}, {4, 2, 5000}}) {
    const double n = quorum;
    const StepTimeCase expected{workers, quorum, steps, 1 + 0.05 * n / (n + 1),
                                0.05 * std::sqrt(n / (n + 2)) / (n + 1) / std::sqrt(steps)};
    expect_mean_step_with_slow_workers(expected, BackupWorkers(quorum));
    expect_mean_step_with_slow_workers(expected, BackupWorkers(quorum, {.late = Late::cancel}));
  }
}

std::string faults_of(const std::string& keys) {
  return read_method("algorithm = \"backup-workers\"\n" + keys, {.workers = 8}).faults;
}

TEST(BackupWorkersSettings, AreReadAndChecked) {
  using testing::HasSubstr;
  EXPECT_EQ(faults_of("backups = 2"), "");
  EXPECT_EQ(faults_of("backups = 7\nlate = \"cancel\"\nlearning_rate = \"times-quorum\"\n"
                      "average = { decay = 0.999, of = \"after-update\" }"),
            "");
  EXPECT_EQ(faults_of("backups = 0\nservers = 4"), "");
  EXPECT_THAT(faults_of("backups = 8"), HasSubstr("backups = 8"));
  EXPECT_THAT(faults_of("late = \"finish\""), HasSubstr("backups"));
  EXPECT_THAT(faults_of("backups = 1\nlate = \"later\""), HasSubstr("late = \"later\""));
  EXPECT_THAT(faults_of("backups = 1\naverage = { decay = 1.0 }"), HasSubstr("decay = 1"));
  EXPECT_THAT(faults_of("backups = 1\nservers = 2\nlate = \"cancel\""), HasSubstr("must be 1 with late"));
  EXPECT_THAT(faults_of("backups = 1\nservers = 2\naverage = {}"), HasSubstr("must be 1 with `average`"));
}

// Backup workers with the parameters divided among several servers.

// The n-th message takes the n-th time of a list; messages beyond the list take 1 s.
class ListedNetwork : public NetworkModel {
 public:
  explicit ListedNetwork(std::deque<double> times_s) : times_s_(std::move(times_s)) {}
  Duration collective(const CollectiveCall&) const override { return {}; }
  Duration message(const MessageCall&) const override {
    double time_s = 1;
    if (!times_s_.empty()) {
      time_s = times_s_.front();
      times_s_.pop_front();
    }
    return from_seconds(time_s);
  }

 private:
  mutable std::deque<double> times_s_;
};

// Messages take random times with a heavy tail (Pareto), so that servers see different orders.
class JitteryNetwork : public NetworkModel {
 public:
  explicit JitteryNetwork(std::uint64_t seed) : seed_(seed) {}
  Duration collective(const CollectiveCall&) const override { return {}; }
  Duration message(const MessageCall&) const override {
    return from_seconds(0.5 / RandomStream{.seed = seed_, .purpose = Purpose::network}.uniform(next_++));
  }

 private:
  std::uint64_t seed_;
  mutable std::uint32_t next_ = 0;
};

// At a learning rate of 1 each step adds 1 to every parameter, so each parameter shows the model's version.
class Counter : public PullObjective {
 public:
  using PullObjective::PullObjective;
  PartialGradient gradient(const float* theta, const float*, std::span<const MicroBatch> micro_batches) const override {
    for (std::size_t i = 1; i < parameters(); ++i) mixed_versions += theta[i] != theta[0];
    auto values = std::make_shared<std::vector<float>>(parameters(), -static_cast<float>(micro_batches.size()));
    PartialGradient result;
    result.segments.push_back({.offset = 0, .size = parameters(), .data = values->data(), .owner = values});
    return result;
  }
  mutable std::atomic<std::int64_t> mixed_versions = 0;
};

TEST(ShardedServers, WithoutBackupsEqualSynchronousSgdBitForBit) {
  const SimulatedRun setup{.workers = 4,
                           .micro_batches = 2,
                           .momentum = 0.9,
                           .budget = {.steps = 20},
                           .delays = {std::make_shared<DelayOfWorker>(std::vector{0.3, 0.0, 0.2, 0.1})}};
  const auto expected = setup.run(SyncSgd()).parameters;
  for (const int servers : {2, 3, 4}) {
    const auto outcome = setup.run(BackupWorkers(4, {.servers = servers}));
    EXPECT_EQ(outcome.parameters, expected) << servers;
    EXPECT_EQ(outcome.published, Step{20});
    expect_exact_accounts(outcome);
  }
}

TEST(ShardedServers, TakeTheSameWorkersAsOneServerWhereAllMessagesTakeTheSameTime) {
  const SimulatedRun setup{.workers = 8,
                           .network_s = 0.2,
                           .momentum = 0.9,
                           .budget = {.steps = 60},
                           .delays = {exponential_delay(0.5)},
                           .objective = std::make_shared<PullObjective>(11, 11)};
  const auto one = setup.run(BackupWorkers(6));
  for (const int servers : {2, 5}) {
    const auto outcome = setup.run(BackupWorkers(6, {.servers = servers}));
    EXPECT_EQ(outcome.parameters, one.parameters);
    EXPECT_EQ(outcome.samples, one.samples);
    EXPECT_EQ(outcome.totals.kept, one.totals.kept);
    EXPECT_EQ(outcome.totals.dropped, one.totals.dropped);
    EXPECT_EQ(outcome.totals.staleness, one.totals.staleness);
    EXPECT_EQ(outcome.log, one.log);
    expect_exact_accounts(outcome);
  }
}

TEST(ShardedServers, EachSliceIsTheMeanOfThoseWhoReachedItsServerFirst) {
  // The first four times are those of the models: server 0 to workers 0 and 1, server 1 to workers 1 and 0. The
  // gradients' times follow: worker 0's gradient reaches server 0 first, and worker 1's reaches server 1 first.
  const SimulatedRun setup{.workers = 2,
                           .network = std::make_shared<ListedNetwork>(std::deque{0., 0., 0., 0., 0.1, 0.2, 0.1, 0.2}),
                           .rate = 0.5,
                           .budget = {.steps = 1}};
  const auto outcome = setup.run(BackupWorkers(1, {.servers = 2}));
  for (std::size_t i = 0; i < 4; ++i) {
    const Rank taken{i < 2 ? 0 : 1};
    EXPECT_NEAR(outcome.parameters[i], 1 - 0.5 * (1 - PullObjective::target({taken, 0, 0}, i)), 1e-6) << i;
  }
  EXPECT_EQ(outcome.totals.kept, (std::vector<std::int64_t>{1, 0}));  // worker 0, according to server 0
  expect_exact_accounts(outcome);
}

// Workers that adopted slices of different versions could wait for each other for ever.
TEST(ShardedServers, WhereServersSeeDifferentOrdersWorkersStillComputeAtSlicesOfOneVersion) {
  for (const std::uint64_t seed : {1, 2, 3, 4, 5, 6, 7, 8}) {
    const auto objective = std::make_shared<Counter>(12, 12);
    const SimulatedRun setup{.workers = 6,
                             .network = std::make_shared<JitteryNetwork>(seed),
                             .rate = 1,
                             .budget = {.steps = 100},
                             .delays = {exponential_delay(0.5)},
                             .objective = objective};
    const auto outcome = setup.run(BackupWorkers(4, {.servers = 4}));
    EXPECT_EQ(objective->mixed_versions, 0) << seed;
    EXPECT_EQ(outcome.rounds.size(), 100u);
    EXPECT_EQ(sum(outcome.totals.kept), 100 * 4);
    EXPECT_EQ(outcome.published, Step{100});
    EXPECT_EQ(outcome.parameters, std::vector<float>(12, 101.0f));
    expect_exact_accounts(outcome);
  }
}

TEST(ShardedServers, EndAlsoWhereTheBudgetIsNotCountedInSteps) {
  for (const Budget& budget : {Budget{.seconds = 5000}, Budget{.samples = 400}, Budget{.bytes = Bytes{100000}}}) {
    const SimulatedRun setup{.workers = 6,
                             .network = std::make_shared<JitteryNetwork>(3),
                             .budget = budget,
                             .delays = {exponential_delay(0.5)},
                             .objective = nullptr};
    const auto outcome = setup.run(BackupWorkers(4, {.servers = 4}));
    EXPECT_GT(outcome.rounds.size(), 20u);
    EXPECT_GE(outcome.published, Step{static_cast<Step::Rep>(outcome.rounds.size())} - Step{1});
    expect_exact_accounts(outcome);
  }
}

TEST(ShardedServers, WorkerZeroPublishesWhatItHasAssembled) {
  const SimulatedRun setup{.network_s = 0.25,
                           .budget = {.steps = 4},
                           .delays = {std::make_shared<DelayOfWorker>(std::vector{1.6, 0.0, 0.1})}};
  const auto outcome = setup.run(BackupWorkers(2, {.servers = 2}));
  // A step ends every 1.6 s. Worker 0's gradients arrive at 3.1 and 6.2 s, and are answered by the models of steps 1
  // and 3. Worker 0 computes until 9.05 s, and adopts the last model then.
  std::vector<std::pair<Step, double>> published;
  for (const Publication& p : outcome.publications) published.emplace_back(p.step, to_seconds(p.time));
  using testing::DoubleNear;
  using testing::Pair;
  EXPECT_THAT(published,
              testing::ElementsAre(Pair(Step{1}, DoubleNear(3.35, 1e-9)), Pair(Step{3}, DoubleNear(6.45, 1e-9)),
                                   Pair(Step{4}, DoubleNear(9.05, 1e-9))));
  EXPECT_EQ(outcome.totals.end, start_time + from_seconds(6.4));  // the end of step 4, before its model arrives
  EXPECT_EQ(outcome.totals.kept, (std::vector<std::int64_t>{0, 4, 4}));
  expect_exact_accounts(outcome);
}

TEST(ShardedServers, WorkersWithUnequalDataEndCleanly) {
  const SimulatedRun setup{.budget = {.steps = 100},
                           .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.3, 0.1})},
                           .data_of = {Step{8}, Step{5}, Step{3}}};
  const auto outcome = setup.run(BackupWorkers(3, {.servers = 2}));
  EXPECT_EQ(outcome.totals.kept, (std::vector<std::int64_t>{8, 5, 3}));
  EXPECT_EQ(outcome.totals.dropped, (std::vector<std::int64_t>{0, 0, 0}));
  EXPECT_EQ(outcome.rounds.size(), 8u);
  expect_exact_accounts(outcome);
}

TEST(ShardedServers, AsManyLostWorkersAsBackupsDoNotBlock) {
  const SimulatedRun setup{.workers = 5,
                           .budget = {.steps = 3},
                           .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, HUGE_VAL, 0.0, HUGE_VAL, 0.0})}};
  const auto outcome = setup.run(BackupWorkers(3, {.servers = 2}));
  EXPECT_EQ(outcome.totals.kept, (std::vector<std::int64_t>{3, 0, 3, 0, 3}));
  expect_exact_accounts(outcome);
  EXPECT_THROW(setup.run(BackupWorkers(4, {.servers = 2})), RunFailure);
}

}  // namespace
}  // namespace syncopate
