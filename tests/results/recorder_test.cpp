#include "results/recorder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <condition_variable>
#include <limits>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>

#include "results/run_directory.hpp"
#include "workers/training/checkpoint_log.hpp"
#include "workers/training/executor.hpp"

namespace syncopate {
namespace {

using testing::ElementsAre;

// An objective with one parameter x. The loss is x, plus the normalisation buffer if there is one; NaN if x is
// negative. The accuracy is x / 100.
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

  // Returns the mean index of the micro-batches.
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

  double waits = -1;  // an evaluation at this x waits until one at a larger x has ended
  bool normalised = false;
  mutable std::atomic<int> evaluations{0};
  mutable std::atomic<int> statistics{0};  // number of micro-batches in requests for statistics

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

  // Returns the model with x = `value`.
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

  // Returns a publication after `step` steps, at `step` milliseconds.
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

  // Returns the test loss of the last row.
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

// Step k is published at k ms.
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
  publish(0, 0);  // a method's own publication before its first step
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
  publish(1, 1);  // its evaluation ends only after that of step 2
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
  publish(1, 1);  // its evaluation ends only after that of step 2
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
    publish(7, -1);  // not due, so only finish() evaluates it
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

using std::chrono::milliseconds;

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr float nan_float = std::numeric_limits<float>::quiet_NaN();

MetricsRow row(std::int64_t step, Time time, std::optional<Evaluation> evaluation) {
  MetricsRow row;
  row.step = step;
  row.epoch = static_cast<double>(step) / 8;
  row.samples = step * 32;
  row.time = time;
  row.evaluation = evaluation;
  row.learning_rate = 0.1;
  row.bytes = step * 1000;
  return row;
}

StepRow round_at(std::int64_t step, Time end) {
  return {.step = step, .end = end, .duration = milliseconds(70), .kept = 15, .dropped = 1, .period = 4, .bytes = 6000};
}

TEST(Recording, MetricsHaveUnitsInTheirNamesAndTheShortestExactNumbers) {
  const MetricsRow rows[] = {row(0, start_time, Evaluation{2.5, 0.1, 2.25, true}),
                             row(4, Time{milliseconds(70)}, Evaluation{1.0 / 3, 0.875, 1e-7, true})};
  EXPECT_EQ(metrics_csv(rows),
            "step,epoch,samples,time_s,test_loss,test_accuracy,train_loss,learning_rate,communicated_bytes\n"
            "0,0,0,0,2.5,0.1,2.25,0.1,0\n"
            "4,0.5,128,0.07,0.3333333333333333,0.875,1e-07,0.1,4000\n");
}

TEST(Recording, WhatDoesNotExistIsAnEmptyCell) {
  MetricsRow time_only = row(8, Time{milliseconds(1)}, {});
  time_only.epoch.reset();
  const MetricsRow rows[] = {row(8, Time{milliseconds(1)}, Evaluation{0.5, nan, 0.25, true}), time_only};
  const std::string csv = metrics_csv(rows);
  EXPECT_THAT(csv, testing::HasSubstr("\n8,1,256,0.001,0.5,,0.25,0.1,8000\n"));
  EXPECT_THAT(csv, testing::HasSubstr("\n8,,256,0.001,,,,0.1,8000\n"));
}

TEST(Recording, OfAValidatedRunHasTwoColumnsMore) {
  const MetricsRow rows[] = {row(0, start_time, Evaluation{2.5, nan, 2.25, true, 0.75, nan}),
                             row(4, Time{milliseconds(70)}, Evaluation{0.5, 0.875, 0.25, true, 0.625, 0.5}),
                             row(8, Time{milliseconds(90)}, {})};
  EXPECT_EQ(metrics_csv(rows),
            "step,epoch,samples,time_s,test_loss,test_accuracy,train_loss,learning_rate,communicated_bytes,"
            "validation_loss,validation_accuracy\n"
            "0,0,0,0,2.5,,2.25,0.1,0,0.75,\n"
            "4,0.5,128,0.07,0.5,0.875,0.25,0.1,4000,0.625,0.5\n"
            "8,1,256,0.09,,,,0.1,8000,,\n");
}

TEST(Recording, StepsHaveOneRowPerRound) {
  const StepRow rounds[] = {round_at(4, Time{milliseconds(70)}), round_at(8, Time{milliseconds(140)})};
  EXPECT_EQ(steps_csv(rounds),
            "step,time_s,duration_s,kept_micro_batches,dropped_micro_batches,period_steps,bytes\n"
            "4,0.07,0.07,15,1,4,6000\n"
            "8,0.14,0.07,15,1,4,6000\n");
}

TEST(Recording, NanosecondsPrintExactly) {
  const StepRow rounds[] = {round_at(1, Time{Duration{123'456'789'012}})};
  EXPECT_THAT(steps_csv(rounds), testing::HasSubstr("1,123.456789012,"));
}

TEST(Recording, EndsAtTheFirstModelThatIsNotFinite) {
  Recording recording;
  for (int step = 0; step < 4; ++step) {
    const bool finite = step < 2;
    recording.metrics.push_back(row(step, Time{milliseconds(step)}, Evaluation{finite ? 1 : nan, 0.1, 1, finite}));
    recording.rows.push_back(round_at(step, Time{milliseconds(step)}));
  }
  cut_after_divergence(recording);
  EXPECT_TRUE(recording.diverged);
  EXPECT_EQ(recording.metrics.size(), 3u);
  EXPECT_EQ(recording.rows.size(), 3u);
  EXPECT_THAT(metrics_csv(recording.metrics), testing::HasSubstr("\n2,0.25,64,0.002,nan,"));
}

TEST(Recording, WhatIsNotANumberHasNoSign) {
  const MetricsRow rows[] = {row(8, start_time, Evaluation{-nan, 0.5, -nan, false})};
  EXPECT_THAT(metrics_csv(rows), testing::HasSubstr("\n8,1,256,0,nan,0.5,nan,0.1,8000\n"));
}

TEST(Recording, OfFiniteModelsStaysWhole) {
  Recording recording;
  recording.metrics = {row(0, start_time, Evaluation{1, 0.1, 1, true}), row(1, start_time, {})};
  recording.rows = {round_at(1, Time{milliseconds(9)})};
  cut_after_divergence(recording);
  EXPECT_FALSE(recording.diverged);
  EXPECT_EQ(recording.metrics.size(), 2u);
  EXPECT_EQ(recording.rows.size(), 1u);
}

StoredBytes written(Recording recording) {
  StoredBytes stored;
  StateArchive(stored.sink())(recording);
  return stored;
}

Recording read(StoredBytes stored) {
  Recording recording;
  StateArchive(stored.source())(recording);
  return recording;
}

TEST(Recording, SurvivesTheWayThroughBytes) {
  Recording recording;
  recording.metrics = {row(0, start_time, Evaluation{1.0 / 3, nan, 0.1, true, 0.7, 0.3}), row(9, Time{Duration{7}}, {}),
                       row(10, Time{Duration{8}}, Evaluation{nan, 0.5, 1, false})};
  recording.metrics[1].epoch.reset();
  recording.rows = {round_at(10, Time{Duration{5'000'000'001}})};
  recording.diverged = true;
  recording.parameters = {{1.5F, -2.5F}, {3.5F, nan_float}, {}};
  const Recording copy = read(written(recording));
  EXPECT_EQ(metrics_csv(copy.metrics), metrics_csv(recording.metrics));
  EXPECT_EQ(steps_csv(copy.rows), steps_csv(recording.rows));
  EXPECT_TRUE(copy.diverged);
  EXPECT_TRUE(copy.metrics[0].evaluation->finite);
  EXPECT_FALSE(copy.metrics[2].evaluation->finite);
  ASSERT_EQ(copy.parameters.size(), 3u);
  EXPECT_EQ(copy.parameters[0], recording.parameters[0]);
  EXPECT_EQ(copy.parameters[1][0], 3.5F);
  EXPECT_TRUE(std::isnan(copy.parameters[1][1]));
  EXPECT_TRUE(copy.parameters[2].empty());
  recording.diverged = false;
  EXPECT_FALSE(read(written(recording)).diverged);
}

TEST(Recording, TruncatedBytesAreAnError) {
  StoredBytes stored = written({});
  stored.bytes.pop_back();
  EXPECT_THROW(read(std::move(stored)), std::runtime_error);
}

// Records besides a run's rows, as text: the timeline of a run made by hand, and durations of micro-batches.

using nlohmann::json;
using std::chrono::milliseconds;

Time at(int ms) { return Time{milliseconds(ms)}; }

// Returns the timeline of two workers and a server. The run continued for a second after the timeline's end.
Timeline timeline() {
  Timeline timeline;
  timeline.workers = 2;
  timeline.end = at(1500);
  timeline.until = at(500);
  timeline.capped = true;
  timeline.tracks = {{{.activity = Activity::compute,
                       .begin = at(0),
                       .end = at(200),
                       .what = "micro-batch",
                       .step = 4,
                       .micro_batch = 1,
                       .completed = true},
                      {.activity = Activity::discarded,
                       .begin = at(200),
                       .end = at(300),
                       .what = "micro-batch",
                       .step = 5,
                       .micro_batch = 0,
                       .completed = true},
                      {.activity = Activity::discarded, .begin = at(300), .end = at(500), .what = "micro-batch"}},
                     {{.activity = Activity::down, .begin = at(0), .end = at(500), .what = "outage"}},
                     {{.activity = Activity::wait, .begin = at(0), .end = at(500), .what = "receive"}}};
  return timeline;
}

const RunName title{.experiment = "e", .method = "m", .seed = 3, .hash = "0123"};

TEST(TraceEvents, EveryValueStandsUnderItsOwnName) {
  const json trace = json::parse(trace_events(timeline(), title, "mpi"));
  EXPECT_EQ(trace["otherData"], json::parse(R"({"experiment": "e", "method": "m", "seed": 3, "hash": "0123",
    "cluster": "mpi", "workers": 2, "servers": 1, "end_s": 1.5, "until_s": 0.5, "capped": true})"));
  json complete = json::array();
  std::vector<std::string> names;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] == "X") complete.push_back(event);
    if (event["ph"] == "M" && event["name"] != "thread_sort_index") names.push_back(event["args"]["name"]);
  }
  EXPECT_THAT(names, testing::ElementsAre("e: m, seed 3", "worker 0", "worker 1", "server"));
  for (json& event : complete) event.erase("cname");
  EXPECT_EQ(complete, json::parse(R"([
    {"name": "compute", "cat": "compute", "ph": "X", "pid": 1, "tid": 1, "ts": 0.0, "dur": 200000.0,
     "args": {"what": "micro-batch", "step": 4, "micro_batch": 1}},
    {"name": "discarded", "cat": "discarded", "ph": "X", "pid": 1, "tid": 1, "ts": 200000.0, "dur": 100000.0,
     "args": {"what": "micro-batch", "step": 5, "micro_batch": 0, "completed": true}},
    {"name": "discarded", "cat": "discarded", "ph": "X", "pid": 1, "tid": 1, "ts": 300000.0, "dur": 200000.0,
     "args": {"what": "micro-batch"}},
    {"name": "down", "cat": "down", "ph": "X", "pid": 1, "tid": 2, "ts": 0.0, "dur": 500000.0,
     "args": {"what": "outage"}},
    {"name": "wait", "cat": "wait", "ph": "X", "pid": 1, "tid": 3, "ts": 0.0, "dur": 500000.0,
     "args": {"what": "receive"}}])"));
}

// Each server's own thread is followed by two threads for its link.
TEST(TraceEvents, ServersLinksHaveThreadsOfTheirOwn) {
  Timeline linked = timeline();
  linked.tracks.push_back(linked.tracks.back());  // two servers
  linked.links = {
      {.in = {{at(0), at(20), Rank{1}}, {at(30), at(50), std::nullopt}}, .out = {{at(50), at(70), Rank{0}}}},
      {.in = {}, .out = {{at(1), at(2), Rank{1}}}}};
  const json trace = json::parse(trace_events(linked, title, "mpi"));
  EXPECT_EQ(trace["otherData"]["servers"], 2);
  std::vector<std::pair<int, std::string>> names;
  json of_links = json::array();
  for (json event : trace["traceEvents"]) {
    if (event["name"] == "thread_name") names.emplace_back(event["tid"], event["args"]["name"]);
    event.erase("cname");
    if (event["ph"] == "X" && event["cat"] == "link") of_links.push_back(event);
  }
  using Named = std::pair<int, std::string>;
  EXPECT_THAT(names, testing::ElementsAre(Named{1, "worker 0"}, Named{2, "worker 1"}, Named{3, "server 0"},
                                          Named{4, "server 0, in"}, Named{5, "server 0, out"}, Named{6, "server 1"},
                                          Named{7, "server 1, in"}, Named{8, "server 1, out"}));
  const auto event = [](int thread, double begin_us, double us, const char* what) {
    return json{{"name", "communicate"}, {"cat", "link"},  {"ph", "X"}, {"pid", 1},
                {"tid", thread},         {"ts", begin_us}, {"dur", us}, {"args", {{"what", what}}}};
  };
  EXPECT_EQ(of_links, json::array({event(4, 0, 20e3, "from worker 1"), event(4, 30e3, 20e3, "collective"),
                                   event(5, 50e3, 20e3, "to worker 0"), event(8, 1e3, 1e3, "to worker 1")}));
}

TEST(TraceEvents, OfSeveralServersEachHasItsNumber) {
  Timeline with_two = timeline();
  with_two.tracks.push_back(with_two.tracks.back());
  const std::string text = trace_events(with_two, title, "mpi");
  for (const char* name : {"\"worker 1\"", "\"server 0\"", "\"server 1\""}) EXPECT_THAT(text, testing::HasSubstr(name));
}

TEST(DurationsCsv, AreInTheOrderOfWorkersStepsAndMicroBatches) {
  const auto time = [](int worker, int step, int index, std::int64_t ns, std::int64_t added_ns) {
    return MicroBatchTime{Rank{worker}, Step{step}, index, Duration{ns}, Duration{added_ns}};
  };
  EXPECT_EQ(durations_csv({time(1, 0, 0, 5, 0), time(0, 1, 0, 1'000'000'007, 20'000'000), time(0, 0, 1, 3, 2),
                           time(0, 0, 0, 12'345'678'901, 999'999'999)}),
            "worker,step,micro_batch,duration_s,added_s\n"
            "0,0,0,12.345678901,0.999999999\n"
            "0,0,1,0.000000003,0.000000002\n"
            "0,1,0,1.000000007,0.020000000\n"
            "1,0,0,0.000000005,0.000000000\n");
}

// Workers' own models at multiples of an interval, made by hand.

using std::chrono::seconds;
using testing::ElementsAre;
using testing::Pair;

class TwoWorkers : public testing::Test {
 protected:
  // A worker's step ends at `at_s`. Adds its model if this is wanted, and returns whether it was.
  bool step(int worker, int number, int at_s) {
    WorkerModel model{.worker = Rank{worker}, .step = number, .time = Time{seconds(at_s)}};
    if (!models_.wants(model.worker, model.time)) return false;
    models_.add(std::move(model));
    return true;
  }
  // Returns the steps of the next models by worker; empty if a worker has no such model yet.
  std::map<int, std::int64_t> next() {
    std::map<int, std::int64_t> steps;
    if (const auto first = models_.take_first())
      for (const auto& [worker, model] : *first) steps[worker.value] = model.step.value();
    return steps;
  }

  ModelsByTime models_{2, seconds(10)};
};

TEST_F(TwoWorkers, OfEachTheFirstStepAtOrAfterEachMultipleIsWanted) {
  EXPECT_FALSE(step(0, 1, 4));
  EXPECT_FALSE(step(0, 2, 9));
  EXPECT_TRUE(step(0, 3, 10));  // exactly at the multiple
  EXPECT_FALSE(step(0, 4, 19));
  EXPECT_TRUE(step(0, 5, 45)) << "it is the first after 20, 30 and 40";
  EXPECT_FALSE(step(0, 6, 49));
  EXPECT_TRUE(step(1, 1, 11)) << "each by its own clock";
}

TEST_F(TwoWorkers, TheyAreThereOnceTheSlowestIs) {
  step(0, 3, 10);
  step(0, 5, 20);
  EXPECT_THAT(next(), ElementsAre());
  step(1, 1, 13);
  EXPECT_THAT(next(), ElementsAre(Pair(0, 3), Pair(1, 1)));
  EXPECT_THAT(next(), ElementsAre()) << "worker 1 has none at 20";
  step(1, 2, 24);
  EXPECT_THAT(next(), ElementsAre(Pair(0, 5), Pair(1, 2)));
}

// Worker 1's first step ends at 35 s, and gives its first model after 10, 20 and 30 s. So this model is evaluated for
// 10 s, and no models are evaluated for 20 and 30 s.
TEST_F(TwoWorkers, MultiplesUpToTheLatestOfThemArePassedWithIt) {
  for (const int at_s : {10, 20, 30, 40}) step(0, at_s / 10, at_s);
  step(1, 1, 35);
  EXPECT_THAT(next(), ElementsAre(Pair(0, 1), Pair(1, 1)));
  EXPECT_THAT(next(), ElementsAre());
  step(1, 2, 41);
  EXPECT_THAT(next(), ElementsAre(Pair(0, 4), Pair(1, 2))) << "at 40";
}

TEST_F(TwoWorkers, ThereAreNoMoreOnceOneHasEndedWithoutOne) {
  step(0, 1, 12);
  step(0, 2, 22);
  step(0, 3, 32);
  step(1, 1, 11);
  step(1, 2, 20);
  models_.end(Rank{1});
  EXPECT_THAT(next(), ElementsAre(Pair(0, 1), Pair(1, 1)));
  EXPECT_THAT(next(), ElementsAre(Pair(0, 2), Pair(1, 2))) << "from before its end";
  EXPECT_THAT(next(), ElementsAre());
  EXPECT_FALSE(step(0, 4, 40)) << "nothing is kept any more";
  EXPECT_TRUE(models_.take_all().empty());
}

TEST_F(TwoWorkers, AllThatAreLeftCanBeTakenAtOnce) {
  step(0, 1, 12);
  step(1, 1, 11);
  step(0, 2, 25);
  EXPECT_EQ(models_.take_all().size(), 3u);
  EXPECT_TRUE(models_.take_all().empty());
}

}  // namespace
}  // namespace syncopate
