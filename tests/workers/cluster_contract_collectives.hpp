// Collectives: sums, averages by policy, barriers.
#pragma once

namespace syncopate {

TEST_P(ClusterContract, AllReduceGivesEveryWorkerTheSumOfAllGradientsAndBuffers) {
  const int n = participants();
  run(n, [&](Cluster& cluster, Rank self) {
    // Component j of worker w's micro-batches 0 and 1 is (w + 1)(j + 1) and (w + 1)(j + 1) + 1.
    Gradient sum = gradient(cluster, self, 2);
    const AgreedProgress agreed =
        cluster.all_reduce_sum(self, sum, {}, {.kept = 2, .planned = 2, .step = 1, .period = 1}, here());
    std::vector<float> values(training.gradient_size());
    training.write_values(sum, values.data());
    const int ranks = n * (n + 1) / 2;  // 1 + ... + n
    for (int j = 0; j < 5; ++j)
      EXPECT_EQ(values[static_cast<std::size_t>(j)], 2 * (j + 1) * ranks + n) << "component " << j;
    EXPECT_EQ(values[5], 2 * ranks);
    EXPECT_EQ(values[6], n);
    EXPECT_EQ(sum.micro_batches(), 2 * n);
    EXPECT_EQ(agreed.micro_batches, 2 * n);
    EXPECT_EQ(agreed.bytes, all_reduce_bytes(n, payload));
  });
}

TEST_P(ClusterContract, WorkersMayBringDifferentNumbersOfMicroBatchesOrNone) {
  const int n = participants();
  run(n, [&](Cluster& cluster, Rank self) {
    for (int round = 0; round < 3; ++round) {  // worker w contributes (w + round) mod 2 micro-batches
      Gradient sum = gradient(cluster, self, (self.value + round) % 2, round);
      cluster.all_reduce_sum(self, sum, {}, {.kept = sum.micro_batches(), .planned = 1}, here());
      std::vector<float> expected(KnownObjective::size, 0.0f);
      int brought = 0;
      for (int w = 0; w < n; ++w) {
        if ((w + round) % 2 == 0) continue;
        ++brought;
        for (std::size_t j = 0; j < expected.size(); ++j)
          expected[j] += KnownObjective::component({Rank{w}, round, 0}, j);
      }
      EXPECT_EQ(training.values(sum), expected) << "round " << round;
      EXPECT_EQ(sum.micro_batches(), brought);
    }
  });
}

TEST_P(ClusterContract, AverageTreatsMomentsAndBuffersByThePolicy) {
  const int n = participants();
  for (const StatePolicy moments : {StatePolicy::keep, StatePolicy::average, StatePolicy::reset})
    for (const StatePolicy kept_buffers : {StatePolicy::keep, StatePolicy::average, StatePolicy::reset}) {
      SCOPED_TRACE(testing::Message() << "moments " << static_cast<int>(moments) << ", buffers "
                                      << static_cast<int>(kept_buffers));
      run(n, [&](Cluster& cluster, Rank self) {
        ModelStatePtr state = stepped(cluster, self);
        cluster.average(self, state, {.policy = {.moments = {moments, moments}, .buffers = kept_buffers}},
                        {.kept = 1, .planned = 1}, here());
        const float mean_rank = static_cast<float>(n + 1) / 2;  // mean of w + 1
        std::vector<float> parameters, own(5), mean(5), zeros(5, 0.0f);
        for (std::size_t j = 0; j < 5; ++j) {
          mean[j] = mean_rank * static_cast<float>(j + 1);
          own[j] = static_cast<float>(self.value + 1) * static_cast<float>(j + 1);
          parameters.push_back(100.0f - static_cast<float>(rate) * mean[j]);
        }
        expect_near(training.values(state), parameters);
        expect_near(moment(state), moments == StatePolicy::keep ? own : moments == StatePolicy::average ? mean : zeros);
        EXPECT_EQ(state->moments[0].age.steps, Step{moments == StatePolicy::reset ? 0 : 1});
        expect_near(buffers(state), kept_buffers == StatePolicy::keep
                                        ? std::vector<float>{static_cast<float>(self.value + 1), 0}
                                    : kept_buffers == StatePolicy::average ? std::vector<float>{mean_rank, 0}
                                                                           : std::vector<float>{-1, -2});
      });
    }
}

TEST_P(ClusterContract, NobodyLeavesABarrierBeforeTheLastHasEntered) {
  const int n = participants();
  base_s = 0.02;
  run(n, [&](Cluster& cluster, Rank self) {
    gradient(cluster, self, self.value);  // worker w arrives after w micro-batches
    const Time entered = cluster.now(self);
    const AgreedProgress agreed = cluster.barrier(self, here());
    EXPECT_GE(agreed.time, entered);
    EXPECT_GE(cluster.now(self), agreed.time);
    EXPECT_GE(cluster.now(self), start_time + (n - 1) * from_seconds(base_s));  // arrival of the last worker
  });
}

TEST_P(ClusterContract, AgreementsAreTheSameOnAllWorkers) {
  const int n = participants();
  run(n, [&](Cluster& cluster, Rank self) {
    for (int round = 1; round <= 3; ++round) {
      Gradient sum = gradient(cluster, self, 1 + self.value % 2);
      const AgreedProgress agreed = cluster.all_reduce_sum(
          self, sum, {}, {.kept = 1 + self.value % 2, .planned = 2, .step = round, .period = 1}, here());
      EXPECT_EQ(agreed.micro_batches, round * (n + n / 2));
      // The other workers send their agreed time (in nanoseconds) to worker 0, as the step of a message.
      if (self.value > 0) {
        cluster.send(self, Rank{0},
                     {.step = agreed.time.time_since_epoch().count(), .gradient = {}, .kind = Message::Kind::gradient},
                     here());
      } else {
        for (int w = 1; w < n; ++w) {
          const auto told = cluster.receive(self, {}, never, here());
          ASSERT_TRUE(told);
          EXPECT_EQ(told->step, Step{agreed.time.time_since_epoch().count()}) << "worker " << told->from.value;
        }
      }
      cluster.barrier(self, here());
    }
  });
}

// Only the observer of worker 0's process receives the rows.
TEST_P(ClusterContract, RoundsTellStepsPeriodsKeptDroppedAndBytes) {
  struct Rounds : RunObserver {
    std::vector<StepRow> rounds;
    bool saw_worker_0 = false;
    void on_row(const StepRow& round) override { rounds.push_back(round); }
    void on_publish(const Publication&) override {}
  } seen;
  observer = &seen;
  const int n = participants();
  run(n, [&](Cluster& cluster, Rank self) {
    seen.saw_worker_0 |= self.value == 0;
    ModelStatePtr state = stepped(cluster, self);
    cluster.average(self, state, {}, {.kept = 1, .planned = 3, .step = 4, .period = 4}, here());
    cluster.barrier(self, here());
    Gradient sum = gradient(cluster, self, 1);
    cluster.all_reduce_sum(self, sum, {}, {.kept = 1, .planned = 1, .step = 5, .period = 1}, here());
  });
  if (!seen.saw_worker_0) {
    EXPECT_TRUE(seen.rounds.empty());
    return;
  }
  ASSERT_EQ(seen.rounds.size(), 2u);
  EXPECT_EQ(seen.rounds[0].step, Step{4});
  EXPECT_EQ(seen.rounds[0].period, Step{4});
  EXPECT_EQ(seen.rounds[0].kept, n);
  EXPECT_EQ(seen.rounds[0].dropped, 2 * n);
  EXPECT_EQ(seen.rounds[0].bytes, all_reduce_bytes(n, payload + 8));  // parameters and two buffers
  EXPECT_EQ(seen.rounds[1].step, Step{5});
  EXPECT_EQ(seen.rounds[1].dropped, 0);
  EXPECT_EQ(seen.rounds[1].bytes, all_reduce_bytes(n, payload));
  EXPECT_EQ(seen.rounds[1].duration, seen.rounds[1].end - seen.rounds[0].end);
}

TEST_P(ClusterContract, ABarrierThatEndsARoundIsARowAndCounts) {
  SeenRounds seen;
  observer = &seen;
  bool saw_worker_0 = false;
  const int n = participants();
  const RunTotals totals = run(n, [&](Cluster& cluster, Rank self) {
    saw_worker_0 |= self.value == 0;
    const AgreedProgress agreed = cluster.barrier(self, here(), {.kept = 2, .planned = 3, .step = 4, .period = 3});
    EXPECT_EQ(agreed.micro_batches, 2 * n);
    EXPECT_EQ(agreed.bytes, Bytes{0});
    EXPECT_EQ(cluster.barrier(self, here()).micro_batches, 2 * n);
  });
  EXPECT_EQ(totals.kept, std::vector<std::int64_t>(static_cast<std::size_t>(n), 2));
  EXPECT_EQ(totals.dropped, std::vector<std::int64_t>(static_cast<std::size_t>(n), 1));
  if (!saw_worker_0) return;
  ASSERT_EQ(seen.rounds.size(), 1u);
  EXPECT_EQ(seen.rounds[0].step, Step{4});
  EXPECT_EQ(seen.rounds[0].period, Step{3});
  EXPECT_EQ(seen.rounds[0].kept, 2 * n);
  EXPECT_EQ(seen.rounds[0].dropped, n);
}

TEST_P(ClusterContract, AGroupAgreesOnATimeThatNoneOfItsMembersCameAfter) {
  const int n = participants();
  base_s = 0.005;
  run(n, [&](Cluster& cluster, Rank self) {
    ModelStatePtr state = training.initial_state();
    gradient(cluster, self, self.value);
    const Time arrived = cluster.now(self);
    const AgreedProgress agreed = cluster.average(self, state, {.policy = {}, .group_size = 2}, {}, here());
    const auto nanoseconds = [](Time time) { return static_cast<double>(time.time_since_epoch().count()); };
    const std::vector<double> mine = {nanoseconds(arrived), nanoseconds(agreed.time)};
    const SharedNumbers all = cluster.all_gather(self, mine, here());
    for (int member = self.value / 2 * 2; member < std::min(n, self.value / 2 * 2 + 2); ++member) {
      const auto at = 2 * static_cast<std::size_t>(member);
      EXPECT_EQ((*all)[at + 1], mine[1]) << "member " << member;
      EXPECT_LE((*all)[at], mine[1]) << "member " << member;
    }
  });
}

}  // namespace syncopate
