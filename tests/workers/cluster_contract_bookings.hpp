// How each call books waiting and communication: a wait ends with the last arrival, or when the message is sent; the
// remaining time is communication. Also tests the counts of each collective.
#pragma once

namespace syncopate {

class BookingContract : public ClusterContract {
 protected:
  static constexpr double late_s = 0.1;  // seconds by which the last arrival is later than the others

  // A worker's times around its calls, summed over both calls. They stay zero for workers in other processes.
  struct Seen {
    bool is_here = false;
    Duration until_last{};  // from before each call until the last arrival
    Duration after_last{};  // from the last arrival to the end of the call
    Time end = start_time;
  };

  // Two collectives on all workers; worker n - 1 is the last to arrive at the first, worker 0 at the second.
  RunTotals run_twice(const std::function<AgreedProgress(Cluster&, Rank)>& collective) {
    const int n = participants();
    seen.assign(static_cast<std::size_t>(n), {});
    return run(n, [&](Cluster& cluster, Rank self) {
      Seen& mine = seen[static_cast<std::size_t>(self.value)];
      mine.is_here = true;
      for (const int last : {n - 1, 0}) {
        if (self.value == last) idle_until(cluster, self, cluster.now(self) + from_seconds(late_s));
        const Time before = cluster.now(self);
        const Time arrived = collective(cluster, self).time - GetParam().agreed_after;
        EXPECT_GE(arrived, before);
        mine.until_last += arrived - before;
        mine.after_last += cluster.now(self) - arrived;
      }
      mine.end = cluster.now(self);
    });
  }

  void expect_booked(const RunTotals& totals) const {
    ASSERT_EQ(totals.accounts.size(), seen.size());
    for (std::size_t w = 0; w < seen.size(); ++w) {
      SCOPED_TRACE(testing::Message() << "worker " << w);
      const Account& account = totals.accounts[w];
      EXPECT_EQ(account.total(), totals.end - start_time);
      EXPECT_GT(account[Activity::communicate], Duration{});
      const Seen& mine = seen[w];
      if (!mine.is_here) continue;
      EXPECT_LE(account[Activity::communicate], mine.after_last);
      EXPECT_GE(account[Activity::wait], mine.until_last - 2 * hesitation());
      EXPECT_LE(account[Activity::wait], mine.until_last + std::max(totals.end - mine.end, Duration{}));
    }
  }

  std::vector<Seen> seen;
};

TEST_P(BookingContract, AnAllReduceWaitsForTheLastAndThenCommunicates) {
  const RunTotals totals = run_twice([&](Cluster& cluster, Rank self) {
    Gradient sum(training.initial_state(), {self, 0, 0}, {});
    double number = 1;
    return cluster.all_reduce_sum(self, sum, {&number, 1}, {.kept = 1, .planned = 1}, here());
  });
  expect_booked(totals);
  EXPECT_EQ(totals.collectives, 2);
  EXPECT_EQ(totals.bytes, Bytes{2 * 2 * (participants() - 1) * (payload + 4)});  // 2 sums x 2 phases x (N - 1)
}

TEST_P(BookingContract, AnAverageWaitsForTheLastAndThenCommunicates) {
  const RunTotals totals = run_twice([&](Cluster& cluster, Rank self) {
    ModelStatePtr state = training.initial_state();
    return cluster.average(self, state, {}, {.kept = 1, .planned = 1}, here());
  });
  expect_booked(totals);
  EXPECT_EQ(totals.collectives, 2);
  EXPECT_EQ(totals.bytes, Bytes{2 * 2 * (participants() - 1) * (payload + 8)});  // payload and two buffers
}

TEST_P(BookingContract, AnAverageInAGroupOfAllWaitsForTheLastAndThenCommunicates) {
  const int n = participants();
  const RunTotals totals = run_twice([&](Cluster& cluster, Rank self) {
    ModelStatePtr state = training.initial_state();
    return cluster.average(self, state, {.group_size = n}, {}, here());
  });
  expect_booked(totals);
  EXPECT_EQ(totals.collectives, 2);
  EXPECT_EQ(totals.bytes, Bytes{2 * 2 * (n - 1) * (payload + 8)});
}

TEST_P(BookingContract, ABarrierWaitsForTheLastAndThenCommunicates) {
  const RunTotals totals = run_twice([&](Cluster& cluster, Rank self) { return cluster.barrier(self, here()); });
  expect_booked(totals);
  EXPECT_EQ(totals.collectives, 2);
  EXPECT_EQ(totals.bytes, Bytes{0});
}

// An all-gather returns no time, so workers gather the times before their calls.
TEST_P(BookingContract, AnAllGatherWaitsForTheLastAndThenCommunicates) {
  const int n = participants();
  std::vector<Duration> earlier(static_cast<std::size_t>(n));  // from the worker's arrival to the last one
  const RunTotals totals = run(n, [&](Cluster& cluster, Rank self) {
    if (self.value == n - 1) idle_until(cluster, self, start_time + from_seconds(late_s));
    const Time before = cluster.now(self);
    const double mine = static_cast<double>(before.time_since_epoch().count());
    const SharedNumbers all = cluster.all_gather(self, {&mine, 1}, here());
    const double last = *std::max_element(all->begin(), all->end());
    earlier[static_cast<std::size_t>(self.value)] = Duration{static_cast<Duration::rep>(last - mine)};
  });
  for (std::size_t w = 0; w < earlier.size(); ++w) {
    const Account& account = totals.accounts.at(w);
    EXPECT_EQ(account.total(), totals.end - start_time);
    EXPECT_GT(account[Activity::communicate], Duration{}) << "worker " << w;
    EXPECT_GE(account[Activity::wait], earlier[w] - hesitation()) << "worker " << w;
  }
  EXPECT_EQ(totals.collectives, 1);
  EXPECT_EQ(totals.bytes, Bytes{(n - 1) * 8 * n});  // each of n workers sends 8 bytes to n - 1
}

// The last worker sends late. Its second message contains its readings of the clock around the first message.
TEST_P(BookingContract, AReceiveWaitsUntilTheMessageIsSentAndThenCommunicates) {
  const int n = participants();
  struct Receiver {
    bool is_here = false;
    Duration at_least{}, at_most{};  // bounds of the wait
    Time end = start_time;
  };
  std::vector<Receiver> receivers(static_cast<std::size_t>(n));
  const auto number_of = [](Time time) { return static_cast<double>(time.time_since_epoch().count()); };
  const auto time_of = [](double number) { return Time{Duration{static_cast<Duration::rep>(number)}}; };
  const RunTotals totals = run(n, [&](Cluster& cluster, Rank self) {
    const Rank sender{n - 1};
    if (self == sender) {
      idle_until(cluster, self, start_time + from_seconds(late_s));
      for (int w = 0; w < n - 1; ++w) {
        const Time before = cluster.now(self);
        cluster.send(self, Rank{w}, Message::of_gradient(0, gradient(cluster, self, 1)), here());
        const Time after = cluster.now(self);
        cluster.send(self, Rank{w}, {.numbers = {number_of(before), number_of(after)}}, here());
      }
      return;
    }
    const Time begin = cluster.now(self);
    ASSERT_TRUE(cluster.receive(self, sender, never, here()));
    const Time got_first = cluster.now(self);
    const auto told = cluster.receive(self, sender, never, here());
    ASSERT_TRUE(told);
    const Time end = cluster.now(self);
    receivers[static_cast<std::size_t>(self.value)] = {
        .is_here = true,
        .at_least = time_of(told->numbers.at(0)) - begin - hesitation(),
        .at_most = std::max(time_of(told->numbers.at(1)) - begin, Duration{}) + (end - got_first),
        .end = end};
  });
  for (std::size_t w = 0; w + 1 < receivers.size(); ++w) {
    SCOPED_TRACE(testing::Message() << "worker " << w);
    const Account& account = totals.accounts.at(w);
    EXPECT_EQ(account.total(), totals.end - start_time);
    EXPECT_GT(account[Activity::communicate], Duration{});
    const Receiver& receiver = receivers[w];
    if (!receiver.is_here) continue;
    EXPECT_GE(account[Activity::wait], receiver.at_least);
    EXPECT_LE(account[Activity::wait], receiver.at_most + (totals.end - receiver.end));
  }
  EXPECT_EQ(totals.messages, 2 * (n - 1));
  EXPECT_EQ(totals.bytes, Bytes{(n - 1) * (payload + 2 * 8)});
}

// The last worker completes the quorum. No worker is late.
TEST_P(BookingContract, APartialAllReduceWaitsForItsQuorumAndThenCommunicates) {
  const int n = participants();
  const RunTotals totals = run_twice([&](Cluster& cluster, Rank self) {
    const Gradient own(training.initial_state(), {self, 0, 0}, {});
    return cluster.partial_all_reduce(self, own, {.quorum = n}, LateGradient::drop, {.kept = 1, .planned = 1}, here())
        .at(0)
        .agreement;
  });
  expect_booked(totals);
  EXPECT_EQ(totals.collectives, 2);
  EXPECT_EQ(totals.bytes, Bytes{2 * 2 * (n - 1) * payload});
}

}  // namespace syncopate
