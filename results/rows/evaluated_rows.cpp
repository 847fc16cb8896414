#include "results/rows/evaluated_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>

#include "workers/training/course_log.hpp"

namespace syncopate {

struct EvaluatedRows::Shared {
  struct Entry {
    Asked asked;
    bool done = false;
  };

  void store(std::size_t index, const Evaluation& evaluation);
  void store_and_tell(std::size_t index, const Evaluation& evaluation);
  void note(Measurement measurement);

  std::mutex mutex;
  std::deque<Entry> all;                  // does not move its elements when it grows
  std::vector<Measurement> measurements;  // as they come
  std::optional<Step> diverged_at;
  std::optional<MetricsRow> latest;  // the newest model that has been evaluated
  std::size_t latest_index = 0;
  std::mutex call;                     // held during calls of, and changes to:
  std::function<void()> on_evaluated;  // may be null
};

void EvaluatedRows::Shared::store(std::size_t index, const Evaluation& evaluation) {
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

void EvaluatedRows::Shared::store_and_tell(std::size_t index, const Evaluation& evaluation) {
  store(index, evaluation);
  const std::lock_guard lock(call);
  if (on_evaluated) on_evaluated();
}

void EvaluatedRows::Shared::note(Measurement measurement) {
  const std::lock_guard lock(mutex);
  measurements.push_back(std::move(measurement));
}

namespace {

[[noreturn]] void fail_as_diverged(Step step) {
  throw Diverged(fmt::format("the model is not finite after step {}", step.value()));
}

}  // namespace

ModelStatePtr without_moments(const ModelStatePtr& state) {
  auto evaluated = std::make_shared<ModelState>(*state);
  evaluated->moments = {};
  return evaluated;
}

EvaluatedRows::EvaluatedRows(Training& training) : training_(training), shared_(std::make_shared<Shared>()) {}

std::size_t EvaluatedRows::add(Asked asked) {
  const std::lock_guard lock(shared_->mutex);
  const bool needs_none = asked.models.empty();
  shared_->all.push_back({std::move(asked), needs_none});
  return shared_->all.size() - 1;
}

void EvaluatedRows::insert(const MetricsRow& row, std::optional<double> consensus_distance) {
  const std::lock_guard lock(shared_->mutex);
  if (row.evaluation && !row.evaluation->finite && !shared_->diverged_at) shared_->diverged_at = row.step;
  if (consensus_distance)
    shared_->measurements.push_back({row.step, row.time, evaluated_consensus_distance_name, *consensus_distance});
  const auto later =
      std::ranges::find_if(shared_->all, [&row](const auto& entry) { return entry.asked.row.step > row.step; });
  shared_->all.insert(later, {.asked = {.row = row}, .done = true});
}

void EvaluatedRows::set_first_rate(double learning_rate) {
  const std::lock_guard lock(shared_->mutex);
  if (!shared_->all.empty()) shared_->all.front().asked.row.learning_rate = learning_rate;
}

void EvaluatedRows::evaluate(std::size_t index) {
  Asked asked;
  {
    const std::lock_guard lock(shared_->mutex);
    Asked& kept = shared_->all[index].asked;
    asked.row = kept.row;
    asked.models.swap(kept.models);
    asked.recalibration.swap(kept.recalibration);
    std::swap(asked.own, kept.own);
  }
  if (asked.models.empty()) return;  // time-only, or already asked for
  if (!asked.own.models.empty()) {
    training_.measure_spread(asked.own.models, [shared = shared_, row = asked.row](double spread) {
      shared->note({row.step, row.time, evaluated_consensus_distance_name, spread});
    });
    if (asked.own.evaluated == OwnModels::each) return evaluate_each(asked.own.models, index);
  }
  if (!asked.recalibration.empty()) {
    for (ModelStatePtr& model : asked.models) model = training_.recalibrated(model, asked.recalibration);
  }
  const auto done = [shared = shared_, index](const Evaluation& evaluation) {
    shared->store_and_tell(index, evaluation);
  };
  keep({training_.evaluate(std::move(asked.models), done)});
}

void EvaluatedRows::evaluate_each(const std::vector<WeightedState>& models, std::size_t index) {
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
    const auto done = [shared = shared_, parts, i, index](const Evaluation& evaluation) {
      std::vector<Evaluation> whole;
      {
        const std::lock_guard lock(parts->mutex);
        parts->all[i] = evaluation;
        if (--parts->missing > 0) return;
        for (const auto& part : parts->all) whole.push_back(*part);
      }
      shared->store_and_tell(index, mean_of(whole));
    };
    tasks.push_back(training_.evaluate({models[i].state}, done));
  }
  keep(std::move(tasks));
}

void EvaluatedRows::keep(std::vector<std::shared_ptr<Task>> tasks) {
  if (training_.is_divided()) tasks_.push_back(std::move(tasks));
}

void EvaluatedRows::evaluate_all() {
  const std::size_t all = shared_->all.size();  // only this thread adds to them
  for (std::size_t index = 0; index < all; ++index) evaluate(index);
}

void EvaluatedRows::check() const {
  const std::lock_guard lock(shared_->mutex);
  if (shared_->diverged_at) fail_as_diverged(*shared_->diverged_at);
}

void EvaluatedRows::check_earlier() {
  if (CourseLog::replays_here()) return;  // the run has gone on after them
  for (; checked_ + 1 < tasks_.size(); ++checked_) {
    for (const auto& task : std::exchange(tasks_[checked_], {})) training_.executor().wait(task);
    const std::lock_guard lock(shared_->mutex);
    const MetricsRow& row = shared_->all[checked_].asked.row;
    if (row.evaluation && !row.evaluation->finite) fail_as_diverged(row.step);
  }
}

std::function<void(Measurement)> EvaluatedRows::sink() const {
  return [shared = shared_](Measurement measurement) { shared->note(std::move(measurement)); };
}

void EvaluatedRows::set_listener(std::function<void()> listener) {
  const std::lock_guard lock(shared_->call);
  shared_->on_evaluated = std::move(listener);
}

bool EvaluatedRows::has_diverged() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->diverged_at.has_value();
}

std::optional<MetricsRow> EvaluatedRows::latest() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->latest;
}

void EvaluatedRows::write_to(Recording& recording) const {
  {
    const std::lock_guard lock(shared_->mutex);
    for (const Shared::Entry& entry : shared_->all) {
      if (entry.done) recording.metrics.push_back(entry.asked.row);
    }
    recording.measurements = shared_->measurements;
  }
  std::ranges::stable_sort(recording.measurements, [](const Measurement& a, const Measurement& b) {
    return std::tie(a.step, a.time, a.quantity) < std::tie(b.step, b.time, b.quantity);
  });
}

EvaluatedRows::Ended EvaluatedRows::ended() const {
  Ended ended;
  const std::lock_guard lock(shared_->mutex);
  for (const Shared::Entry& entry : shared_->all) ended.entries.push_back(entry.asked.row.evaluation.value());
  ended.measurements = shared_->measurements;
  return ended;
}

bool EvaluatedRows::take_up(const Ended& before) {
  {
    const std::lock_guard lock(shared_->mutex);
    if (shared_->all.size() != before.entries.size()) return false;
    shared_->measurements = before.measurements;
  }
  for (std::size_t index = 0; index < before.entries.size(); ++index) shared_->store(index, before.entries[index]);
  return true;
}

}  // namespace syncopate
