// Backup workers with the parameters spread over several servers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <deque>
#include <memory>
#include <vector>

#include "algorithms/quorum/backup_workers.hpp"
#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/exact_accounts.hpp"
#include "workers/time/distributions.hpp"

namespace syncopate {
namespace {

// Messages take the times of a list, in the order in which they are sent; then a second each.
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

// With a rate of 1 each step adds 1 to every parameter: a model's version can be read from each of them.
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
  // Models down: server 0 to workers 0 and 1, server 1 to workers 1 and 0. Gradients up: each worker begins with its own
  // server, where it is the first.
  const SimulatedRun setup{.workers = 2,
                           .network = std::make_shared<ListedNetwork>(std::deque{0., 0., 0., 0., 0.1, 0.2, 0.1, 0.2}),
                           .rate = 0.5,
                           .budget = {.steps = 1}};
  const auto outcome = setup.run(BackupWorkers(1, {.servers = 2}));
  for (std::size_t i = 0; i < 4; ++i) {
    const Rank taken{i < 2 ? 0 : 1};
    EXPECT_NEAR(outcome.parameters[i], 1 - 0.5 * (1 - PullObjective::target({taken, 0, 0}, i)), 1e-6) << i;
  }
  EXPECT_EQ(outcome.totals.kept, (std::vector<std::int64_t>{1, 0}));  // as the first server sees it
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
  // A step ends every 1.6 s. Worker 0's first gradient arrives at 3.1 s and is answered by the model of step 1; the
  // second arrives at 6.2 s and is answered by that of step 3; the last model comes while it computes, until 9.05 s.
  std::vector<std::pair<Step, double>> published;
  for (const Publication& p : outcome.publications) published.emplace_back(p.step, to_seconds(p.time));
  using testing::DoubleNear;
  using testing::Pair;
  EXPECT_THAT(published,
              testing::ElementsAre(Pair(Step{1}, DoubleNear(3.35, 1e-9)), Pair(Step{3}, DoubleNear(6.45, 1e-9)),
                                   Pair(Step{4}, DoubleNear(9.05, 1e-9))));
  EXPECT_EQ(outcome.totals.end, start_time + from_seconds(6.4));  // of step 4; its model arrives later
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
