// Times of collectives that go on while their workers compute, on the simulated cluster, in closed form.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "workers/simulated/simulated_cluster.hpp"
#include "workers/time/compute_time.hpp"
#include "workers/time/network.hpp"

namespace syncopate {
namespace {

constexpr double base_s = 0.01;
constexpr double network_s = 0.004;

Place here(SourceLine at = SourceLine::current()) { return {"test", at}; }

struct Simulated {
  Executor executor{0};
  Training training{nullptr, nullptr, {}, executor};
  std::unique_ptr<NetworkModel> network = make_fixed_network(network_s);
  ComputeTime compute_time{1, base_s, {}, {}};

  RunTotals run(int workers, const std::function<void(Cluster&, Rank)>& program) {
    SimulatedCluster cluster(
        {.workers = workers, .compute_time = compute_time, .network = *network, .training = training});
    return cluster.run([&](Rank rank) { program(cluster, rank); }, nullptr);
  }
};

void compute(Cluster& cluster, Rank self, int count) {
  for (int i = 0; i < count; ++i) cluster.compute_gradient(self, nullptr, {self, 0, i}, {self, 0, i}, {});
}

double at(Cluster& cluster, Rank self) { return to_seconds(cluster.now(self) - start_time); }

StartedCollective start(Cluster& cluster, Rank self) {
  return cluster.start(self, Collective::all_reduce({}), {}, here());
}

StartedCollective start_partial(Cluster& cluster, Rank self, int quorum) {
  return cluster.start(self, Collective::partial_all_reduce({}, {.quorum = quorum}, LateGradient::drop), {}, here());
}

// Worker 0 starts at 40 ms; the result is there at 44 ms, when worker 1 still computes.
TEST(StartedCollectives, WhoComputesLongerPaysNothing) {
  Simulated simulated;
  const RunTotals totals = simulated.run(2, [](Cluster& cluster, Rank self) {
    if (self == Rank{0}) compute(cluster, self, 4);
    auto started = start(cluster, self);
    if (self == Rank{1}) compute(cluster, self, 5);
    const auto result = cluster.finish(self, std::move(started), here());
    EXPECT_DOUBLE_EQ(to_seconds(result.agreement.time - start_time), 0.044);
    EXPECT_DOUBLE_EQ(at(cluster, self), self == Rank{0} ? 0.044 : 0.05);
  });
  EXPECT_EQ(totals.accounts[1][Activity::wait], Duration{});
  EXPECT_EQ(totals.accounts[1][Activity::communicate], Duration{});
  EXPECT_EQ(totals.accounts[0][Activity::communicate], from_seconds(network_s));
  EXPECT_EQ(totals.accounts[0][Activity::wait], from_seconds(0.006));  // for the end of the run
}

// Worker 1 asks at 20 ms, before the last arrival at 40 ms, worker 2 at 42 ms, in the middle of the communication.
TEST(StartedCollectives, WhatIsLeftWhenAskedForIsPaid) {
  Simulated simulated;
  const RunTotals totals = simulated.run(3, [](Cluster& cluster, Rank self) {
    if (self == Rank{0}) compute(cluster, self, 4);
    auto started = start(cluster, self);
    if (self == Rank{1}) compute(cluster, self, 2);
    if (self == Rank{2})
      cluster.compute_gradient(self, nullptr, {self, 1, 0}, {self, 1, 0}, Deadline(Time{from_seconds(0.009)}));
    if (self == Rank{2}) compute(cluster, self, 3);
    cluster.finish(self, std::move(started), here());
    EXPECT_DOUBLE_EQ(at(cluster, self), 0.044);
  });
  EXPECT_EQ(totals.accounts[1][Activity::wait], from_seconds(0.02));
  EXPECT_EQ(totals.accounts[1][Activity::communicate], from_seconds(network_s));
  EXPECT_EQ(totals.accounts[2][Activity::wait], from_seconds(0.001));  // asked at 39 ms
  EXPECT_EQ(totals.accounts[2][Activity::communicate], from_seconds(network_s));
}

// Both are started at once: the second one goes on the network when the first has ended.
TEST(StartedCollectives, OfTheSameMembersGoOneAfterAnother) {
  Simulated simulated;
  simulated.run(3, [](Cluster& cluster, Rank self) {
    auto first = start(cluster, self);
    auto second = start(cluster, self);
    EXPECT_DOUBLE_EQ(to_seconds(cluster.finish(self, std::move(second), here()).agreement.time - start_time),
                     2 * network_s);
    EXPECT_DOUBLE_EQ(to_seconds(cluster.finish(self, std::move(first), here()).agreement.time - start_time), network_s);
    EXPECT_DOUBLE_EQ(at(cluster, self), 2 * network_s);
  });
}

// Groups of two have networks of their own, and worker 2 and 3 go on while 0 waits for 1.
TEST(StartedCollectives, OfDifferentMembersDoNotMeet) {
  Simulated simulated;
  simulated.run(4, [](Cluster& cluster, Rank self) {
    if (self == Rank{1}) compute(cluster, self, 3);
    auto of_group = cluster.start(self, Collective::average(nullptr, {.group_size = 2}), {}, here());
    auto of_all = start(cluster, self);
    EXPECT_DOUBLE_EQ(to_seconds(cluster.finish(self, std::move(of_group), here()).agreement.time - start_time),
                     (self.value < 2 ? 0.03 : 0) + network_s);
    EXPECT_DOUBLE_EQ(to_seconds(cluster.finish(self, std::move(of_all), here()).agreement.time - start_time),
                     0.03 + network_s);
  });
}

// Worker 1 comes to the sum at 0 ms and worker 0 at 40 ms; the sum is there at 44 ms, when worker 1 still computes.
TEST(StartedCollectives, WhoComputesLongerThanAPartialSumTakesPaysNothing) {
  Simulated simulated;
  const RunTotals totals = simulated.run(2, [](Cluster& cluster, Rank self) {
    if (self == Rank{0}) compute(cluster, self, 4);
    auto started = start_partial(cluster, self, 2);
    if (self == Rank{1}) compute(cluster, self, 5);
    const auto result = cluster.finish(self, std::move(started), here());
    ASSERT_EQ(result.sums.size(), 1u);
    EXPECT_EQ(result.sums[0].contributors, 2);
    EXPECT_DOUBLE_EQ(to_seconds(result.agreement.time - start_time), 0.044);
    EXPECT_DOUBLE_EQ(at(cluster, self), self == Rank{0} ? 0.044 : 0.05);
  });
  EXPECT_EQ(totals.accounts[0][Activity::wait], Duration{});
  EXPECT_EQ(totals.accounts[0][Activity::communicate], from_seconds(network_s));
}

// Worker 0 goes on to a second sum while worker 1 computes: in time for the first, it gets that one alone, and the
// second one when it comes to it, late.
TEST(StartedCollectives, WhoWasInTimeGetsItsOwnPartialSumAlone) {
  Simulated simulated;
  simulated.run(2, [](Cluster& cluster, Rank self) {
    auto started = start_partial(cluster, self, 2);
    if (self == Rank{1}) compute(cluster, self, 5);
    EXPECT_EQ(cluster.finish(self, std::move(started), here()).sums.size(), 1u);
    const auto second = cluster.finish(self, start_partial(cluster, self, 1), here());
    ASSERT_EQ(second.sums.size(), 1u);
    EXPECT_EQ(second.sums[0].contributors, 1);
    EXPECT_DOUBLE_EQ(to_seconds(second.agreement.time - start_time), 2 * network_s);
  });
}

std::string failure_of(const std::function<void(Cluster&, Rank)>& program) {
  Simulated simulated;
  try {
    simulated.run(3, program);
  } catch (const RunFailure& failure) {
    return failure.what();
  }
  return "none";
}

TEST(StartedCollectives, AWorkerThatLeavesBeforeItsStartIsMissed) {
  EXPECT_THAT(failure_of([](Cluster& cluster, Rank self) {
                if (self == Rank{1}) return compute(cluster, self, 1);
                auto started = start(cluster, self);
                compute(cluster, self, 5);
                cluster.finish(self, std::move(started), here());
              }),
              testing::HasSubstr("worker 1 left at 0.010000 s"));
}

TEST(StartedCollectives, AWorkerHasOnePartialSumUnderWay) {
  EXPECT_THAT(failure_of([](Cluster& cluster, Rank self) {
                start_partial(cluster, self, 3);
                start_partial(cluster, self, 3);
              }),
              testing::HasSubstr("worker 0 starts a partial all-reduce before it has finished the one before"));
}

TEST(StartedCollectives, DescriptionsMustBeAlike) {
  EXPECT_THAT(failure_of([](Cluster& cluster, Rank self) {
                const Slice slice{self == Rank{2} ? 1 : 0, 2};
                cluster.finish(self, cluster.start(self, Collective::average(nullptr, {.slice = slice}), {}, here()),
                               here());
              }),
              testing::HasSubstr("worker 2 brings another slice than the others"));
}

}  // namespace
}  // namespace syncopate
