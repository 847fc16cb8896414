#include "results/rows/recorder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>

namespace syncopate {

struct Recorder::Entries {
  void store(std::size_t index, const Evaluation& evaluation);

  std::mutex mutex;
  std::deque<Entry> all;                  // does not move its elements when it grows
  std::vector<Measurement> measurements;  // as they come
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

// After own steps, before the workers mix what they have; and of the models that are evaluated, often after that.
constexpr const char* consensus_distance_name = "consensus_distance";
constexpr const char* evaluated_consensus_distance_name = "evaluated_consensus_distance";

// Weighted, by weights that need not sum to 1.
ModelStatePtr mean_of(std::vector<WeightedState> models, Training& training) {
  double sum = 0;
  for (const WeightedState& model : models) sum += model.weight;
  for (WeightedState& model : models) model.weight /= sum;
  return training.combine(models);
}

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
    : options_(std::move(options)),
      training_(training),
      own_models_(options_.workers),
      worker_models_(options_.workers),
      entries_(std::make_shared<Entries>()) {
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
    check_earlier_evaluations();
  else
    check_evaluations();
  take_in(publication);
  measure(publication);
  if (options_.on_change) options_.on_change();
}

// Throws where one of those that have ended has shown that the model is not finite.
void Recorder::check_evaluations() const {
  const std::lock_guard lock(entries_->mutex);
  if (entries_->diverged_at)
    throw Diverged(fmt::format("the model is not finite after step {}", entries_->diverged_at->value()));
}

// Processes that divide the work must end at the same publication, however fast each is: where a model is to be
// evaluated, the evaluations before the last one are waited for.
void Recorder::check_earlier_evaluations() {
  for (; checked_ + 1 < evaluations_.size(); ++checked_) {
    for (const auto& task : std::exchange(evaluations_[checked_], {})) training_.executor().wait(task);
    const std::lock_guard lock(entries_->mutex);
    const MetricsRow& row = entries_->all[checked_].row;
    if (row.evaluation && !row.evaluation->finite)
      throw Diverged(fmt::format("the model is not finite after step {}", row.step.value()));
  }
}

void Recorder::on_first_rate(double learning_rate) {
  const std::lock_guard lock(entries_->mutex);
  if (!entries_->all.empty()) entries_->all.front().row.learning_rate = learning_rate;
}

// Of worker 0 and a server the one steps that the other does not; whoever comes first to a step is told of.
bool Recorder::wants_step_gradient(Step step) const {
  const MeasurementPlan& plan = options_.measurements;
  return plan.step_gradient_norm && step.value() % plan.every_steps.value() == 0 && step > measured_gradient_;
}

void Recorder::on_step_gradient(Step step, Time time, const Gradient& gradient) {
  const Training::AskedBy all(training_, ProcessSet::everywhere());
  measured_gradient_ = step;
  training_.measure_norm(gradient, [entries = entries_, step, time](double norm) {
    const std::lock_guard lock(entries->mutex);
    entries->measurements.push_back({step, time, "step_gradient_norm", norm});
  });
}

bool Recorder::wants_worker_models(Step step) const {
  const MeasurementPlan& plan = options_.measurements;
  return plan.consensus_distance && step.value() % plan.every_steps.value() == 0;
}

void Recorder::on_worker_model(OwnModel&& model) {
  const Training::AskedBy all(training_, ProcessSet::everywhere());
  worker_models_.add(std::move(model));
  take_in_worker_models();
}

void Recorder::take_in_worker_models() {
  while (const auto models = worker_models_.take_first()) {
    Publication all = as_publication(*models);
    training_.measure_spread(std::move(all.own.models),
                             [entries = entries_, step = all.step, time = all.time](double spread) {
                               const std::lock_guard lock(entries->mutex);
                               entries->measurements.push_back({step, time, consensus_distance_name, spread});
                             });
  }
}

// The first publication, and the first one at or after each multiple of the interval. An ensemble has no model.
void Recorder::measure(const Publication& publication) {
  const MeasurementPlan& plan = options_.measurements;
  if (!plan.model.any() || training_.time_only() || !publication.ensemble.empty()) return;
  const std::int64_t every = plan.every_steps.value();
  const bool is_due = measured_step_ < Step{0} || publication.step.value() / every > measured_step_.value() / every;
  if (!is_due) return;
  measured_step_ = publication.step;
  ModelStatePtr model = without_moments(publication.model);
  if (!publication.recalibration.empty()) model = training_.recalibrated(model, publication.recalibration);
  if (options_.defer)
    to_be_measured_.emplace_back(publication.step, publication.time, std::move(model));
  else
    measure(publication.step, publication.time, model);
}

void Recorder::measure(Step step, Time time, const ModelStatePtr& model) {
  training_.measure(model, options_.measurements.model, [entries = entries_, step, time](const ModelMeasures& found) {
    const std::lock_guard lock(entries->mutex);
    for (const auto& [quantity, value] :
         {std::pair("gradient_norm", found.gradient_norm), std::pair("gradient_variance", found.gradient_variance),
          std::pair("noise_scale", found.noise_scale), std::pair("hessian_trace", found.hessian_trace),
          std::pair("largest_eigenvalue", found.largest_eigenvalue), std::pair("parameter_norm", found.parameter_norm)})
      if (value) entries->measurements.push_back({step, time, quantity, *value});
  });
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
  worker_models_.end(worker);
  if (!options_.defer) take_in_own_models();
  if (!options_.defer) take_in_worker_models();
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

// Before those of later steps, none of which has been evaluated yet.
void Recorder::add(MetricsRow row, std::optional<double> consensus_distance) {
  const std::lock_guard lock(entries_->mutex);
  if (row.evaluation && !row.evaluation->finite && !entries_->diverged_at) entries_->diverged_at = row.step;
  if (consensus_distance)
    entries_->measurements.push_back({row.step, row.time, evaluated_consensus_distance_name, *consensus_distance});
  const auto later = std::find_if(entries_->all.begin(), entries_->all.end(),
                                  [&row](const Entry& entry) { return entry.row.step > row.step; });
  entries_->all.insert(later, {.row = row, .models = {}, .recalibration = {}, .own = {}, .done = true});
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
    Entry entry{
        .row = row_of(publication), .models = {}, .recalibration = {}, .own = {}, .done = training_.time_only()};
    if (!training_.time_only()) {
      entry.models = models_of(publication);
      entry.recalibration = publication.recalibration;
      entry.own = publication.own;
    }
    if (options_.keep_parameters) last_models_ = entry.models;
    last_.reset();
    if (due(step, time)) {
      record(std::move(entry));
    } else {
      last_ = std::move(entry);
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
  ModelsOfWorkers own;
  {
    const std::lock_guard lock(entries_->mutex);
    models.swap(entries_->all[index].models);
    recalibration.swap(entries_->all[index].recalibration);
    std::swap(own, entries_->all[index].own);
  }
  if (models.empty()) return;  // time-only, or already asked for
  if (!own.models.empty()) {
    training_.measure_spread(own.models, [entries = entries_, index](double spread) {
      const std::lock_guard lock(entries->mutex);
      const MetricsRow& row = entries->all[index].row;
      entries->measurements.push_back({row.step, row.time, evaluated_consensus_distance_name, spread});
    });
    if (own.evaluated == OwnModels::each) return evaluate_each(own.models, index);
  }
  if (!recalibration.empty()) {
    for (ModelStatePtr& model : models) model = training_.recalibrated(model, recalibration);
  }
  // The callback shares the entries, because an evaluation may end after a failed run's recorder is gone.
  const auto done = [entries = entries_, index](const Evaluation& evaluation) {
    entries->store(index, evaluation);
    const std::lock_guard lock(entries->call);
    if (entries->on_evaluated) entries->on_evaluated();
  };
  keep_evaluations({training_.evaluate(std::move(models), done)});
}

void Recorder::keep_evaluations(std::vector<std::shared_ptr<Task>> tasks) {
  if (training_.is_divided()) evaluations_.push_back(std::move(tasks));
}

void Recorder::evaluate_each(const std::vector<WeightedState>& models, std::size_t index) {
  struct Parts {
    std::mutex mutex;
    std::vector<std::optional<Evaluation>> all;
    std::size_t missing;
  };
  const auto parts = std::make_shared<Parts>();
  parts->all.resize(models.size());
  parts->missing = models.size();
  std::vector<std::shared_ptr<Task>> tasks;
  for (std::size_t i = 0; i < models.size(); ++i) {
    const auto done = [entries = entries_, parts, i, index](const Evaluation& evaluation) {
      std::vector<Evaluation> whole;
      {
        const std::lock_guard lock(parts->mutex);
        parts->all[i] = evaluation;
        if (--parts->missing > 0) return;
        for (const auto& part : parts->all) whole.push_back(*part);
      }
      entries->store(index, mean_of(whole));
      const std::lock_guard lock(entries->call);
      if (entries->on_evaluated) entries->on_evaluated();
    };
    tasks.push_back(training_.evaluate({models[i].state}, done));
  }
  keep_evaluations(std::move(tasks));
}

void Recorder::finish() {
  if (last_) record(*std::exchange(last_, std::nullopt));
  set_listener(options_.on_change);
  try {
    const std::size_t recorded = entries_->all.size();  // only this thread adds to them
    for (std::size_t index = 0; index < recorded; ++index) evaluate(index);
    for (const auto& [step, time, model] : std::exchange(to_be_measured_, {})) measure(step, time, model);
    training_.executor().wait_all();
    for (const ModelStatePtr& model : last_models_) {
      parameters_.push_back(training_.values(model));
      if (model->buffers) buffers_.push_back(training_.buffer_values(model));
    }
    if (training_.is_divided()) training_.executor().wait_all();  // others may need what is here
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
  Recording recording{.metrics = {}, .rows = rows_, .parameters = parameters_, .buffers = buffers_};
  {
    const std::lock_guard lock(entries_->mutex);
    for (const Entry& entry : entries_->all) {
      if (entry.done) recording.metrics.push_back(entry.row);
    }
    recording.measurements = entries_->measurements;
  }
  std::stable_sort(recording.measurements.begin(), recording.measurements.end(),
                   [](const Measurement& a, const Measurement& b) {
                     return std::tie(a.step, a.time, a.quantity) < std::tie(b.step, b.time, b.quantity);
                   });
  cut_after_divergence(recording);
  return recording;
}

Recorder::Evaluated Recorder::evaluated() const {
  Evaluated evaluated;
  const std::lock_guard lock(entries_->mutex);
  for (const Entry& entry : entries_->all) evaluated.entries.push_back(entry.row.evaluation.value());
  evaluated.measurements = entries_->measurements;
  return evaluated;
}

bool Recorder::take_up(const Evaluated& before) {
  {
    const std::lock_guard lock(entries_->mutex);
    if (entries_->all.size() != before.entries.size()) return false;
    entries_->measurements = before.measurements;
  }
  for (std::size_t index = 0; index < before.entries.size(); ++index) entries_->store(index, before.entries[index]);
  return true;
}

bool Recorder::has_diverged() const {
  const std::lock_guard lock(entries_->mutex);
  return entries_->diverged_at.has_value();
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
