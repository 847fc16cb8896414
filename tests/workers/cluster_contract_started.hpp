// Non-blocking collectives: workers start them, compute meanwhile, and finish them later.
#pragma once

namespace syncopate {

// Components of the sum of micro-batches (w, step, 0) over the first n workers.
inline std::vector<float> known_sum(int n, Step step) {
  std::vector<float> sum(KnownObjective::size, 0.0f);
  for (int w = 0; w < n; ++w)
    for (std::size_t j = 0; j < sum.size(); ++j) sum[j] += KnownObjective::component({Rank{w}, step, 0}, j);
  return sum;
}

TEST_P(ClusterContract, CollectivesUnderWayAreFinishedInAnyOrder) {
  const int n = participants();
  const RunTotals totals = run(n, [&](Cluster& cluster, Rank self) {
    for (int round = 0; round < 3; ++round) {
      const Step first = 2 * round, second = 2 * round + 1;
      const auto start = [&](Step step) {
        return cluster.start(self, Collective::all_reduce(gradient(cluster, self, 1, step)),
                             {.kept = 1, .planned = 1, .step = step + 1, .period = 1}, here());
      };
      std::vector<StartedCollective> started;
      started.push_back(start(first));
      started.push_back(start(second));
      gradient(cluster, self, 1 + self.value % 2);
      const bool reversed = (self.value + round) % 2 == 0;  // workers finish in different orders
      std::vector<CollectiveResult> results(2);
      for (const std::size_t i : reversed ? std::vector<std::size_t>{1, 0} : std::vector<std::size_t>{0, 1})
        results[i] = cluster.finish(self, std::move(started[i]), here());
      for (std::size_t i = 0; i < 2; ++i) {
        const Step step = i == 0 ? first : second;
        EXPECT_EQ(training.values(results[i].gradient), known_sum(n, step)) << "step " << step.value();
        EXPECT_TRUE(results[i].gradient.reduced());
        EXPECT_EQ(results[i].gradient.micro_batches(), n);
        // Agreements follow the order of the starts.
        EXPECT_EQ(results[i].agreement.micro_batches, n * (step.value() + 1));
        EXPECT_EQ(results[i].agreement.bytes, Bytes{(step.value() + 1) * all_reduce_bytes(n, payload).value()});
      }
    }
  });
  EXPECT_EQ(totals.collectives, 6);
  for (int w = 0; w < n; ++w) EXPECT_EQ(totals.kept.at(static_cast<std::size_t>(w)), 6);
}

// The values of two collectives are so long that under MPI they are summed in pieces while both are in progress.
TEST_P(ClusterContract, LongValuesUnderWayAreSummedPieceByPiece) {
  constexpr std::size_t count = 300'000;
  const int n = participants();
  run(n, [&](Cluster& cluster, Rank self) {
    std::vector<StartedCollective> started;
    for (int each = 0; each < 2; ++each) {
      std::vector<double> numbers(count);
      for (std::size_t i = 0; i < count; ++i) numbers[i] = (self.value + 1) * static_cast<double>(i + 1) + each;
      started.push_back(cluster.start(self, Collective::all_reduce(gradient(cluster, self, 1, each), numbers),
                                      {.kept = 1, .planned = 1, .step = each + 1, .period = 1}, here()));
    }
    for (const int each : self.value % 2 == 0 ? std::vector{1, 0} : std::vector{0, 1}) {
      const CollectiveResult result = cluster.finish(self, std::move(started[static_cast<std::size_t>(each)]), here());
      EXPECT_EQ(training.values(result.gradient), known_sum(n, each));
      ASSERT_EQ(result.numbers->size(), count);
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < count; ++i)
        wrong += (*result.numbers)[i] != n * (n + 1) / 2 * static_cast<double>(i + 1) + n * each;
      EXPECT_EQ(wrong, 0u);
    }
  });
}

// Worker 0 starts the collective 40 ms later than the other workers, which compute for 50 ms meanwhile.
TEST_P(ClusterContract, WhoComputesMeanwhileDoesNotWait) {
  const int n = participants();
  base_s = 0.01;
  struct Met {  // bounds of another worker's waits, summed over barrier, gathering and end
    Duration time{};
    Time end = start_time;
    bool is_here = false;  // under MPI each process has only its own worker
  };
  std::vector<Met> met(static_cast<std::size_t>(n));
  const RunTotals totals = run(n, [&](Cluster& cluster, Rank self) {
    const Time before_barrier = cluster.now(self);
    cluster.barrier(self, here());
    const Time begin = cluster.now(self);
    if (self == Rank{0}) gradient(cluster, self, 4);
    const Time before_start = cluster.now(self);
    auto started = cluster.start(self, Collective::all_reduce(gradient(cluster, self, 0)), {}, here());
    const Time after_start = cluster.now(self);
    if (self != Rank{0}) gradient(cluster, self, 5, 1);
    const Time asked = cluster.now(self);
    const CollectiveResult result = cluster.finish(self, std::move(started), here());
    const Time finished = cluster.now(self);
    // A worker that requests the result waits only until the result exists. This is exact on the virtual clock. An MPI
    // rank continues when the system schedules it, which on a busy machine may take longer than hesitation().
    EXPECT_LE(finished, std::max(asked, result.agreement.time) + 5 * hesitation());
    if (self == Rank{0}) {
      EXPECT_GE(result.agreement.time, begin + 4 * from_seconds(base_s));
    }
    // The last arrival at a collective is the last start, not the last request for the result.
    const auto ns = [](Time time) { return static_cast<double>(time.time_since_epoch().count()); };
    const SharedNumbers stamps =
        cluster.all_gather(self, std::vector<double>{ns(before_start), ns(after_start)}, here());
    const Time end = cluster.now(self);
    met[static_cast<std::size_t>(self.value)] = {(begin - before_barrier) + (end - finished), end, true};
    double earliest = 0, latest = 0;
    for (std::size_t i = 0; i < stamps->size(); i += 2) {
      earliest = std::max(earliest, (*stamps)[i]);
      latest = std::max(latest, (*stamps)[i + 1]);
    }
    EXPECT_GE(ns(result.agreement.time), earliest);
    EXPECT_LE(ns(result.agreement.time), latest + static_cast<double>(GetParam().agreed_after.count()));
  });
  for (std::size_t w = 1; w < met.size(); ++w) {
    if (!met[w].is_here) continue;
    EXPECT_LE(totals.accounts.at(w)[Activity::wait],
              met[w].time + std::max(totals.end - met[w].end, Duration{}) + hesitation())
        << "worker " << w;
  }
}

TEST_P(ClusterContract, NobodyMissesAWorkerThatLeavesAfterTheStart) {
  const int n = participants();
  const RunTotals totals = run(n, [&](Cluster& cluster, Rank self) {
    auto first = cluster.start(self, Collective::all_reduce(gradient(cluster, self, 1, 0)), {}, here());
    auto second = cluster.start(self, Collective::average(stepped(cluster, self), {}), {}, here());
    if (self.value == n - 1) return;
    gradient(cluster, self, 2);
    EXPECT_EQ(training.values(cluster.finish(self, std::move(first), here()).gradient), known_sum(n, 0));
    const float mean_rank = static_cast<float>(n + 1) / 2;
    std::vector<float> expected;
    for (int j = 0; j < 5; ++j)
      expected.push_back(100.0f - static_cast<float>(rate) * mean_rank * static_cast<float>(j + 1));
    expect_near(training.values(cluster.finish(self, std::move(second), here()).model), expected);
  });
  EXPECT_EQ(totals.collectives, 2);
}

// Five parameters in two slices: the first slice has two parameters and the buffers, the second has three parameters.
TEST_P(ClusterContract, ASliceIsAveragedAloneAndTheRestStays) {
  const int n = participants();
  const RunTotals totals = run(n, [&](Cluster& cluster, Rank self) {
    const float mean_rank = static_cast<float>(n + 1) / 2, own_rank = static_cast<float>(self.value + 1);
    for (const int index : {0, 1}) {
      auto started =
          cluster.start(self, Collective::average(stepped(cluster, self), {.slice = {index, 2}}), {}, here());
      gradient(cluster, self, 1);
      const ModelStatePtr state = cluster.finish(self, std::move(started), here()).model;
      std::vector<float> expected;
      for (int j = 0; j < 5; ++j) {
        const bool is_in_slice = index == 0 ? j < 2 : j >= 2;
        expected.push_back(100.0f -
                           static_cast<float>(rate) * (is_in_slice ? mean_rank : own_rank) * static_cast<float>(j + 1));
      }
      expect_near(training.values(state), expected);
      expect_near(buffers(state), {index == 0 ? mean_rank : own_rank, 0});
      expect_near(moment(state), KnownObjective::gradient_of({self, 0, 0}));
    }
  });
  EXPECT_EQ(totals.bytes, all_reduce_bytes(n, Bytes{4 * (2 + 2)}) + all_reduce_bytes(n, Bytes{4 * 3}));
}

TEST_P(ClusterContract, ASliceIsAveragedAlikeWhereNobodyNeedsTheRest) {
  const int n = participants();
  run(n, [&](Cluster& cluster, Rank self) {
    const float mean_rank = static_cast<float>(n + 1) / 2;
    for (const int index : {0, 1}) {
      auto started = cluster.start(
          self, Collective::average(stepped(cluster, self), {.slice = {index, 2}, .rest_is_needed = false}), {},
          here());
      const ModelStatePtr state = cluster.finish(self, std::move(started), here()).model;
      const std::vector<float> found = training.values(state);
      for (int j = index == 0 ? 0 : 2; j < (index == 0 ? 2 : 5); ++j) {
        const float expected = 100.0f - static_cast<float>(rate) * mean_rank * static_cast<float>(j + 1);
        EXPECT_NEAR(found[static_cast<std::size_t>(j)], expected, 1e-4f) << j;
      }
      if (index == 0) {
        expect_near(buffers(state), {mean_rank, 0});
      }
    }
  });
}

TEST_P(ClusterContract, ASliceOfAGradientIsSummed) {
  const int n = participants();
  const RunTotals totals = run(n, [&](Cluster& cluster, Rank self) {
    auto started = cluster.start(self, Collective::all_reduce(gradient(cluster, self, 1), {}, {1, 2}),
                                 {.kept = 1, .planned = 1}, here());
    const std::vector<float> sum = training.values(cluster.finish(self, std::move(started), here()).gradient);
    const std::vector<float> expected = known_sum(n, 0);
    for (std::size_t j = 2; j < 5; ++j) EXPECT_EQ(sum[j], expected[j]) << "component " << j;
  });
  EXPECT_EQ(totals.bytes, all_reduce_bytes(n, Bytes{4 * 3}));
}

TEST_P(ClusterContract, GroupsHaveCollectivesUnderWayToo) {
  const int n = participants();
  run(n, [&](Cluster& cluster, Rank self) {
    for (int round = 0; round < 2; ++round) {
      auto of_group = cluster.start(self, Collective::average(stepped(cluster, self), {.group_size = 2}), {}, here());
      auto of_all = cluster.start(self, Collective::average(stepped(cluster, self), {}), {}, here());
      gradient(cluster, self, 1 + self.value % 2);
      const auto mean = [&](int first, int last) {
        std::vector<float> expected;
        for (int j = 0; j < 5; ++j)
          expected.push_back(100.0f - static_cast<float>(rate) * static_cast<float>(first + last + 2) / 2 *
                                          static_cast<float>(j + 1));
        return expected;
      };
      expect_near(training.values(cluster.finish(self, std::move(of_all), here()).model), mean(0, n - 1));
      const int first = self.value / 2 * 2;
      expect_near(training.values(cluster.finish(self, std::move(of_group), here()).model),
                  mean(first, std::min(first + 1, n - 1)));
    }
  });
}

TEST_P(ClusterContract, TimeAloneCanBeUnderWayToo) {
  const int n = participants();
  is_time_only = true;
  time_only.set_parameter_bytes(Bytes{400});
  const RunTotals totals = run(n, [&](Cluster& cluster, Rank self) {
    const auto next = [&](int index) {
      return cluster.compute_gradient(self, nullptr, {self, 0, index}, {self, 0, index}, {}).value();
    };
    auto sum = cluster.start(self, Collective::all_reduce(next(0)), {.kept = 1, .planned = 1}, here());
    auto mean = cluster.start(self, Collective::average(nullptr, {.slice = {3, 4}}), {}, here());
    next(1);
    EXPECT_EQ(cluster.finish(self, std::move(mean), here()).model, nullptr);
    const CollectiveResult result = cluster.finish(self, std::move(sum), here());
    EXPECT_EQ(result.gradient.micro_batches(), n);
    EXPECT_EQ(result.agreement.bytes, all_reduce_bytes(n, Bytes{400}));
  });
  EXPECT_EQ(totals.bytes, all_reduce_bytes(n, Bytes{400}) + all_reduce_bytes(n, Bytes{100}));
}

}  // namespace syncopate
