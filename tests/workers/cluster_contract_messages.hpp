// Messages: order, contents, time-outs, and receives after all possible senders have ended.
#pragma once

namespace syncopate {

TEST_P(ClusterContract, MessagesOfOneSenderArriveInOrderWithTheirContents) {
  const int n = participants();
  run(n, [&](Cluster& cluster, Rank self) {
    if (self.value > 0) {
      for (int k = 0; k < 3; ++k) {
        Message message{.step = k, .gradient = gradient(cluster, self, k + 1, k), .kind = Message::Kind::gradient};
        cluster.send(self, Rank{0}, std::move(message), here());
      }
      return;
    }
    std::vector<int> next(static_cast<std::size_t>(n), 0);
    for (int received = 0; received < 3 * (n - 1); ++received) {
      const auto message = cluster.receive(self, {}, never, here());
      ASSERT_TRUE(message);
      const int k = next.at(static_cast<std::size_t>(message->from.value))++;
      EXPECT_EQ(message->step, Step{k}) << "from worker " << message->from.value;
      EXPECT_EQ(message->kind, Message::Kind::gradient);
      EXPECT_EQ(message->gradient.micro_batches(), k + 1);
      EXPECT_GE(message->gradient.compute_time(), (k + 1) * from_seconds(base_s));
      std::vector<float> expected(KnownObjective::size, 0.0f);
      for (int i = 0; i <= k; ++i)
        for (std::size_t j = 0; j < expected.size(); ++j)
          expected[j] += KnownObjective::component({message->from, k, i}, j);
      EXPECT_EQ(training.values(message->gradient), expected);
    }
    EXPECT_FALSE(cluster.receive(self, {}, never, here()));  // all other workers have ended
  });
}

TEST_P(ClusterContract, AModelReachesEveryWorkerOfAServerAndCanBeAdopted) {
  const int workers = participants() - 1;
  run(
      workers,
      [&](Cluster& cluster, Rank self) {
        const auto message = cluster.receive(self, {}, never, here());
        ASSERT_TRUE(message);
        EXPECT_EQ(message->kind, Message::Kind::model);
        EXPECT_EQ(message->from, cluster.server());
        EXPECT_EQ(message->step, Step{9});
        const ModelStatePtr state = training.adopt(stepped(cluster, self), message->model);
        // The server has descended along the gradient of its micro-batch 2 of step 1. Its rank is `workers`.
        std::vector<float> parameters;
        for (int j = 0; j < 5; ++j)
          parameters.push_back(100.0f - static_cast<float>(rate) * static_cast<float>((workers + 1) * (j + 1) + 10));
        EXPECT_EQ(training.values(state), parameters);
        EXPECT_EQ(buffers(state), (std::vector<float>{static_cast<float>(workers + 1), 10}));
        EXPECT_EQ(moment(state), KnownObjective::gradient_of({self, 0, 0}));
        EXPECT_FALSE(cluster.receive(self, {}, never, here()));  // the server has ended
      },
      [&](Cluster& cluster, Rank self) {
        const Gradient along(training.initial_state(), {self, 1, 2}, {});
        const auto model = training.descend(training.initial_state(), along, rate);
        for (int w = 0; w < workers; ++w)
          cluster.send(self, Rank{w}, {.step = 9, .gradient = {}, .model = model, .kind = Message::Kind::model},
                       here());
      });
}

TEST_P(ClusterContract, AReceiveEndsAtItsTimeWhenNothingComes) {
  const int n = participants();
  run(n, [&](Cluster& cluster, Rank self) {
    cluster.barrier(self, here());
    EXPECT_FALSE(cluster.receive(self, {}, cluster.now(self), here()));  // a receive with a past deadline does not wait
    const Time until = cluster.now(self) + from_seconds(0.02);
    EXPECT_FALSE(cluster.receive(self, {}, until, here()));
    if (n > 1) {
      EXPECT_GE(cluster.now(self), until);
    }
    EXPECT_LE(cluster.now(self), until + tolerance());
    cluster.barrier(self, here());  // until here all workers were running and could have sent
  });
}

TEST_P(ClusterContract, ATimedReceiveTakesWhatComesInTime) {
  const int n = participants();
  base_s = 0.01;
  run(n, [&](Cluster& cluster, Rank self) {
    if (self.value == n - 1 && n > 1) {
      cluster.send(self, Rank{0}, {.gradient = gradient(cluster, self, 1), .kind = Message::Kind::gradient}, here());
    } else if (self.value == 0 && n > 1) {
      const auto message = cluster.receive(self, {}, start_time + from_seconds(10), here());
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
        cluster.send(self, cluster.server(), {.gradient = gradient(cluster, self, 2), .kind = Message::Kind::gradient},
                     here());
      },
      [&](Cluster& cluster, Rank self) {
        Gradient sum;
        int messages = 0;
        while (true) {
          auto message = cluster.receive(self, {}, never, here());
          if (!message && cluster.workers_left(self) == 0) break;
          if (!message) continue;  // a worker has left
          cluster.keep(self, message->work(), 0);
          sum += std::move(message->gradient);
          ++messages;
        }
        EXPECT_FALSE(cluster.receive(self, {}, never, here()));
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

// A worker that computes for an hour must not prolong a run whose server has ended.
TEST_P(ClusterContract, TheEndOfTheServerEndsTheRun) {
  const int workers = participants() - 1;
  base_s = 3600;
  const RunTotals totals = run(
      workers,
      [&](Cluster& cluster, Rank self) {
        Gradient late = gradient(cluster, self, 4);
        cluster.send(self, cluster.server(), {.gradient = std::move(late), .kind = Message::Kind::gradient}, here());
        EXPECT_FALSE(cluster.receive(self, {}, never, here()));
      },
      [&](Cluster& cluster, Rank self) {
        EXPECT_FALSE(cluster.receive(self, {}, start_time + from_seconds(0.02), here()));
      });
  EXPECT_GE(totals.end, start_time + from_seconds(0.02));
  EXPECT_LE(totals.end, start_time + from_seconds(0.02) + tolerance());
  for (int w = 0; w < workers; ++w) {
    EXPECT_EQ(totals.accounts.at(static_cast<std::size_t>(w)).total(), totals.end - start_time);
    EXPECT_EQ(totals.kept.at(static_cast<std::size_t>(w)), 0);
  }
}

// While messages of one sender are received, those of other senders keep their order.
TEST_P(ClusterContract, AReceiveFromOneSenderLeavesTheOthersInOrder) {
  const int n = participants();
  run(n, [&](Cluster& cluster, Rank self) {
    const auto tell = [&](int to, int step) { cluster.send(self, Rank{to}, {.step = step}, here()); };
    const auto hear = [&](std::optional<int> from) {
      const auto rank = from ? std::optional<Rank>(*from) : std::nullopt;
      const auto message = cluster.receive(self, rank, never, here());
      return message ? std::pair(message->from.value, static_cast<int>(message->step.value())) : std::pair(-1, -1);
    };
    if (self.value > 0) {
      // Workers send in turn: each waits until the one before it has sent.
      if (self.value > 1) {
        EXPECT_EQ(hear(self.value - 1), std::pair(self.value - 1, 0));
      }
      tell(0, 1);
      tell(0, 2);
      if (self.value < n - 1) tell(self.value + 1, 0);
      EXPECT_EQ(hear(0), std::pair(0, 7));  // after worker 0 has begun to receive
      tell(0, 3);
      return;
    }
    EXPECT_EQ(hear(n - 1), std::pair(n - 1, 1));  // worker n - 1 sends last, so all messages of others have been sent
    for (int w = 1; w < n; ++w) tell(w, 7);
    EXPECT_EQ(hear(n - 1), std::pair(n - 1, 2));
    EXPECT_EQ(hear(n - 1), std::pair(n - 1, 3));
    EXPECT_FALSE(cluster.receive(self, Rank{n - 1}, never, here()));  // it has ended; others may still send
    std::vector<int> next(static_cast<std::size_t>(n), 1);
    for (int i = 0; i < 3 * (n - 2); ++i) {
      const auto [from, step] = hear({});
      ASSERT_GT(from, 0);
      EXPECT_EQ(step, next.at(static_cast<std::size_t>(from))++) << "of worker " << from;
    }
  });
}

TEST_P(ClusterContract, NumbersTravelWithAMessageAndCostEightBytesEach) {
  const int n = participants();
  const RunTotals totals = run(n, [&](Cluster& cluster, Rank self) {
    if (self.value == 1) {
      cluster.send(self, Rank{0}, {.step = 1, .numbers = {1.5, -1e300, 3}}, here());
      cluster.send(self, Rank{0}, {.step = 2}, here());
      cluster.send(
          self, Rank{0},
          {.step = 3, .gradient = gradient(cluster, self, 1), .kind = Message::Kind::gradient, .numbers = {0.25}},
          here());
    } else if (self.value == 0) {
      const auto first = cluster.receive(self, {}, never, here());
      ASSERT_TRUE(first);
      EXPECT_EQ(first->numbers, (std::vector<double>{1.5, -1e300, 3}));
      EXPECT_EQ(first->gradient.micro_batches(), 0);
      EXPECT_EQ(first->kind, Message::Kind::note);
      const auto second = cluster.receive(self, {}, never, here());
      ASSERT_TRUE(second);
      EXPECT_EQ(second->step, Step{2});
      EXPECT_TRUE(second->numbers.empty());
      const auto third = cluster.receive(self, {}, never, here());
      ASSERT_TRUE(third);
      EXPECT_EQ(third->numbers, std::vector<double>{0.25});
      EXPECT_EQ(training.values(third->gradient), KnownObjective::gradient_of({Rank{1}, 0, 0}));
    }
  });
  EXPECT_EQ(totals.messages, 3);
  EXPECT_EQ(totals.bytes, Bytes{3 * 8 + 0 + payload + 8});
}

// In a time-only run, and for a gradient without micro-batches, only a message's kind says what was sent.
TEST_P(ClusterContract, AMessageIsOfTheKindThatItWasSentAs) {
  using Kind = Message::Kind;
  const int n = participants();
  const auto model = training.initial_state();
  run(n, [&](Cluster& cluster, Rank self) {
    if (self.value == 1) {
      cluster.send(self, Rank{0}, {.step = 1}, here());
      cluster.send(self, Rank{0}, Message::of_gradient(2, {}), here());
      cluster.send(self, Rank{0}, Message::of_model(3, model), here());
      cluster.send(self, Rank{0}, Message::of_last_model(4, model, {7}), here());
      cluster.send(self, Rank{0}, Message::of_difference(5, model), here());
      cluster.send(self, Rank{0}, Message::request(), here());
      cluster.send(self, Rank{0}, Message::request_after(6), here());
      cluster.send(self, Rank{0}, Message::farewell(), here());
    } else if (self.value == 0) {
      std::vector<std::pair<Kind, Step>> seen;
      while (const auto message = cluster.receive(self, {}, never, here())) {
        seen.emplace_back(message->kind, message->step);
        EXPECT_EQ(message->model != nullptr, message->has_model());
      }
      EXPECT_EQ(seen, (std::vector<std::pair<Kind, Step>>{{Kind::note, 1},
                                                          {Kind::gradient, 2},
                                                          {Kind::model, 3},
                                                          {Kind::last_model, 4},
                                                          {Kind::difference, 5},
                                                          {Kind::request, 0},
                                                          {Kind::request_after, 6},
                                                          {Kind::farewell, 0}}));
    }
  });
}

// The receiver learns how many micro-batches a difference of models is based on. Bytes count only the difference.
TEST_P(ClusterContract, ADifferenceSaysHowMuchHasBeenComputedForIt) {
  const int n = participants();
  const auto model = training.initial_state();
  const RunTotals totals = run(n, [&](Cluster& cluster, Rank self) {
    if (self.value == 1) {
      cluster.send(self, Rank{0},
                   Message::of_difference(5, model, {.worker = self, .micro_batches = 12, .time = from_seconds(3.5)}),
                   here());
    } else if (self.value == 0) {
      const auto message = cluster.receive(self, {}, never, here());
      ASSERT_TRUE(message);
      EXPECT_EQ(message->kind, Message::Kind::difference);
      EXPECT_EQ(training.values(message->model), training.values(model));
      const BookedTime work = message->work();
      EXPECT_EQ(work.worker, Rank{1});
      EXPECT_EQ(work.micro_batches, 12);
      EXPECT_EQ(work.time, from_seconds(3.5));
    }
  });
  EXPECT_EQ(totals.bytes, payload);
}

// Five parameters in slices of two and three. Values outside a slice have no effect.
TEST_P(ClusterContract, ASliceOfAGradientOrModelIsWhatItSaysAndCostsNoMore) {
  const int n = participants();
  const RunTotals totals = run(n, [&](Cluster& cluster, Rank self) {
    const MicroBatch micro_batch{Rank{1}, 2, 1};
    const auto model =
        training.descend(training.initial_state(), Gradient(training.initial_state(), micro_batch, {}), rate);
    const Slice slices[] = {{.index = 0, .count = 2}, {.index = 1, .count = 2}};
    if (self.value == 1) {
      for (const Slice& slice : slices) {
        const Gradient own = compute(cluster, self, micro_batch).value();
        cluster.send(self, Rank{0}, {.gradient = own, .kind = Message::Kind::gradient, .kept = 17, .slice = slice},
                     here());
        cluster.send(self, Rank{0}, {.model = model, .kind = Message::Kind::model, .slice = slice}, here());
      }
    } else if (self.value == 0) {
      for (const Slice& slice : slices) {
        const auto message = cluster.receive(self, {}, never, here());
        ASSERT_TRUE(message);
        EXPECT_EQ(message->slice, slice);
        EXPECT_EQ(message->kept, 17);
        const auto values = values_with_buffers(message->gradient);
        const auto part = cluster.receive(self, {}, never, here());
        ASSERT_TRUE(part);
        EXPECT_EQ(part->slice, slice);
        for (std::size_t j = slice.begin(5); j < slice.end(5); ++j) {
          EXPECT_EQ(values[j], KnownObjective::component(micro_batch, j));
          EXPECT_EQ(training.values(part->model)[j], training.values(model)[j]);
        }
        if (slice.index > 0) continue;
        EXPECT_EQ(values[5], 2);  // buffers are sent with the first slice
        EXPECT_EQ(values[6], 17);
        EXPECT_EQ(buffers(part->model), (std::vector<float>{2, 17}));
      }
    }
  });
  EXPECT_EQ(totals.bytes, Bytes{2 * payload});
}

TEST_P(ClusterContract, AWideGradientTravelsInDoublePrecision) {
  const int n = participants();
  const RunTotals totals = run(n, [&](Cluster& cluster, Rank self) {
    const double third = 1.0 / 3;
    if (self.value == 1) {
      Gradient own = gradient(cluster, self, 1) * third;
      own.use_double_precision();
      cluster.send(self, Rank{0}, Message::of_gradient(0, own), here());
    } else if (self.value == 0) {
      const auto message = cluster.receive(self, {}, never, here());
      ASSERT_TRUE(message);
      EXPECT_TRUE(message->gradient.wide());
      // The message is a third of the gradient. In float32, three times the message would differ from the gradient by
      // 1e-7.
      Gradient difference = message->gradient * 3;
      difference += compute(cluster, self, {Rank{1}, 0, 0}).value() * -1;
      for (const float value : training.values(difference)) EXPECT_LT(std::abs(value), 1e-12);
    }
  });
  EXPECT_EQ(totals.bytes, Bytes{2 * payload});
}

TEST_P(ClusterContract, AMessageEndsAMicroBatchThatWaitsForNoMore) {
  const int n = participants();
  base_s = 1;
  std::vector<Time> began(static_cast<std::size_t>(n), never);  // by worker of this process
  Time sent = start_time;
  const RunTotals totals = run(n, [&](Cluster& cluster, Rank self) {
    const Time told = cluster.barrier(self, here()).time + from_seconds(0.1);  // worker 0 sends then, or later
    if (self.value == 0) {
      idle_until(cluster, self, told);
      for (int w = 1; w < n; ++w)
        for (int k = 0; k < 2; ++k) cluster.send(self, Rank{w}, {.step = k}, here());
      return;
    }
    sent = told;
    began[static_cast<std::size_t>(self.value)] = cluster.now(self);
    EXPECT_FALSE(compute(cluster, self, {self, 0, 0}, Deadline::until_message()));
    EXPECT_GE(cluster.now(self), told);
    EXPECT_LT(cluster.now(self), told + from_seconds(base_s) + tolerance());
    for (int k = 0; k < 2; ++k) {
      // While a message is waiting, no micro-batch begins.
      const Time before = cluster.now(self);
      EXPECT_FALSE(compute(cluster, self, {self, 0, 1}, Deadline::until_message()));
      EXPECT_LE(cluster.now(self), before + tolerance());
      const auto message = cluster.receive(self, {}, never, here());
      ASSERT_TRUE(message);
      EXPECT_EQ(message->step, Step{k});
    }
    const Time before = cluster.now(self);
    const auto whole = compute(cluster, self, {self, 0, 2}, Deadline::until_message());
    ASSERT_TRUE(whole);
    EXPECT_EQ(training.values(*whole), KnownObjective::gradient_of({self, 0, 2}));
    EXPECT_GE(cluster.now(self), before + from_seconds(base_s));
  });
  for (int w = 1; w < n; ++w) {
    const Account& account = totals.accounts.at(static_cast<std::size_t>(w));
    if (const Time begin = began[static_cast<std::size_t>(w)]; begin < never) {
      EXPECT_GE(account[Activity::discarded], sent - begin - hesitation());
    }
    EXPECT_GE(account[Activity::compute], from_seconds(base_s));
    EXPECT_EQ(account.total(), totals.end - start_time);
  }
}

// Worker 0 sends to the other workers after their second of three micro-batches has been abandoned, and before their
// third one is abandoned.
TEST_P(ClusterContract, AMessageOrATimeEndsAMicroBatchWhicheverIsFirst) {
  const int n = participants();
  base_s = 0.4;
  run(n, [&](Cluster& cluster, Rank self) {
    const Time begin = cluster.barrier(self, here()).time;
    if (self.value == 0) {
      idle_until(cluster, self, begin + from_seconds(0.7));
      for (int w = 1; w < n; ++w) cluster.send(self, Rank{w}, {.step = 1}, here());
      return;
    }
    const auto compute_until = [&](int index, double at_s) {
      return compute(cluster, self, {self, 0, index}, Deadline::until_message(begin + from_seconds(at_s)));
    };
    const auto whole = compute_until(0, 100);
    ASSERT_TRUE(whole);
    EXPECT_EQ(training.values(*whole), KnownObjective::gradient_of({self, 0, 0}));
    EXPECT_FALSE(compute_until(1, 0.55)) << "would end at 0.8 s";
    EXPECT_GE(cluster.now(self), begin + from_seconds(0.55));
    EXPECT_LT(cluster.now(self), begin + from_seconds(0.7)) << "before the message";
    EXPECT_FALSE(cluster.receive(self, {}, cluster.now(self), here()));
    EXPECT_FALSE(compute_until(2, 100));
    EXPECT_GE(cluster.now(self), begin + from_seconds(0.7));
    EXPECT_LT(cluster.now(self), begin + from_seconds(0.95)) << "it would have ended then";
    EXPECT_TRUE(cluster.receive(self, {}, never, here()));
  });
}

}  // namespace syncopate
