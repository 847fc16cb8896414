// Servers: workers that leave, staleness, and several servers at once.
#pragma once

namespace syncopate {

// The workers leave one by one, when the server tells them to.
TEST_P(ClusterContract, AServerIsToldOnceOfEachWorkerThatLeaves) {
  const int workers = participants() - 1;
  run(
      workers,
      [&](Cluster& cluster, Rank self) {
        const auto message = cluster.receive(self, {}, never, here());
        ASSERT_TRUE(message);
        if (self.value % 2 == 0) cluster.send(self, cluster.server(), {.step = self.value}, here());
      },
      [&](Cluster& cluster, Rank self) {
        EXPECT_EQ(cluster.workers_left(self), workers);
        for (int w = 0; w < workers; ++w) {
          cluster.send(self, Rank{w}, {.step = 1}, here());
          if (w % 2 == 0) {
            const auto last_word = cluster.receive(self, {}, never, here());
            ASSERT_TRUE(last_word);  // arrives before the notice that its sender has left
            EXPECT_EQ(last_word->from, Rank{w});
          }
          EXPECT_FALSE(cluster.receive(self, {}, never, here()));
          EXPECT_EQ(cluster.workers_left(self), workers - 1 - w);
          if (w == workers - 1) break;
          // A second receive gets no second notice, so it waits until its deadline.
          const Time until = cluster.now(self) + from_seconds(0.01);
          EXPECT_FALSE(cluster.receive(self, {}, until, here()));
          EXPECT_GE(cluster.now(self), until);
        }
        EXPECT_FALSE(cluster.receive(self, {}, never, here()));  // no worker is left
      });
}

TEST_P(ClusterContract, WhatAServerKeepsCountsByItsStaleness) {
  const int workers = participants() - 1;
  const RunTotals totals = run(
      workers,
      [&](Cluster& cluster, Rank self) {
        for (int k = 0; k < 3; ++k)
          cluster.send(self, cluster.server(), Message::of_gradient(0, gradient(cluster, self, 1)), here());
      },
      [&](Cluster& cluster, Rank self) {
        std::vector<int> heard(static_cast<std::size_t>(workers), 0);
        while (cluster.workers_left(self) > 0 || *std::min_element(heard.begin(), heard.end()) < 3) {
          const auto message = cluster.receive(self, {}, never, here());
          if (!message) continue;
          int& count = heard.at(static_cast<std::size_t>(message->from.value));
          if (count == 1)
            cluster.discard(self, message->work());
          else
            cluster.keep(self, message->work(), count == 0 ? 0 : 2 + message->from.value);
          ++count;
        }
      });
  std::vector<std::int64_t> expected(static_cast<std::size_t>(workers + 2), 1);  // by staleness, 0 .. workers + 1
  expected[0] = workers;
  expected[1] = 0;
  EXPECT_EQ(totals.staleness, expected);
  for (int w = 0; w < workers; ++w) {
    EXPECT_EQ(totals.kept.at(static_cast<std::size_t>(w)), 2);
    EXPECT_EQ(totals.dropped.at(static_cast<std::size_t>(w)), 1);
  }
}

// These tests need at least three participants: two servers and a worker.
class TwoServersContract : public ClusterContract {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TwoServersContract);

// Each of two servers gets its slice of every gradient and sends its slice of the model.
TEST_P(TwoServersContract, TwoServersShareAModel) {
  const int workers = participants() - 2;
  constexpr int steps = 2;
  const RunTotals totals = run(
      workers,
      [&](Cluster& cluster, Rank self) {
        EXPECT_EQ(cluster.servers(), 2);
        for (int k = 0; k < steps; ++k) {
          const Gradient own = gradient(cluster, self, 1, k);
          for (int shard = 0; shard < 2; ++shard) {
            const Slice slice{.index = shard, .count = 2};
            cluster.send(self, cluster.server(shard),
                         {.step = k, .gradient = own, .kind = Message::Kind::gradient, .slice = slice}, here());
          }
          for (int shard = 1; shard >= 0; --shard) {
            const auto message = cluster.receive(self, cluster.server(shard), never, here());
            ASSERT_TRUE(message);
            EXPECT_EQ(message->from, cluster.server(shard));
            EXPECT_EQ(message->slice, (Slice{.index = shard, .count = 2}));
          }
        }
        EXPECT_FALSE(cluster.receive(self, {}, never, here()));  // both servers have ended
      },
      [&](Cluster& cluster, Rank self) {
        const int shard = self.value - workers;
        EXPECT_TRUE(cluster.is_server(self));
        for (int k = 0; k < steps; ++k) {
          Gradient sum;
          for (int w = 0; w < workers; ++w) {
            const auto message = cluster.receive(self, {}, never, here());
            ASSERT_TRUE(message);
            EXPECT_EQ(message->step, Step{k});
            EXPECT_EQ(message->slice.index, shard);
            if (shard == 0) cluster.keep(self, message->work(), 3);
            sum += message->gradient;
          }
          const Slice slice{.index = shard, .count = 2};
          const auto values = training.values(sum);
          for (std::size_t j = slice.begin(5); j < slice.end(5); ++j) {
            float expected = 0;
            for (int w = 0; w < workers; ++w) expected += KnownObjective::component({Rank{w}, k, 0}, j);
            EXPECT_EQ(values[j], expected);
          }
          for (int w = 0; w < workers; ++w)
            cluster.send(self, Rank{w},
                         {.model = training.initial_state(), .kind = Message::Kind::model, .slice = slice}, here());
        }
        EXPECT_LE(cluster.bytes_sent(), Bytes{2 * steps * workers * payload});
        EXPECT_GE(cluster.bytes_sent(), Bytes{steps * workers * payload});
      },
      2);
  EXPECT_EQ(totals.bytes, Bytes{2 * steps * workers * payload});  // each value once in each direction
  EXPECT_EQ(totals.messages, 4 * steps * workers);
  EXPECT_EQ(totals.staleness, (std::vector<std::int64_t>{0, 0, 0, steps * workers}));
  for (int w = 0; w < workers; ++w) {
    EXPECT_EQ(totals.kept.at(static_cast<std::size_t>(w)), steps);
    EXPECT_EQ(totals.dropped.at(static_cast<std::size_t>(w)), 0);
    EXPECT_EQ(totals.accounts.at(static_cast<std::size_t>(w)).total(), totals.end - start_time);
  }
}

// Each worker begins a micro-batch of an hour. The server's message ends it after 0.2 s.
TEST_P(ClusterContract, AMicroBatchThatAMessageEndsIsDropped) {
  const int workers = participants() - 1;
  base_s = 3600;
  const Time told = start_time + from_seconds(0.2);
  std::vector<Time> began(static_cast<std::size_t>(workers), told);  // by worker of this process
  const RunTotals totals = run(
      workers,
      [&](Cluster& cluster, Rank self) {
        began[static_cast<std::size_t>(self.value)] = cluster.now(self);
        EXPECT_FALSE(compute(cluster, self, {self, 0, 0}, Deadline::until_message()));
        EXPECT_TRUE(cluster.receive(self, {}, never, here()));
      },
      [&](Cluster& cluster, Rank self) {
        EXPECT_FALSE(cluster.receive(self, {}, told, here()));
        for (int w = 0; w < workers; ++w) cluster.send(self, Rank{w}, {}, here());
        while (cluster.workers_left(self) > 0) EXPECT_FALSE(cluster.receive(self, {}, never, here()));
      });
  for (int w = 0; w < workers; ++w) {
    const Account& account = totals.accounts.at(static_cast<std::size_t>(w));
    EXPECT_EQ(totals.dropped.at(static_cast<std::size_t>(w)), 1);
    EXPECT_GE(account[Activity::discarded], told - began[static_cast<std::size_t>(w)] - hesitation());
    EXPECT_EQ(account.total(), totals.end - start_time);
  }
}

// Each message contains the number of bytes that its sender knows to have been sent. Here server 0 learns from the
// workers how many bytes server 1 has sent to them.
TEST_P(TwoServersContract, AServerKnowsWhatTheOtherOneHasSent) {
  const int workers = participants() - 2;
  const Slice second{.index = 1, .count = 2};
  const std::int64_t slice_bytes = 4 * (second.end(5) - second.begin(5));
  run(
      workers,
      [&](Cluster& cluster, Rank self) {
        ASSERT_TRUE(cluster.receive(self, cluster.server(1), never, here()));
        cluster.send(self, cluster.server(0), {.numbers = {1}}, here());
        EXPECT_TRUE(cluster.receive(self, cluster.server(0), never, here()));
      },
      [&](Cluster& cluster, Rank self) {
        if (self == cluster.server(1)) {
          for (int w = 0; w < workers; ++w)
            cluster.send(self, Rank{w},
                         {.model = training.initial_state(), .kind = Message::Kind::model, .slice = second}, here());
          while (cluster.workers_left(self) > 0) cluster.receive(self, {}, never, here());
          return;
        }
        for (int w = 0; w < workers; ++w) ASSERT_TRUE(cluster.receive(self, {}, never, here()));
        EXPECT_EQ(cluster.bytes_sent(), Bytes{workers * (slice_bytes + 8)});
        for (int w = 0; w < workers; ++w) cluster.send(self, Rank{w}, {}, here());
      },
      2);
}

// Workers take their own steps and exchange models with a server, as in elastic averaging. They keep one of two
// micro-batches.
TEST_P(ClusterContract, WhatWorkersKeepThemselvesBesideAServerIsKept) {
  SeenRounds seen;
  observer = &seen;
  const int workers = participants() - 1;
  constexpr int steps = 3;
  base_s = 0.005;
  bool server_is_here = false;
  struct Own {
    bool is_here = false;
    Duration kept{}, lost{};
  };
  std::vector<Own> own(static_cast<std::size_t>(workers));
  const RunTotals totals = run(
      workers,
      [&](Cluster& cluster, Rank self) {
        Own& mine = own[static_cast<std::size_t>(self.value)];
        mine.is_here = true;
        for (int s = 1; s <= steps; ++s) {
          const Gradient first = gradient(cluster, self, 1, s), second = gradient(cluster, self, 1, s + 10);
          mine.kept += first.compute_time();
          mine.lost += second.compute_time();
          cluster.send(self, cluster.server(), {.model = training.initial_state(), .kind = Message::Kind::model},
                       here());
          ASSERT_TRUE(cluster.receive(self, cluster.server(), never, here()));
          cluster.report_steps(self,
                               {.kept = 1, .planned = 2, .step = s, .period = 1, .compute_time = first.compute_time()});
        }
      },
      [&](Cluster& cluster, Rank self) {
        server_is_here = true;
        while (cluster.workers_left(self) > 0) {
          const auto message = cluster.receive(self, {}, never, here());
          if (message)
            cluster.send(self, message->from, {.model = training.initial_state(), .kind = Message::Kind::model},
                         here());
        }
      });
  EXPECT_EQ(totals.bytes, Bytes{2 * steps * workers * payload});
  EXPECT_EQ(totals.messages, 2 * steps * workers);
  for (int w = 0; w < workers; ++w) {
    SCOPED_TRACE(testing::Message() << "worker " << w);
    const Account& account = totals.accounts.at(static_cast<std::size_t>(w));
    EXPECT_EQ(totals.kept.at(static_cast<std::size_t>(w)), steps);
    EXPECT_EQ(totals.dropped.at(static_cast<std::size_t>(w)), steps);
    EXPECT_EQ(account.total(), totals.end - start_time);
    const Own& mine = own[static_cast<std::size_t>(w)];
    if (!mine.is_here) continue;
    EXPECT_EQ(account[Activity::discarded], mine.lost);
    EXPECT_GE(account[Activity::compute], mine.kept);
  }
  if (!server_is_here) return;
  ASSERT_EQ(seen.rounds.size(), static_cast<std::size_t>(steps));
  Bytes bytes{};  // sent until the last worker has done the step
  for (int s = 1; s <= steps; ++s) {
    const StepRow& round = seen.rounds[static_cast<std::size_t>(s - 1)];
    EXPECT_EQ(round.step, Step{s});
    EXPECT_EQ(round.kept, workers);
    EXPECT_EQ(round.dropped, workers);
    bytes += round.bytes;
  }
  EXPECT_EQ(bytes, totals.bytes);
}

// The server ends while the workers compute. The time that the end cuts off is not subtracted from earlier kept work.
TEST_P(ClusterContract, WhatTheEndCutsOffIsNotTakenFromWhatWasKept) {
  const int workers = participants() - 1;
  base_s = 0.02;
  delays = {std::make_shared<LongStep>(1)};
  std::vector<Duration> kept(static_cast<std::size_t>(workers));  // by worker, known in the server's process
  const RunTotals totals = run(
      workers,
      [&](Cluster& cluster, Rank self) {
        cluster.send(self, cluster.server(), Message::of_gradient(0, gradient(cluster, self, 2)), here());
        compute(cluster, self, {self, 1, 0});
      },
      [&](Cluster& cluster, Rank self) {
        for (int w = 0; w < workers; ++w) {
          const auto message = cluster.receive(self, {}, never, here());
          ASSERT_TRUE(message);
          cluster.keep(self, message->work(), 0);
          kept[static_cast<std::size_t>(message->from.value)] = message->gradient.compute_time();
        }
        EXPECT_FALSE(cluster.receive(self, {}, cluster.now(self) + from_seconds(0.05), here()));
      });
  for (int w = 0; w < workers; ++w) {
    const Account& account = totals.accounts.at(static_cast<std::size_t>(w));
    EXPECT_GE(account[Activity::compute], kept[static_cast<std::size_t>(w)]) << "worker " << w;
    EXPECT_GE(account[Activity::discarded], from_seconds(0.05) - hesitation()) << "worker " << w;
    EXPECT_EQ(account.total(), totals.end - start_time) << "worker " << w;
    EXPECT_EQ(totals.kept.at(static_cast<std::size_t>(w)), 2);
    EXPECT_EQ(totals.dropped.at(static_cast<std::size_t>(w)), 1);
  }
}

// These tests need at least three participants: a region's server, the global server and a worker. With five or more
// there are two regions.
class RegionsContract : public ClusterContract {
 protected:
  int regions() { return participants() < 5 ? 1 : 2; }
  int workers_of_region() { return (participants() - 1 - regions()) / regions(); }
  int workers() { return workers_of_region() * regions(); }
  Servers servers() { return Servers::of_regions(regions()); }
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(RegionsContract);

// Each region's server learns from its workers how many bytes were sent. The global server learns it from the regions'
// servers.
TEST_P(RegionsContract, ServersHaveToDoWithTheirOwnWorkersAndWithTheGlobalOne) {
  const RunTotals totals = run(
      workers(),
      [&](Cluster& cluster, Rank self) {
        const Rank own = servers().server_of(self, workers());
        cluster.send(self, own, {.numbers = {1}}, here());
        EXPECT_TRUE(cluster.receive(self, own, never, here()));
        EXPECT_FALSE(cluster.receive(self, own, never, here())) << "it has ended";
      },
      [&](Cluster& cluster, Rank self) {
        EXPECT_EQ(cluster.servers().regions, regions());
        const Rank global = cluster.server();
        if (self == global) {
          EXPECT_EQ(cluster.workers_left(self), regions());
          for (int r = 0; r < regions();)
            if (const auto message = cluster.receive(self, {}, never, here())) {
              EXPECT_GT(message->from, global);
              ++r;
            }
          EXPECT_EQ(cluster.bytes_sent(), Bytes{8 * (workers() + regions())});
          for (int r = 0; r < regions(); ++r) cluster.send(self, cluster.server(1 + r), {}, here());
          return;
        }
        EXPECT_EQ(cluster.workers_left(self), workers_of_region());
        for (int w = 0; w < workers_of_region(); ++w) {
          const auto message = cluster.receive(self, {}, never, here());
          ASSERT_TRUE(message);
          EXPECT_EQ(servers().server_of(message->from, workers()), self);
        }
        cluster.send(self, global, {.numbers = {1}}, here());
        EXPECT_TRUE(cluster.receive(self, global, never, here()));
        for (const Rank worker : servers().served_by(self, workers())) cluster.send(self, worker, {}, here());
        while (!cluster.has_left(self, global)) EXPECT_FALSE(cluster.receive(self, {}, never, here()));
      },
      servers());
  EXPECT_EQ(totals.bytes, Bytes{8 * (workers() + regions())});
  EXPECT_EQ(totals.messages, 2 * workers() + 2 * regions());
}

TEST_P(RegionsContract, TheGlobalServerIsToldOfTheRegionsServersThatLeave) {
  run(
      workers(), [](Cluster&, Rank) {},
      [&](Cluster& cluster, Rank self) {
        while (cluster.workers_left(self) > 0) EXPECT_FALSE(cluster.receive(self, {}, never, here()));
        EXPECT_FALSE(cluster.receive(self, {}, cluster.now(self), here()));
        if (self != cluster.server()) return;
        for (int r = 0; r < regions(); ++r) EXPECT_TRUE(cluster.has_left(self, cluster.server(1 + r)));
        EXPECT_FALSE(cluster.receive(self, {}, never, here())) << "nobody is left";
      },
      servers());
}

}  // namespace syncopate
