// The clock, deadlines, and the account of every worker-second.
#pragma once

namespace syncopate {

TEST_P(ClusterContract, EveryWorkerSecondIsBookedExactlyOnce) {
  const int n = participants();
  base_s = 0.1;
  const Duration cut = from_seconds(0.08);
  std::vector<Duration> cutting(static_cast<std::size_t>(n));  // time in cut micro-batches, by worker of this process
  const RunTotals totals = run(n, [&](Cluster& cluster, Rank self) {
    for (int round = 0; round < 3; ++round) {
      Gradient sum = gradient(cluster, self, 1 + self.value % 3);  // unequal work, so that some wait
      const Time before = cluster.now(self);
      EXPECT_FALSE(compute(cluster, self, {self, 0, 9}, Deadline(before + cut)));
      cutting[static_cast<std::size_t>(self.value)] += cluster.now(self) - before;
      cluster.all_reduce_sum(self, sum, {}, {.kept = 1 + self.value % 3, .planned = 4}, here());
    }
    if (self.value == n - 1) gradient(cluster, self, 1);  // the other workers wait until the run ends
  });
  ASSERT_EQ(totals.accounts.size(), static_cast<std::size_t>(n));
  for (int w = 0; w < n; ++w) {
    const Account& account = totals.accounts[static_cast<std::size_t>(w)];
    EXPECT_EQ(account.total(), totals.end - start_time) << "worker " << w;
    const Duration computed = (3 * (1 + w % 3) + (w == n - 1 ? 1 : 0)) * from_seconds(base_s);
    EXPECT_GE(account[Activity::compute], computed);
    EXPECT_LE(account[Activity::compute], computed + tolerance());
    // The clock was read up to hesitation() before each cut micro-batch began. That time is not discarded.
    EXPECT_GE(account[Activity::compute] + account[Activity::discarded], computed + 3 * cut);
    EXPECT_GE(account[Activity::discarded], 3 * (cut - hesitation()));
    const Duration cutting_here = cutting[static_cast<std::size_t>(w)];
    if (cutting_here > Duration{}) {
      EXPECT_LE(account[Activity::discarded], cutting_here);
    }
    EXPECT_EQ(account[Activity::down], Duration{0});
    EXPECT_EQ(totals.kept[static_cast<std::size_t>(w)], 3 * (1 + w % 3));
    EXPECT_EQ(totals.dropped[static_cast<std::size_t>(w)], 3 * (3 - w % 3));
  }
  EXPECT_EQ(totals.collectives, 3);
  EXPECT_EQ(totals.bytes, Bytes{3 * all_reduce_bytes(n, payload).value()});
}

TEST_P(ClusterContract, ADeadlineStopsTheMicroBatchThatCrossesIt) {
  const int n = participants();
  base_s = 0.1;
  run(n, [&](Cluster& cluster, Rank self) {
    cluster.barrier(self, here());
    const Time deadline = cluster.now(self) + from_seconds(0.25);
    for (bool kept = true; kept;) {
      const Time would_end = cluster.now(self) + from_seconds(base_s);
      kept = compute(cluster, self, {self, 0, 0}, Deadline(deadline)).has_value();
      if (would_end >= deadline) {
        EXPECT_FALSE(kept);
      } else if (would_end + hesitation() < deadline) {
        EXPECT_TRUE(kept);
      }
    }
    EXPECT_GE(cluster.now(self), deadline);
    EXPECT_LE(cluster.now(self), deadline + tolerance());
    // After the deadline no micro-batch begins, and no time passes.
    const Time after = cluster.now(self);
    EXPECT_FALSE(compute(cluster, self, {self, 0, 1}, Deadline(deadline)));
    EXPECT_LE(cluster.now(self), after + tolerance());
    // With preemption between micro-batches, a started micro-batch finishes and counts.
    const Deadline soon(cluster.now(self) + from_seconds(0.05), Preempt::microbatch);
    const Time start = cluster.now(self);
    EXPECT_TRUE(compute(cluster, self, {self, 0, 7}, soon));
    EXPECT_GE(cluster.now(self), start + from_seconds(base_s));
    EXPECT_FALSE(compute(cluster, self, {self, 0, 8}, soon));
  });
}

TEST_P(ClusterContract, AServerSeesWhoseWorkWasKept) {
  const int workers = participants() - 1;
  base_s = 0.005;
  const RunTotals totals = run(
      workers,
      [&](Cluster& cluster, Rank self) {
        cluster.send(self, cluster.server(), {.gradient = gradient(cluster, self, 2), .kind = Message::Kind::gradient},
                     here());
        while (cluster.receive(self, {}, never, here())) continue;
      },
      [&](Cluster& cluster, Rank self) {
        for (int i = 0; i < workers; ++i) {
          const auto message = cluster.receive(self, {}, never, here());
          ASSERT_TRUE(message);
          if (message->from.value % 2 == 0)
            cluster.keep(self, message->work(), 0);
          else
            cluster.discard(self, message->work());
        }
      });
  for (int w = 0; w < workers; ++w) {
    const Account& account = totals.accounts.at(static_cast<std::size_t>(w));
    const bool kept = w % 2 == 0;
    EXPECT_EQ(account.total(), totals.end - start_time);
    EXPECT_GE(account[kept ? Activity::compute : Activity::discarded], 2 * from_seconds(base_s));
    EXPECT_LE(account[kept ? Activity::discarded : Activity::compute], kept ? Duration{} : tolerance());
    EXPECT_EQ(totals.kept[static_cast<std::size_t>(w)], kept ? 2 : 0);
    EXPECT_EQ(totals.dropped[static_cast<std::size_t>(w)], kept ? 0 : 2);
  }
}

}  // namespace syncopate
