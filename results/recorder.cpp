#include "results/recorder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <utility>

namespace syncopate {

struct Recorder::Entries {
  void store(std::size_t index, const Evaluation& evaluation);

  std::mutex mutex;
  std::deque<Entry> all;  // does not move its elements when it grows
  std::optional<Step> diverged_at;
  std::optional<MetricsRow> latest;    // the newest model that has been evaluated
  std::mutex call;                     // held during calls of, and changes to:
  std::function<void()> on_evaluated;  // set while finish() waits
};

void Recorder::Entries::store(std::size_t index, const Evaluation& evaluation) {
  const std::lock_guard lock(mutex);
  Entry& entry = all[index];
  entry.row.evaluation = evaluation;
  entry.done = true;
  const Step step = entry.row.step;
  if (!evaluation.finite && (!diverged_at || step < *diverged_at)) diverged_at = step;
  if (!latest || step > latest->step) latest = entry.row;
}

namespace {

// The part that an evaluation reads. Moments are not held, so that the optimizer may go on in place.
ModelStatePtr without_moments(const ModelStatePtr& state) {
  if (!state) return nullptr;
  auto evaluated = std::make_shared<ModelState>(*state);
  evaluated->moments = {};
  return evaluated;
}

}  // namespace

Recorder::Recorder(Options options, const LearningRate& learning_rate, Training& training)
    : options_(std::move(options)),
      learning_rate_(learning_rate),
      training_(training),
      entries_(std::make_shared<Entries>()) {}

void Recorder::begin(const ModelStatePtr& initial) { on_publish(initial, Step{0}, start_time, 0, Bytes{}); }

void Recorder::on_round(const Round& round) {
  rounds_.push_back(round);
  position_.reached.step = std::max(position_.reached.step, round.step);
  position_.reached.time = std::max(position_.reached.time, round.end);
  ++position_.synchronisations;
  if (options_.on_change) options_.on_change();
}

void Recorder::on_publish(const ModelStatePtr& state, Step step, Time time, std::int64_t samples, Bytes bytes) {
  {
    const std::lock_guard lock(entries_->mutex);
    if (entries_->diverged_at) {
      throw Diverged(fmt::format("the model is not finite after step {}", entries_->diverged_at->value()));
    }
  }
  position_.reached = {std::max(position_.reached.step, step), std::max(position_.reached.time, time), samples, bytes};
  if (step > recorded_step_) {
    Entry entry;
    entry.row.step = step;
    entry.row.epoch = epoch(step);
    entry.row.samples = samples;
    entry.row.time = time;
    entry.row.learning_rate = learning_rate_.at(step);
    entry.row.bytes = bytes;
    entry.state = without_moments(state);
    entry.done = training_.time_only();
    last_.reset();
    if (due(step)) {
      record(std::move(entry));
    } else {
      last_ = std::move(entry);
    }
  }
  if (options_.on_change) options_.on_change();
}

// The first publication, and the first one at or after each multiple of the interval.
bool Recorder::due(Step step) const {
  if (recorded_step_ < Step{0}) return true;
  const std::int64_t every = options_.plan.every_steps.value();
  return every > 0 && step.value() / every > recorded_step_.value() / every;
}

std::optional<double> Recorder::epoch(Step step) const {
  const std::int64_t steps = training_.time_only() ? 0 : training_.objective().steps_per_epoch();
  if (steps == 0) return {};
  return static_cast<double>(step.value()) / static_cast<double>(steps);
}

void Recorder::record(Entry entry) {
  recorded_step_ = entry.row.step;
  std::size_t index = 0;
  {
    const std::lock_guard lock(entries_->mutex);
    index = entries_->all.size();
    entries_->all.push_back(std::move(entry));
  }
  if (!options_.defer) evaluate(index);
}

void Recorder::evaluate(std::size_t index) {
  ModelStatePtr state;
  {
    const std::lock_guard lock(entries_->mutex);
    state = std::exchange(entries_->all[index].state, nullptr);
  }
  if (!state) return;  // time-only, or already asked for
  // The callback shares the entries, because an evaluation may end after a failed run's recorder is gone.
  training_.evaluate(state, [entries = entries_, index](const Evaluation& evaluation) {
    entries->store(index, evaluation);
    const std::lock_guard lock(entries->call);
    if (entries->on_evaluated) entries->on_evaluated();
  });
}

void Recorder::finish() {
  if (last_) record(*std::exchange(last_, std::nullopt));
  set_listener(options_.on_change);
  try {
    const std::size_t recorded = entries_->all.size();  // only this thread adds to them
    for (std::size_t index = 0; index < recorded; ++index) evaluate(index);
    training_.executor().wait_all();
  } catch (...) {
    set_listener(nullptr);
    throw;
  }
  set_listener(nullptr);
}

void Recorder::set_listener(std::function<void()> listener) {
  const std::lock_guard lock(entries_->call);
  entries_->on_evaluated = std::move(listener);
}

Recording Recorder::recording() const {
  Recording recording{.metrics = {}, .rounds = rounds_};
  {
    const std::lock_guard lock(entries_->mutex);
    for (const Entry& entry : entries_->all) {
      if (entry.done) recording.metrics.push_back(entry.row);
    }
  }
  cut_after_divergence(recording);
  return recording;
}

RunPosition Recorder::position() const {
  RunPosition position = position_;
  const std::lock_guard lock(entries_->mutex);
  const bool lags = !options_.defer && !training_.time_only();
  if (!lags) position.computed = position.reached;
  if (entries_->latest) {
    const MetricsRow& row = *entries_->latest;
    position.latest = row.evaluation;
    if (lags) position.computed = {row.step, row.time, row.samples, row.bytes};
  }
  return position;
}

}  // namespace syncopate
