// A run that is stopped at a checkpoint and taken up again comes to the same, to the bit: every method of the registry,
// and what else workers may hold, each at random steps, with one thread before and two after it, and the other way
// round.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "algorithms/registry.hpp"
#include "experiments/execution/checkpointing.hpp"
#include "experiments/sections/experiment.hpp"
#include "results/directory/summary_json.hpp"
#include "tests/experiments/run_results.hpp"
#include "workers/random/random.hpp"

namespace syncopate {
namespace {

namespace fs = std::filesystem;

// Four unlike workers; all that can be recorded.
const std::string cluster = R"(name = "checkpoints"
[cluster]
workers = 4
micro_batches = 2
micro_batch_s = 1.0
worker_factors = [1, 1.3, 1.1, 1.8]
[network]
kind = "fixed"
latency_s = 0.1
[[delays]]
kind = "exponential"
mean = 0.5
[budget]
steps = 12
[recording]
trace = true
durations = true
arrivals = true
samples = true
parameters = true
)";

const std::string linear = R"([training]
model = "linear"
dataset = "gaussian-mixture"
micro_batch_size = 4
learning_rate = { schedule = "cosine", peak = 0.2 }
optimizer = { name = "sgd", momentum = 0.9 }
[datasets.gaussian-mixture]
train = 320
test = 60
[evaluation]
every_steps = 3
train_samples = 60
[measurements]
every_steps = 4
gradient_norm = true
step_gradient_norm = true
consensus_distance = true
samples = 40
)";

constexpr const char* own_adam = "\ntraining = { optimizer = { name = \"adam\", bias_correction = false } }";

std::string method(const std::string& keys, int number) {
  return fmt::format("[[methods]]\nlabel = \"{}\"\n{}\n", number, keys);
}

struct Stopped : std::runtime_error {
  Stopped() : std::runtime_error("stopped by the test") {}
};

// Without what the host's clock says.
std::string all_of(const syncopate::Run& run, Outcome outcome) {
  outcome.host_s = 0;
  std::string text = results_text(run, outcome);
  if (outcome.timeline) text += trace_events(*outcome.timeline, {});
  if (outcome.durations) text += durations_csv(*outcome.durations);
  if (outcome.arrivals) text += arrivals_csv(*outcome.arrivals);
  for (const auto& buffers : outcome.recording.buffers)
    for (const float value : buffers) text += fmt::format("{} ", value);
  return text + to_json(summarise(run, outcome));
}

class CheckpointedMethods : public testing::Test {
 protected:
  void SetUp() override {
    const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    folder_ = fs::temp_directory_path() / fmt::format("syncopate-checkpoints-{}-{}", getpid(), name);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  Experiment load(const std::string& text) const {
    const fs::path file = folder_ / "e.toml";
    std::ofstream(file) << text;
    return load_experiment(file, {});
  }

  Outcome run(const syncopate::Run& run, int threads, const std::function<bool(std::int64_t)>& due) const {
    Progress progress(Progress::Style::silent, 1, 1);
    progress.begin_run(1, run);
    const CheckpointUse use{.file = checkpoint(), .due = due};
    return execute(
        run, {.threads = threads}, progress, [](const Outcome&) {}, &use);
  }
  fs::path checkpoint() const { return folder_ / "run.checkpoint"; }

  // Takes the run up at `times` random steps, each of a new course.
  void expect_same_after_interruption(const syncopate::Run& of, int times = 2) const {
    SCOPED_TRACE(of.resolved_toml);
    fs::remove(checkpoint());
    const std::string plain = all_of(of, outcome_of(of));
    ASSERT_THAT(plain, testing::Not(testing::StartsWith("failed")));
    std::int64_t steps = 0;
    const auto counts = [&](std::int64_t step) {
      steps = step;
      return false;
    };
    ASSERT_EQ(all_of(of, run(of, 2, counts)), plain) << "without an interruption";
    ASSERT_GT(steps, 0);
    for (int time = 0; time < times; ++time) {
      const RandomStream stream{.seed = of.seed, .purpose = Purpose::algorithm, .stream = 7, .step = Step{time}};
      const auto at = 1 + static_cast<std::int64_t>(stream.uniform(0) * static_cast<double>(steps));
      const int first = 1 + time % 2, second = 3 - first;
      fs::remove(checkpoint());
      const auto stops = [at](std::int64_t step) {
        if (step > at) throw Stopped();
        return step == at;
      };
      const Outcome stopped = run(of, first, stops);
      EXPECT_EQ(stopped.failure, at < steps ? Stopped().what() : "");
      ASSERT_TRUE(fs::exists(checkpoint()));
      std::optional<std::int64_t> begun_at;
      const auto goes_on = [&](std::int64_t step) {
        if (!begun_at) begun_at = step;
        return false;
      };
      EXPECT_EQ(all_of(of, run(of, second, goes_on)), plain) << "taken up at step " << at << " of " << steps;
      EXPECT_EQ(begun_at, at) << "it did not begin anew";
    }
  }

  fs::path folder_;
};

TEST_F(CheckpointedMethods, AllOfTheRegistryComeToTheSame) {
  for (const AlgorithmRow& row : algorithms()) {
    const std::string keys = fmt::format("algorithm = \"{}\"\n{}", row.name, row.example);
    Experiment experiment;
    try {
      experiment = load(cluster + linear + method(keys, 0));
    } catch (const ConfigurationFault&) {  // of those that need another optimizer
      experiment = load(cluster + linear + method(keys + own_adam, 0));
    }
    for (const syncopate::Run& of : experiment.runs) expect_same_after_interruption(of);
  }
}

TEST_F(CheckpointedMethods, WithWhatIsCompressedOrAveragedBesides) {
  std::string text = cluster + linear;
  int number = 0;
  for (const char* const keys : {R"(algorithm = "sync-sgd"
training = { clip_norm = 1.0 }
compression = { name = "top-k", ratio = 0.1 })",
                                 R"(algorithm = "random-drop"
drop_rate = 0.3
compression = { name = "top-k", ratio = 0.1, dropped = "fold" })",
                                 R"(algorithm = "sync-sgd"
compression = { name = "dgc", ratio = 0.1 })",
                                 R"(algorithm = "sync-sgd"
compression = { name = "scalecom", ratio = 0.1 })",
                                 R"(algorithm = "sync-sgd"
compression = { name = "random-k", ratio = 0.1 })",
                                 R"(algorithm = "sync-sgd"
compression = { name = "one-bit", exchange = "two-phase" })",
                                 R"(algorithm = "sync-sgd"
compression = { name = "majority", momentum = 0.9 })",
                                 R"(algorithm = "sync-sgd"
compression = { name = "qsgd", levels = 7 })",
                                 R"(algorithm = "sync-sgd"
compression = { name = "powersgd", rank = 1, least_rate = 1.0 })",
                                 R"(algorithm = "sync-sgd"
compression = { name = "int8", exchange = "two-phase" })",
                                 R"(algorithm = "local-sgd"
period = { rule = "constant", steps = 3 }
compression = { name = "sign" })",
                                 R"(algorithm = "local-sgd"
period = { rule = "constant", steps = 3 }
compression = { name = "qsgd", exchange = "two-phase" })",
                                 R"(algorithm = "async-sgd"
maximum_staleness = 2
compression = { name = "top-k", ratio = 0.1, rejected = "return" })",
                                 R"(algorithm = "backup-workers"
backups = 1
servers = 3
compression = { name = "sign" })",
                                 R"(algorithm = "async-local-sgd"
local_steps = 2
update = { name = "plain", rate = 0.2 }
compression = { name = "int8", error_feedback = true })",
                                 R"(algorithm = "streaming-diloco"
fragments = 3
delay = 1
period = { rule = "constant", steps = 3 }
outer = { name = "diloco", rate = 0.7, momentum = 0.5 }
compression = { name = "fp4", error_feedback = true })",
                                 R"(algorithm = "sync-sgd"
average = { decay = 0.9 })",
                                 R"(algorithm = "async-sgd"
training = { clip_norm = 1.0, optimizer = { name = "adamw" } }
average = { decay = 0.9 })",
                                 R"(algorithm = "backup-workers"
backups = 1
servers = 3)",
                                 R"(algorithm = "local-sgd"
period = { rule = "constant", steps = 3 }
moments = "average")"})
    text += method(keys, number++);
  for (const syncopate::Run& of : load(text).runs) expect_same_after_interruption(of);
}

TEST_F(CheckpointedMethods, WhereOutagesTakeTheWorkersState) {
  std::string text =
      cluster + linear + "[[outages]]\nmean_time_between_s = 15.0\nmean_duration_s = 2.0\nstate = \"lost\"\n";
  int number = 0;
  for (const char* const keys : {R"(algorithm = "sync-sgd")", R"(algorithm = "local-sgd"
period = { rule = "constant", steps = 3 })",
                                 R"(algorithm = "async-sgd")", R"(algorithm = "sync-sgd"
compression = { name = "top-k", ratio = 0.1 })"})
    text += method(keys, number++);
  for (const syncopate::Run& of : load(text).runs) expect_same_after_interruption(of, 4);
}

// The file is whole and says that it is of this run, but another program has gone another way: nothing is mixed.
TEST_F(CheckpointedMethods, OfAnotherCourseBeginAnew) {
  std::string text = cluster + linear + method("algorithm = \"sync-sgd\"", 0) +
                     method("algorithm = \"local-sgd\"\nperiod = { rule = \"constant\", steps = 3 }", 1);
  Experiment experiment = load(text);
  syncopate::Run &one = experiment.runs.front(), &other = experiment.runs.back();
  other.hash = one.hash;
  run(one, 1, [](std::int64_t step) {
    if (step > 20) throw Stopped();
    return step == 20;
  });
  ASSERT_TRUE(fs::exists(checkpoint()));
  testing::internal::CaptureStderr();
  const Outcome outcome = run(other, 1, [](std::int64_t) { return false; });
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::EndsWith("; the run begins anew\n"));
  EXPECT_EQ(all_of(other, outcome), all_of(other, outcome_of(other)));
}

// Its statistics are a second kind of value, and its steps are made of several tasks; an optimizer by layers has
// passes.
TEST_F(CheckpointedMethods, OfAModelWithBatchNormalisation) {
  std::string text = cluster + R"([training]
model = "cnn"
dataset = "fashion-mnist"
micro_batch_size = 4
learning_rate = { schedule = "constant", peak = 0.01 }
optimizer = { name = "lamb" }
[models.cnn]
channels = [2]
kernel = 3
dense = 4
batch_norm = true
[evaluation]
every_steps = 6
train_samples = 60
)";
  int number = 0;
  for (const char* const keys : {R"(algorithm = "sync-sgd")", R"(algorithm = "local-sgd"
period = { rule = "constant", steps = 3 })",
                                 R"(algorithm = "async-sgd")", R"(algorithm = "dropcompute"
threshold_s = 2.5)"})
    text += method(keys, number++);
  for (const syncopate::Run& of : load(text).runs) expect_same_after_interruption(of);
}

}  // namespace
}  // namespace syncopate
