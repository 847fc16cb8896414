// A simulation that several processes divide gives the results of one process: the same steps at the same virtual
// times, to the nanosecond, and the same models up to rounding, because sums are grouped in another way. All processes
// have the same results to the bit. Tests every method of the registry, and all other state of workers.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "algorithms/registry.hpp"
#include "experiments/execution/checkpointing.hpp"
#include "tests/experiments/checkpointed_runs.hpp"
#include "tests/experiments/held_by_workers.hpp"
#include "tests/experiments/loaded_text.hpp"
#include "tests/experiments/run_results.hpp"
#include "tests/workers/threads_as_processes.hpp"
#include "workers/base/random.hpp"

namespace syncopate {
namespace {

// Returns the outcome on each process. Processes are threads of this one. `use`: checkpoint options for all processes.
std::vector<Outcome> divided_outcomes(const syncopate::Run& run, int processes, int threads = 1,
                                      std::size_t* moved_floats = nullptr, const CheckpointUse* use = nullptr) {
  if (run.training.make_objective) run.training.make_objective();  // reads the data once, before the threads start
  ThreadsAsProcesses all(processes);
  std::vector<Outcome> outcomes(static_cast<std::size_t>(processes));
  all.run([&](ProcessGroup& group) {
    Progress progress(Progress::Style::silent, 1, 1);
    progress.begin_run(1, run);
    outcomes[static_cast<std::size_t>(group.self())] = execute(
        run, {.threads = threads, .processes = &group}, progress, [](const Outcome&) {}, use);
  });
  if (moved_floats) *moved_floats = all.moved_floats();
  return outcomes;
}

// Six different workers. Three processes have two workers each, two have three each, and four have 1, 2, 1 and 2.
const std::string divided_cluster = R"(name = "divided"
[cluster]
workers = 6
micro_batches = 2
micro_batch_s = 1.0
worker_factors = [1, 1.3, 1.1, 1.8, 1.2, 1.05]
[network]
kind = "fixed"
latency_s = 0.1
[[delays]]
kind = "exponential"
mean = 0.5
[budget]
steps = 12
[recording]
durations = true
arrivals = true
samples = true
parameters = true
)";

const std::string divided_linear = held::linear_training(480) + held::measurements;

// Returns the part of the results that does not depend on arithmetic.
std::string fingerprint_of(Outcome outcome) {
  if (!outcome.failure.empty()) return "failed: " + outcome.failure;
  for (MetricsRow& row : outcome.recording.metrics) row.evaluation.reset();
  std::string text = metrics_csv(outcome.recording.metrics) + steps_csv(outcome.recording.rows);
  for (const Measurement& measurement : outcome.recording.measurements)
    text += fmt::format("{} {} {}\n", measurement.step.value(), measurement.time.time_since_epoch().count(),
                        measurement.quantity);
  text += totals_text(*outcome.totals);
  text += durations_csv(*outcome.durations) + arrivals_csv(*outcome.arrivals);
  if (outcome.samples) text += fmt::format("kept of each class: {}\n", fmt::join(outcome.samples->by_class.kept, " "));
  return text;
}

std::vector<double> numbers_of(const Outcome& outcome) {
  std::vector<double> numbers;
  for (const MetricsRow& row : outcome.recording.metrics)
    if (row.evaluation) numbers.insert(numbers.end(), {row.evaluation->test_loss, row.evaluation->train_loss});
  for (const Measurement& measurement : outcome.recording.measurements) numbers.push_back(measurement.value);
  for (const auto& models : {outcome.recording.parameters, outcome.recording.buffers})
    for (const auto& model : models) numbers.insert(numbers.end(), model.begin(), model.end());
  return numbers;
}

class DividedSimulation : public LoadedText {
 protected:
  void expect_same(const syncopate::Run& of, int processes, double tolerance = 2e-4) const {
    SCOPED_TRACE(fmt::format("{} processes\n{}", processes, of.resolved_toml));
    const Outcome one = outcome_of(of);
    ASSERT_EQ(one.failure, "");
    const std::vector<Outcome> all = divided_outcomes(of, processes);
    for (const Outcome& outcome : all) ASSERT_EQ(fingerprint_of(outcome), fingerprint_of(one));
    for (const Outcome& outcome : all) EXPECT_EQ(numbers_of(outcome), numbers_of(all.front())) << "to the bit";
    const std::vector<double> expected = numbers_of(one), found = numbers_of(all.front());
    ASSERT_EQ(found.size(), expected.size());
    ASSERT_GT(found.size(), 0u);
    double largest = 0;
    for (std::size_t i = 0; i < found.size(); ++i)
      largest = std::max(largest, std::abs(found[i] - expected[i]) / std::max(1.0, std::abs(expected[i])));
    EXPECT_LE(largest, tolerance);
  }
};

TEST_F(DividedSimulation, OfEveryMethodOfTheRegistryComesToTheSame) {
  for (const AlgorithmRow& row : algorithms()) {
    const auto load_text = [this](const std::string& text) { return load(text); };
    const Experiment experiment = held::of_example(divided_cluster + divided_linear, row.name, row.example, load_text);
    for (const syncopate::Run& of : experiment.runs) expect_same(of, 2);
  }
}

TEST_F(DividedSimulation, ByFourProcessesComesToTheSame) {
  held::Methods methods = held::families;
  methods.insert(methods.end(), {held::averaged_moments, "algorithm = \"decentralized-sgd\"",
                                 "algorithm = \"decentralized-sgd\"\nevaluated = \"own\""});
  for (const syncopate::Run& of : load(divided_cluster + divided_linear + held::text_of(methods)).runs)
    expect_same(of, 4);
}

// One of the processes has no worker.
TEST_F(DividedSimulation, OfFewerWorkersThanProcessesComesToTheSame) {
  std::string text = divided_cluster + divided_linear;
  text.replace(text.find("workers = 6"), 11, "workers = 3");
  text.replace(text.find("worker_factors = [1, 1.3, 1.1, 1.8, 1.2, 1.05]"), 46, "worker_factors = [1, 1.3, 1.1]");
  text += held::text_of({held::sync_sgd, held::local_sgd});
  for (const syncopate::Run& of : load(text).runs) expect_same(of, 5);
}

TEST_F(DividedSimulation, WithWhatIsCompressedOrAveragedBesidesComesToTheSame) {
  for (const held::Methods& methods : {held::with_state, held::with_more_compressions})
    for (const syncopate::Run& of : load(divided_cluster + divided_linear + held::text_of(methods)).runs)
      expect_same(of, 2);
}

TEST_F(DividedSimulation, WhereOutagesTakeTheWorkersStateComesToTheSame) {
  const std::string text = divided_cluster + divided_linear +
                           "[[outages]]\nmean_time_between_s = 15.0\nmean_duration_s = 2.0\nstate = \"lost\"\n";
  for (const syncopate::Run& of : load(text + held::text_of(held::that_lose_state)).runs) expect_same(of, 2);
}

TEST_F(DividedSimulation, OfAModelWithBatchNormalisationComesToTheSame) {
  const std::string text = divided_cluster + held::batch_normalised_training + held::text_of(held::families);
  for (const syncopate::Run& of : load(text).runs) expect_same(of, 2, 2e-3);
}

TEST_F(DividedSimulation, ByOneProcessIsTheSameToTheBit) {
  const std::string methods = held::text_of(
      {held::sync_sgd, held::local_sgd, held::async_sgd, "algorithm = \"decentralized-sgd\"", held::top_k});
  for (const syncopate::Run& of : load(divided_cluster + divided_linear + methods).runs)
    EXPECT_EQ(results_text(of, divided_outcomes(of, 1).front()), results_text(of, outcome_of(of)));
}

// All processes end with the same evaluation, however fast each is.
TEST_F(DividedSimulation, ThatDivergesEndsOnAllProcessesWithTheSameRow) {
  std::string text = divided_cluster + divided_linear + held::text_of({held::sync_sgd, held::local_sgd});
  text.replace(text.find("peak = 0.2"), 10, "peak = 3e38");
  text.replace(text.find("steps = 12"), 10, "steps = 90");
  for (const syncopate::Run& of : load(text).runs) {
    const Outcome one = outcome_of(of);
    const auto all = divided_outcomes(of, 2);
    for (const Outcome& outcome : all) {
      EXPECT_EQ(outcome.failure, "");
      ASSERT_FALSE(outcome.recording.metrics.empty());
      EXPECT_FALSE(outcome.recording.metrics.back().evaluation->finite);
      EXPECT_EQ(outcome.recording.metrics.size(), one.recording.metrics.size());
      EXPECT_EQ(summarise(of, outcome).status, RunStatus::diverged);
    }
  }
}

TEST_F(DividedSimulation, DoesNotDependOnThreads) {
  const Experiment experiment = load(divided_cluster + divided_linear + held::text_of({held::local_sgd}));
  const syncopate::Run& of = experiment.runs.front();
  EXPECT_EQ(numbers_of(divided_outcomes(of, 3, 1).front()), numbers_of(divided_outcomes(of, 3, 2).front()));
}

// Runs that several processes divide, stopped at a checkpoint and resumed, give the same results to the bit.

namespace fs = std::filesystem;
using namespace checkpointed;

class DividedCheckpoints : public LoadedText {
 protected:
  fs::path checkpoint() const { return folder_ / "run.checkpoint"; }

  Outcome first_of(const syncopate::Run& of, int processes, const std::function<bool(std::int64_t)>& due) const {
    const CheckpointUse use{.file = checkpoint(), .due = due};
    return divided_outcomes(of, processes, 1, nullptr, &use).front();
  }

  // Stops at the checkpoint of step `last`. The first process writes it while the others continue. They must not end
  // the run before the file exists, so they wait for it.
  std::function<bool(std::int64_t)> stops_after(std::int64_t last) const {
    return [this, last](std::int64_t step) {
      if (step <= last) return step == last;
      for (int i = 0; i < 1000 && !fs::exists(checkpoint()); ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      throw Stopped();
    };
  }

  void expect_same_after_interruption(const syncopate::Run& of, int processes) const {
    SCOPED_TRACE(of.resolved_toml);
    remove_checkpoint(checkpoint());
    const std::string plain = all_of(of, divided_outcomes(of, processes).front());
    ASSERT_THAT(plain, testing::Not(testing::StartsWith("failed")));
    std::atomic<std::int64_t> steps = 0;
    const auto counts = [&](std::int64_t step) {
      steps = step;
      return false;
    };
    ASSERT_EQ(all_of(of, first_of(of, processes, counts)), plain) << "without an interruption";
    const RandomStream stream{.seed = of.seed, .purpose = Purpose::algorithm, .stream = 8};
    const auto at = 1 + static_cast<std::int64_t>(stream.uniform(0) * static_cast<double>(steps));
    const Outcome stopped = first_of(of, processes, stops_after(at));
    if (at < steps) {
      EXPECT_THAT(stopped.failure, testing::HasSubstr(Stopped().what()));
    }
    ASSERT_TRUE(fs::exists(checkpoint()));
    std::atomic<std::int64_t> begun_at = 0;
    const auto goes_on = [&](std::int64_t step) {
      std::int64_t none = 0;
      begun_at.compare_exchange_strong(none, step);
      return false;
    };
    EXPECT_EQ(all_of(of, first_of(of, processes, goes_on)), plain) << "taken up at step " << at << " of " << steps;
    EXPECT_EQ(begun_at, at) << "it did not begin anew";
  }
};

TEST_F(DividedCheckpoints, AllOfTheRegistryComeToTheSame) {
  for (const AlgorithmRow& row : algorithms()) {
    const auto load_text = [this](const std::string& text) { return load(text); };
    const Experiment experiment = held::of_example(cluster + linear, row.name, row.example, load_text);
    for (const syncopate::Run& of : experiment.runs) expect_same_after_interruption(of, 2);
  }
}

TEST_F(DividedCheckpoints, WithWhatIsCompressedOrAveragedBesides) {
  for (const held::Methods& methods : {held::with_state, held::with_more_compressions})
    for (const syncopate::Run& of : load(cluster + linear + held::text_of(methods)).runs)
      expect_same_after_interruption(of, 3);
}

TEST_F(DividedCheckpoints, WhereOutagesTakeTheWorkersState) {
  const std::string text =
      cluster + linear + "[[outages]]\nmean_time_between_s = 15.0\nmean_duration_s = 2.0\nstate = \"lost\"\n";
  for (const syncopate::Run& of : load(text + held::text_of(held::that_lose_state)).runs)
    expect_same_after_interruption(of, 2);
}

TEST_F(DividedCheckpoints, OfAModelWithBatchNormalisation) {
  const std::string text = cluster + held::batch_normalised_training + held::text_of(held::families);
  for (const syncopate::Run& of : load(text).runs) expect_same_after_interruption(of, 2);
}

// If one process detects that its checkpoint does not match, all processes are notified and start from the beginning.
TEST_F(DividedCheckpoints, OfAnotherCourseBeginAnew) {
  Experiment experiment = load(cluster + linear + held::text_of({held::sync_sgd, held::local_sgd}));
  syncopate::Run &one = experiment.runs.front(), &other = experiment.runs.back();
  other.hash = one.hash;
  first_of(one, 3, stops_after(20));
  ASSERT_TRUE(fs::exists(checkpoint()));
  testing::internal::CaptureStderr();
  const Outcome outcome = first_of(other, 3, [](std::int64_t) { return false; });
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::EndsWith("; the run starts from the beginning\n"));
  EXPECT_EQ(all_of(other, outcome), all_of(other, divided_outcomes(other, 3).front()));
}

}  // namespace
}  // namespace syncopate
