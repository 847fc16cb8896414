// In a simulated run, the spans of a worker add up to its account of time. Tested for methods of every family, without
// a model.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <tuple>

#include "experiments/sections/experiment.hpp"
#include "tests/experiments/watched_methods.hpp"
#include "tests/workers/account_of.hpp"
#include "workers/simulated/simulated_cluster.hpp"
#include "workers/time/outages.hpp"

namespace syncopate {
namespace {

constexpr const char* experiment_text = R"(
[cluster]
workers = 6
micro_batch_s = 0.010
micro_batches = 3
slow_workers = {{ count = 1, factor = 2.5 }}
[network]
kind = "ring"
latency_s = 1e-3
bandwidth_bytes_per_s = 1e8
[[delays]]
kind = "{}"
{} = 0.006
[training]
model = "none"
parameters = 10_000
[budget]
steps = 30
)";

// With these methods, work is lost in every possible way.
constexpr const char* more_methods = R"([[methods]]
label = "dropcompute, backward"
algorithm = "dropcompute"
threshold_s = 0.040
preempt = "backward"
[[methods]]
label = "backup-workers, two servers"
algorithm = "backup-workers"
backups = 2
servers = 2
[[methods]]
label = "eager-sgd, late dropped"
algorithm = "eager-sgd"
activation = "majority"
late = "drop"
[[methods]]
label = "async-sgd, cut"
algorithm = "async-sgd"
maximum_staleness = 3
[[methods]]
label = "gradient-coding, cancelled"
algorithm = "gradient-coding"
code = "fractional"
stragglers = 1
late = "cancel"
)";

struct Recorded {
  RunTotals totals;
  RunRecord record;
};

Recorded run_recorded(const Run& run, const SpanRecorder::Limits& limits = {}, std::size_t most_own_stacks = 1000) {
  Recorded result;
  result.record.spans.emplace(run.cluster.workers, run.algorithm->traits().servers, limits);
  result.record.durations.emplace();
  Executor executor(0);
  Training training(nullptr, run.training.optimizer, {}, executor);
  training.set_parameter_bytes(run.training.parameter_bytes);
  SimulatedCluster cluster({.workers = run.cluster.workers,
                            .servers = run.algorithm->traits().servers,
                            .micro_batches = run.cluster.micro_batches,
                            .compute_time = *run.cluster.compute_time,
                            .network = *run.cluster.network,
                            .training = training,
                            .record = &result.record,
                            .outages = run.cluster.outages.get(),
                            .most_own_stacks = most_own_stacks});
  result.totals = run_algorithm(*run.algorithm, {.cluster = cluster,
                                                 .training = training,
                                                 .learning_rate = *run.training.learning_rate,
                                                 .budget = run.budget,
                                                 .micro_batches = run.cluster.micro_batches,
                                                 .seed = run.seed});
  return result;
}

void expect_without_gaps(const std::vector<Span>& track, Time end) {
  Time reached = start_time;
  for (const Span& span : track) {
    ASSERT_EQ(span.begin, reached);
    ASSERT_GT(span.end, span.begin);
    reached = span.end;
  }
  EXPECT_EQ(reached, end);
}

void expect_spans_to_be_the_accounts(const Run& run, Recorded recorded) {
  const Timeline timeline = recorded.record.spans->finish(recorded.totals.end);
  ASSERT_EQ(timeline.tracks.size(), static_cast<std::size_t>(run.cluster.workers + run.algorithm->traits().servers));
  for (std::size_t rank = 0; rank < timeline.tracks.size(); ++rank) {
    SCOPED_TRACE(fmt::format("rank {}", rank));
    const auto& track = timeline.tracks[rank];
    expect_without_gaps(track, recorded.totals.end);
    if (rank >= recorded.totals.accounts.size()) continue;  // a server
    const Account account = account_of(track);
    for (std::size_t i = 0; i < activities; ++i)
      EXPECT_EQ(account.time[i], recorded.totals.accounts[rank].time[i]) << activity_names[i];
  }
}

std::vector<std::string> texts_of(const std::vector<Span>& track) {
  std::vector<std::string> texts;
  for (const Span& span : track)
    texts.push_back(fmt::format("{} {} to {}, {}, step {}, micro-batch {}", static_cast<int>(span.activity),
                                span.begin.time_since_epoch().count(), span.end.time_since_epoch().count(), span.what,
                                span.step.value(), span.micro_batch));
  return texts;
}

// Each micro-batch ended within the run or is cut off at the run's end, and has its declared duration.
void expect_durations_to_be_those_drawn(const Run& run, const Recorded& recorded) {
  std::map<std::tuple<Rank, Step, int>, int> seen;
  for (const MicroBatchTime& time : *recorded.record.durations) {
    Duration drawn{};
    run.cluster.compute_time->durations(time.worker, time.step, static_cast<std::uint32_t>(time.index), {&drawn, 1});
    ASSERT_EQ(time.duration, drawn);
    ASSERT_LE(abs(time.duration - time.added - run.cluster.compute_time->base(time.worker)),
              Duration{1});  // `duration` and `added` are rounded separately
    EXPECT_EQ(++seen[std::tuple(time.worker, time.step, time.index)], 1);
  }
  EXPECT_GE(std::ssize(seen), run.budget.steps->value());
}

class Timelines : public testing::Test {
 protected:
  void SetUp() override {
    file_ = std::filesystem::temp_directory_path() / fmt::format("syncopate-timeline-{}.toml", getpid());
  }
  void TearDown() override { std::filesystem::remove(file_); }

  Experiment load(const char* delay, const char* parameter) {
    std::ofstream(file_) << fmt::format(fmt::runtime(experiment_text), delay, parameter) << watched::methods
                         << more_methods;
    return load_experiment(file_.string(), {});
  }

  std::filesystem::path file_;
};

// If all durations are equal, only the order of gradients distinguishes them.
TEST_F(Timelines, SpansOfAWorkerAreItsAccountToTheNanosecond) {
  for (const auto& [delay, parameter] : {std::pair("exponential", "mean"), std::pair("constant", "value")}) {
    const Experiment experiment = load(delay, parameter);
    for (const auto& run : experiment.runs) {
      SCOPED_TRACE(run.method + ", " + delay);
      const Recorded recorded = run_recorded(run);
      expect_durations_to_be_those_drawn(run, recorded);
      expect_spans_to_be_the_accounts(run, recorded);
    }
  }
}

TEST_F(Timelines, OutagesArePartsOfThem) {
  load("exponential", "mean");
  for (const auto* const state : {"kept", "lost"}) {
    const Experiment experiment = load_experiment(
        file_.string(),
        {fmt::format("outages=[{{mean_time_between_s=0.2, mean_duration_s=0.05, state=\"{}\"}}]", state),
         "methods.sync-sgd, EF21.compression.feedback='residual'"});  // EF21 refuses lost states
    for (const auto& run : experiment.runs) {
      SCOPED_TRACE(fmt::format("{}, state {}", run.method, state));
      Recorded recorded = run_recorded(run);
      if (!run.cluster.outages->loses_state(Rank{0})) expect_durations_to_be_those_drawn(run, recorded);
      Duration down{};
      for (const Account& account : recorded.totals.accounts) down += account[Activity::down];
      EXPECT_GT(down, Duration{});
      expect_spans_to_be_the_accounts(run, std::move(recorded));
    }
  }
}

// A worker's spans must show as many computed micro-batches as its total of kept ones. Methods with a server have this
// total for each worker.
TEST_F(Timelines, AsManyMicroBatchesAreDrawnAsComputedAsWereKept) {
  const Experiment experiment = load("exponential", "mean");
  for (const auto& run : experiment.runs) {
    const bool has_copies = run.method.starts_with("gradient-coding");  // only one of several copies is kept
    if (has_copies || run.algorithm->traits().servers == 0) continue;
    SCOPED_TRACE(run.method);
    Recorded recorded = run_recorded(run);
    const Timeline timeline = recorded.record.spans->finish(recorded.totals.end);
    for (std::size_t worker = 0; worker < recorded.totals.kept.size(); ++worker) {
      std::int64_t kept = 0;
      for (const Span& span : timeline.tracks[worker])
        kept += span.micro_batch >= 0 && span.activity == Activity::compute;
      EXPECT_EQ(kept, recorded.totals.kept[worker]) << "worker " << worker;
    }
  }
}

// A server's link carries one gradient at a time. Each gradient occurs once, names its sender, and takes the time of
// its bytes.
TEST_F(Timelines, ServersLinksCarryOneMessageAfterTheOther) {
  constexpr Duration transfer = std::chrono::microseconds(400);  // time of 40,000 bytes
  const Experiment experiment = load("exponential", "mean");
  for (const auto& run : experiment.runs) {
    if (run.method != "async-sgd") continue;
    Recorded recorded = run_recorded(run);
    const Timeline timeline = recorded.record.spans->finish(recorded.totals.end);
    ASSERT_EQ(timeline.links.size(), 1U);
    std::vector<std::int64_t> gradients(static_cast<std::size_t>(run.cluster.workers));
    for (const auto* const way : {&timeline.links[0].in, &timeline.links[0].out}) {
      ASSERT_FALSE(way->empty());
      Time free = start_time;
      for (const LinkUse& one : *way) {
        EXPECT_GE(one.begin, free);
        free = one.end;
        EXPECT_LE(one.end, timeline.end);
        if (one.end < timeline.end) {
          EXPECT_EQ(one.end - one.begin, transfer);
        }
        ASSERT_TRUE(one.other);
        if (way == &timeline.links[0].in) ++gradients.at(static_cast<std::size_t>(one.other->value));
      }
    }
    for (std::size_t worker = 0; worker < gradients.size(); ++worker) {
      EXPECT_GE(gradients[worker], recorded.totals.kept[worker] / run.cluster.micro_batches);
      EXPECT_LE(gradients[worker], recorded.totals.kept[worker] / run.cluster.micro_batches + 1);  // one is in transit
    }
    return;
  }
  FAIL() << "there is no asynchronous SGD among the methods";
}

// If anything held an address on a suspended worker's stack, it would point into another worker's stack.
TEST_F(Timelines, AreTheSameWhereAllRunOnOneStackInTurn) {
  for (const auto& run : load("exponential", "mean").runs) {
    SCOPED_TRACE(run.method);
    Recorded apart = run_recorded(run), in_turn = run_recorded(run, {}, 0);
    const Timeline expected = apart.record.spans->finish(apart.totals.end);
    const Timeline found = in_turn.record.spans->finish(in_turn.totals.end);
    ASSERT_EQ(found.tracks.size(), expected.tracks.size());
    for (std::size_t rank = 0; rank < expected.tracks.size(); ++rank)
      EXPECT_EQ(texts_of(found.tracks[rank]), texts_of(expected.tracks[rank])) << "rank " << rank;
  }
}

TEST_F(Timelines, ATimelineThatIsCutShowsTheSameUntilThere) {
  const Experiment experiment = load("exponential", "mean");
  for (const auto& run : experiment.runs) {
    SCOPED_TRACE(run.method);
    Recorded whole = run_recorded(run);
    const Timeline cut = [&] {
      Recorded part = run_recorded(run, {.spans = 120});
      return part.record.spans->finish(part.totals.end);
    }();
    EXPECT_TRUE(cut.capped);
    EXPECT_LT(cut.until, cut.end);
    Timeline all = whole.record.spans->finish(whole.totals.end);
    std::int64_t spans = 0;
    for (std::size_t rank = 0; rank < all.tracks.size(); ++rank) {
      auto& expected = all.tracks[rank];
      while (!expected.empty() && expected.back().begin >= cut.until) expected.pop_back();
      if (!expected.empty()) expected.back().end = std::min(expected.back().end, cut.until);
      EXPECT_EQ(texts_of(cut.tracks[rank]), texts_of(expected)) << "rank " << rank;
      spans += std::ssize(cut.tracks[rank]);
    }
    EXPECT_GT(spans, 30);
    EXPECT_LE(spans, 120 + 3 * 8);  // plus steps that had begun before the limit
  }
}

}  // namespace
}  // namespace syncopate
