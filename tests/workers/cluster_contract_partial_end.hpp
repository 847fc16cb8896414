// Partial all-reduces at the end of a run: workers that have ended, and the remaining gradients and their counts.
#pragma once

#include "tests/workers/cluster_contract_partial.hpp"

namespace syncopate {

TEST_P(PartialContract, WorkersThatHaveEndedAreNotWaitedFor) {
  const int n = participants();
  const RunTotals totals = run(n, [&](Cluster& cluster, Rank self) {
    if (self.value == n - 1) return;
    const auto sums = arrive(cluster, self, 0, {.quorum = n}, LateGradient::drop);
    ASSERT_EQ(sums.size(), 1u);
    EXPECT_EQ(sums[0].contributors, n - 1);
    EXPECT_EQ(sums[0].arrived, n - 1);
    EXPECT_EQ(training.values(sums[0].sum), sum_of(0, n - 1, 0));
    // The next round would wait for worker n - 1, which has ended. So the first worker to arrive makes the round alone.
    if (self.value > 0) hear(cluster, self, 0);
    const auto alone = arrive(cluster, self, 1, {.rank = Rank{n - 1}}, LateGradient::drop);
    for (int w = 1; self.value == 0 && w < n - 1; ++w) tell(cluster, self, w);
    ASSERT_EQ(alone.size(), 1u);
    EXPECT_EQ(alone[0].contributors, 1);
    EXPECT_EQ(training.values(alone[0].sum), sum_of(0, 1, 1));
  });
  EXPECT_EQ(totals.collectives, 2);
}

// The other workers wait for worker 0, which ends without arriving.
TEST_P(PartialContract, ARoundTakesPlaceWhenTheOneItWaitsForEnds) {
  const int n = participants();
  run(n, [&](Cluster& cluster, Rank self) {
    if (self.value == 0) {
      idle_until(cluster, self, late());
      return;
    }
    for (const bool by_rank : {true, false}) {
      const Activation activation = by_rank ? Activation{.rank = Rank{0}} : Activation{.quorum = n};
      const auto sums = arrive(cluster, self, by_rank ? 0 : 1, activation, LateGradient::drop);
      ASSERT_EQ(sums.size(), 1u);
      EXPECT_EQ(sums[0].contributors, n - 1);
      EXPECT_EQ(training.values(sums[0].sum), sum_of(1, n, by_rank ? 0 : 1));
      EXPECT_GE(sums[0].agreement.time, late());
    }
  });
}

// Once all other workers have ended, the run does not wait for a worker in a micro-batch that never ends.
TEST_P(PartialContract, TheRunEndsWithoutAWorkerThatNeverEnds) {
  const int n = participants();
  for (const int lost : {n - 1, 0}) {
    delays = {std::make_shared<EndlessStep>(Rank{lost}, 1)};
    bool is_back = false;
    const RunTotals totals = run(n, [&](Cluster& cluster, Rank self) {
      const auto first = arrive(cluster, self, 0, {.quorum = n}, LateGradient::drop);
      ASSERT_EQ(first.size(), 1u);
      EXPECT_EQ(first[0].contributors, n);
      idle_until(cluster, self, soon());
      const auto second = arrive(cluster, self, 1, {.quorum = n - 1}, LateGradient::drop);
      ASSERT_EQ(second.size(), 1u);
      EXPECT_EQ(second[0].contributors, n - 1);
      is_back |= self.value == lost;
    });
    EXPECT_FALSE(is_back);
    EXPECT_GE(totals.end, soon());
    EXPECT_LE(totals.end, soon() + tolerance() + from_seconds(4 * base_s));
    EXPECT_EQ(totals.collectives, 2);
    for (int w = 0; w < n; ++w) {
      const Account& account = totals.accounts.at(static_cast<std::size_t>(w));
      EXPECT_EQ(account.total(), totals.end - start_time) << "worker " << w;
      EXPECT_EQ(totals.kept.at(static_cast<std::size_t>(w)), w == lost ? 1 : 2);
    }
  }
}

// Workers use all-reduces, partial all-reduces and messages. Each agreement contains the totals of all three.
TEST_P(PartialContract, AnAgreementCountsWhatWasKeptAndSentInAllWays) {
  const int n = participants();
  run(n, [&](Cluster& cluster, Rank self) {
    std::int64_t bytes = 0;
    const auto tell_next = [&] {
      cluster.send(self, Rank{(self.value + 1) % n}, {.numbers = {1}}, here());
      EXPECT_TRUE(cluster.receive(self, Rank{(self.value + n - 1) % n}, never, here()));
      bytes += 8 * n;
    };
    for (int round = 1; round <= 3; ++round) {
      tell_next();
      Gradient sum = gradient(cluster, self, 2, round);
      const AgreedProgress of_all = cluster.all_reduce_sum(self, sum, {}, {.kept = 2, .planned = 2}, here());
      bytes += all_reduce_bytes(n, payload).value();
      EXPECT_EQ(of_all.micro_batches, n * (3 * round - 1)) << round;
      EXPECT_EQ(of_all.bytes, Bytes{bytes}) << round;
      tell_next();
      const auto sums = arrive(cluster, self, round, {.quorum = n}, LateGradient::drop);
      bytes += all_reduce_bytes(n, payload).value();
      ASSERT_EQ(sums.size(), 1u);
      EXPECT_EQ(sums[0].agreement.micro_batches, n * 3 * round) << round;
      EXPECT_EQ(sums[0].agreement.bytes, Bytes{bytes}) << round;
    }
  });
}

// If rounds do not wait for all workers, the run ends when workers last met in a collective of any kind. Computing
// after that does not prolong the run.
TEST_P(PartialContract, TheRunEndsWhenWorkersHaveLastMet) {
  const int n = participants();
  base_s = 0.05;
  for (const std::string way : {"message", "barrier", "group", "partial all-reduce"}) {
    SCOPED_TRACE(way);
    Time came = start_time, went_on = start_time;  // times of workers in this process
    const RunTotals totals = run(n, [&](Cluster& cluster, Rank self) {
      arrive(cluster, self, 0, {.quorum = n}, LateGradient::drop);
      gradient(cluster, self, 1, 1);
      came = std::max(came, cluster.now(self));
      ModelStatePtr state = training.initial_state();
      if (way == "message") {
        cluster.send(self, Rank{(self.value + 1) % n}, {}, here());
        cluster.receive(self, Rank{(self.value + n - 1) % n}, never, here());
      } else if (way == "barrier") {
        cluster.barrier(self, here());
      } else if (way == "group") {
        cluster.average(self, state, {.policy = {}, .group_size = n}, {}, here());
      } else {
        arrive(cluster, self, 1, {.quorum = n}, LateGradient::drop);
      }
      if (self.value > 0) return;
      gradient(cluster, self, 4, 2);
      went_on = cluster.now(self);
    });
    EXPECT_GE(totals.end, came);
    if (went_on > start_time) {
      EXPECT_LT(totals.end, went_on);
    }
    for (const Account& account : totals.accounts) {
      EXPECT_EQ(account.total(), totals.end - start_time);
      for (const Duration time : account.time) EXPECT_GE(time, Duration{});
    }
  }
}

// A late gradient that remains at the end is dropped with all its planned micro-batches, including those not computed.
// If a round takes the gradient, that round drops only the micro-batches not computed. Here the other workers are late
// for worker 0's first round. They have computed one of three planned micro-batches, or none of two. If `is_taken`, all
// workers make a second round.
TEST_P(PartialContract, WhatALateWorkerHadPlannedIsKeptOrDropped) {
  const int n = participants();
  for (const LateGradient late : {LateGradient::drop, LateGradient::accumulate})
    for (const int computed : {1, 0})
      for (const bool is_taken : {false, true}) {
        SCOPED_TRACE(testing::Message() << (late == LateGradient::drop ? "drop" : "accumulate") << ", " << computed
                                        << (is_taken ? ", taken" : ", left"));
        SeenRounds seen;
        observer = &seen;
        const int planned = computed == 1 ? 3 : 2;
        bool worker_0_is_here = false;
        const RunTotals totals = run(n, [&](Cluster& cluster, Rank self) {
          worker_0_is_here |= self.value == 0;
          if (self.value > 0) hear(cluster, self, 0);
          if (self.value == 0) {
            arrive(cluster, self, 0, {.rank = Rank{0}}, late);
            tell_all(cluster, self);
            hear_all(cluster, self);
          } else {
            cluster.partial_all_reduce(self, gradient(cluster, self, computed), {.rank = Rank{0}}, late,
                                       {.kept = computed, .planned = planned}, here());
            tell(cluster, self, 0);
          }
          if (!is_taken) return;
          const auto sums = arrive(cluster, self, 1, {.quorum = n}, late);
          ASSERT_EQ(sums.size(), 1u);
          EXPECT_EQ(sums[0].contributors, n);
          const bool has_both = late == LateGradient::accumulate && computed == 1;
          EXPECT_EQ(sums[0].sum.micro_batches(), has_both ? 2 * n - 1 : n);
        });
        const bool is_kept = is_taken && late == LateGradient::accumulate;
        for (int w = 1; w < n; ++w) {
          EXPECT_EQ(totals.kept.at(static_cast<std::size_t>(w)), (is_taken ? 1 : 0) + (is_kept ? computed : 0));
          EXPECT_EQ(totals.dropped.at(static_cast<std::size_t>(w)), planned - (is_kept ? computed : 0));
        }
        EXPECT_EQ(totals.kept.at(0), is_taken ? 2 : 1);
        EXPECT_EQ(totals.dropped.at(0), 0);
        if (!worker_0_is_here || !is_taken) continue;
        ASSERT_EQ(seen.rounds.size(), 2u);
        EXPECT_EQ(seen.rounds[0].dropped, 0);
        EXPECT_EQ(seen.rounds[1].kept, n + (is_kept ? (n - 1) * computed : 0));
        EXPECT_EQ(seen.rounds[1].dropped, (n - 1) * (planned - (is_kept ? computed : 0)));
      }
}

}  // namespace syncopate
