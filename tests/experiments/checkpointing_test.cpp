// A run that is stopped at a checkpoint and resumed gives the same results, to the bit. Tests every method of the
// registry, and all other state of workers, at random steps. The run has one thread before the checkpoint and two after
// it, and vice versa.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "algorithms/registry.hpp"
#include "tests/experiments/checkpointed_runs.hpp"
#include "tests/experiments/held_by_workers.hpp"
#include "tests/experiments/loaded_text.hpp"
#include "tests/experiments/run_results.hpp"
#include "tests/workers/idx_files.hpp"
#include "workers/base/arrays.hpp"
#include "workers/base/random.hpp"

namespace syncopate {
namespace {

namespace fs = std::filesystem;
using namespace checkpointed;

class CheckpointedMethods : public LoadedText {
 protected:
  Outcome run(const syncopate::Run& run, int threads, const std::function<bool(std::int64_t)>& due) const {
    Progress progress(Progress::Style::silent, 1, 1);
    progress.begin_run(1, run);
    const CheckpointUse use{.file = checkpoint(), .due = due};
    return execute(
        run, {.threads = threads}, progress, [](const Outcome&) {}, &use);
  }
  fs::path checkpoint() const { return folder_ / "run.checkpoint"; }

  // Compares an uninterrupted run with `times` runs that stop at a random step and are resumed.
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
};

TEST_F(CheckpointedMethods, AllOfTheRegistryComeToTheSame) {
  for (const AlgorithmRow& row : algorithms()) {
    const auto load_text = [this](const std::string& text) { return load(text); };
    const Experiment experiment = held::of_example(cluster + linear, row.name, row.example, load_text);
    for (const syncopate::Run& of : experiment.runs) expect_same_after_interruption(of);
  }
}

TEST_F(CheckpointedMethods, WithWhatIsCompressedOrAveragedBesides) {
  for (const held::Methods& methods : {held::with_state, held::with_more_compressions})
    for (const syncopate::Run& of : load(cluster + linear + held::text_of(methods)).runs)
      expect_same_after_interruption(of);
}

TEST_F(CheckpointedMethods, WhereOutagesTakeTheWorkersState) {
  const std::string text =
      cluster + linear + "[[outages]]\nmean_time_between_s = 15.0\nmean_duration_s = 2.0\nstate = \"lost\"\n";
  for (const syncopate::Run& of : load(text + held::text_of(held::that_lose_state)).runs)
    expect_same_after_interruption(of, 4);
}

// The checkpoint is complete and has this run's hash, but the program that wrote it made different calls. So nothing in
// it is used.
TEST_F(CheckpointedMethods, OfAnotherCourseBeginAnew) {
  Experiment experiment = load(cluster + linear + held::text_of({held::sync_sgd, held::local_sgd}));
  syncopate::Run &one = experiment.runs.front(), &other = experiment.runs.back();
  other.hash = one.hash;
  run(one, 1, [](std::int64_t step) {
    if (step > 20) throw Stopped();
    return step == 20;
  });
  ASSERT_TRUE(fs::exists(checkpoint()));
  testing::internal::CaptureStderr();
  const Outcome outcome = run(other, 1, [](std::int64_t) { return false; });
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::EndsWith("; the run starts from the beginning\n"));
  EXPECT_EQ(all_of(other, outcome), all_of(other, outcome_of(other)));
}

TEST_F(CheckpointedMethods, OfAModelWithBatchNormalisation) {
  const std::string text = cluster + held::batch_normalised_training + held::text_of(held::families);
  for (const syncopate::Run& of : load(text).runs) expect_same_after_interruption(of);
}

// For every method and every handling of BatchNorm statistics, parameters.npy and buffers.npy are the model that the
// last row of metrics.csv evaluates.

constexpr std::uint32_t train_images = 240, test_images = 40;
constexpr std::string_view policies[] = {"average", "keep", "reset", "recalibrate"};

class WrittenModel : public LoadedText {
 protected:
  void SetUp() override {
    LoadedText::SetUp();
    fs::create_directories(folder_ / "images");
    write_idx("train-images-idx3-ubyte", {train_images, 6, 6}, 251);
    write_idx("train-labels-idx1-ubyte", {train_images}, 10);
    write_idx("t10k-images-idx3-ubyte", {test_images, 6, 6}, 241);
    write_idx("t10k-labels-idx1-ubyte", {test_images}, 10);
  }

  // Four workers of different speed. The last step is no multiple of evaluation.every_steps.
  std::string head() const {
    return fmt::format(R"(name = "written"
budget.steps = 8
evaluation = {{ every_steps = 5, train_samples = 60 }}
recording.parameters = true
network = {{ kind = "fixed", latency_s = 0.1 }}
[cluster]
workers = 4
micro_batches = 2
micro_batch_s = 1.0
worker_factors = [1, 1.3, 1.1, 1.8]
[training]
model = "cnn"
dataset = "fashion-mnist"
micro_batch_size = 4
learning_rate = {{ schedule = "constant", peak = 0.02 }}
optimizer = {{ name = "sgd", momentum = 0.5 }}
[models.cnn]
channels = [2]
kernel = 3
dense = 3
batch_norm = true
[datasets.fashion-mnist]
directory = "{}"
)",
                       (folder_ / "images").string());
  }

  // Expects that the model in the written files has the losses of the last row. With `starts`, a run that starts from
  // these files must also have these losses in its first row.
  void expect_written(const syncopate::Run& run, bool starts = false) const {
    SCOPED_TRACE(run.resolved_toml);
    const Outcome outcome = outcome_of(run);
    ASSERT_EQ(outcome.failure, "");
    const Recording& recording = outcome.recording;
    const Evaluation& last = recording.metrics.back().evaluation.value();
    const std::vector<float> parameters = written("parameters.npy", recording.parameters),
                             buffers = written("buffers.npy", recording.buffers);
    const auto objective = run.training.make_objective();
    ASSERT_GT(objective->buffers(), 0U);
    const std::size_t members = recording.parameters.size();
    ASSERT_EQ(parameters.size(), members * objective->parameters());
    ASSERT_EQ(buffers.size(), members * objective->buffers());
    const auto loss = [&](Split split, std::int64_t samples) {
      std::vector<const float*> all_parameters, all_buffers;
      for (std::size_t i = 0; i < members; ++i) {
        all_parameters.push_back(parameters.data() + i * objective->parameters());
        all_buffers.push_back(buffers.data() + i * objective->buffers());
      }
      const EvaluationSums sums = members == 1
                                      ? objective->evaluate(all_parameters[0], all_buffers[0], split, 0, samples)
                                      : objective->evaluate_ensemble(all_parameters, all_buffers, split, 0, samples);
      return sums.loss / static_cast<double>(sums.samples);
    };
    EXPECT_EQ(loss(Split::test, test_images), last.test_loss);
    EXPECT_EQ(loss(Split::train, 60), last.train_loss);
    if (starts) expect_start(last);
  }

  // Expects that a run that starts from the written files has `end` as its first evaluation.
  void expect_start(const Evaluation& end) const {
    const std::string start = "training.start='" + (folder_ / "model/parameters.npy").string() + "'";
    const fs::path file = folder_ / "next.toml";
    std::ofstream(file) << head() + held::text_of({held::sync_sgd});
    const Experiment next = load_experiment(file, {start});
    const Evaluation begin = outcome_of(next.runs.front()).recording.metrics.front().evaluation.value();
    EXPECT_EQ(begin.test_loss, end.test_loss);
    EXPECT_EQ(begin.train_loss, end.train_loss);
  }
  static std::string with_policy(const AlgorithmRow& row, std::string_view policy) {
    return held::text_of({fmt::format("algorithm = \"{}\"\n{}\nbuffers = \"{}\"{}", row.name, row.example, policy,
                                      policy == "recalibrate" ? "\nrecalibration_micro_batches = 4" : "")});
  }
  bool has_buffer_policies(const AlgorithmRow& row) const {
    try {
      load(head() + with_policy(row, "keep"));
    } catch (const ConfigurationFault&) {
      return false;
    }
    return true;
  }

 private:
  void write_idx(const std::string& name, const std::vector<std::uint32_t>& dimensions, unsigned values) const {
    std::size_t size = 1;
    for (const std::uint32_t dimension : dimensions) size *= dimension;
    FileBytes bytes(size);
    for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::uint8_t>((i * i + 7 * i) % 977 % values);
    bytes = idx_file(dimensions, bytes);
    std::ofstream(folder_ / "images" / name, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }

  // Writes the models as the file `name`, and returns its content as a starting run reads it.
  std::vector<float> written(const char* name, const std::vector<std::vector<float>>& models) const {
    fs::create_directories(folder_ / "model");
    const std::string bytes = npy(models);
    std::ofstream(folder_ / "model" / name, std::ios::binary) << bytes;
    return floats_from_npy(bytes);
  }
};

TEST_F(WrittenModel, OfEveryMethodIsTheOneThatWasEvaluatedLast) {
  const auto load_text = [this](const std::string& text) { return load(text); };
  std::vector<std::string_view> with_policies;
  for (const AlgorithmRow& row : algorithms()) {
    if (!has_buffer_policies(row)) {
      expect_written(held::of_example(head(), row.name, row.example, load_text).runs.front());
      continue;
    }
    with_policies.push_back(row.name);
    for (const std::string_view policy : policies)
      expect_written(load(head() + with_policy(row, policy)).runs.front(), policy == "recalibrate");
  }
  EXPECT_GE(with_policies.size(), 14U) << "their key is read";
}

// These methods publish several models: one per phase, an ensemble, or a moving average.
TEST_F(WrittenModel, OfWhatElseIsPublishedIsTheOneThatWasEvaluatedLast) {
  const std::string swap = "algorithm = \"local-sgd\"\nperiod = { rule = \"swap\", switch_step = 3 }\n";
  const std::string constant = "algorithm = \"local-sgd\"\nperiod = { rule = \"constant\", steps = 3 }\n";
  const std::string recalibrate = "buffers = \"recalibrate\"\nrecalibration_micro_batches = 4\n";
  const held::Methods methods = {swap + recalibrate,
                                 constant + recalibrate + "average = { decay = 0.5 }\n",
                                 constant + "average = { decay = 0.5 }\n",
                                 "algorithm = \"branch-train-merge\"\nmerge = \"ensemble\"\n",
                                 "algorithm = \"branch-train-merge\"\nmerge = \"average\"\n" + recalibrate,
                                 "algorithm = \"stochastic-gradient-push\"\naverage = { decay = 0.5 }\n"};
  for (const syncopate::Run& run : load(head() + held::text_of(methods)).runs) expect_written(run);
}

}  // namespace
}  // namespace syncopate
