// Collectives with numbers, weights and groups.
#pragma once

namespace syncopate {

TEST_P(ClusterContract, NumbersAreSummedAlongWithTheGradient) {
  const int n = participants();
  const RunTotals totals = run(n, [&](Cluster& cluster, Rank self) {
    Gradient sum = gradient(cluster, self, 1);
    std::vector<double> numbers = {self.value + 1.0, 0.5, -1e9 * self.value};
    const AgreedProgress agreed = cluster.all_reduce_sum(self, sum, numbers, {.kept = 1, .planned = 1}, here());
    const int ranks = n * (n + 1) / 2;  // 1 + ... + n
    EXPECT_EQ(numbers, (std::vector<double>{1.0 * ranks, 0.5 * n, -1e9 * (ranks - n)}));
    for (int j = 0; j < 5; ++j) EXPECT_EQ(training.values(sum)[static_cast<std::size_t>(j)], (j + 1) * ranks);
    EXPECT_EQ(agreed.bytes, all_reduce_bytes(n, payload + 4 * 3));

    Gradient none;  // numbers can be exchanged without a gradient
    numbers = {self.value == n - 1 ? 7.0 : 0.0};
    cluster.all_reduce_sum(self, none, numbers, {.planned = 1}, here());
    EXPECT_EQ(numbers.front(), 7);
    EXPECT_EQ(none.micro_batches(), 0);
  });
  EXPECT_EQ(totals.bytes, all_reduce_bytes(n, payload + 4 * 3) + all_reduce_bytes(n, payload + 4));
}

TEST_P(ClusterContract, PacketsAreSummedOrGatheredByRank) {
  const int n = participants();
  const auto packet_of = [](Rank self) {
    const std::vector<float> words = {static_cast<float>(self.value + 1), -2};
    return Packet{.words = filled_cell(words), .size = Bytes{8}};
  };
  const auto values_of = [&](const Packet& packet) {
    training.executor().wait(packet.words->producer);
    const auto words = packet.words->value.span();
    return std::vector<float>(words.begin(), words.end());
  };
  const RunTotals totals = run(n, [&](Cluster& cluster, Rank self) {
    for (const auto kind :
         {Collective::Kind::sum_first_packets, Collective::Kind::sum_packets, Collective::Kind::gather_packets}) {
      const bool ends = kind != Collective::Kind::sum_first_packets;
      Collective what{.kind = kind, .gradient = Gradient(nullptr, self.value + 1), .packet = packet_of(self)};
      if (ends) what.numbers = {0.5};
      const Contribution part = ends ? Contribution{.kept = 1, .planned = 1} : Contribution{};
      const CollectiveResult result = cluster.perform(self, std::move(what), part, here());
      ASSERT_TRUE(result.packets);
      const int ranks = n * (n + 1) / 2;
      EXPECT_EQ(result.gradient.micro_batches(), ranks);
      if (ends) {
        EXPECT_EQ(result.numbers->front(), 0.5 * n);
      }
      if (kind == Collective::Kind::gather_packets) {
        ASSERT_EQ(result.packets->size(), static_cast<std::size_t>(n));
        for (int rank = 0; rank < n; ++rank)
          EXPECT_EQ(values_of((*result.packets)[static_cast<std::size_t>(rank)]),
                    (std::vector<float>{static_cast<float>(rank + 1), -2}));
      } else {
        ASSERT_EQ(result.packets->size(), 1u);
        EXPECT_EQ(values_of(result.packets->front()),
                  (std::vector<float>{static_cast<float>(ranks), static_cast<float>(-2 * n)}));
      }
    }
  });
  EXPECT_EQ(totals.bytes, all_reduce_bytes(n, Bytes{8}) + all_reduce_bytes(n, Bytes{8 + 4}) +
                              all_gather_bytes(n, Bytes{n * (8 + 4)}));
}

// Two exchanges of packets: a broadcast of one worker's packet, and an exchange in which each worker gets a chunk of
// each packet.
TEST_P(ClusterContract, PacketsAreBroadcastOrExchangedInChunks) {
  const int n = participants();
  const auto values_of = [&](const Packet& packet) {
    training.executor().wait(packet.words->producer);
    const auto words = packet.words->value.span();
    return std::vector<float>(words.begin(), words.end());
  };
  const RunTotals totals = run(n, [&](Cluster& cluster, Rank self) {
    const Rank root{n - 1};
    Collective from_root{.kind = Collective::Kind::broadcast_packet, .packet = {.size = Bytes{8}}, .root = root};
    if (self == root) from_root.packet.words = filled_cell(std::vector<float>{7, -3});
    const CollectiveResult sent = cluster.perform(self, std::move(from_root), {}, here());
    ASSERT_TRUE(sent.packets);
    ASSERT_EQ(sent.packets->size(), 1u);
    EXPECT_EQ(values_of(sent.packets->front()), (std::vector<float>{7, -3}));

    std::vector<float> words;  // two values per worker
    for (int to = 0; to < n; ++to)
      words.insert(words.end(), {static_cast<float>(self.value), static_cast<float>(100 + to)});
    Collective chunks{.kind = Collective::Kind::exchange_chunks,
                      .packet = {.words = filled_cell(words), .size = Bytes{8 * n}}};
    const CollectiveResult exchanged = cluster.perform(self, std::move(chunks), {}, here());
    ASSERT_TRUE(exchanged.packets);
    ASSERT_EQ(exchanged.packets->size(), static_cast<std::size_t>(n));
    for (int from = 0; from < n; ++from) {
      const auto values = values_of((*exchanged.packets)[static_cast<std::size_t>(from)]);
      const auto at = 2 * static_cast<std::size_t>(exchanged.chunk);
      ASSERT_GE(values.size(), at + 2);
      EXPECT_EQ(values[at], static_cast<float>(from));
      EXPECT_EQ(values[at + 1], static_cast<float>(100 + self.value));
    }
  });
  EXPECT_EQ(totals.bytes, all_gather_bytes(n, Bytes{8}) + all_gather_bytes(n, Bytes{8 * n}));
  EXPECT_EQ(totals.collectives, 2);
}

// Gathered packets may have different sizes. All workers learn the sizes, and bytes count all packets.
TEST_P(ClusterContract, GatheredPacketsMayBeOfUnlikeSizes) {
  const int n = participants();
  std::int64_t all = 0;
  const auto words_of = [](int worker) { return static_cast<std::size_t>(1 + 3 * (worker % 3)); };
  for (int worker = 0; worker < n; ++worker) all += 4 * static_cast<std::int64_t>(words_of(worker));
  const RunTotals totals = run(n, [&](Cluster& cluster, Rank self) {
    for (const auto kind : {Collective::Kind::gather_packets, Collective::Kind::gather_differences}) {
      const std::vector<float> words(words_of(self.value), static_cast<float>(self.value));
      Collective what{.kind = kind, .packet = {.words = filled_cell(words), .size = Bytes{4 * std::ssize(words)}}};
      const CollectiveResult result = cluster.perform(self, std::move(what), {}, here());
      ASSERT_TRUE(result.packets);
      ASSERT_EQ(result.packets->size(), static_cast<std::size_t>(n));
      for (int worker = 0; worker < n; ++worker) {
        const Packet& packet = (*result.packets)[static_cast<std::size_t>(worker)];
        training.executor().wait(packet.words->producer);
        const auto values = packet.words->value.span();
        EXPECT_EQ(std::vector<float>(values.begin(), values.end()),
                  std::vector<float>(words_of(worker), static_cast<float>(worker)));
      }
    }
  });
  EXPECT_EQ(totals.bytes, Bytes{2 * all_gather_bytes(n, Bytes{all}).value()});
}

// The large gradients cancel. In float32 the small gradients would be lost in the sum.
TEST_P(ClusterContract, AWideGradientIsSummedInDoublePrecision) {
  const int n = participants();
  run(n, [&](Cluster& cluster, Rank self) {
    Gradient sum = gradient(cluster, self, 1);
    const MicroBatch shared{Rank{0}, 3, 0};
    Gradient large = cluster.compute_gradient(self, training.initial_state(), {self, 0, 1}, shared, {}).value();
    if (self.value < 2) {
      large *= self.value == 0 ? 0x1p40 : -0x1p40;
      large.use_double_precision();
      sum += large;
    }
    cluster.all_reduce_sum(self, sum, {}, {.kept = sum.micro_batches(), .planned = 2}, here());
    std::vector<float> expected;
    for (int j = 0; j < 5; ++j) expected.push_back(static_cast<float>((j + 1) * n * (n + 1) / 2));
    EXPECT_EQ(training.values(sum), expected);
    EXPECT_EQ(sum.micro_batches(), n + 2);
  });
}

TEST_P(ClusterContract, AnAverageCanBeWeighted) {
  const int n = participants();
  run(n, [&](Cluster& cluster, Rank self) {
    const auto average = [&](double weight) {
      ModelStatePtr state = stepped(cluster, self);
      cluster.average(self, state, {.policy = {}, .weight = weight}, {.kept = 1, .planned = 1}, here());
      return state;
    };
    // Component j of worker w's model is 100 - rate (w + 1)(j + 1), and its buffers are (w + 1, 0).
    const auto expect_mean_rank = [&](const ModelStatePtr& state, double mean_rank) {
      std::vector<float> parameters;
      for (int j = 0; j < 5; ++j) parameters.push_back(static_cast<float>(100 - rate * mean_rank * (j + 1)));
      EXPECT_THAT(training.values(state), testing::Pointwise(testing::FloatNear(1e-4f), parameters));
      EXPECT_NEAR(buffers(state)[0], mean_rank, 1e-5);
      EXPECT_EQ(moment(state), KnownObjective::gradient_of({self, 0, 0}));  // the policy keeps each worker's own moment
    };
    expect_mean_rank(average(self.value + 1), (2 * n + 1) / 3.0);  // sum of (w + 1)^2 / sum of w + 1
    expect_mean_rank(average(self.value == n - 1 ? 0.5 : 0), n);
    expect_mean_rank(average(0), (n + 1) / 2.0);
    expect_mean_rank(average(3.7), (n + 1) / 2.0);
  });
}

// Groups are two consecutive ranks; the last one is smaller if the number of ranks is odd. An average within groups
// makes no row in steps.csv, and counts as one collective per group.
TEST_P(ClusterContract, AnAverageWithinGroupsConcernsTheirMembersAlone) {
  SeenRounds seen;
  observer = &seen;
  const int n = participants();
  const int groups = (n + 1) / 2;
  const int pairs = n / 2;
  const std::int64_t pair_bytes = all_reduce_bytes(2, payload + 8).value();  // parameters and two buffers
  const RunTotals totals = run(n, [&](Cluster& cluster, Rank self) {
    const int group = self.value / 2;
    // Groups are independent of each other: each makes one more average than the group before it.
    for (int round = 0; round <= group; ++round) {
      ModelStatePtr state = stepped(cluster, self);
      cluster.average(self, state, {.policy = {}, .group_size = 2}, {}, here());
      const bool is_pair = 2 * group + 1 < n;
      const double mean_rank = is_pair ? 2 * group + 1.5 : n;
      std::vector<float> parameters;
      for (int j = 0; j < 5; ++j) parameters.push_back(static_cast<float>(100 - rate * mean_rank * (j + 1)));
      EXPECT_EQ(training.values(state), parameters);
      EXPECT_EQ(buffers(state)[0], static_cast<float>(mean_rank));
    }
    const AgreedProgress agreed = cluster.barrier(self, here());
    EXPECT_EQ(agreed.bytes, Bytes{pairs * (pairs + 1) / 2 * pair_bytes});

    ModelStatePtr state = stepped(cluster, self);  // weights are relative within a group
    cluster.average(self, state, {.policy = {}, .weight = self.value % 2 == 0 ? 1.0 : 3.0, .group_size = 2}, {},
                    here());
    const double mean_rank = 2 * group + 1 < n ? 2 * group + 1.75 : n;
    EXPECT_NEAR(training.values(state)[0], 100 - rate * mean_rank, 1e-4);
  });
  EXPECT_EQ(totals.collectives, groups * (groups + 1) / 2 + groups + 1);
  EXPECT_EQ(totals.bytes, Bytes{(pairs * (pairs + 1) / 2 + pairs) * pair_bytes});
  EXPECT_TRUE(seen.rounds.empty());
}

TEST_P(ClusterContract, AllGatherGivesEverybodysNumbersInTheOrderOfTheRanks) {
  const int n = participants();
  const RunTotals totals = run(n, [&](Cluster& cluster, Rank self) {
    gradient(cluster, self, 1 + self.value % 2);  // workers do not arrive together
    for (int round = 0; round < 2; ++round) {
      const std::vector<double> own = {self.value + 0.25, 10.0 * self.value + round};
      const SharedNumbers all = cluster.all_gather(self, own, here());
      std::vector<double> expected;
      for (int w = 0; w < n; ++w) expected.insert(expected.end(), {w + 0.25, 10.0 * w + round});
      ASSERT_TRUE(all);
      EXPECT_EQ(*all, expected);
    }
  });
  EXPECT_EQ(totals.collectives, 2);
  EXPECT_EQ(totals.bytes, Bytes{2 * all_gather_bytes(n, 8 * 2 * n).value()});
}

TEST_P(ClusterContract, AWorkerCanComputeOnTheSamplesOfAnother) {
  const int n = participants();
  run(n, [&](Cluster& cluster, Rank self) {
    const Time begin = cluster.now(self);
    const MicroBatch samples{Rank{(self.value + 1) % n}, 4, 2};
    const auto gradient = cluster.compute_gradient(self, training.initial_state(), {self, 0, 0}, samples, {});
    ASSERT_TRUE(gradient);
    EXPECT_EQ(training.values(*gradient), KnownObjective::gradient_of(samples));
    EXPECT_GE(cluster.now(self), begin + from_seconds(base_s));
  });
}

// A duration belongs to the slot that computes, not to the samples: worker 0's step 5 never ends, but another worker
// can compute that step's samples.
TEST_P(ClusterContract, TheSlotDecidesHowLongSamplesTake) {
  delays = {std::make_shared<EndlessStep>(Rank{0}, 5)};
  run(participants(), [&](Cluster& cluster, Rank self) {
    const Deadline soon(cluster.now(self) + from_seconds(10));
    EXPECT_TRUE(cluster.compute_gradient(self, training.initial_state(), {self, 0, 0}, {Rank{0}, 5, 0}, soon));
    if (self.value > 0) return;
    const Deadline at_once(cluster.now(self) + from_seconds(0.02));
    EXPECT_FALSE(cluster.compute_gradient(self, training.initial_state(), {self, 5, 0}, {self, 0, 0}, at_once));
  });
}

// Runs without a model have the same counts and costs as runs with one.
TEST_P(ClusterContract, TimeOnlyRunsCountWhatTheyWouldMove) {
  const int n = participants();
  is_time_only = true;
  constexpr std::int64_t declared = 1 << 20;
  time_only.set_parameter_bytes(Bytes{declared});
  const RunTotals totals = run(n, [&](Cluster& cluster, Rank self) {
    const auto compute = [&](int count) {
      Gradient sum;
      for (int i = 0; i < count; ++i)
        sum += cluster.compute_gradient(self, nullptr, {self, 0, i}, {self, 0, i}, {}).value();
      return sum;
    };
    Gradient sum = compute(2);
    double number = 1;
    cluster.all_reduce_sum(self, sum, {&number, 1}, {.kept = 2, .planned = 2}, here());
    EXPECT_EQ(sum.micro_batches(), 2 * n);
    EXPECT_EQ(number, n);
    ModelStatePtr none;
    cluster.average(self, none, {.policy = {}, .weight = self.value + 1.0}, {}, here());
    cluster.average(self, none, {.policy = {}, .group_size = n}, {}, here());
    EXPECT_FALSE(none);

    const auto sums = cluster.partial_all_reduce(self, compute(1), {.quorum = n}, LateGradient::drop,
                                                 {.kept = 1, .planned = 1}, here());
    ASSERT_EQ(sums.size(), 1u);
    EXPECT_EQ(sums[0].sum.micro_batches(), n);
    EXPECT_EQ(sums[0].agreement.micro_batches, 3 * n);

    if (self.value == 1) {
      Gradient wide = compute(3);
      wide.use_double_precision();
      cluster.send(self, Rank{0},
                   {.gradient = wide, .kind = Message::Kind::gradient, .slice = {.index = 1, .count = 4}}, here());
      cluster.send(self, Rank{0}, {.kind = Message::Kind::model, .numbers = {7}, .slice = {.index = 3, .count = 4}},
                   here());
    } else if (self.value == 0) {
      const auto gradient = cluster.receive(self, {}, never, here());
      ASSERT_TRUE(gradient);
      EXPECT_EQ(gradient->gradient.micro_batches(), 3);
      EXPECT_TRUE(gradient->gradient.wide());
      const auto model = cluster.receive(self, {}, never, here());
      ASSERT_TRUE(model);
      EXPECT_EQ(model->kind, Message::Kind::model);
      EXPECT_FALSE(model->model);
      EXPECT_EQ(model->numbers, std::vector<double>{7});
    }
  });
  const Bytes collectives{4 * all_reduce_bytes(n, declared).value() + all_reduce_bytes(n, 4).value()};
  EXPECT_EQ(totals.bytes, collectives + Bytes{2 * declared / 4 + declared / 4 + 8});
  EXPECT_EQ(totals.collectives, 4);
}

// In methods without collectives a row is a step that all workers have done.
TEST_P(ClusterContract, StepsOfEqualNumberBecomeOneRow) {
  SeenRounds seen;
  observer = &seen;
  const int n = participants();
  bool worker_0_is_here = false;
  const RunTotals totals = run(n, [&](Cluster& cluster, Rank self) {
    worker_0_is_here |= self.value == 0;
    for (int s = 1; s <= 3; ++s) {
      const Gradient own = gradient(cluster, self, 1 + self.value % 2, s);
      cluster.send(self, Rank{(self.value + 1) % n}, Message::of_gradient(s, own), here());
      cluster.report_steps(
          self,
          {.kept = own.micro_batches(), .planned = 2, .step = 2 * s, .period = 2, .compute_time = own.compute_time()});
      ASSERT_TRUE(cluster.receive(self, {}, never, here()));
    }
  });
  const std::int64_t kept = n + n / 2;  // workers with odd ranks keep two
  for (int w = 0; w < n; ++w) {
    EXPECT_EQ(totals.kept.at(static_cast<std::size_t>(w)), 3 * (1 + w % 2));
    EXPECT_EQ(totals.dropped.at(static_cast<std::size_t>(w)), 3 * (1 - w % 2));
  }
  EXPECT_EQ(totals.bytes, Bytes{3 * n * payload});
  if (!worker_0_is_here) {
    EXPECT_TRUE(seen.rounds.empty());
    return;
  }
  ASSERT_EQ(seen.rounds.size(), 3u);
  Time last_end = start_time;
  for (int s = 1; s <= 3; ++s) {
    const StepRow& round = seen.rounds[static_cast<std::size_t>(s - 1)];
    EXPECT_EQ(round.step, Step{2 * s});
    EXPECT_EQ(round.period, Step{2});
    EXPECT_EQ(round.kept, kept);
    EXPECT_EQ(round.dropped, 2 * n - kept);
    EXPECT_GE(round.end, start_time + 2 * s * from_seconds(base_s));  // time of the slowest worker
    EXPECT_EQ(round.duration, round.end - last_end);
    last_end = round.end;
  }
}

}  // namespace syncopate
