#include "results/rows/summary.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string_view>

#include "results/formats/build_info.hpp"
#include "results/formats/exact_seconds.hpp"

namespace syncopate {
namespace {

std::int64_t sum(const std::vector<std::int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), std::int64_t{0});
}

double ratio(double value, double by) { return by > 0 ? value / by : 0; }

// The better of a value so far and one that may not be a number.
void improve(std::optional<double>& best, double value, bool higher) {
  if (std::isnan(value)) return;
  if (!best || (higher ? value > *best : value < *best)) best = value;
}

// None where there was nothing to measure.
std::optional<double> measured(double value) { return std::isnan(value) ? std::nullopt : std::optional(value); }

void add_quality(RunSummary& summary, const Recording& recording) {
  for (const MetricsRow& row : recording.metrics) {
    if (!row.evaluation || !row.evaluation->finite) continue;
    improve(summary.best_test_accuracy, row.evaluation->test_accuracy, true);
    improve(summary.best_test_loss, row.evaluation->test_loss, false);
    improve(summary.best_validation_accuracy, row.evaluation->validation_accuracy, true);
    improve(summary.best_validation_loss, row.evaluation->validation_loss, false);
  }
  if (recording.metrics.empty() || !recording.metrics.back().evaluation) return;
  const Evaluation& last = *recording.metrics.back().evaluation;
  summary.final_test_loss = last.test_loss;
  summary.final_train_loss = last.train_loss;
  summary.final_test_accuracy = measured(last.test_accuracy);
  summary.final_validation_accuracy = measured(last.validation_accuracy);
  summary.final_validation_loss = measured(last.validation_loss);
}

bool meets(const Evaluation& evaluation, const EvaluationPlan& plan) {
  if (!evaluation.finite) return false;
  const double accuracy = plan.targets_validation ? evaluation.validation_accuracy : evaluation.test_accuracy;
  const double loss = plan.targets_validation ? evaluation.validation_loss : evaluation.test_loss;
  // Comparisons with what does not exist are false.
  if (plan.target_accuracy && !(accuracy >= *plan.target_accuracy)) return false;
  return !plan.target_loss || loss <= *plan.target_loss;
}

std::optional<double> last_measured(std::string_view quantity, const Recording& recording) {
  std::optional<double> last;
  for (const Measurement& row : recording.measurements)
    if (row.quantity == quantity) last = measured(row.value);
  return last;
}

std::optional<std::int64_t> largest_period(const Recording& recording) {
  std::optional<std::int64_t> largest;
  for (const StepRow& row : recording.rows)
    if (row.period > Step{}) largest = std::max(largest.value_or(0), row.period.value());
  return largest;
}

std::optional<StepsByBatch> steps_by_batch(const TimeToTarget& target, const Recording& recording) {
  if (!target.step || *target.step == 0) return {};
  std::vector<MeasuredNoise> measured;
  for (const Measurement& row : recording.measurements)
    if (row.quantity == "noise_scale") measured.push_back({row.step, row.value});
  const double batch = static_cast<double>(*target.samples) / static_cast<double>(*target.step);
  return steps_by_batch(measured, Step{*target.step}, batch);
}

std::optional<double> mean_squared_gradient_norm(const Recording& recording) {
  std::map<Step, double> norms;
  for (const Measurement& row : recording.measurements)
    if (row.quantity == "gradient_norm") norms[row.step] = row.value;
  double squares = 0;
  std::int64_t kept = 0;
  for (const StepRow& row : recording.rows) {
    const auto before = norms.find(row.step - Step{1});
    if (row.period != Step{1} || before == norms.end()) return {};
    squares += static_cast<double>(row.kept) * before->second * before->second;
    kept += row.kept;
  }
  return kept > 0 ? std::optional(squares / static_cast<double>(kept)) : std::nullopt;
}

std::optional<TimeToTarget> time_to_target(const EvaluationPlan& plan, const Recording& recording) {
  if (!plan.target_accuracy && !plan.target_loss) return {};
  TimeToTarget result;
  result.target_accuracy = plan.target_accuracy;
  result.target_loss = plan.target_loss;
  const auto found = std::find_if(recording.metrics.begin(), recording.metrics.end(), [&plan](const MetricsRow& row) {
    return row.evaluation && meets(*row.evaluation, plan);
  });
  if (found != recording.metrics.end()) {
    result.time_s = exact_seconds(found->time);
    result.step = found->step.value();
    result.samples = found->samples;
  }
  return result;
}

// What rows alone say about a run that was ended early.
void add_progress(RunSummary& summary, const Recording& recording) {
  Time end{};
  for (const StepRow& row : recording.rows) {
    end = std::max(end, row.end);
    summary.steps = std::max(summary.steps, row.step.value());
    summary.kept_micro_batches += row.kept;
    summary.dropped_micro_batches += row.dropped;
    summary.communicated_bytes += row.bytes.value();
  }
  for (const MetricsRow& row : recording.metrics) {
    end = std::max(end, row.time);
    summary.steps = std::max(summary.steps, row.step.value());
  }
  summary.end_time_s = exact_seconds(end);
}

void add_totals(RunSummary& summary, const RunTotals& totals) {
  summary.end_time_s = exact_seconds(totals.end);
  summary.accounts = totals.accounts;
  summary.kept_per_worker = totals.kept;
  summary.dropped_per_worker = totals.dropped;
  summary.kept_micro_batches = sum(totals.kept);
  summary.dropped_micro_batches = sum(totals.dropped);
  summary.communicated_bytes = totals.bytes.value();
  summary.collectives = totals.collectives;
  summary.messages = totals.messages;
  summary.staleness = totals.staleness;
  summary.emulated_micro_batches = sum(totals.emulated);
  summary.overruns = sum(totals.overruns);
  summary.overrun_excess_s = exact_seconds(totals.overrun_excess);
  while (!summary.staleness.empty() && summary.staleness.back() == 0) summary.staleness.pop_back();
}

}  // namespace

std::string to_string(RunStatus status) {
  switch (status) {
    case RunStatus::finished:
      return "finished";
    case RunStatus::diverged:
      return "diverged";
    case RunStatus::failed:
      return "failed";
  }
  throw std::logic_error("unknown status of a run");
}

double RunSummary::step_time_s() const { return ratio(end_time_s, static_cast<double>(steps)); }

double RunSummary::drop_rate() const {
  const auto dropped = static_cast<double>(dropped_micro_batches);
  return ratio(dropped, static_cast<double>(kept_micro_batches) + dropped);
}

double RunSummary::samples_per_virtual_s() const { return ratio(static_cast<double>(samples), end_time_s); }
double RunSummary::samples_per_host_s() const { return ratio(static_cast<double>(samples), host_s); }

std::optional<double> RunSummary::communication_s() const {
  if (accounts.empty() || steps == 0) return {};
  double all_s = 0;
  for (const Account& account : accounts) all_s += exact_seconds(account[Activity::communicate]);
  return all_s / (static_cast<double>(accounts.size()) * static_cast<double>(steps));
}

std::optional<double> RunSummary::mean_staleness() const {
  if (staleness.empty()) return {};
  double steps = 0;
  for (std::size_t k = 0; k < staleness.size(); ++k)
    steps += static_cast<double>(k) * static_cast<double>(staleness[k]);
  return steps / static_cast<double>(sum(staleness));
}

std::string RunSummary::overrun_warning() const {
  constexpr double most_share = 0.01;
  const double share = ratio(static_cast<double>(overruns), static_cast<double>(emulated_micro_batches));
  if (share <= most_share) return {};
  return fmt::format("times are not those declared: {:.1f} % of the micro-batches took longer than drawn", 100 * share);
}

bool covers(const RecordingPlan& recorded, const RecordingPlan& wanted) {
  if (wanted.durations.value_or(false) && !recorded.durations.value_or(false)) return false;
  if (wanted.parameters && !recorded.parameters) return false;
  if (wanted.arrivals && !recorded.arrivals) return false;
  if (wanted.samples && !recorded.samples) return false;
  if (!wanted.trace) return true;
  return recorded.trace && recorded.trace_seconds == wanted.trace_seconds &&
         recorded.trace_events == wanted.trace_events;
}

RunSummary summarise(const Run& run, const Recording& recording, const RunTotals* totals,
                     std::int64_t samples_per_micro_batch, double host_s) {
  RunSummary summary;
  if (recording.diverged) {
    summary.status = RunStatus::diverged;
    const std::string step = std::to_string(recording.metrics.back().step.value());
    summary.reason = "the model is not finite after step " + step;
  }
  summary.experiment = run.experiment;
  summary.method = run.method;
  summary.method_index = run.method_index;
  summary.point_index = run.point_index;
  summary.sweep = run.sweep;
  summary.own_training = run.own_training;
  summary.has_unshared_links = run.cluster.network && run.cluster.network->has_unshared_links();
  summary.seed = run.seed;
  summary.hash = run.hash;
  summary.commit = build_info().commit;
  summary.rounds = static_cast<std::int64_t>(recording.rows.size());
  summary.host_s = host_s;
  add_quality(summary, recording);
  summary.final_largest_eigenvalue = last_measured("largest_eigenvalue", recording);
  summary.final_hessian_trace = last_measured("hessian_trace", recording);
  summary.largest_period = largest_period(recording);
  summary.time_to_target = time_to_target(run.evaluation, recording);
  if (summary.time_to_target) summary.steps_by_batch = steps_by_batch(*summary.time_to_target, recording);
  summary.mean_squared_gradient_norm = mean_squared_gradient_norm(recording);
  add_progress(summary, recording);
  if (totals && !recording.diverged) {
    add_totals(summary, *totals);
  }
  summary.samples = summary.kept_micro_batches * samples_per_micro_batch;
  return summary;
}

}  // namespace syncopate
