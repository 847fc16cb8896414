#include "results/recorder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <mutex>
#include <set>
#include <tuple>

#include "results/summary.hpp"
#include "workers/training/checkpoint_log.hpp"

namespace syncopate {

namespace {

// Calls visit(k, arrival) for each arrival, the k-th of its round. k counts from 1.
template <typename Visit>
void visit_rounds(std::span<const GradientArrival> arrivals, const Visit& visit) {
  std::size_t k = 0;
  for (std::size_t i = 0; i < arrivals.size(); ++i) {
    const bool begins =
        i == 0 || arrivals[i].round_begin != arrivals[i - 1].round_begin || arrivals[i].step != arrivals[i - 1].step;
    k = begins ? 1 : k + 1;
    visit(k, arrivals[i]);
  }
}

constexpr const char* evaluated_consensus_distance_name = "evaluated_consensus_distance";

// Makes one publication of the workers' own models. It has the largest step, and the time and counts of the latest
// model. It contains no models in time-only runs. The mean model is not filled in.
Publication as_publication(const std::map<Rank, WorkerModel>& models) {
  Publication publication;
  for (const auto& [worker, own] : models) {
    if (own.model) publication.own.models.push_back({own.weight, own.model});
    publication.own.evaluated = own.evaluated;
    publication.step = std::max(publication.step, own.step);
    if (own.time < publication.time) continue;
    publication.time = own.time;
    publication.samples = own.samples;
    publication.bytes = own.bytes;
    publication.learning_rate = own.learning_rate;
  }
  return publication;
}

// The weighted mean of the models. Weights need not sum to 1.
ModelStatePtr mean_of(std::vector<WeightedState> models, Training& training) {
  double sum = 0;
  for (const WeightedState& model : models) sum += model.weight;
  for (WeightedState& model : models) model.weight /= sum;
  return training.combine(models);
}

// A copy of the state without the optimizer's moments, which evaluations do not need. So the optimizer can update the
// moments in place.
ModelStatePtr without_moments(const ModelStatePtr& state) {
  auto evaluated = std::make_shared<ModelState>(*state);
  evaluated->moments = {};
  return evaluated;
}

std::vector<ModelStatePtr> models_of(const Publication& publication) {
  std::vector<ModelStatePtr> models = publication.ensemble;
  if (models.empty()) models.push_back(publication.model);
  std::ranges::transform(models, models.begin(), without_moments);
  return models;
}

std::string cell(std::optional<double> value) {
  if (value && std::isnan(*value)) return "nan";  // never "-nan", because the sign depends on the machine
  return value ? fmt::format("{}", *value) : "";
}

}  // namespace

std::vector<GradientArrival> in_order(std::vector<GradientArrival> arrivals) {
  std::ranges::stable_sort(arrivals, {}, [](const GradientArrival& arrival) {
    return std::tuple(arrival.round_begin, arrival.step, arrival.since, arrival.worker);
  });
  return arrivals;
}

std::vector<MeanArrival> mean_arrivals(std::span<const GradientArrival> arrivals) {
  std::vector<MeanArrival> means;
  visit_rounds(arrivals, [&](std::size_t k, const GradientArrival& arrival) {
    if (means.size() < k) means.resize(k);
    means[k - 1].mean_s += exact_seconds(arrival.since);
    ++means[k - 1].rounds;
  });
  for (MeanArrival& mean : means) mean.mean_s /= static_cast<double>(mean.rounds);
  return means;
}

std::string arrivals_csv(std::span<const GradientArrival> arrivals) {
  std::string text = "step,k,worker,arrival_s\n";
  visit_rounds(arrivals, [&](std::size_t k, const GradientArrival& arrival) {
    fmt::format_to(std::back_inserter(text), "{},{},{},{}\n", arrival.step.value(), k, arrival.worker.value,
                   exact_seconds(arrival.since));
  });
  return text;
}

// Rows of metrics.csv in the order of their requests, and measurements. The executor fills in both after evaluations,
// some of which may outlive the recorder of a failed run.
struct Recorder::Shared {
  struct Entry {
    Asked asked;
    bool done = false;
  };

  void store(std::size_t index, const Evaluation& evaluation) {
    const std::lock_guard lock(mutex);
    Entry& entry = all[index];
    entry.asked.row.evaluation = evaluation;
    entry.done = true;
    const Step step = entry.asked.row.step;
    if (!evaluation.finite && (!diverged_at || step < *diverged_at)) diverged_at = step;
    if (latest && index < latest_index) return;
    latest = entry.asked.row;
    latest_index = index;
  }

  void store_and_notify(std::size_t index, const Evaluation& evaluation) {
    store(index, evaluation);
    const std::lock_guard lock(call);
    if (on_evaluated) on_evaluated();
  }

  void note(Measurement measurement) {
    const std::lock_guard lock(mutex);
    measurements.push_back(std::move(measurement));
  }

  // `listener`: called after each evaluation, by one thread at a time; may be null.
  void set_listener(std::function<void()> listener) {
    const std::lock_guard lock(call);
    on_evaluated = std::move(listener);
  }

  std::mutex mutex;
  std::deque<Entry> all;                  // does not move its elements when it grows
  std::vector<Measurement> measurements;  // in the order in which they were made
  std::optional<Step> diverged_at;
  std::optional<MetricsRow> latest;  // row of the newest evaluated model
  std::size_t latest_index = 0;
  std::mutex call;                     // held while on_evaluated is called or changed
  std::function<void()> on_evaluated;  // may be null
};

// Collects the workers' own models by step. A step is complete when every worker has added its model or has ended.
class Recorder::ModelsByStep {
 public:
  explicit ModelsByStep(int workers) : workers_(workers) {}

  void add(WorkerModel&& model) {
    const Rank worker = model.worker;
    open_[model.step].insert_or_assign(worker, std::move(model));
  }

  void end(Rank worker) { ended_.insert(worker); }

  // Removes and returns the models of the earliest step, by worker. nullopt if that step is not complete, unless
  // `at_the_end`.
  std::optional<std::map<Rank, WorkerModel>> take_first(bool at_the_end = false) {
    if (open_.empty()) return std::nullopt;
    const auto& models = open_.begin()->second;
    const auto is_missing = [&](Rank worker) { return !models.contains(worker) && !ended_.contains(worker); };
    for (int worker = 0; worker < workers_ && !at_the_end; ++worker)
      if (is_missing(Rank{worker})) return std::nullopt;
    return std::move(open_.extract(open_.begin()).mapped());
  }

 private:
  int workers_;
  std::set<Rank> ended_;
  std::map<Step, std::map<Rank, WorkerModel>> open_;
};

// Measures models and gradients at the plan's steps, in addition to the evaluations.
class Recorder::ModelMeasurements {
 public:
  using Sink = std::function<void(Measurement)>;  // called by any thread, also after this object is destroyed

  ModelMeasurements(const Options& options, Training& training, Sink sink)
      : plan_(options.measurements),
        defer_(options.defer),
        training_(training),
        sink_(std::move(sink)),
        worker_models_(options.workers) {}

  // Measures the first publication, and the first one at or after each multiple of the plan's steps; with `defer` only
  // in finish(). Ensembles are not measured, because they have no single model.
  void publish(const Publication& publication) {
    if (!plan_.model.any() || training_.time_only() || !publication.ensemble.empty()) return;
    const std::int64_t every = plan_.every_steps.value();
    const bool is_first_of_interval =
        measured_step_ < Step{0} || publication.step.value() / every > measured_step_.value() / every;
    if (!is_first_of_interval) return;
    measured_step_ = publication.step;
    ModelStatePtr model = without_moments(publication.model);
    if (!publication.recalibration.empty()) model = training_.recalibrated(model, publication.recalibration);
    if (defer_)
      to_be_measured_.emplace_back(publication.step, publication.time, std::move(model));
    else
      measure(publication.step, publication.time, model);
  }

  // Worker 0 and a server may both offer the gradient of a step. The first one that is offered counts.
  bool wants_step_gradient(Step step) const {
    return plan_.step_gradient_norm && is_due(step) && step > measured_gradient_;
  }

  void add_step_gradient(Step step, Time time, const Gradient& gradient) {
    measured_gradient_ = step;
    training_.measure_norm(gradient, [sink = sink_, step, time](double norm) {
      sink({step, time, "step_gradient_norm", norm});
    });
  }

  // Whether this step's models of all workers are needed, to measure their distances from their mean.
  bool wants_worker_models(Step step) const { return plan_.consensus_distance && is_due(step); }

  void add_worker_model(WorkerModel&& model) {
    worker_models_.add(std::move(model));
    add_worker_models();
  }

  void end(Rank worker) { worker_models_.end(worker); }

  void add_worker_models() {
    while (const auto models = worker_models_.take_first()) {
      Publication all = as_publication(*models);
      training_.measure_spread(std::move(all.own.models),
                               [sink = sink_, step = all.step, time = all.time](double spread) {
                                 sink({step, time, "consensus_distance", spread});
                               });
    }
  }

  void finish() {
    for (const auto& [step, time, model] : std::exchange(to_be_measured_, {})) measure(step, time, model);
  }

 private:
  bool is_due(Step step) const { return step.value() % plan_.every_steps.value() == 0; }

  void measure(Step step, Time time, const ModelStatePtr& model) {
    training_.measure(model, plan_.model, [sink = sink_, step, time](const ModelMeasures& found) {
      for (const auto& [quantity, value] : {std::pair("gradient_norm", found.gradient_norm),
                                            {"gradient_variance", found.gradient_variance},
                                            {"noise_scale", found.noise_scale},
                                            {"hessian_trace", found.hessian_trace},
                                            {"largest_eigenvalue", found.largest_eigenvalue},
                                            {"parameter_norm", found.parameter_norm}})
        if (value) sink({step, time, quantity, *value});
    });
  }

  MeasurementPlan plan_;
  bool defer_;
  Training& training_;
  Sink sink_;
  ModelsByStep worker_models_;
  Step measured_step_{-1};
  Step measured_gradient_{};
  std::vector<std::tuple<Step, Time, ModelStatePtr>> to_be_measured_{};  // models to measure in finish(), with `defer`
};

void ModelsByTime::add(WorkerModel&& model) {
  OfWorker& of = of_[model.worker];
  of.reached = multiple_of(model.time);
  of.models.push_back(std::move(model));
}

std::optional<std::map<Rank, WorkerModel>> ModelsByTime::take_first() {
  const Time due{next_ * every_};
  for (const Rank worker : Ranks(workers_)) {
    auto& [models, reached, has_ended] = of_[worker];
    while (!models.empty() && models.front().time < due) models.pop_front();
    if (!models.empty()) continue;
    if (has_ended) {
      is_over_ = true;
      take_all();
    }
    return std::nullopt;
  }
  std::map<Rank, WorkerModel> first;
  Time latest{};
  for (const Rank worker : Ranks(workers_)) {
    const WorkerModel& model = of_[worker].models.front();
    first.emplace(worker, model);
    latest = std::max(latest, model.time);
  }
  next_ = multiple_of(latest) + 1;
  return first;
}

std::vector<WorkerModel> ModelsByTime::take_all() {
  std::vector<WorkerModel> all;
  for (const Rank worker : Ranks(workers_))
    for (WorkerModel& model : std::exchange(of_[worker].models, {})) all.push_back(std::move(model));
  return all;
}

Recorder::Recorder(Options options, Training& training)
    : options_(std::move(options)),
      training_(training),
      shared_(std::make_shared<Shared>()),
      measurements_(std::make_unique<ModelMeasurements>(
          options_, training, [shared = shared_](Measurement measurement) { shared->note(std::move(measurement)); })),
      individual_models_(std::make_unique<ModelsByStep>(options_.workers)) {
  if (options_.plan.every_duration > Duration{})
    individual_models_by_time_.emplace(options_.workers, options_.plan.every_duration);
}

Recorder::~Recorder() = default;

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
  throw_if_diverged();
  add_publication(publication);
  measurements_->publish(publication);
  if (options_.on_change) options_.on_change();
}

// If processes divide the work, waits for all evaluations but the last one, and looks only at these. So the processes
// stop at the same row, even if some are faster than others.
void Recorder::throw_if_diverged() {
  if (!training_.is_divided()) {
    const std::lock_guard lock(shared_->mutex);
    if (shared_->diverged_at) throw Diverged(*shared_->diverged_at);
    return;
  }
  if (CheckpointLog::replays_here()) return;  // the original run did not throw here
  for (; checked_ + 1 < tasks_.size(); ++checked_) {
    for (const auto& task : std::exchange(tasks_[checked_], {})) training_.executor().wait(task);
    const std::lock_guard lock(shared_->mutex);
    const MetricsRow& row = shared_->all[checked_].asked.row;
    if (row.evaluation && !row.evaluation->finite) throw Diverged(row.step);
  }
}

void Recorder::on_first_rate(double learning_rate) {
  const std::lock_guard lock(shared_->mutex);
  if (!shared_->all.empty()) shared_->all.front().asked.row.learning_rate = learning_rate;
}

bool Recorder::wants_step_gradient(Step step) const { return measurements_->wants_step_gradient(step); }

void Recorder::on_step_gradient(Step step, Time time, const Gradient& gradient) {
  const Training::AskedBy all(training_, ProcessSet::everywhere());
  measurements_->add_step_gradient(step, time, gradient);
}

bool Recorder::wants_worker_models(Step step) const { return measurements_->wants_worker_models(step); }

void Recorder::on_worker_model(WorkerModel&& model) {
  const Training::AskedBy all(training_, ProcessSet::everywhere());
  measurements_->add_worker_model(std::move(model));
}

bool Recorder::wants_individual_models(Step step) const {
  if (individual_models_by_time_) return true;  // on_individual_model selects them by time
  const std::int64_t every = options_.plan.every_steps.value();
  return every > 0 && step.value() % every == 0;
}

void Recorder::on_individual_model(WorkerModel&& model) {
  const Training::AskedBy all(training_, ProcessSet::everywhere());
  if (!individual_models_by_time_)
    individual_models_->add(std::move(model));
  else if (individual_models_by_time_->wants(model.worker, model.time))
    individual_models_by_time_->add(std::move(model));
  if (!options_.defer) add_individual_models();
}

void Recorder::on_individual_models_end(Rank worker) {
  const Training::AskedBy all(training_, ProcessSet::everywhere());
  individual_models_->end(worker);
  if (individual_models_by_time_) individual_models_by_time_->end(worker);
  measurements_->end(worker);
  if (!options_.defer) add_individual_models();
  if (!options_.defer) measurements_->add_worker_models();
}

std::vector<WorkerModel> Recorder::take_individual_models() {
  if (individual_models_by_time_) return individual_models_by_time_->take_all();
  std::vector<WorkerModel> all;
  while (auto models = individual_models_->take_first(true))
    for (auto& [worker, model] : *models) all.push_back(std::move(model));
  return all;
}

void Recorder::add_individual_models() {
  const auto take_first = [this] {
    return individual_models_by_time_ ? individual_models_by_time_->take_first() : individual_models_->take_first();
  };
  while (const auto models = take_first()) {
    Publication publication = as_publication(*models);
    if (publication.step <= newest_step_) continue;  // some workers went on beyond the last common step
    publication.time = std::max(publication.time, newest_time_);
    if (!publication.own.models.empty()) publication.model = mean_of(publication.own.models, training_);
    on_publish(publication);
  }
}

void Recorder::add(const MetricsRow& row, std::optional<double> consensus_distance) {
  const std::lock_guard lock(shared_->mutex);
  if (row.evaluation && !row.evaluation->finite && !shared_->diverged_at) shared_->diverged_at = row.step;
  if (consensus_distance)
    shared_->measurements.push_back({row.step, row.time, evaluated_consensus_distance_name, *consensus_distance});
  const auto later =
      std::ranges::find_if(shared_->all, [&row](const auto& entry) { return entry.asked.row.step > row.step; });
  shared_->all.insert(later, {.asked = {.row = row}, .done = true});
}

void Recorder::add_publication(const Publication& publication) {
  const Step step = publication.step;
  const Time time = publication.time;
  newest_step_ = step;
  newest_time_ = time;
  position_.reached = {std::max(position_.reached.step, step), std::max(position_.reached.time, time),
                       publication.samples, publication.bytes};
  // Several publications may have the same step number, so a later model is also newer if its number is the same.
  const bool is_newer = step > recorded_step_ || (step == recorded_step_ && time > recorded_time_);
  if (!is_newer) return;
  Asked asked{.row = row_of(publication)};
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
  if (due(step, time))
    record(std::move(asked));
  else
    last_ = std::move(asked);
}

MetricsRow Recorder::row_of(const Publication& publication) const {
  MetricsRow row;
  row.step = publication.step;
  const std::int64_t steps_per_epoch = training_.time_only() ? 0 : training_.objective().steps_per_epoch();
  if (steps_per_epoch != 0)
    row.epoch = (static_cast<double>(publication.step.value()) + publication.surplus_steps) /
                static_cast<double>(steps_per_epoch);
  row.samples = publication.samples;
  row.time = publication.time;
  row.learning_rate = publication.learning_rate;
  row.bytes = publication.bytes;
  return row;
}

// Whether the publication is the first one, or the first one at or after a multiple of the plan's interval.
bool Recorder::due(Step step, Time time) const {
  if (recorded_step_ < Step{0}) return true;
  if (const Duration every = options_.plan.every_duration; every > Duration{})
    return time.time_since_epoch() / every > recorded_time_.time_since_epoch() / every;
  const std::int64_t every = options_.plan.every_steps.value();
  return every > 0 && step.value() / every > recorded_step_.value() / every;
}

void Recorder::record(Asked asked) {
  recorded_step_ = asked.row.step;
  recorded_time_ = asked.row.time;
  const bool needs_none = asked.models.empty();
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->all.push_back({std::move(asked), needs_none});
  }
  if (!options_.defer) evaluate(shared_->all.size() - 1);  // only this thread adds rows
}

// Requests the evaluation of the row unless it has been requested before.
void Recorder::evaluate(std::size_t index) {
  Asked asked;
  {
    const std::lock_guard lock(shared_->mutex);
    Asked& kept = shared_->all[index].asked;
    asked = std::exchange(kept, {.row = kept.row});
  }
  if (asked.models.empty()) return;  // time-only, or requested before
  std::vector<std::shared_ptr<Task>> tasks;
  if (!asked.own.models.empty())
    training_.measure_spread(asked.own.models, [shared = shared_, row = asked.row](double spread) {
      shared->note({row.step, row.time, evaluated_consensus_distance_name, spread});
    });
  if (!asked.own.models.empty() && asked.own.evaluated == IndividualModels::each) {
    tasks = evaluate_each(asked.own.models, index);
  } else {
    if (!asked.recalibration.empty())
      for (ModelStatePtr& model : asked.models) model = training_.recalibrated(model, asked.recalibration);
    tasks.push_back(training_.evaluate(
        std::move(asked.models),
        [shared = shared_, index](const Evaluation& evaluation) { shared->store_and_notify(index, evaluation); }));
  }
  if (training_.is_divided()) tasks_.push_back(std::move(tasks));
}

// Evaluates each worker's own model. The row gets the mean of the evaluations.
std::vector<std::shared_ptr<Task>> Recorder::evaluate_each(const std::vector<WeightedState>& models,
                                                           std::size_t index) {
  struct Parts {
    std::mutex mutex;
    std::vector<Evaluation> all;
    std::size_t missing;
  };
  const auto parts = std::make_shared<Parts>();
  parts->all.resize(models.size());
  parts->missing = models.size();
  std::vector<std::shared_ptr<Task>> tasks;
  for (std::size_t i = 0; i < models.size(); ++i) {
    const auto done = [shared = shared_, parts, i, index](const Evaluation& evaluation) {
      {
        const std::lock_guard lock(parts->mutex);
        parts->all[i] = evaluation;
        if (--parts->missing > 0) return;
      }
      shared->store_and_notify(index, mean_of(parts->all));
    };
    tasks.push_back(training_.evaluate({models[i].state}, done));
  }
  return tasks;
}

void Recorder::finish() {
  if (last_) record(*std::exchange(last_, std::nullopt));
  shared_->set_listener(options_.on_change);
  try {
    for (std::size_t index = 0; index < shared_->all.size(); ++index) evaluate(index);
    measurements_->finish();
    training_.executor().wait_all();
    for (const ModelStatePtr& last : last_models_) {
      const ModelStatePtr model = training_.recalibrated(last, last_recalibration_);  // as for its evaluation
      parameters_.push_back(training_.values(model));
      if (model->buffers) buffers_.push_back(training_.buffer_values(model));
    }
    if (training_.is_divided()) training_.executor().wait_all();  // other processes may need values of this process
  } catch (...) {
    shared_->set_listener(nullptr);
    throw;
  }
  shared_->set_listener(nullptr);
}

Recorder::Evaluated Recorder::evaluated() const {
  Evaluated ended;
  const std::lock_guard lock(shared_->mutex);
  for (const Shared::Entry& entry : shared_->all) ended.entries.push_back(entry.asked.row.evaluation.value());
  ended.measurements = shared_->measurements;
  return ended;
}

bool Recorder::restore(const Evaluated& before) {
  {
    const std::lock_guard lock(shared_->mutex);
    if (shared_->all.size() != before.entries.size()) return false;
    shared_->measurements = before.measurements;
  }
  for (std::size_t index = 0; index < before.entries.size(); ++index) shared_->store(index, before.entries[index]);
  return true;
}

bool Recorder::has_diverged() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->diverged_at.has_value();
}

Recording Recorder::recording() const {
  Recording recording{.metrics = {}, .rows = rows_, .parameters = parameters_, .buffers = buffers_};
  {
    const std::lock_guard lock(shared_->mutex);
    for (const Shared::Entry& entry : shared_->all)
      if (entry.done) recording.metrics.push_back(entry.asked.row);
    recording.measurements = shared_->measurements;
  }
  std::ranges::stable_sort(recording.measurements, {}, [](const Measurement& measurement) {
    return std::tie(measurement.step, measurement.time, measurement.quantity);
  });
  cut_after_divergence(recording);
  return recording;
}

RunPosition Recorder::position() const {
  RunPosition position = position_;
  const bool lags = !options_.defer && !training_.time_only();
  if (!lags) position.computed = position.reached;
  const std::lock_guard lock(shared_->mutex);
  if (const auto& latest = shared_->latest) {
    position.latest = latest->evaluation;
    if (lags) position.computed = {latest->step, latest->time, latest->samples, latest->bytes};
  }
  return position;
}

void cut_after_divergence(Recording& recording) {
  const auto is_divergent = [](const MetricsRow& row) { return row.evaluation && !row.evaluation->finite; };
  const auto first = std::ranges::find_if(recording.metrics, is_divergent);
  if (first == recording.metrics.end()) return;
  recording.diverged = true;
  const Time end = first->time;
  recording.metrics.erase(std::next(first), recording.metrics.end());
  std::erase_if(recording.rows, [end](const StepRow& row) { return row.end > end; });
  std::erase_if(recording.measurements, [end](const Measurement& row) { return row.time > end; });
}

std::string metrics_csv(std::span<const MetricsRow> rows) {
  const bool is_validated = std::ranges::any_of(
      rows, [](const MetricsRow& row) { return row.evaluation && unless_nan(row.evaluation->validation_loss); });
  std::string text = "step,epoch,samples,time_s,test_loss,test_accuracy,train_loss,learning_rate,communicated_bytes";
  text += is_validated ? ",validation_loss,validation_accuracy\n" : "\n";
  for (const MetricsRow& row : rows) {
    const Evaluation* const found = row.evaluation ? &*row.evaluation : nullptr;
    fmt::format_to(std::back_inserter(text), "{},{},{},{},{},{},{},{},{}", row.step.value(), cell(row.epoch),
                   row.samples, exact_seconds(row.time), found ? cell(found->test_loss) : "",
                   found ? cell(unless_nan(found->test_accuracy)) : "", found ? cell(found->train_loss) : "",
                   row.learning_rate, row.bytes.value());
    if (is_validated)
      fmt::format_to(std::back_inserter(text), ",{},{}", found ? cell(found->validation_loss) : "",
                     found ? cell(unless_nan(found->validation_accuracy)) : "");
    text += '\n';
  }
  return text;
}

std::string steps_csv(std::span<const StepRow> rows) {
  std::string text = "step,time_s,duration_s,kept_micro_batches,dropped_micro_batches,period_steps,bytes\n";
  for (const StepRow& row : rows)
    fmt::format_to(std::back_inserter(text), "{},{},{},{},{},{},{}\n", row.step.value(), exact_seconds(row.end),
                   exact_seconds(row.duration), row.kept, row.dropped, row.period.value(), row.bytes.value());
  return text;
}

std::string measurements_csv(std::span<const Measurement> rows) {
  std::string text = "step,time_s,quantity,value\n";
  for (const Measurement& row : rows)
    fmt::format_to(std::back_inserter(text), "{},{},{},{}\n", row.step.value(), exact_seconds(row.time), row.quantity,
                   cell(row.value));
  return text;
}

void Measurement::serialise(StateArchive& archive) { archive(step, time, quantity, value); }

void Recording::serialise(StateArchive& archive) {
  archive(metrics, rows, measurements, diverged, parameters, buffers);
}

void Recorder::Evaluated::serialise(StateArchive& archive) { archive(entries, measurements); }

}  // namespace syncopate
