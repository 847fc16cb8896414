// Outages: they happen as planned on every cluster, and their time is booked correctly.
#pragma once

namespace syncopate {

class OutageContract : public RecordContract {
 protected:
  // An outage from 0.6 to 1.0 s interrupts the second micro-batch, which lasts from 0.4 to 0.8 s. Worker 0 keeps its
  // state, worker 1 loses it.
  static constexpr double duration_s = 0.4;
  OutagePlan plan{1, {entry(0, false), entry(1, true)}};

  static OutageEntry entry(int worker, bool loses_state) {
    return {.workers = {Rank{worker}},
            .when = ScheduledOutage{from_seconds(0.6), from_seconds(duration_s)},
            .loses_state = loses_state};
  }
  void SetUp() override {
    base_s = 0.4;
    outages = &plan;
  }
  void expect_about(Duration found, double expected_s, int worker) const {
    EXPECT_GE(found, from_seconds(expected_s)) << "worker " << worker;
    EXPECT_LE(found, from_seconds(expected_s) + tolerance()) << "worker " << worker;
  }
};

TEST_P(OutageContract, AnOutagePausesAMicroBatchOrTakesIt) {
  const int n = participants();
  const bool known = spans_are_the_accounts(n, 0, [&](Cluster& cluster, Rank self) {
    EXPECT_EQ(cluster.may_lose_state(self), self.value == 1);
    Gradient sum;
    int losses = 0;
    for (int i = 0; i < 3;) {
      auto next = compute(cluster, self, {self, 0, i});
      const bool lost = cluster.has_lost_state(self);
      EXPECT_EQ(lost, !next.has_value());
      EXPECT_FALSE(cluster.has_lost_state(self));  // reported once
      losses += lost;
      if (!next) continue;
      sum += *next;
      ++i;
    }
    EXPECT_EQ(losses, self.value == 1 ? 1 : 0);
    // The outage does not change a micro-batch's gradient.
    std::vector<float> expected(KnownObjective::size, 0.0f);
    for (int i = 0; i < 3; ++i)
      for (std::size_t j = 0; j < expected.size(); ++j) expected[j] += KnownObjective::component({self, 0, i}, j);
    auto values = values_with_buffers(sum);
    values.resize(expected.size());
    EXPECT_EQ(values, expected);
    if (self.value < 2) {
      EXPECT_GE(sum.compute_time(), from_seconds(3 * base_s));
    }
    EXPECT_LE(sum.compute_time(), from_seconds(3 * base_s) + tolerance());
    cluster.all_reduce_sum(self, sum, {}, {.kept = 3, .planned = 3}, here());
  });
  if (!known) return;
  EXPECT_EQ(totals.kept, std::vector<std::int64_t>(static_cast<std::size_t>(n), 3));
  for (int w = 0; w < n; ++w) {
    const Account& account = totals.accounts.at(static_cast<std::size_t>(w));
    EXPECT_EQ(account.total(), totals.end - start_time);
    expect_about(account[Activity::compute], 3 * base_s, w);
    expect_about(account[Activity::down], w < 2 ? duration_s : 0, w);
    // Worker 1 loses at most the 0.2 s from 0.4 to 0.6 s; under MPI less, if its second micro-batch began late.
    EXPECT_LE(account[Activity::discarded], w == 1 ? from_seconds(0.2) + tolerance() : Duration{});
    if (w == 1) {
      EXPECT_GT(account[Activity::discarded], Duration{});
    }
  }
  EXPECT_EQ(recorded.durations->size(), static_cast<std::size_t>(3 * n));
}

TEST_P(OutageContract, AMessageThatEndsAMicroBatchWaitsUntilTheWorkerIsUp) {
  const int n = participants();
  const RunTotals seen = run(
      n - 1,
      [&](Cluster& cluster, Rank self) {
        const bool goes_down = self.value == 0;
        compute(cluster, self, {self, 0, 0});
        const auto second = compute(cluster, self, {self, 0, 1}, Deadline::until_message());
        // The outage ends at 1.0 s. The micro-batch would then run until 1.2 s, so an earlier message ends it.
        if (goes_down) {
          EXPECT_FALSE(second);
          EXPECT_GE(cluster.now(self), start_time + from_seconds(1.0));
        }
        while (cluster.receive(self, {}, never, here())) continue;
      },
      [&](Cluster& cluster, Rank self) {
        cluster.receive(self, {}, start_time + from_seconds(0.64), here());
        for (int w = 0; w < n - 1; ++w) cluster.send(self, Rank{w}, {.step = 1}, here());
        cluster.receive(self, {}, start_time + from_seconds(1.4), here());
      });
  const Account& down = seen.accounts.front();
  EXPECT_EQ(down.total(), seen.end - start_time);
  expect_about(down[Activity::down], duration_s, 0);
}

}  // namespace syncopate
