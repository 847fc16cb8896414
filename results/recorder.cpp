#include "results/rows/recorder.hpp"

#include <algorithm>
#include <utility>

namespace syncopate {
namespace {

// Weighted, by weights that need not sum to 1.
ModelStatePtr mean_of(std::vector<WeightedState> models, Training& training) {
  double sum = 0;
  for (const WeightedState& model : models) sum += model.weight;
  for (WeightedState& model : models) model.weight /= sum;
  return training.combine(models);
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
    : options_(std::move(options)),
      training_(training),
      evaluated_(training),
      measurements_(options_.measurements, options_.workers, options_.defer, training, evaluated_.sink()),
      own_models_(options_.workers) {
  if (options_.plan.every_duration > Duration{})
    own_models_by_time_.emplace(options_.workers, options_.plan.every_duration);
}

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
  const Training::AskedBy all(training_, ProcessSet::everywhere());
  if (training_.is_divided())
    evaluated_.check_earlier();
  else
    evaluated_.check();
  take_in(publication);
  measurements_.publish(publication);
  if (options_.on_change) options_.on_change();
}

void Recorder::on_first_rate(double learning_rate) { evaluated_.set_first_rate(learning_rate); }

bool Recorder::wants_step_gradient(Step step) const { return measurements_.wants_step_gradient(step); }

void Recorder::on_step_gradient(Step step, Time time, const Gradient& gradient) {
  const Training::AskedBy all(training_, ProcessSet::everywhere());
  measurements_.add_step_gradient(step, time, gradient);
}

bool Recorder::wants_worker_models(Step step) const { return measurements_.wants_worker_models(step); }

void Recorder::on_worker_model(OwnModel&& model) {
  const Training::AskedBy all(training_, ProcessSet::everywhere());
  measurements_.add_worker_model(std::move(model));
}

bool Recorder::wants_own_models(Step step) const {
  if (own_models_by_time_) return true;  // it is of the time which of them are kept
  const std::int64_t every = options_.plan.every_steps.value();
  return every > 0 && step.value() % every == 0;
}

void Recorder::on_own_model(OwnModel&& model) {
  const Training::AskedBy all(training_, ProcessSet::everywhere());
  if (!own_models_by_time_)
    own_models_.add(std::move(model));
  else if (own_models_by_time_->wants(model.worker, model.time))
    own_models_by_time_->add(std::move(model));
  if (!options_.defer) take_in_own_models();
}

void Recorder::on_own_models_end(Rank worker) {
  const Training::AskedBy all(training_, ProcessSet::everywhere());
  own_models_.end(worker);
  if (own_models_by_time_) own_models_by_time_->end(worker);
  measurements_.end(worker);
  if (!options_.defer) take_in_own_models();
  if (!options_.defer) measurements_.take_in_worker_models();
}

std::optional<std::map<Rank, OwnModel>> Recorder::take_first_own_models() {
  return own_models_by_time_ ? own_models_by_time_->take_first() : own_models_.take_first();
}

std::vector<OwnModel> Recorder::take_own_models() {
  if (own_models_by_time_) return own_models_by_time_->take_all();
  std::vector<OwnModel> all;
  while (auto models = own_models_.take_first(true))
    for (auto& [worker, model] : *models) all.push_back(std::move(model));
  return all;
}

void Recorder::take_in_own_models() {
  while (const auto models = take_first_own_models()) {
    Publication publication = as_publication(*models);
    if (publication.step <= newest_step_) continue;  // of workers that went on after the last model of all
    publication.time = std::max(publication.time, newest_time_);
    if (!publication.own.models.empty()) publication.model = mean_of(publication.own.models, training_);
    on_publish(publication);
  }
}

void Recorder::add(MetricsRow row, std::optional<double> consensus_distance) {
  evaluated_.insert(row, consensus_distance);
}

void Recorder::take_in(const Publication& publication) {
  const Step step = publication.step;
  const Time time = publication.time;
  newest_step_ = step;
  newest_time_ = time;
  position_.reached = {std::max(position_.reached.step, step), std::max(position_.reached.time, time),
                       publication.samples, publication.bytes};
  // Where a step of the file is several of the method's, a later model may bear the same number.
  const bool is_newer = step > recorded_step_ || (step == recorded_step_ && time > recorded_time_);
  if (is_newer) {
    EvaluatedRows::Asked asked{.row = row_of(publication)};
    if (!training_.time_only()) {
      asked.models = models_of(publication);
      asked.recalibration = publication.recalibration;
      asked.own = publication.own;
    }
    if (options_.keep_parameters) {
      last_models_ = asked.models;
      last_recalibration_ = asked.recalibration;
    }
    last_.reset();
    if (due(step, time)) {
      record(std::move(asked));
    } else {
      last_ = std::move(asked);
    }
  }
}

MetricsRow Recorder::row_of(const Publication& publication) const {
  MetricsRow row;
  row.step = publication.step;
  row.epoch = epoch(static_cast<double>(publication.step.value()) + publication.surplus_steps);
  row.samples = publication.samples;
  row.time = publication.time;
  row.learning_rate = publication.learning_rate;
  row.bytes = publication.bytes;
  return row;
}

// The first publication, and the first one at or after each multiple of the interval.
bool Recorder::due(Step step, Time time) const {
  if (recorded_step_ < Step{0}) return true;
  if (const Duration every = options_.plan.every_duration; every > Duration{})
    return time.time_since_epoch() / every > recorded_time_.time_since_epoch() / every;
  const std::int64_t every = options_.plan.every_steps.value();
  return every > 0 && step.value() / every > recorded_step_.value() / every;
}

std::optional<double> Recorder::epoch(double steps) const {
  const std::int64_t steps_per_epoch = training_.time_only() ? 0 : training_.objective().steps_per_epoch();
  if (steps_per_epoch == 0) return {};
  return steps / static_cast<double>(steps_per_epoch);
}

void Recorder::record(EvaluatedRows::Asked asked) {
  recorded_step_ = asked.row.step;
  recorded_time_ = asked.row.time;
  const std::size_t index = evaluated_.add(std::move(asked));
  if (!options_.defer) evaluated_.evaluate(index);
}

void Recorder::finish() {
  if (last_) record(*std::exchange(last_, std::nullopt));
  evaluated_.set_listener(options_.on_change);
  try {
    evaluated_.evaluate_all();
    measurements_.finish();
    training_.executor().wait_all();
    for (const ModelStatePtr& last : last_models_) {
      const ModelStatePtr model = training_.recalibrated(last, last_recalibration_);  // as it was evaluated
      parameters_.push_back(training_.values(model));
      if (model->buffers) buffers_.push_back(training_.buffer_values(model));
    }
    if (training_.is_divided()) training_.executor().wait_all();  // others may need what is here
  } catch (...) {
    evaluated_.set_listener(nullptr);
    throw;
  }
  evaluated_.set_listener(nullptr);
}

Recording Recorder::recording() const {
  Recording recording{.metrics = {}, .rows = rows_, .parameters = parameters_, .buffers = buffers_};
  evaluated_.write_to(recording);
  cut_after_divergence(recording);
  return recording;
}

RunPosition Recorder::position() const {
  RunPosition position = position_;
  const bool lags = !options_.defer && !training_.time_only();
  if (!lags) position.computed = position.reached;
  if (const auto latest = evaluated_.latest()) {
    position.latest = latest->evaluation;
    if (lags) position.computed = {latest->step, latest->time, latest->samples, latest->bytes};
  }
  return position;
}

}  // namespace syncopate
