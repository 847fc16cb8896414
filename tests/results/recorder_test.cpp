#include "results/recorder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <limits>
#include <mutex>

#include "workers/training/executor.hpp"

namespace syncopate {
namespace {

using testing::ElementsAre;

// One parameter x. Loss is x, plus the normalisation buffer if there is one; NaN if x is negative.
// Accuracy is x / 100.
class Probe : public Objective {
 public:
  std::size_t parameters() const override { return 1; }
  std::size_t weights() const override { return 1; }
  std::vector<float> initial_parameters(std::uint64_t) const override { return {0.0F}; }
  PartialGradient gradient(const float*, const float*, std::span<const MicroBatch>) const override { return {}; }
  std::int64_t chunk_samples() const override { return 1; }
  std::int64_t samples_per_micro_batch() const override { return 8; }
  std::int64_t steps_per_epoch() const override { return 10; }
  std::int64_t evaluation_samples(Split) const override { return 100; }
  std::size_t buffers() const override { return normalised ? 1 : 0; }
  std::vector<float> initial_buffers() const override { return std::vector<float>(buffers(), 1000.0F); }

  // The mean index of the micro-batches.
  std::vector<float> batch_statistics(const float*, std::span<const MicroBatch> micro_batches) const override {
    statistics += static_cast<int>(micro_batches.size());
    float sum = 0;
    for (const MicroBatch& micro_batch : micro_batches) sum += static_cast<float>(micro_batch.index);
    return {sum / static_cast<float>(micro_batches.size())};
  }

  EvaluationSums evaluate(const float* parameters, const float* buffers, Split split, std::int64_t begin,
                          std::int64_t end) const override {
    ++evaluations;
    const double x = *parameters;
    const auto samples = end - begin;
    if (split == Split::test && x == waits) wait_for_another();
    if (split == Split::test && x > waits) announce();
    const double loss = x < 0 ? std::numeric_limits<double>::quiet_NaN() : x + (buffers ? *buffers : 0);
    return {.loss = loss * static_cast<double>(samples),
            .correct = static_cast<std::int64_t>(x) * samples / 100,
            .samples = samples};
  }

  double waits = -1;  // the evaluation at this x ends only after one at a larger x
  bool normalised = false;
  mutable std::atomic<int> evaluations{0};
  mutable std::atomic<int> statistics{0};  // micro-batches whose statistics were asked for

 private:
  void wait_for_another() const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return another_; });
  }
  void announce() const {
    const std::lock_guard lock(mutex_);
    another_ = true;
    changed_.notify_all();
  }

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable bool another_ = false;
};

class RecorderTest : public testing::Test {
 protected:
  void start(std::int64_t every_steps, int threads = 0, bool defer = false) {
    executor_ = std::make_unique<Executor>(threads);
    training_.emplace(probe_, nullptr, Training::Options{}, *executor_);
    recorder_.emplace(
        Recorder::Options{
            .plan = {.every_steps = every_steps, .train_samples = 100, .target_accuracy = {}, .target_loss = {}},
            .defer = defer,
            .on_change = [this] { ++changes_; }},
        *training_);
    recorder_->begin(training_->initial_state(), 1);
  }

  // The model x = `value`.
  ModelStatePtr model(float value) const {
    const auto state = std::make_shared<ModelState>();
    state->parameters = std::make_shared<Cell>();
    state->parameters->value = FlatVector(1);
    *state->parameters->value.data() = value;
    if (probe_->normalised) {
      state->buffers = std::make_shared<Cell>();
      state->buffers->value = FlatVector(1);
      *state->buffers->value.data() = 1000;
    }
    return state;
  }

  // After `step` steps, at `step` milliseconds.
  static Publication at(std::int64_t step, const ModelStatePtr& model) {
    Publication publication{.model = model};
    publication.step = step;
    publication.time = Time{std::chrono::milliseconds(step)};
    publication.samples = step * 8;
    publication.bytes = step * 100;
    publication.learning_rate = 1 - static_cast<double>(step) / 100;
    return publication;
  }

  void publish(std::int64_t step, float value) { recorder_->on_publish(at(step, model(value))); }

  // Of the last row.
  double test_loss() const { return recorder_->recording().metrics.back().evaluation->test_loss; }

  std::vector<std::int64_t> recorded_steps() const {
    std::vector<std::int64_t> steps;
    for (const MetricsRow& row : recorder_->recording().metrics) steps.push_back(row.step.value());
    return steps;
  }

  std::shared_ptr<Probe> probe_ = std::make_shared<Probe>();
  std::optional<Training> training_;
  std::unique_ptr<Executor> executor_;
  std::optional<Recorder> recorder_;
  int changes_ = 0;
};

TEST_F(RecorderTest, EvaluatesTheInitialModelEachPassedMultipleAndTheLastPublication) {
  start(10);
  for (const int step : {4, 8, 12, 16, 19, 33, 36, 39}) publish(step, static_cast<float>(step));
  recorder_->finish();
  EXPECT_THAT(recorded_steps(), ElementsAre(0, 12, 33, 39));
}

// Step k is published at k milliseconds.
TEST_F(RecorderTest, ByTimeEvaluatesTheFirstPublicationAtOrAfterEachMultiple) {
  start(10);
  Recorder recorder(
      {.plan = {.every_duration = std::chrono::milliseconds(10), .target_accuracy = {}, .target_loss = {}},
       .defer = false,
       .on_change = {}},
      *training_);
  recorder.begin(training_->initial_state(), 1);
  for (const int step : {4, 8, 12, 16, 20, 33, 36, 39}) recorder.on_publish(at(step, model(static_cast<float>(step))));
  recorder.finish();
  std::vector<std::int64_t> steps;
  for (const MetricsRow& row : recorder.recording().metrics) steps.push_back(row.step.value());
  EXPECT_THAT(steps, ElementsAre(0, 12, 20, 33, 39));
}

TEST_F(RecorderTest, EvaluatesNothingTwice) {
  start(5);
  publish(0, 0);  // what the method itself publishes before its first step
  publish(5, 5);
  publish(5, 5);
  publish(10, 10);
  recorder_->finish();
  EXPECT_THAT(recorded_steps(), ElementsAre(0, 5, 10));
  EXPECT_EQ(probe_->evaluations, 6) << "one of the test set and one of the training set for each";
}

TEST_F(RecorderTest, FillsTheRowFromThePublication) {
  start(10);
  publish(25, 50);
  recorder_->finish();
  const MetricsRow row = recorder_->recording().metrics.back();
  EXPECT_EQ(row.step, Step{25});
  EXPECT_EQ(row.epoch, 2.5);
  EXPECT_EQ(row.samples, 200);
  EXPECT_EQ(row.time, Time{std::chrono::milliseconds(25)});
  EXPECT_EQ(row.learning_rate, 0.75);
  EXPECT_EQ(row.bytes, Bytes{2500});
  EXPECT_DOUBLE_EQ(row.evaluation->test_loss, 50);
  EXPECT_DOUBLE_EQ(row.evaluation->test_accuracy, 0.5);
  EXPECT_DOUBLE_EQ(row.evaluation->train_loss, 50);
}

TEST_F(RecorderTest, RecordsAtTheEndALaterModelOfTheSameStep) {
  start(10);
  publish(10, 10);
  Publication later = at(10, model(12));
  later.time += std::chrono::milliseconds(1);
  recorder_->on_publish(later);
  later.model = model(14);
  later.time += std::chrono::milliseconds(1);
  recorder_->on_publish(later);
  recorder_->finish();
  EXPECT_THAT(recorded_steps(), ElementsAre(0, 10, 10));
  EXPECT_EQ(recorder_->recording().metrics.back().time, Time{std::chrono::milliseconds(12)});
  EXPECT_DOUBLE_EQ(test_loss(), 14);
  EXPECT_DOUBLE_EQ(recorder_->position().latest->test_loss, 14);
}

TEST_F(RecorderTest, EvaluatesAnEnsembleInPlaceOfTheModel) {
  start(10);
  Publication publication = at(10, model(99));
  publication.ensemble = {model(10), model(30)};
  recorder_->on_publish(publication);
  recorder_->finish();
  EXPECT_DOUBLE_EQ(test_loss(), 20) << "the mean of its members";
}

TEST_F(RecorderTest, RecalibratesOnlyModelsThatItEvaluates) {
  probe_->normalised = true;
  start(10);
  for (const int step : {9, 10, 11}) {
    Publication publication = at(step, model(static_cast<float>(step)));
    if (step < 11) publication.recalibration = {{Rank{0}, Step{0}, 2}, {Rank{1}, Step{0}, 6}};
    recorder_->on_publish(publication);
  }
  recorder_->finish();
  const auto rows = recorder_->recording().metrics;
  ASSERT_THAT(recorded_steps(), ElementsAre(0, 10, 11));
  EXPECT_DOUBLE_EQ(rows[1].evaluation->test_loss, 10 + (2 + 6) / 2);
  EXPECT_DOUBLE_EQ(rows[2].evaluation->test_loss, 11 + 1000) << "its own statistics";
  EXPECT_EQ(probe_->statistics, 2) << "the model of step 9 was not due";
}

TEST_F(RecorderTest, RecalibratesEachMemberOfAnEnsembleAlsoWhenDeferred) {
  probe_->normalised = true;
  start(10, 0, true);
  Publication publication = at(10, model(99));
  publication.ensemble = {model(10), model(30)};
  publication.recalibration = {{Rank{0}, Step{0}, 4}};
  recorder_->on_publish(publication);
  EXPECT_EQ(probe_->statistics, 0);
  recorder_->finish();
  EXPECT_DOUBLE_EQ(test_loss(), 20 + 4);
}

TEST_F(RecorderTest, LeavesOutWhatWasPublishedBeforeTheLastModelThatIsRecorded) {
  start(10);
  publish(8, 8);  // not due
  publish(12, 12);
  recorder_->finish();
  EXPECT_THAT(recorded_steps(), ElementsAre(0, 12));
}

TEST_F(RecorderTest, PositionsAreOfWhatIsPublishedAndOfWhatIsEvaluated) {
  start(10);
  publish(10, 10);
  publish(15, 15);  // not due
  const auto expect = [](const RunPosition::Point& point, int step) {
    EXPECT_EQ(point.step, Step{step});
    EXPECT_EQ(point.time, Time{std::chrono::milliseconds(step)});
    EXPECT_EQ(point.samples, 8 * step);
    EXPECT_EQ(point.bytes, Bytes{100 * step});
  };
  expect(recorder_->position().reached, 15);
  expect(recorder_->position().computed, 10);
  recorder_->finish();
  expect(recorder_->position().computed, 15);
}

TEST_F(RecorderTest, TheLatestEvaluationIsOfTheLatestModelAlsoIfItEndsFirst) {
  probe_->waits = 1;
  start(1, 2);
  publish(1, 1);  // ends only after step 2
  publish(2, 2);
  recorder_->finish();
  EXPECT_EQ(recorder_->position().latest->test_loss, 2);
  EXPECT_EQ(recorder_->position().computed.step, Step{2});
}

TEST_F(RecorderTest, KeepsTheParametersOfTheLastModelWhereTheyAreAskedFor) {
  for (const bool keep : {true, false}) {
    for (const bool ensemble : {true, false}) {
      start(10);
      Recorder recorder({.plan = {.every_steps = 10, .target_accuracy = {}, .target_loss = {}},
                         .defer = false,
                         .keep_parameters = keep,
                         .on_change = {}},
                        *training_);
      recorder.begin(training_->initial_state(), 1);
      recorder.on_publish(at(10, model(10)));
      Publication last = at(13, model(13));
      if (ensemble) last.ensemble = {model(17), model(19)};
      recorder.on_publish(last);
      recorder.finish();
      using Parameters = std::vector<std::vector<float>>;
      const Parameters expected = ensemble ? Parameters{{17}, {19}} : Parameters{{13}};
      EXPECT_EQ(recorder.recording().parameters, keep ? expected : Parameters{});
    }
  }
}

TEST_F(RecorderTest, OrdersRowsByStepWhenEvaluationsEndOutOfOrder) {
  probe_->waits = 1;
  start(1, 2);
  publish(1, 1);  // ends only after step 2
  publish(2, 2);
  publish(3, 3);
  recorder_->finish();
  const auto rows = recorder_->recording().metrics;
  ASSERT_THAT(recorded_steps(), ElementsAre(0, 1, 2, 3));
  for (const MetricsRow& row : rows) EXPECT_EQ(row.evaluation->test_loss, static_cast<double>(row.step.value()));
}

TEST_F(RecorderTest, DeferredEvaluationsCostNothingBeforeTheEnd) {
  start(1, 0, true);
  publish(1, 1);
  publish(2, 2);
  EXPECT_EQ(probe_->evaluations, 0);
  EXPECT_THAT(recorded_steps(), ElementsAre());
  recorder_->finish();
  EXPECT_EQ(probe_->evaluations, 6);
  EXPECT_THAT(recorded_steps(), ElementsAre(0, 1, 2));
}

TEST_F(RecorderTest, ReportsEvaluationsItWaitsFor) {
  start(1, 0, true);
  publish(1, 1);
  publish(2, 2);
  EXPECT_EQ(changes_, 3) << "one per publication";
  EXPECT_EQ(recorder_->position().computed.step, Step{2}) << "a rank computes at once";
  recorder_->finish();
  EXPECT_EQ(changes_, 3 + 3) << "and one per evaluation";
  EXPECT_EQ(recorder_->position().latest->test_loss, 2);
}

TEST_F(RecorderTest, StopsARunWhoseModelIsNotFinite) {
  start(1);
  publish(1, 1);
  publish(2, -1);
  EXPECT_THROW(publish(3, 1), Diverged);
  recorder_->finish();
  EXPECT_THAT(recorded_steps(), ElementsAre(0, 1, 2));
  EXPECT_TRUE(recorder_->recording().diverged);
}

TEST_F(RecorderTest, ARunThatPublishesAModelThatIsNotFiniteOnlyAtItsEndHasDiverged) {
  for (const bool defer : {false, true}) {
    start(10, 0, defer);
    publish(7, -1);  // not due, so nothing but finish() evaluates it
    recorder_->finish();
    EXPECT_THAT(recorded_steps(), ElementsAre(0, 7));
    EXPECT_TRUE(recorder_->recording().diverged);
  }
}

TEST_F(RecorderTest, KeepsRoundsInOrderAndTellsHowFarTheRunIs) {
  start(10);
  recorder_->on_row({.step = 4, .end = Time{std::chrono::seconds(1)}, .kept = 8, .period = 4});
  recorder_->on_row({.step = 8, .end = Time{std::chrono::seconds(2)}, .kept = 7, .dropped = 1, .period = 4});
  const auto rounds = recorder_->recording().rows;
  ASSERT_EQ(rounds.size(), 2u);
  EXPECT_EQ(rounds[1].dropped, 1);
  const RunPosition position = recorder_->position();
  EXPECT_EQ(position.reached.step, Step{8});
  EXPECT_EQ(position.reached.time, Time{std::chrono::seconds(2)});
  EXPECT_EQ(position.computed.step, Step{0}) << "only the initial model has been evaluated";
  EXPECT_EQ(position.synchronisations, 2);
  EXPECT_DOUBLE_EQ(position.latest->test_loss, 0) << "of the initial model";
  EXPECT_EQ(changes_, 3);
}

TEST(TimeOnlyRecorder, RecordsRowsWithoutEvaluation) {
  Executor executor(0);
  Training training(nullptr, nullptr, {}, executor);
  Recorder recorder(
      {.plan = {.every_steps = 2, .target_accuracy = {}, .target_loss = {}}, .defer = false, .on_change = {}},
      training);
  recorder.begin(nullptr, 0.5);
  for (int step = 1; step <= 5; ++step) {
    Publication publication;
    publication.ensemble = {nullptr, nullptr};
    publication.step = step;
    publication.samples = step;
    publication.learning_rate = 0.25;
    recorder.on_publish(publication);
  }
  recorder.finish();
  EXPECT_EQ(metrics_csv(recorder.recording().metrics),
            "step,epoch,samples,time_s,test_loss,test_accuracy,train_loss,learning_rate,communicated_bytes\n"
            "0,,0,0,,,,0.5,0\n2,,2,0,,,,0.25,0\n4,,4,0,,,,0.25,0\n5,,5,0,,,,0.25,0\n");
}

}  // namespace
}  // namespace syncopate
