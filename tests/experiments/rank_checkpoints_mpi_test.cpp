// All ranks of a run under MPI leave it at a checkpoint and resume it. Tests every method of the registry, and all
// other state of ranks. Results stay the same to the bit, unless they depend on the order of arrivals. In that case
// methods complete all their steps, and no micro-batch or message is lost or counted twice. Start the test with exactly
// the number of ranks that the methods need, because no rank may be idle. SYNCOPATE_SEED repeats the result of a seed,
// SYNCOPATE_ONLY selects one method, and SYNCOPATE_LONG leaves each run more often.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <optional>
#include <regex>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "algorithms/registry.hpp"
#include "experiments/execution/checkpointing.hpp"
#include "experiments/execution/ranks.hpp"
#include "experiments/sections/experiment.hpp"
#include "tests/experiments/held_by_workers.hpp"
#include "tests/experiments/run_results.hpp"
#include "tests/workers/account_of.hpp"
#include "tests/workers/mpi_test_main.hpp"
#include "workers/base/random.hpp"
#include "workers/mpi/mpi_cluster.hpp"

namespace syncopate {

std::unique_ptr<MpiSession> session;

namespace {

namespace fs = std::filesystem;

constexpr double compression = 0.001;  // factor that shortens times in the methods' examples

// Four different workers, which sleep in place of computing. Everything that can be recorded is recorded.
const std::string cluster = R"(name = "checkpoints"
[cluster]
workers = 4
micro_batches = 2
micro_batch_s = 0.001
pace = "emulate"
worker_factors = [1, 1.3, 1.1, 1.8]
[network]
kind = "free"
[[delays]]
kind = "exponential"
mean = 0.0005
[budget]
steps = 12
[recording]
trace = true
durations = true
arrivals = true
samples = true
parameters = true
[checkpoint]
every_s = 0.01
)";

const std::string linear = held::linear_training(320);

// Returns the example with its times in seconds shortened like those of this cluster.
std::string compressed(std::string_view example) {
  static const std::regex time(R"((_s\s*=\s*)([0-9.]+))");
  std::string text(example), result;
  for (std::smatch found; std::regex_search(text, found, time); text = found.suffix())
    result += found.prefix().str() + fmt::format("{}{}", found[1].str(), compression * std::stod(found[2]));
  return result + text;
}

// Returns the part of the results that does not depend on the clock.
std::string computed_text(const Outcome& outcome) {
  std::string text;
  for (const MetricsRow& row : outcome.recording.metrics)
    text += fmt::format("step {} samples {} loss {} accuracy {} rate {}\n", row.step.value(), row.samples,
                        row.evaluation ? row.evaluation->train_loss : -1,
                        row.evaluation ? row.evaluation->test_accuracy : -1, row.learning_rate);
  for (const StepRow& row : outcome.recording.rows)
    text += fmt::format("row {} kept {} dropped {} period {}\n", row.step.value(), row.kept, row.dropped,
                        row.period.value());
  const RunTotals& totals = *outcome.totals;
  text += fmt::format("bytes {} collectives {} messages {}\nkept {} dropped {} staleness {}\n", totals.bytes.value(),
                      totals.collectives, totals.messages, fmt::join(totals.kept, " "), fmt::join(totals.dropped, " "),
                      fmt::join(totals.staleness, " "));
  if (outcome.samples) text += fmt::format("classes {}\n", fmt::join(outcome.samples->by_class.kept, " "));
  for (const auto& model : outcome.recording.parameters) text += fmt::format("{}\n", fmt::join(model, " "));
  return text;
}

std::int64_t total(const std::vector<std::int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

std::int64_t kept_in_rows(const Outcome& outcome) {
  std::int64_t kept = 0;
  for (const StepRow& row : outcome.recording.rows) kept += row.kept;
  return kept;
}

// Returns the number of micro-batches that occur more than once.
std::size_t doubled(const Outcome& outcome) {
  std::set<std::tuple<Rank, Step, int>> slots;
  for (const MicroBatchTime& time : *outcome.durations) slots.insert({time.worker, time.step, time.index});
  return outcome.durations->size() - slots.size();
}

// Checks that the outcome is that of one complete run, in whatever order its events occurred.
void expect_whole(const Outcome& outcome, const Outcome& plain, Servers servers) {
  ASSERT_FALSE(outcome.recording.metrics.empty());
  EXPECT_EQ(outcome.recording.metrics.back().step, plain.recording.metrics.back().step);
  for (std::size_t i = 1; i < outcome.recording.metrics.size(); ++i) {
    EXPECT_GE(outcome.recording.metrics[i].step, outcome.recording.metrics[i - 1].step);
    EXPECT_GE(outcome.recording.metrics[i].time, outcome.recording.metrics[i - 1].time);
  }
  Time end{};
  for (const StepRow& row : outcome.recording.rows) {
    EXPECT_EQ(row.end - row.duration, end) << "rows follow each other without gaps";
    end = row.end;
  }
  const RunTotals& totals = *outcome.totals;
  for (const Account& account : totals.accounts) EXPECT_EQ(account.total(), totals.end.time_since_epoch());
  // The undisturbed run decides which of these counts to compare, because the method determines which ones agree. A
  // run that kept nothing decides nothing: on a busy machine, every trial may take longer than the method's limit.
  const bool tells = total(plain.totals->kept) > 0;
  // At the end a region may have kept micro-batches that no row of the global server contains.
  if (tells && servers.regions == 0 && kept_in_rows(plain) == total(plain.totals->kept)) {
    EXPECT_EQ(kept_in_rows(outcome), total(totals.kept));
  }
  if (doubled(plain) == 0) {
    EXPECT_EQ(doubled(outcome), 0u);
  }
  if (tells && outcome.samples && total(plain.samples->by_class.kept) == 4 * total(plain.totals->kept)) {
    EXPECT_EQ(total(outcome.samples->by_class.kept), 4 * total(totals.kept));
  }
  // The histogram of staleness has each accepted gradient once: a micro-batch, or a worker's micro-batches of a step.
  for (const std::int64_t micro_batches : {1, 2})
    if (tells && micro_batches * total(plain.totals->staleness) == total(plain.totals->kept)) {
      EXPECT_EQ(micro_batches * total(totals.staleness), total(totals.kept));
    }
  ASSERT_TRUE(outcome.timeline);
  for (std::size_t rank = 0; rank < totals.accounts.size(); ++rank) {
    Time at{};
    for (const Span& span : outcome.timeline->tracks[rank]) {
      EXPECT_EQ(span.begin, at);
      at = span.end;
    }
    // Servers account for the time of lost work, but do not always know which worker lost it.
    const Account spans = account_of(outcome.timeline->tracks[rank]);
    EXPECT_EQ(spans.total(), totals.accounts[rank].total()) << "worker " << rank;
    if (servers > 0) continue;
    EXPECT_EQ(spans.time, totals.accounts[rank].time) << "worker " << rank;
  }
}

class RankCheckpointsOf : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() /
              fmt::format("syncopate-rank-checkpoints-{}", static_cast<std::int64_t>(from_rank_0(*session, getpid())));
    if (session->rank() == 0) fs::create_directories(folder_);
    meet();
    seed_ = 1;
    if (const char* const given = std::getenv("SYNCOPATE_SEED")) seed_ = std::strtoull(given, nullptr, 10);
  }
  void TearDown() override {
    meet();
    if (session->rank() == 0) fs::remove_all(folder_);
    meet();
  }
  static void meet() { reduced(*session, 0.0, MPI_SUM); }

  Experiment load(const std::string& text) const {
    const fs::path file = folder_ / fmt::format("{}.toml", session->rank());
    std::ofstream(file) << text;
    return load_experiment(file, {});
  }

  // Returns nullopt if the run has been left.
  std::optional<Outcome> run(const syncopate::Run& run, const CheckpointUse* use) const {
    Progress progress(Progress::Style::silent, 1, 1);
    progress.begin_run(1, run);
    try {
      return execute(
          run, {.threads = 1, .mpi = session.get()}, progress, [](const Outcome&) {}, use);
    } catch (const LeftAtCheckpoint&) {
      return std::nullopt;
    }
  }

  void expect_same_after_leaving(const Experiment& experiment, int times = 2) const {
    for (const syncopate::Run& of : experiment.runs) {
      const int ranks = ranks_needed(of.cluster.workers, of.algorithm->traits().servers);
      EXPECT_THAT(ranks, testing::AnyOf(4, 5, 7)) << of.method << " needs a launch of its own";
      if (ranks != session->size()) continue;
      expect_same_after_leaving(of, std::getenv("SYNCOPATE_LONG") ? 5 * times : times);
    }
  }

  // Compares an undisturbed run with `times` runs that are left at a random checkpoint and resumed.
  void expect_same_after_leaving(const syncopate::Run& of, int times) const {
    SCOPED_TRACE(of.method);
    const Outcome plain = *run(of, nullptr);
    for (int time = 0; time < times; ++time) {
      const RandomStream stream{.seed = seed_, .purpose = Purpose::algorithm, .stream = 7, .step = Step{time}};
      auto at = 1 + static_cast<std::int64_t>(stream.uniform(std::stoull(of.hash.substr(0, 8), nullptr, 16)) * 3);
      bool has_gone_on = false;
      CheckpointUse use{.file = folder_ / "run.checkpoint", .resumes = false};
      use.leaves = [&at](std::int64_t number) { return number == at; };
      use.on_resumed = [&] { has_gone_on = true; };
      if (run(of, &use)) {  // the run ended before this checkpoint
        at = 1;
        EXPECT_FALSE(run(of, &use)) << "there are no checkpoints";
      }
      use.resumes = true;
      use.leaves = {};
      const std::optional<Outcome> outcome = run(of, &use);
      EXPECT_TRUE(has_gone_on) << "it began anew";
      if (session->rank() > 0) continue;
      EXPECT_EQ(outcome->failure, "");
      expect_whole(*outcome, plain, of.algorithm->traits().servers);
      if (!of.algorithm->traits().follows_clock && !of.cluster.outages) {
        EXPECT_EQ(computed_text(*outcome), computed_text(plain)) << "left at " << at;
      }
    }
  }

  fs::path folder_;
  std::uint64_t seed_ = 1;
};

TEST_F(RankCheckpointsOf, AllMethodsOfTheRegistryGoOn) {
  for (const AlgorithmRow& row : algorithms()) {
    const char* const only = std::getenv("SYNCOPATE_ONLY");
    if (only && row.name != only) continue;
    const auto load_text = [this](const std::string& text) { return load(text); };
    const Experiment experiment = held::of_example(cluster + linear, row.name, compressed(row.example), load_text);
    expect_same_after_leaving(experiment);
  }
}

TEST_F(RankCheckpointsOf, WithWhatIsCompressedOrAveragedBesides) {
  expect_same_after_leaving(load(cluster + linear + held::text_of(held::with_state)), 1);
}

TEST_F(RankCheckpointsOf, WhereOutagesTakeTheWorkersState) {
  const std::string outages = R"([[outages]]
mean_time_between_s = 0.015
mean_duration_s = 0.002
state = "lost"
)";
  expect_same_after_leaving(load(cluster + linear + outages + held::text_of(held::that_lose_state)), 2);
}

// Without this rule, the next checkpoint may be due as soon as the last one is written. Ranks that hardly get a core
// would then do nothing but write checkpoints.
TEST_F(RankCheckpointsOf, LeaveTheRunAsMuchTimeAsTheyTake) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds slow{300};  // every_s is 10 ms
  const Experiment experiment = load(cluster + linear + held::text_of({held::sync_sgd}));
  Progress progress(Progress::Style::silent, 1, 1);
  const CheckpointUse use{.file = folder_ / "run.checkpoint", .resumes = false};
  MpiRunCheckpoints store(experiment.runs.front(), use, *session, progress, [](StateArchive&) {});
  const auto next = [&] {
    while (true)
      if (const auto number = store.due()) return *number;
  };
  if (session->rank() == 0) {
    const std::int64_t number = next();
    std::this_thread::sleep_for(slow);
    const std::optional<std::uint64_t> digest = store.write(number, [](ByteSink&) {});
    ASSERT_TRUE(digest);
    EXPECT_FALSE(store.written(number, {digest}));
    const Clock::time_point begin = Clock::now();
    EXPECT_EQ(next(), number + 1);
    EXPECT_GE(Clock::now() - begin, slow);
  }
  store.settle();
}

TEST_F(RankCheckpointsOf, OfTimeAlone) {
  const std::string training = "[training]\nmodel = \"none\"\nparameters = 1000\n";
  const held::Methods methods = {held::sync_sgd, "algorithm = \"eager-sgd\"\nactivation = \"majority\"",
                                 held::async_sgd};
  expect_same_after_leaving(load(cluster + training + held::text_of(methods)), 1);
}

}  // namespace
}  // namespace syncopate

int main(int argc, char** argv) {
  syncopate::session = std::make_unique<syncopate::MpiSession>();
  const int result = syncopate::run_tests_under_mpi(argc, argv, *syncopate::session);
  syncopate::session.reset();
  return result;
}
