// Partial all-reduces: who is in a round, who is late, and what happens to late gradients. Tests control the order of
// arrivals by messages or, while workers wait in a round, by times that differ by more than a second.
#pragma once

namespace syncopate {

class PartialContract : public ClusterContract {
 protected:
  static Time soon() { return start_time + from_seconds(0.1); }
  static Time late() { return start_time + from_seconds(1.5); }

  // The worker computes its micro-batch (self, step, 0) and contributes it.
  std::vector<PartialSum> arrive(Cluster& cluster, Rank self, Step step, const Activation& activation,
                                 LateGradient late) {
    return cluster.partial_all_reduce(self, gradient(cluster, self, 1, step), activation, late,
                                      {.kept = 1, .planned = 1, .step = step + 1, .period = 1}, here());
  }
  static void tell(Cluster& cluster, Rank self, int to) { cluster.send(self, Rank{to}, {}, here()); }
  static void tell_all(Cluster& cluster, Rank self) {
    for (int w = 0; w < cluster.workers(); ++w)
      if (w != self.value) tell(cluster, self, w);
  }
  static void hear(Cluster& cluster, Rank self, int from) {
    EXPECT_TRUE(cluster.receive(self, Rank{from}, never, here()));
  }
  static void hear_all(Cluster& cluster, Rank self) {
    for (int w = 0; w < cluster.workers(); ++w)
      if (w != self.value) hear(cluster, self, w);
  }

  // The sum of micro-batches (w, step, 0) of workers w = first .. workers - 1.
  static std::vector<float> sum_of(int first, int workers, Step step) {
    std::vector<float> sum(KnownObjective::size, 0.0f);
    for (int w = first; w < workers; ++w)
      for (std::size_t j = 0; j < sum.size(); ++j) sum[j] += KnownObjective::component({Rank{w}, step, 0}, j);
    return sum;
  }
  static std::vector<float> plus(std::vector<float> a, const std::vector<float>& b) {
    for (std::size_t j = 0; j < a.size(); ++j) a[j] += b[j];
    return a;
  }
};

TEST_P(PartialContract, AQuorumOfAllIsAnAllReduce) {
  const int n = participants();
  const RunTotals totals = run(n, [&](Cluster& cluster, Rank self) {
    for (int round = 0; round < 3; ++round) {
      Gradient own = gradient(cluster, self, (self.value + round) % 3, round);
      const auto sums = cluster.partial_all_reduce(self, own, {.quorum = n}, LateGradient::drop,
                                                   {.kept = own.micro_batches(), .planned = 2}, here());
      ASSERT_EQ(sums.size(), 1u);
      EXPECT_EQ(sums[0].contributors, n);
      EXPECT_EQ(sums[0].arrived, n);
      std::vector<float> expected(KnownObjective::size + 2, 0.0f);
      std::int64_t micro_batches = 0;
      for (int w = 0; w < n; ++w)
        for (int i = 0; i < (w + round) % 3; ++i) {
          ++micro_batches;
          for (std::size_t j = 0; j < KnownObjective::size; ++j)
            expected[j] += KnownObjective::component({Rank{w}, round, i}, j);
          expected[5] += static_cast<float>(w + 1);
          expected[6] += static_cast<float>(8 * round + i);
        }
      EXPECT_EQ(values_with_buffers(sums[0].sum), expected) << "round " << round;
      EXPECT_EQ(sums[0].sum.micro_batches(), micro_batches);
      EXPECT_EQ(sums[0].agreement.bytes, Bytes{(round + 1) * all_reduce_bytes(n, payload).value()});
      EXPECT_LE(sums[0].agreement.time, cluster.now(self));
    }
  });
  EXPECT_EQ(totals.collectives, 3);
  EXPECT_EQ(totals.messages, 0);
  EXPECT_EQ(totals.bytes, Bytes{3 * all_reduce_bytes(n, payload).value()});
  for (int w = 0; w < n; ++w) {
    EXPECT_EQ(totals.kept.at(static_cast<std::size_t>(w)), 3);  // 0, 1 and 2 in some order
    EXPECT_EQ(totals.dropped.at(static_cast<std::size_t>(w)), 3);
    EXPECT_EQ(totals.accounts.at(static_cast<std::size_t>(w)).total(), totals.end - start_time);
  }
}

// All workers except the last one form the quorum. The last worker arrives long after the others have ended, and its
// work since the round does not prolong the run.
TEST_P(PartialContract, WhoComesAfterTheQuorumIsLateAndGetsTheResultWithoutBeingInIt) {
  const int n = participants();
  Time heard = start_time;  // time of worker 0's message at the late worker, if that is in this process
  const RunTotals totals = run(n, [&](Cluster& cluster, Rank self) {
    const bool is_late = self.value == n - 1;
    if (is_late) {
      hear(cluster, self, 0);
      heard = cluster.now(self);
      idle_until(cluster, self, heard + from_seconds(0.5));
    }
    const auto sums = arrive(cluster, self, 0, {.quorum = n - 1}, LateGradient::drop);
    if (self.value == 0) tell(cluster, self, n - 1);
    ASSERT_EQ(sums.size(), 1u);
    EXPECT_EQ(sums[0].contributors, n - 1);
    EXPECT_EQ(training.values(sums[0].sum), sum_of(0, n - 1, 0));
    EXPECT_EQ(sums[0].agreement.micro_batches, n - 1);
    if (is_late) {
      EXPECT_LE(sums[0].agreement.time, heard);
    }
  });
  if (heard > start_time) {
    EXPECT_LT(totals.end, heard + from_seconds(0.5));
  }
  for (int w = 0; w < n; ++w) {
    EXPECT_EQ(totals.kept.at(static_cast<std::size_t>(w)), w < n - 1 ? 1 : 0);
    EXPECT_EQ(totals.dropped.at(static_cast<std::size_t>(w)), w < n - 1 ? 0 : 1);
    EXPECT_EQ(totals.accounts.at(static_cast<std::size_t>(w)).total(), totals.end - start_time);
  }
}

TEST_P(PartialContract, ARoundCanWaitForOneWorkerWhoeverElseIsThere) {
  const int n = participants();
  run(n, [&](Cluster& cluster, Rank self) {
    if (self.value == n - 1) idle_until(cluster, self, late());
    const auto sums = arrive(cluster, self, 0, {.quorum = 1, .rank = Rank{n - 1}}, LateGradient::drop);
    ASSERT_EQ(sums.size(), 1u);
    EXPECT_EQ(sums[0].contributors, n);
    EXPECT_EQ(training.values(sums[0].sum), sum_of(0, n, 0));
    EXPECT_GE(sums[0].agreement.time, late());
  });
}

// Worker 0 makes four rounds alone. The other workers arrive between the third and the fourth round.
TEST_P(PartialContract, LateGradientsAreDroppedAndResultsComeOldestFirst) {
  SeenRounds seen;
  observer = &seen;
  const int n = participants();
  bool worker_0_is_here = false;
  const RunTotals totals = run(n, [&](Cluster& cluster, Rank self) {
    const Activation activation{.rank = Rank{0}};
    std::vector<PartialSum> sums;
    if (self.value == 0) {
      worker_0_is_here = true;
      for (const int step : {0, 1, 2, 3}) {
        if (step == 3) tell_all(cluster, self);
        if (step == 3) hear_all(cluster, self);
        const auto result = arrive(cluster, self, step, activation, LateGradient::drop);
        ASSERT_EQ(result.size(), 1u);
        sums.push_back(result.front());
      }
    } else {
      hear(cluster, self, 0);
      sums = arrive(cluster, self, 0, activation, LateGradient::drop);
      tell(cluster, self, 0);
      ASSERT_EQ(sums.size(), 3u);
    }
    for (std::size_t round = 0; round < sums.size(); ++round) {
      const auto step = static_cast<std::int64_t>(round);
      EXPECT_EQ(sums[round].contributors, 1);
      EXPECT_EQ(training.values(sums[round].sum), KnownObjective::gradient_of({Rank{0}, step, 0}));
      EXPECT_EQ(sums[round].agreement.micro_batches, step + 1);
      EXPECT_EQ(sums[round].agreement.bytes, Bytes{(step + 1) * all_reduce_bytes(n, payload).value()});
      EXPECT_GT(sums[round].agreement.time, round == 0 ? start_time : sums[round - 1].agreement.time);
    }
  });
  EXPECT_EQ(totals.collectives, 4);
  for (int w = 0; w < n; ++w) {
    EXPECT_EQ(totals.kept.at(static_cast<std::size_t>(w)), w == 0 ? 4 : 0);
    EXPECT_EQ(totals.dropped.at(static_cast<std::size_t>(w)), w == 0 ? 0 : 1);
  }
  ASSERT_EQ(seen.rounds.size(), worker_0_is_here ? 4u : 0u);
  for (std::size_t i = 0; i < seen.rounds.size(); ++i) {
    EXPECT_EQ(seen.rounds[i].step, Step{static_cast<std::int64_t>(i) + 1});
    EXPECT_EQ(seen.rounds[i].kept, 1);
    EXPECT_EQ(seen.rounds[i].dropped, i < 3 ? 0 : n - 1);
    EXPECT_EQ(seen.rounds[i].bytes, all_reduce_bytes(n, payload));
  }
}

// The next round includes late gradients, although their workers are not in it. Gradients that arrive after the last
// round are dropped.
TEST_P(PartialContract, LateGradientsAreAddedToTheNextRound) {
  const int n = participants();
  const RunTotals totals = run(n, [&](Cluster& cluster, Rank self) {
    const std::vector<float> sums[] = {sum_of(0, 1, 0), plus(sum_of(0, 1, 1), sum_of(1, n, 0)),
                                       plus(sum_of(0, 1, 2), sum_of(1, n, 1))};
    for (int step = 0; step < 3; ++step) {
      if (self.value > 0) hear(cluster, self, 0);
      const auto results = arrive(cluster, self, step, {.rank = Rank{0}}, LateGradient::accumulate);
      ASSERT_EQ(results.size(), 1u);
      EXPECT_EQ(results[0].contributors, step == 0 ? 1 : n);
      EXPECT_EQ(results[0].arrived, 1);
      EXPECT_EQ(results[0].sum.micro_batches(), step == 0 ? 1 : n);
      EXPECT_EQ(training.values(results[0].sum), sums[step]);
      if (self.value > 0) {
        tell(cluster, self, 0);
      } else {
        tell_all(cluster, self);
        hear_all(cluster, self);
      }
    }
  });
  for (int w = 0; w < n; ++w) {
    EXPECT_EQ(totals.kept.at(static_cast<std::size_t>(w)), w == 0 ? 3 : 2);
    EXPECT_EQ(totals.dropped.at(static_cast<std::size_t>(w)), w == 0 ? 0 : 1);
  }
  EXPECT_EQ(totals.collectives, 3);
}

// A worker that is late with one gradient and in time with the next contributes both, as one contributor.
TEST_P(PartialContract, AnAccumulatedGradientIsBroughtWithTheNextOne) {
  const int n = participants();
  run(n, [&](Cluster& cluster, Rank self) {
    const bool is_late = self.value == n - 1;
    if (is_late) hear(cluster, self, 0);
    arrive(cluster, self, 0, {.quorum = n - 1}, LateGradient::accumulate);
    if (self.value == 0) tell(cluster, self, n - 1);
    const auto sums = arrive(cluster, self, 1, {.quorum = n}, LateGradient::accumulate);
    ASSERT_EQ(sums.size(), 1u);
    EXPECT_EQ(sums[0].contributors, n);
    EXPECT_EQ(training.values(sums[0].sum), plus(sum_of(0, n, 1), sum_of(n - 1, n, 0)));
    EXPECT_EQ(sums[0].agreement.micro_batches, 2 * n);
  });
}

// With random delays all workers are sometimes late. All of them get the same rounds. Every gradient is in one round,
// or arrives after the last one.
TEST_P(PartialContract, EveryGradientIsInOneRoundAndAllGetTheSameRounds) {
  const int n = participants();
  constexpr int rounds = 40;
  delays = {exponential_delay(0.002)};
  for (const LateGradient late : {LateGradient::accumulate, LateGradient::drop}) {
    std::int64_t arrivals_of_all = 0, kept_of_all = 0;
    const RunTotals totals = run(n, [&](Cluster& cluster, Rank self) {
      std::vector<double> seen = {0, 0, 0};  // own arrivals, digest of the sums, micro-batches in the sums
      std::int64_t got = 0;
      while (got < rounds) {
        Gradient own = gradient(cluster, self, 1, static_cast<std::int64_t>(seen[0]++));
        const Activation activation = {.quorum = 1 + n / 2};
        for (const PartialSum& result :
             cluster.partial_all_reduce(self, own, activation, late, {.kept = 1, .planned = 1}, here())) {
          ++got;
          EXPECT_GE(result.contributors, activation.quorum);
          seen[1] += static_cast<double>(got) * training.values(result.sum)[3];
          seen[2] += static_cast<double>(result.sum.micro_batches());
          EXPECT_EQ(result.agreement.micro_batches, static_cast<std::int64_t>(seen[2]));
          EXPECT_EQ(result.agreement.bytes, Bytes{got * all_reduce_bytes(n, payload).value()});
        }
      }
      EXPECT_EQ(got, rounds);
      const SharedNumbers all = cluster.all_gather(self, seen, here());
      arrivals_of_all = 0;
      for (std::size_t w = 0; w < static_cast<std::size_t>(n); ++w) {
        arrivals_of_all += static_cast<std::int64_t>((*all)[3 * w]);
        EXPECT_EQ((*all)[3 * w + 1], seen[1]) << "worker " << w;
        EXPECT_EQ((*all)[3 * w + 2], seen[2]) << "worker " << w;
      }
      kept_of_all = static_cast<std::int64_t>(seen[2]);
    });
    EXPECT_EQ(totals.collectives, rounds + 1);
    const std::int64_t kept = std::accumulate(totals.kept.begin(), totals.kept.end(), std::int64_t{0});
    const std::int64_t dropped = std::accumulate(totals.dropped.begin(), totals.dropped.end(), std::int64_t{0});
    EXPECT_EQ(kept, kept_of_all);
    EXPECT_EQ(kept + dropped, arrivals_of_all);
    if (late == LateGradient::accumulate) {
      EXPECT_LT(dropped, 2 * n);  // only gradients that arrived after the last round
    }
  }
}

// All workers compute the next round's micro-batch while this round is in progress.
TEST_P(PartialContract, ARoundGoesOnWhileItsWorkersCompute) {
  const int n = participants();
  const RunTotals totals = run(n, [&](Cluster& cluster, Rank self) {
    Gradient own = gradient(cluster, self, 1, 0);
    for (int step = 0; step < 3; ++step) {
      auto started = cluster.start(self, Collective::partial_all_reduce(own, {.quorum = n}, LateGradient::drop),
                                   {.kept = 1, .planned = 1, .step = step + 1, .period = 1}, here());
      own = gradient(cluster, self, 1, step + 1);
      const CollectiveResult result = cluster.finish(self, std::move(started), here());
      ASSERT_EQ(result.sums.size(), 1u);
      EXPECT_EQ(result.sums[0].contributors, n);
      EXPECT_EQ(training.values(result.sums[0].sum), sum_of(0, n, step));
      EXPECT_EQ(result.agreement.micro_batches, n * (step + 1));
    }
  });
  EXPECT_EQ(totals.collectives, 3);
  for (int w = 0; w < n; ++w) {
    EXPECT_EQ(totals.kept.at(static_cast<std::size_t>(w)), 3);
    EXPECT_EQ(totals.accounts.at(static_cast<std::size_t>(w)).total(), totals.end - start_time);
  }
}

}  // namespace syncopate
