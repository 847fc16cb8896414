// A simulation that several processes divide comes to what one process comes to: the same course on the same virtual
// time, to the nanosecond, and the same models up to the rounding of sums that are grouped otherwise; and on all
// processes to the same, to the bit. Every method of the registry, and what workers may hold besides.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "algorithms/registry.hpp"
#include "experiments/sections/experiment.hpp"
#include "tests/experiments/divided_runs.hpp"

namespace syncopate {
namespace {

namespace fs = std::filesystem;

// Six unlike workers: three and three, or one, two, one, two of four processes.
const std::string cluster = R"(name = "divided"
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

const std::string linear = R"([training]
model = "linear"
dataset = "gaussian-mixture"
micro_batch_size = 4
learning_rate = { schedule = "cosine", peak = 0.2 }
optimizer = { name = "sgd", momentum = 0.9 }
[datasets.gaussian-mixture]
train = 480
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

// What does not depend on arithmetic.
std::string course_of(Outcome outcome) {
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

class DividedSimulation : public testing::Test {
 protected:
  void SetUp() override {
    const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    folder_ = fs::temp_directory_path() / fmt::format("syncopate-divided-{}-{}", getpid(), name);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  Experiment load(const std::string& text) const {
    const fs::path file = folder_ / "e.toml";
    std::ofstream(file) << text;
    return load_experiment(file, {});
  }

  void expect_same(const syncopate::Run& of, int processes, double tolerance = 2e-4) const {
    SCOPED_TRACE(fmt::format("{} processes\n{}", processes, of.resolved_toml));
    const Outcome one = outcome_of(of);
    ASSERT_EQ(one.failure, "");
    const std::vector<Outcome> all = divided_outcomes(of, processes);
    for (const Outcome& outcome : all) ASSERT_EQ(course_of(outcome), course_of(one));
    for (const Outcome& outcome : all) EXPECT_EQ(numbers_of(outcome), numbers_of(all.front())) << "to the bit";
    const std::vector<double> expected = numbers_of(one), found = numbers_of(all.front());
    ASSERT_EQ(found.size(), expected.size());
    ASSERT_GT(found.size(), 0u);
    double largest = 0;
    for (std::size_t i = 0; i < found.size(); ++i)
      largest = std::max(largest, std::abs(found[i] - expected[i]) / std::max(1.0, std::abs(expected[i])));
    EXPECT_LE(largest, tolerance);
  }

  fs::path folder_;
};

TEST_F(DividedSimulation, OfEveryMethodOfTheRegistryComesToTheSame) {
  for (const AlgorithmRow& row : algorithms()) {
    const std::string keys = fmt::format("algorithm = \"{}\"\n{}", row.name, row.example);
    Experiment experiment;
    try {
      experiment = load(cluster + linear + method(keys, 0));
    } catch (const ConfigurationFault&) {  // of those that need another optimizer
      experiment = load(cluster + linear + method(keys + own_adam, 0));
    }
    for (const syncopate::Run& of : experiment.runs) expect_same(of, 2);
  }
}

TEST_F(DividedSimulation, ByFourProcessesComesToTheSame) {
  std::string text = cluster + linear;
  int number = 0;
  for (const char* const keys :
       {"algorithm = \"sync-sgd\"", "algorithm = \"local-sgd\"\nperiod = { rule = \"constant\", steps = 3 }",
        "algorithm = \"dropcompute\"\nthreshold_s = 2.5", "algorithm = \"async-sgd\"",
        "algorithm = \"decentralized-sgd\"", "algorithm = \"decentralized-sgd\"\nevaluated = \"own\"",
        "algorithm = \"local-sgd\"\nperiod = { rule = \"constant\", steps = 3 }\nmoments = \"average\""})
    text += method(keys, number++);
  for (const syncopate::Run& of : load(text).runs) expect_same(of, 4);
}

// A process may have no worker at all.
TEST_F(DividedSimulation, OfFewerWorkersThanProcessesComesToTheSame) {
  std::string text = cluster + linear;
  text.replace(text.find("workers = 6"), 11, "workers = 3");
  text.replace(text.find("worker_factors = [1, 1.3, 1.1, 1.8, 1.2, 1.05]"), 46, "worker_factors = [1, 1.3, 1.1]");
  text += method("algorithm = \"sync-sgd\"", 0) +
          method("algorithm = \"local-sgd\"\nperiod = { rule = \"constant\", steps = 3 }", 1);
  for (const syncopate::Run& of : load(text).runs) expect_same(of, 5);
}

TEST_F(DividedSimulation, WithWhatIsCompressedOrAveragedBesidesComesToTheSame) {
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
servers = 3)"})
    text += method(keys, number++);
  for (const syncopate::Run& of : load(text).runs) expect_same(of, 2);
}

TEST_F(DividedSimulation, WhereOutagesTakeTheWorkersStateComesToTheSame) {
  std::string text =
      cluster + linear + "[[outages]]\nmean_time_between_s = 15.0\nmean_duration_s = 2.0\nstate = \"lost\"\n";
  int number = 0;
  for (const char* const keys : {R"(algorithm = "sync-sgd")", R"(algorithm = "local-sgd"
period = { rule = "constant", steps = 3 })",
                                 R"(algorithm = "async-sgd")", R"(algorithm = "sync-sgd"
compression = { name = "top-k", ratio = 0.1 })"})
    text += method(keys, number++);
  for (const syncopate::Run& of : load(text).runs) expect_same(of, 2);
}

// Its statistics are a second kind of value, which goes with gradients; an optimizer by layers has passes.
TEST_F(DividedSimulation, OfAModelWithBatchNormalisationComesToTheSame) {
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
  for (const syncopate::Run& of : load(text).runs) expect_same(of, 2, 2e-3);
}

TEST_F(DividedSimulation, ByOneProcessIsTheSameToTheBit) {
  std::string text = cluster + linear;
  int number = 0;
  for (const char* const keys :
       {"algorithm = \"sync-sgd\"", "algorithm = \"local-sgd\"\nperiod = { rule = \"constant\", steps = 3 }",
        "algorithm = \"async-sgd\"", "algorithm = \"decentralized-sgd\"",
        "algorithm = \"sync-sgd\"\ncompression = { name = \"top-k\", ratio = 0.1 }"})
    text += method(keys, number++);
  for (const syncopate::Run& of : load(text).runs)
    EXPECT_EQ(results_text(of, divided_outcomes(of, 1).front()), results_text(of, outcome_of(of)));
}

// All end with the same evaluation, however fast each of them is.
TEST_F(DividedSimulation, ThatDivergesEndsOnAllProcessesWithTheSameRow) {
  std::string text = cluster + linear + method("algorithm = \"sync-sgd\"", 0) +
                     method("algorithm = \"local-sgd\"\nperiod = { rule = \"constant\", steps = 3 }", 1);
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

// By two threads each, results are those of one.
TEST_F(DividedSimulation, DoesNotDependOnThreads) {
  const Experiment experiment =
      load(cluster + linear + method("algorithm = \"local-sgd\"\nperiod = { rule = \"constant\", steps = 3 }", 0));
  const syncopate::Run& of = experiment.runs.front();
  EXPECT_EQ(numbers_of(divided_outcomes(of, 3, 1).front()), numbers_of(divided_outcomes(of, 3, 2).front()));
}

}  // namespace
}  // namespace syncopate
