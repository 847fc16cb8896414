#include "results/rows/recorder.hpp"

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
  std::optional<MetricsRow> latest;  // the newest model that has been evaluated
  std::size_t latest_index = 0;
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
  if (latest && index < latest_index) return;
  latest = entry.row;
  latest_index = index;
}

namespace {

// The part that an evaluation reads. Moments are not held, so that the optimizer may go on in place.
ModelStatePtr without_moments(const ModelStatePtr& state) {
  auto evaluated = std::make_shared<ModelState>(*state);
  evaluated->moments = {};
  return evaluated;
}

// The members of the ensemble, or the one model.
std::vector<ModelStatePtr> models_of(const Publication& publication) {
  std::vector<ModelStatePtr> models = publication.ensemble;
  if (models.empty()) models.push_back(publication.model);
  std::transform(models.begin(), models.end(), models.begin(), without_moments);
  return models;
}

}  // namespace

Recorder::Recorder(Options options, Training& training)
    : options_(std::move(options)), training_(training), entries_(std::make_shared<Entries>()) {}

void Recorder::begin(const ModelStatePtr& initial, double learning_rate) {
  Publication publication{.model = initial};
  publication.learning_rate = learning_rate;
  on_publish(publication);
}

void Recorder::on_row(const StepRow& row) {
  rows_.push_back(row);
  position_.reached.step = std::max(position_.reached.step, row.step);
  position_.reached.time = std::max(position_.reached.time, row.end);
  ++position_.synchronisations;
  if (options_.on_change) options_.on_change();
}

void Recorder::on_publish(const Publication& publication) {
  {
    const std::lock_guard lock(entries_->mutex);
    if (entries_->diverged_at) {
      throw Diverged(fmt::format("the model is not finite after step {}", entries_->diverged_at->value()));
    }
  }
  const Step step = publication.step;
  const Time time = publication.time;
  position_.reached = {std::max(position_.reached.step, step), std::max(position_.reached.time, time),
                       publication.samples, publication.bytes};
  // Where a step of the file is several of the method's, a later model may bear the same number.
  const bool is_newer = step > recorded_step_ || (step == recorded_step_ && time > recorded_time_);
  if (is_newer) {
    Entry entry{.row = row_of(publication), .models = {}, .recalibration = {}, .done = training_.time_only()};
    if (!training_.time_only()) {
      entry.models = models_of(publication);
      entry.recalibration = publication.recalibration;
    }
    if (options_.keep_parameters) last_models_ = entry.models;
    last_.reset();
    if (due(step)) {
      record(std::move(entry));
    } else {
      last_ = std::move(entry);
    }
  }
  if (options_.on_change) options_.on_change();
}

MetricsRow Recorder::row_of(const Publication& publication) const {
  MetricsRow row;
  row.step = publication.step;
  row.epoch = epoch(publication.step);
  row.samples = publication.samples;
  row.time = publication.time;
  row.learning_rate = publication.learning_rate;
  row.bytes = publication.bytes;
  return row;
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
  recorded_time_ = entry.row.time;
  std::size_t index = 0;
  {
    const std::lock_guard lock(entries_->mutex);
    index = entries_->all.size();
    entries_->all.push_back(std::move(entry));
  }
  if (!options_.defer) evaluate(index);
}

void Recorder::evaluate(std::size_t index) {
  std::vector<ModelStatePtr> models;
  std::vector<MicroBatch> recalibration;
  {
    const std::lock_guard lock(entries_->mutex);
    models.swap(entries_->all[index].models);
    recalibration.swap(entries_->all[index].recalibration);
  }
  if (models.empty()) return;  // time-only, or already asked for
  if (!recalibration.empty()) {
    for (ModelStatePtr& model : models) model = training_.recalibrated(model, recalibration);
  }
  // The callback shares the entries, because an evaluation may end after a failed run's recorder is gone.
  training_.evaluate(std::move(models), [entries = entries_, index](const Evaluation& evaluation) {
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
    for (const ModelStatePtr& model : last_models_) parameters_.push_back(training_.values(model));
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
  Recording recording{.metrics = {}, .rows = rows_, .parameters = parameters_};
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
