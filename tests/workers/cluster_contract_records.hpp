// Recordings of a run: spans, which are the accounts in the order of time, and durations of micro-batches. They are
// complete on rank 0 after the run.
#pragma once

namespace syncopate {

class RecordContract : public ClusterContract {
 protected:
  // Runs, and compares the spans of all workers with their accounts. Returns true on rank 0, where both are known.
  bool spans_are_the_accounts(int workers, int servers, const Program& work, const Program& serve = nullptr) {
    recorded.spans.emplace(workers, servers, SpanRecorder::Limits());
    recorded.durations.emplace();
    record = &recorded;
    bool is_first = false;
    const auto remember = [&](Cluster& cluster, Rank self) {
      is_first |= self.value == 0;
      work(cluster, self);
    };
    totals = run(workers, remember, serve, std::max(servers, 1));
    if (!is_first) return false;
    timeline = recorded.spans->finish(totals.end);
    for (std::size_t rank = 0; rank < timeline.tracks.size(); ++rank) {
      Time reached = start_time;
      for (const Span& span : timeline.tracks[rank]) {
        EXPECT_EQ(span.begin, reached) << "rank " << rank;
        EXPECT_GT(span.end, span.begin) << "rank " << rank;
        reached = span.end;
      }
      EXPECT_EQ(reached, totals.end) << "rank " << rank;
      if (rank >= totals.accounts.size()) continue;
      const Account account = account_of(timeline.tracks[rank]);
      for (std::size_t i = 0; i < activities; ++i)
        EXPECT_EQ(account.time[i], totals.accounts[rank].time[i]) << "rank " << rank << ", " << activity_names[i];
    }
    return true;
  }

  // The number of micro-batches on the worker's track with this activity.
  int micro_batches(int worker, Activity activity) const {
    const auto& track = timeline.tracks.at(static_cast<std::size_t>(worker));
    return static_cast<int>(std::count_if(track.begin(), track.end(), [&](const Span& span) {
      return span.micro_batch >= 0 && span.activity == activity;
    }));
  }

  RunRecord recorded;
  RunTotals totals;
  Timeline timeline;
};

TEST_P(RecordContract, SpansOfCollectivesAndDeadlinesAreTheAccounts) {
  const int n = participants();
  base_s = 0.05;
  const bool known = spans_are_the_accounts(n, 0, [&](Cluster& cluster, Rank self) {
    for (int round = 0; round < 3; ++round) {
      Gradient sum = gradient(cluster, self, 1 + self.value % 3, round);
      compute(cluster, self, {self, round, 9}, Deadline(cluster.now(self) + from_seconds(0.04)));
      cluster.all_reduce_sum(self, sum, {}, {.kept = 1 + self.value % 3, .planned = 4}, here());
    }
    const Gradient lost = gradient(cluster, self, 2, 7);
    cluster.discard(self, {self, lost.micro_batches(), lost.compute_time()});
    if (self.value == n - 1) gradient(cluster, self, 3, 8);  // the other workers wait for the end
  });
  if (!known) return;
  std::size_t completed = 0;
  for (int w = 0; w < n; ++w) {
    const int extra = w == n - 1 ? 3 : 0;
    EXPECT_EQ(micro_batches(w, Activity::compute), 3 * (1 + w % 3) + extra) << w;
    EXPECT_EQ(micro_batches(w, Activity::discarded), 3 + 2) << w;
    completed += static_cast<std::size_t>(3 * (1 + w % 3) + extra + 2);
  }
  EXPECT_EQ(recorded.durations->size(), completed);
  for (const MicroBatchTime& time : *recorded.durations) {
    EXPECT_GE(time.duration, from_seconds(base_s));
    EXPECT_LE(time.duration, from_seconds(base_s) + tolerance());
    EXPECT_EQ(time.added, Duration{});
  }
}

TEST_P(RecordContract, SpansShowWhoseWorkAServerKept) {
  const int workers = participants() - 1;
  base_s = 0.002;
  const bool known = spans_are_the_accounts(
      workers, 1,
      [&](Cluster& cluster, Rank self) {
        gradient(cluster, self, 1, 9);  // never sent
        for (Step step = 0; step < Step{3}; ++step) {
          cluster.send(self, cluster.server(), Message::of_gradient(step, gradient(cluster, self, 2, step)), here());
          cluster.receive(self, cluster.server(), never, here());
        }
        while (cluster.receive(self, {}, never, here())) continue;
      },
      [&](Cluster& cluster, Rank self) {
        for (int i = 0; i < 3 * workers; ++i) {
          const auto message = cluster.receive(self, {}, never, here());
          ASSERT_TRUE(message);
          if (message->step == Step{1})
            cluster.discard(self, message->work());
          else
            cluster.keep(self, message->work(), 0);
          cluster.send(self, message->from, {.step = message->step}, here());
        }
      });
  if (!known) return;
  for (int w = 0; w < workers; ++w) {
    const auto& track = timeline.tracks.at(static_cast<std::size_t>(w));
    for (const Span& span : track) {
      if (span.micro_batch < 0) continue;
      const bool is_lost = span.step == Step{1} || span.step == Step{9};
      EXPECT_EQ(span.activity, is_lost ? Activity::discarded : Activity::compute) << w << ", " << span.step.value();
      EXPECT_TRUE(span.completed);
    }
    EXPECT_EQ(micro_batches(w, Activity::compute), 4);
    EXPECT_EQ(micro_batches(w, Activity::discarded), 3);
  }
}

// Worker 0 alone determines when a round takes place, so the other workers are late.
TEST_P(RecordContract, SpansShowWhatCameTooLate) {
  const int n = participants();
  for (const LateGradient late : {LateGradient::drop, LateGradient::accumulate}) {
    base_s = 0.004;
    spans_are_the_accounts(n, 0, [&](Cluster& cluster, Rank self) {
      for (Step step = 0; step < Step{4}; ++step) {
        const int count = self.value == 0 ? 1 : 3;
        Gradient sum = gradient(cluster, self, count, step);
        cluster.partial_all_reduce(self, sum, {.quorum = 1}, late, {.kept = count, .planned = count}, here());
      }
    });
  }
}

TEST_P(RecordContract, DurationsSayWhatTheDelaysHaveAdded) {
  const int n = participants();
  base_s = 0.005;
  delays = {std::make_shared<DelayByIndex>(0.01)};
  const bool known = spans_are_the_accounts(n, 0, [&](Cluster& cluster, Rank self) {
    Gradient sum = gradient(cluster, self, 3, self.value);
    cluster.all_reduce_sum(self, sum, {}, {.kept = 3, .planned = 3}, here());
  });
  if (!known) return;
  ASSERT_EQ(recorded.durations->size(), static_cast<std::size_t>(3 * n));
  for (const MicroBatchTime& time : *recorded.durations) {
    EXPECT_EQ(time.step, Step{time.worker.value});
    EXPECT_EQ(time.added, from_seconds(0.01 * time.index)) << "micro-batch " << time.index;
    EXPECT_GE(time.duration, from_seconds(base_s) + time.added);
    EXPECT_LE(time.duration, from_seconds(base_s) + time.added + tolerance());
  }
}

}  // namespace syncopate
