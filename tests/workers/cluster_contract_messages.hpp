// Messages: order, contents, time-outs, and the end of those who could send.
#pragma once

namespace syncopate {

TEST_P(ClusterContract, MessagesOfOneSenderArriveInOrderWithTheirContents) {
  const int n = participants();
  run(n, [&](Cluster& cluster, Rank self) {
    if (self.value > 0) {
      for (int k = 0; k < 3; ++k) {
        Message message{.step = k, .gradient = gradient(cluster, self, k + 1, k), .model = nullptr};
        cluster.send(self, Rank{0}, std::move(message), here());
      }
      return;
    }
    std::vector<int> next(static_cast<std::size_t>(n), 0);
    for (int received = 0; received < 3 * (n - 1); ++received) {
      const auto message = cluster.receive(self, never, here());
      ASSERT_TRUE(message);
      const int k = next.at(static_cast<std::size_t>(message->from.value))++;
      EXPECT_EQ(message->step, Step{k}) << "from worker " << message->from.value;
      EXPECT_FALSE(message->carries_model);
      EXPECT_EQ(message->gradient.micro_batches(), k + 1);
      EXPECT_GE(message->gradient.compute_time(), (k + 1) * from_seconds(base_s));
      std::vector<float> expected(KnownObjective::size, 0.0f);
      for (int i = 0; i <= k; ++i)
        for (std::size_t j = 0; j < expected.size(); ++j)
          expected[j] += KnownObjective::component({message->from, k, i}, j);
      EXPECT_EQ(training.values(message->gradient), expected);
    }
    EXPECT_FALSE(cluster.receive(self, never, here()));  // all others have ended
  });
}

TEST_P(ClusterContract, AModelReachesEveryWorkerOfAServerAndCanBeAdopted) {
  const int workers = participants() - 1;
  run(
      workers,
      [&](Cluster& cluster, Rank self) {
        const auto message = cluster.receive(self, never, here());
        ASSERT_TRUE(message);
        EXPECT_TRUE(message->carries_model);
        EXPECT_EQ(message->from, cluster.server());
        EXPECT_EQ(message->step, Step{9});
        const ModelStatePtr state = training.adopt(stepped(cluster, self), message->model);
        // The server has descended along (w, s, i) = (workers, 1, 2).
        std::vector<float> parameters;
        for (int j = 0; j < 5; ++j)
          parameters.push_back(100.0f - static_cast<float>(rate) * static_cast<float>((workers + 1) * (j + 1) + 10));
        EXPECT_EQ(training.values(state), parameters);
        EXPECT_EQ(buffers(state), (std::vector<float>{static_cast<float>(workers + 1), 10}));
        EXPECT_EQ(moment(state), KnownObjective::gradient_of({self, 0, 0}));
        EXPECT_FALSE(cluster.receive(self, never, here()));  // the server has ended
      },
      [&](Cluster& cluster, Rank self) {
        const Gradient along(training.initial_state(), {self, 1, 2}, {});
        const auto model = training.descend(training.initial_state(), along, rate);
        for (int w = 0; w < workers; ++w)
          cluster.send(self, Rank{w}, {.step = 9, .gradient = {}, .model = model, .carries_model = true}, here());
      });
}

TEST_P(ClusterContract, AReceiveEndsAtItsTimeWhenNothingComes) {
  const int n = participants();
  run(n, [&](Cluster& cluster, Rank self) {
    cluster.barrier(self, here());
    EXPECT_FALSE(cluster.receive(self, cluster.now(self), here()));  // to try is not to wait
    const Time until = cluster.now(self) + from_seconds(0.02);
    EXPECT_FALSE(cluster.receive(self, until, here()));
    if (n > 1) {
      EXPECT_GE(cluster.now(self), until);
    }
    EXPECT_LE(cluster.now(self), until + tolerance());
    cluster.barrier(self, here());  // all were alive and could have sent
  });
}

TEST_P(ClusterContract, ATimedReceiveTakesWhatComesInTime) {
  const int n = participants();
  base_s = 0.01;
  run(n, [&](Cluster& cluster, Rank self) {
    if (self.value == n - 1 && n > 1) {
      cluster.send(self, Rank{0}, {.gradient = gradient(cluster, self, 1), .model = nullptr}, here());
    } else if (self.value == 0 && n > 1) {
      const auto message = cluster.receive(self, start_time + from_seconds(10), here());
      ASSERT_TRUE(message);
      EXPECT_EQ(message->from, Rank{n - 1});
      EXPECT_GE(cluster.now(self), start_time + from_seconds(base_s));
      EXPECT_LE(cluster.now(self), start_time + from_seconds(base_s) + tolerance() + from_seconds(0.001));
    }
  });
}

TEST_P(ClusterContract, AServerHearsAllGradientsAndThenThatNobodyIsLeft) {
  const int workers = participants() - 1;
  const RunTotals totals = run(
      workers,
      [&](Cluster& cluster, Rank self) {
        cluster.send(self, cluster.server(), {.gradient = gradient(cluster, self, 2), .model = nullptr}, here());
      },
      [&](Cluster& cluster, Rank self) {
        Gradient sum;
        int messages = 0;
        while (auto message = cluster.receive(self, never, here())) {
          cluster.keep(self, *message);
          sum += std::move(message->gradient);
          ++messages;
        }
        EXPECT_EQ(messages, workers);
        std::vector<float> expected;
        for (int j = 0; j < 5; ++j)
          expected.push_back(static_cast<float>((j + 1) * workers * (workers + 1) + workers));  // 2 (j+1) W(W+1)/2 + W
        EXPECT_EQ(training.values(sum), expected);
        EXPECT_EQ(sum.micro_batches(), 2 * workers);
      });
  EXPECT_EQ(totals.messages, workers);
  EXPECT_EQ(totals.bytes, Bytes{workers * payload});
}

// A worker that computes for an hour must not keep a run alive whose server has ended.
TEST_P(ClusterContract, TheEndOfTheServerEndsTheRun) {
  const int workers = participants() - 1;
  base_s = 3600;
  const RunTotals totals = run(
      workers,
      [&](Cluster& cluster, Rank self) {
        Gradient late = gradient(cluster, self, 4);
        cluster.send(self, cluster.server(), {.gradient = std::move(late), .model = nullptr}, here());
        EXPECT_FALSE(cluster.receive(self, never, here()));
      },
      [&](Cluster& cluster, Rank self) {
        EXPECT_FALSE(cluster.receive(self, start_time + from_seconds(0.02), here()));
      });
  EXPECT_GE(totals.end, start_time + from_seconds(0.02));
  EXPECT_LE(totals.end, start_time + from_seconds(0.02) + tolerance());
  for (int w = 0; w < workers; ++w) {
    EXPECT_EQ(totals.accounts.at(static_cast<std::size_t>(w)).total(), totals.end - start_time);
    EXPECT_EQ(totals.kept.at(static_cast<std::size_t>(w)), 0);
  }
}

}  // namespace syncopate
