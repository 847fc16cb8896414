#include "results/summary.hpp"

#include <fmt/format.h>
#include <zlib.h>

#include <numeric>
#include <stdexcept>

#include "results/build_info.hpp"

namespace syncopate {

namespace {

// Seconds by activity: "summed" over the workers, and "per_worker" as one list per activity.
Json worker_seconds(const std::vector<Account>& accounts) {
  Json summed = Json::object();
  Json per_worker = Json::object();
  long double total_ns = 0;  // with very many workers the sum may exceed the range of a Duration
  for (std::size_t activity = 0; activity < activities; ++activity) {
    long double sum_ns = 0;
    Json list = Json::array();
    for (const Account& account : accounts) {
      sum_ns += static_cast<long double>(account.time[activity].count());
      list.push_back(exact_seconds(account.time[activity]));
    }
    total_ns += sum_ns;
    summed[activity_names[activity]] = static_cast<double>(sum_ns) / 1e9;
    per_worker[activity_names[activity]] = std::move(list);
  }
  summed["total"] = static_cast<double>(total_ns) / 1e9;
  return {{"summed", std::move(summed)}, {"per_worker", std::move(per_worker)}};
}

std::vector<Account> accounts_of(const Json& worker_seconds) {
  const Json& per_worker = worker_seconds.at("per_worker");
  std::vector<Account> accounts(per_worker.at(activity_names.front()).size());
  for (std::size_t activity = 0; activity < activities; ++activity)
    for (std::size_t i = 0; i < accounts.size(); ++i)
      accounts[i].time[activity] = from_seconds(per_worker.at(activity_names[activity]).at(i).get<double>());
  return accounts;
}

constexpr std::array status_names = {"finished", "diverged", "failed"};  // in RunStatus's order

template <typename AnyJson>
void list_arrivals(JsonMembers<AnyJson> members, Listed<std::vector<MeanArrival>, AnyJson>& arrivals) {
  std::vector<double> means;
  std::vector<std::int64_t> rounds;
  for (const MeanArrival& arrival : arrivals) {
    means.push_back(arrival.mean_s);
    rounds.push_back(arrival.rounds);
  }
  members("mean_s", means);
  members("rounds", rounds);
  if constexpr (members.reads)
    for (std::size_t i = 0; i < means.size(); ++i) arrivals.push_back({.mean_s = means[i], .rounds = rounds.at(i)});
}

constexpr std::string_view key = "crc32", end = "\n}\n";

std::string digest_of(const std::string& text) {
  return fmt::format("{:08x}",
                     crc32_z(crc32_z(0, nullptr, 0), reinterpret_cast<const Bytef*>(text.data()), text.size()));
}

// The end of a text with a digest. It replaces `end`.
std::string last_member(const std::string& digest) { return fmt::format(",\n  \"{}\": \"{}\"{}", key, digest, end); }

std::int64_t sum(const std::vector<std::int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), std::int64_t{0});
}

using Summary = const RunSummary&;
using Number = std::optional<double>;

Number per_virtual_s(Summary run, std::int64_t count) {
  return run.end_time_s > 0 ? Number(static_cast<double>(count) / run.end_time_s) : std::nullopt;
}

template <typename Value>
Number of_target(Summary run, Value value) {
  return run.time_to_target ? Number((*run.time_to_target).*value) : std::nullopt;
}

Number longest_test_accuracy(Summary run) {
  const bool is_known = run.samples_kept && !run.samples_kept->test_accuracy.empty();
  return is_known ? unless_nan(run.samples_kept->test_accuracy.back()) : std::nullopt;
}

Number kept_share_of_longest(Summary run) {
  if (!run.samples_kept || run.samples_kept->by_length.kept.empty()) return {};
  const std::vector<std::int64_t>& kept = run.samples_kept->by_length.kept;
  const std::int64_t all = sum(kept);
  return all > 0 ? Number(static_cast<double>(kept.back()) / static_cast<double>(all)) : std::nullopt;
}

// The squared bias of the kept gradients, divided by another square.
Number squared_bias_over(Summary run, double GradientBias::*square) {
  if (!run.samples_kept || !run.samples_kept->gradient_bias) return {};
  const GradientBias& bias = *run.samples_kept->gradient_bias;
  const double value = bias.squared_bias / bias.*square;
  return bias.*square > 0 && std::isfinite(value) ? Number(value) : std::nullopt;
}

Number largest_share_of_drops(Summary run) {
  const std::int64_t all = sum(run.dropped_per_worker);
  return all > 0 ? Number(static_cast<double>(std::ranges::max(run.dropped_per_worker)) / static_cast<double>(all))
                 : std::nullopt;
}

Number formula_share(Summary run, bool is_first) {
  if (run.predicted.empty() || run.step_time_s() <= 0) return {};
  const FormulaTime& formula = is_first ? run.predicted.front() : run.predicted.back();
  return formula.prediction.step_time_s / run.step_time_s();
}

// nullopt if a micro-batch may be neither kept nor dropped, because the kept share is then not 1 - drop rate.
Number formula_throughput_share(Summary run) {
  if (run.predicted.empty() || run.step_time_s() <= 0 || run.kept_micro_batches <= 0) return {};
  const Prediction& formula = run.predicted.front().prediction;
  constexpr double rounding = 1e-9;
  if (!formula.drop_rate || std::abs(1 - *formula.drop_rate - formula.kept) > rounding) return {};
  return formula.kept / formula.step_time_s / ((1 - run.drop_rate()) / run.step_time_s());
}

double ratio(double value, double by) { return by > 0 ? value / by : 0; }

void improve(std::optional<double>& best, double value, bool higher) {
  if (std::isnan(value)) return;
  if (!best || (higher ? value > *best : value < *best)) best = value;
}

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
  summary.final_test_accuracy = unless_nan(last.test_accuracy);
  summary.final_validation_accuracy = unless_nan(last.validation_accuracy);
  summary.final_validation_loss = unless_nan(last.validation_loss);
}

bool meets(const Evaluation& evaluation, const EvaluationPlan& plan) {
  if (!evaluation.finite) return false;
  const double accuracy = plan.targets_validation ? evaluation.validation_accuracy : evaluation.test_accuracy;
  const double loss = plan.targets_validation ? evaluation.validation_loss : evaluation.test_loss;
  // A comparison with NaN, a missing value, is false.
  if (plan.target_accuracy && !(accuracy >= *plan.target_accuracy)) return false;
  return !plan.target_loss || loss <= *plan.target_loss;
}

std::vector<Measurement> measurements_of(std::string_view quantity, const Recording& recording) {
  std::vector<Measurement> found;
  std::ranges::copy_if(recording.measurements, std::back_inserter(found),
                       [&](const Measurement& row) { return row.quantity == quantity; });
  return found;
}

std::optional<double> last_of(const std::vector<Measurement>& measurements) {
  return measurements.empty() ? std::nullopt : unless_nan(measurements.back().value);
}

std::optional<double> fall_of(const std::vector<Measurement>& measurements) {
  if (measurements.size() < 2) return {};
  return unless_nan(measurements.front().value - measurements.back().value);
}

std::optional<double> log_change_of(const std::vector<Measurement>& measurements) {
  if (measurements.size() < 4) return {};
  std::vector<std::pair<double, double>> points;
  for (const Measurement& at : std::span(measurements).subspan(1)) {
    if (!(at.value > 0)) return {};
    points.emplace_back(static_cast<double>(at.step.value()), std::log(at.value));
  }
  const auto slope = least_squares_slope(points);
  return slope ? std::optional(*slope * (points.back().first - points.front().first)) : std::nullopt;
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
  for (const Measurement& row : measurements_of("noise_scale", recording)) measured.push_back({row.step, row.value});
  const double batch = static_cast<double>(*target.samples) / static_cast<double>(*target.step);
  return steps_by_batch(measured, Step{*target.step}, batch);
}

std::optional<double> mean_squared_gradient_norm(const Recording& recording) {
  std::map<Step, double> norms;
  for (const Measurement& row : measurements_of("gradient_norm", recording)) norms[row.step] = row.value;
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
  TimeToTarget result{.target_accuracy = plan.target_accuracy, .target_loss = plan.target_loss};
  const auto found = std::ranges::find_if(
      recording.metrics, [&plan](const MetricsRow& row) { return row.evaluation && meets(*row.evaluation, plan); });
  if (found != recording.metrics.end()) {
    result.time_s = exact_seconds(found->time);
    result.step = found->step.value();
    result.samples = found->samples;
  }
  return result;
}

// For a run that ended early: sets the progress that the rows show.
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

template <typename AnyJson>
void list_members(JsonMembers<AnyJson> members, Listed<TimeToTarget, AnyJson>& target) {
  members("target_accuracy", target.target_accuracy);
  members("target_loss", target.target_loss);
  members("time_s", target.time_s);
  members("step", target.step);
  members("samples", target.samples);
  if constexpr (!members.reads) members.json["censored"] = !target.time_s;
}

template <typename AnyJson>
void list_members(JsonMembers<AnyJson> members, Listed<StepsByBatch, AnyJson>& by_batch) {
  members("least", by_batch.least);
  members("times_batch", by_batch.times_batch);
  members("mean_noise_scale", by_batch.mean_noise_scale);
}

template <typename AnyJson>
void list_members(JsonMembers<AnyJson> members, Listed<RecordingPlan, AnyJson>& recorded) {
  const auto trace = members.in("trace");
  if constexpr (members.reads) recorded.trace = !trace.json.is_null();
  if (recorded.trace) {
    trace("seconds", recorded.trace_seconds);
    trace("events", recorded.trace_events);
  }
  bool durations = recorded.durations.value_or(false);
  members("durations", durations);
  if constexpr (members.reads) recorded.durations = durations;
  members("parameters", recorded.parameters, recorded.parameters);
  members("arrivals", recorded.arrivals, recorded.arrivals);
  members("samples", recorded.samples, recorded.samples);
}

template <typename AnyJson>
void list_members(JsonMembers<AnyJson> members, Listed<KeptSamples::Kinds, AnyJson>& kinds) {
  members("kept", kinds.kept);
  if (!members.has("offered", !kinds.offered.empty())) return;
  members("offered", kinds.offered);
  if constexpr (members.reads) {
    if (!kinds.offered.empty() && kinds.offered.size() != kinds.kept.size())
      throw std::invalid_argument("\"kept\" and \"offered\" must have equal lengths");
  } else {
    for (std::size_t i = 0; i < kinds.kept.size(); ++i)
      members.json["kept_share"].push_back(
          kinds.offered[i] > 0 ? Json(static_cast<double>(kinds.kept[i]) / static_cast<double>(kinds.offered[i]))
                               : Json(nullptr));
  }
}

template <typename AnyJson>
void list_members(JsonMembers<AnyJson> members, Listed<GradientBias, AnyJson>& bias) {
  members("squared_bias", bias.squared_bias);
  members("squared_gradient", bias.squared_gradient);
  members("squared_noise", bias.squared_noise);
}

template <typename AnyJson>
void list_members(JsonMembers<AnyJson> members, Listed<KeptSamples, AnyJson>& samples) {
  members("by_class", samples.by_class, !samples.by_class.kept.empty());
  members.if_any("gradient_bias", samples.gradient_bias);
  if (!members.has("by_length", !samples.longest.empty())) return;
  members("by_length", samples.by_length);
  const auto by_length = members.in("by_length");
  by_length("longest", samples.longest);
  for (const auto& [key, values] :
       {std::pair{"test_loss", &samples.test_loss}, {"test_accuracy", &samples.test_accuracy}}) {
    std::vector<std::optional<double>> numbers;  // null for NaN
    for (const double value : *values) numbers.push_back(unless_nan(value));
    by_length(key, numbers, !numbers.empty());
    if constexpr (members.reads)
      for (const auto& number : numbers) values->push_back(number.value_or(std::nan("")));
  }
}

template <typename AnyJson>
void list_members(JsonMembers<AnyJson> members, Listed<RunSummary, AnyJson>& summary) {
  std::optional<std::string> reason, links;
  if (!summary.reason.empty()) reason = summary.reason;
  if (summary.has_unshared_links) links = unshared_links;
  members.named("status", summary.status, status_names);
  members("reason", reason);
  members("experiment", summary.experiment);
  members("method", summary.method);
  members("method_index", summary.method_index);
  members("point_index", summary.point_index, true);  // earlier summaries lack this key
  members("sweep", summary.sweep);                    // pairs, in the order of the experiment file
  members("own_training", summary.own_training, !summary.own_training.empty());
  members.if_any("links", links);
  members("seed", summary.seed);
  members("hash", summary.hash);
  members("commit", summary.commit);
  members("final_test_accuracy", summary.final_test_accuracy);
  members("final_test_loss", summary.final_test_loss);
  members("best_test_accuracy", summary.best_test_accuracy);
  members("best_test_loss", summary.best_test_loss);
  members("final_train_loss", summary.final_train_loss);
  if (members.has("final_validation_loss", summary.final_validation_loss.has_value())) {
    members("final_validation_accuracy", summary.final_validation_accuracy);
    members("final_validation_loss", summary.final_validation_loss);
    members("best_validation_accuracy", summary.best_validation_accuracy);
    members("best_validation_loss", summary.best_validation_loss);
  }
  members("end_time_s", summary.end_time_s);
  members("time_to_target", summary.time_to_target);
  members("steps", summary.steps);
  members("rounds", summary.rounds);
  members("samples", summary.samples);
  members("kept_micro_batches", summary.kept_micro_batches);
  members("dropped_micro_batches", summary.dropped_micro_batches);
  if constexpr (!members.reads) members.json["drop_rate"] = summary.drop_rate();
  members("communicated_bytes", summary.communicated_bytes);
  members("collectives", summary.collectives, true);  // earlier summaries lack this key and the next one
  members("messages", summary.messages, true);
  members("host_s", summary.host_s);
  if constexpr (!members.reads) {
    members.json["samples_per_virtual_s"] = summary.samples_per_virtual_s();
    members.json["samples_per_host_s"] = summary.samples_per_host_s();
  }
  members("predicted", summary.predicted, !summary.predicted.empty());
  const auto seconds = members.in("worker_seconds");
  if constexpr (!members.reads) {
    if (!summary.accounts.empty()) seconds.json = worker_seconds(summary.accounts);
  } else if (!seconds.json.is_null()) {
    summary.accounts = accounts_of(seconds.json);
  }
  members("kept_micro_batches_per_worker", summary.kept_per_worker);
  members("dropped_micro_batches_per_worker", summary.dropped_per_worker);
  if (members.has("staleness", !summary.staleness.empty())) {
    const auto staleness = members.in("staleness");
    if constexpr (!members.reads)
      staleness.json = {{"mean", summary.mean_staleness()}, {"max", summary.staleness.size() - 1}};
    staleness("histogram", summary.staleness);
  }
  members.if_any("largest_period", summary.largest_period);
  members.if_any("final_largest_eigenvalue", summary.final_largest_eigenvalue);
  members.if_any("final_hessian_trace", summary.final_hessian_trace);
  members.if_any("largest_eigenvalue_fall", summary.largest_eigenvalue_fall);
  members.if_any("hessian_trace_fall", summary.hessian_trace_fall);
  members.if_any("hessian_trace_log_change", summary.hessian_trace_log_change);
  members.if_any("steps_by_batch", summary.steps_by_batch);
  members.if_any("mean_squared_gradient_norm", summary.mean_squared_gradient_norm);
  if (members.has("arrivals", !summary.arrivals.empty())) list_arrivals(members.in("arrivals"), summary.arrivals);
  members.if_any("samples_kept", summary.samples_kept);
  if (members.has("overruns", summary.emulated_micro_batches > 0)) {
    const auto overruns = members.in("overruns");
    overruns("micro_batches", summary.overruns);
    overruns("of", summary.emulated_micro_batches);
    overruns("excess_s", summary.overrun_excess_s);
    const std::string warning = summary.overrun_warning();
    if constexpr (!members.reads) overruns.json["warning"] = warning.empty() ? Json(nullptr) : Json(warning);
  }
  const RecordingPlan& files = summary.recorded;
  members("recorded", summary.recorded,
          files.trace || files.durations.value_or(false) || files.parameters || files.arrivals || files.samples);
  if constexpr (members.reads) {
    summary.reason = reason.value_or("");
    summary.has_unshared_links = links == unshared_links;
  }
}

Json json_of_error(double error) { return error > 0 ? Json(error) : Json(nullptr); }

Json json_with_errors(const FormulaTime& formula) {
  const Prediction& prediction = formula.prediction;
  Json json = formula;
  json["communication_share"] = prediction.communication_share();
  json["step_time_standard_error_s"] = json_of_error(prediction.step_error_s);
  json["effective_speedup_standard_error"] = json_of_error(prediction.effective_speedup_error());
  return json;
}

std::string to_json(const RunSummary& summary) {
  Json json{{"schema_version", results_schema_version}};
  list_members(JsonMembers<Json>{json}, summary);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::optional<RunSummary> summary_from_json(const std::string& text) try {
  const Json json = Json::parse(text);
  if (json.at("schema_version") != results_schema_version) return {};
  return json.get<RunSummary>();
} catch (const std::exception&) {  // not JSON, a missing key, a wrong type
  return {};
}

std::string json_digest(const Json& value) {
  return digest_of(value.dump(-1, ' ', false, Json::error_handler_t::replace));
}

std::string with_digest(const Json& object) {
  const std::string text = object.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  return text.substr(0, text.size() - end.size()) + last_member(digest_of(text));
}

bool is_as_written(std::string_view text, const Json& object, std::string_view last, std::string_view or_last) {
  if (!object.is_object() || object.empty()) return false;
  const std::string found = std::prev(object.end()).key();
  if (found != key) return found == last || (!or_last.empty() && found == or_last);
  const std::size_t added = last_member("01234567").size();
  if (text.size() < added) return false;
  const std::string digested = std::string(text.substr(0, text.size() - added)) + std::string(end);
  return text.substr(text.size() - added) == last_member(digest_of(digested));
}

std::optional<double> measured(const Measure& measure, const RunSummary& run) {
  if (run.tabled.empty()) return measure.value(run);
  const auto found = run.tabled.find(measure.name);
  return found == run.tabled.end() ? std::nullopt : std::optional(found->second);
}

std::span<const Measure> measures() {
  using enum Better;
  static const std::vector<Measure> all = {
      {"final_test_accuracy", "accuracy %", "%", "Share of the test samples that the last model classifies correctly.",
       more, 100, &RunSummary::final_test_accuracy},
      {"best_test_accuracy", "best accuracy %", "%", "The highest test accuracy of all evaluations.", more, 100,
       &RunSummary::best_test_accuracy},
      {"final_test_loss", "test loss", "", "Test loss of the last model.", less, 1, &RunSummary::final_test_loss},
      {"best_test_loss", "best test loss", "", "The lowest test loss of all evaluations.", less, 1,
       &RunSummary::best_test_loss},
      {"final_train_loss", "training loss", "", "Loss of the last model on evaluation.train_samples.", less, 1,
       &RunSummary::final_train_loss},
      {"final_validation_accuracy", "validation accuracy %", "%", "Accuracy of the last model on held-out samples.",
       more, 100, &RunSummary::final_validation_accuracy},
      {"best_validation_accuracy", "best validation accuracy %", "%",
       "The highest validation accuracy of all evaluations.", more, 100, &RunSummary::best_validation_accuracy},
      {"final_validation_loss", "validation loss", "", "Loss of the last model on held-out samples.", less, 1,
       &RunSummary::final_validation_loss},
      {"best_validation_loss", "best validation loss", "", "The lowest validation loss of all evaluations.", less, 1,
       &RunSummary::best_validation_loss},
      {"final_largest_eigenvalue", "largest eigenvalue", "",
       "Largest eigenvalue of the Hessian at the last measurement; needs `[measurements]`.", less, 1,
       &RunSummary::final_largest_eigenvalue, ComparedBy::ratio, "eigenvalues, times"},
      {"final_hessian_trace", "trace", "", "Trace of the Hessian at the last measurement; needs `[measurements]`.",
       less, 1, &RunSummary::final_hessian_trace, ComparedBy::ratio, "traces, times"},
      {"largest_eigenvalue_fall", "fall of the eigenvalue", "", "The first measurement less the last one.", more, 1,
       &RunSummary::largest_eigenvalue_fall, ComparedBy::ratio, "falls, times"},
      {"hessian_trace_fall", "fall of the trace", "", "The first measurement less the last one.", more, 1,
       &RunSummary::hessian_trace_fall, ComparedBy::ratio, "falls, times"},
      {"hessian_trace_log_change", "change of ln trace", "",
       "From the second measurement to the last, by the slope of a least-squares line.", less, 1,
       &RunSummary::hessian_trace_log_change},
      {"longest_test_accuracy", "accuracy of the longest %", "%",
       "Test accuracy on the longest of eight bins of sample lengths; needs `recording.samples`.", more, 100,
       longest_test_accuracy},
      {"longest_kept_share", "the longest among kept %", "%",
       "Share of the longest bin among the samples that went into the model; needs `recording.samples`.", neither, 100,
       kept_share_of_longest},
      {"gradient_bias_to_gradient", "bias / gradient", "",
       "Squared bias of the kept gradients at the last model, divided by the squared gradient; needs "
       "`recording.samples`.",
       neither, 1, [](Summary run) { return squared_bias_over(run, &GradientBias::squared_gradient); }},
      {"gradient_bias_to_noise", "bias / noise", "",
       "The same squared bias, divided by the squared noise of one step's gradient; needs `recording.samples`.",
       neither, 1, [](Summary run) { return squared_bias_over(run, &GradientBias::squared_noise); }},
      {"time_to_target_s", "to target s", "s", "Time until the first evaluation that meets the target.", less, 1,
       [](Summary run) { return of_target(run, &TimeToTarget::time_s); }},
      {"steps_to_target", "steps to target", "steps", "Steps until the first evaluation that meets the target.", less,
       1, [](Summary run) { return of_target(run, &TimeToTarget::step); }},
      {"samples_to_target", "samples to target", "samples", "Samples until the first evaluation that meets the target.",
       less, 1, [](Summary run) { return of_target(run, &TimeToTarget::samples); }},
      {"mean_squared_gradient_norm", "squared gradient norm", "",
       "Squared gradient norm at the model before a step: mean over steps, weighted by kept micro-batches.", less, 1,
       &RunSummary::mean_squared_gradient_norm},
      {"end_time_s", "time s", "s", "Time at the end of the run, on the cluster's clock.", less, 1,
       &RunSummary::end_time_s},
      {"step_time_s", "s/step", "s", "The run's time divided by its steps.", less, 1, &RunSummary::step_time_s,
       ComparedBy::speed_up, "speed-up of steps"},
      {"first_formula_over_step_time", "formula / measured", "",
       "Time of a step by the paper's formula, divided by the measured time.", neither, 1,
       [](Summary run) { return formula_share(run, true); }},
      {"last_formula_over_step_time", "best formula / measured", "",
       "Time of a step by the formula with the fewest assumptions, divided by the measured time.", neither, 1,
       [](Summary run) { return formula_share(run, false); }},
      {"first_formula_over_throughput", "formula / measured throughput", "",
       "Micro-batches/s by the formula / measured. As a ratio to synchronous SGD: S_eff by the formula / measured.",
       neither, 1, formula_throughput_share},
      {"communication_s", "communication s/step", "s", "Communication time per step, averaged over the workers.", less,
       1, &RunSummary::communication_s},
      {"steps", "steps", "steps", "Optimizer steps of a worker, or of the server.", neither, 1, &RunSummary::steps},
      {"rounds", "syncs", "rounds", "Number of synchronisations.", less, 1, &RunSummary::rounds},
      {"largest_period", "largest period", "steps", "Largest number of steps between two synchronisations.", neither, 1,
       &RunSummary::largest_period},
      {"samples", "samples", "samples", "Samples that went into the model.", neither, 1, &RunSummary::samples},
      {"communicated_bytes", "sent bytes", "bytes", "Bytes sent by all workers and servers.", less, 1,
       &RunSummary::communicated_bytes, ComparedBy::ratio, "bytes, times"},
      {"drop_rate", "dropped %", "%", "Share of the micro-batches that were dropped.", neither, 100,
       &RunSummary::drop_rate},
      {"largest_share_of_drops", "drops of one worker %", "%",
       "Share of all dropped micro-batches that the worker with the most of them dropped.", neither, 100,
       largest_share_of_drops},
      {"mean_staleness", "staleness steps", "steps",
       "Mean number of steps between the model of a gradient and its use.", neither, 1, &RunSummary::mean_staleness},
      {"micro_batches_per_s", "micro-batches/s", "micro-batches/s",
       "Micro-batches that go into the model, per second of the cluster's clock.", more, 1,
       [](Summary run) { return per_virtual_s(run, run.kept_micro_batches); }, ComparedBy::ratio, "S_eff"},
      {"samples_per_s", "samples/s", "samples/s", "Samples that go into the model, per second of the cluster's clock.",
       more, 1, [](Summary run) { return per_virtual_s(run, run.samples); }},
  };
  return all;
}

const Measure* measure_named(std::string_view name) {
  const auto found = std::ranges::find(measures(), name, &Measure::name);
  return found == measures().end() ? nullptr : &*found;
}

std::string to_string(RunStatus status) { return status_names.at(static_cast<std::size_t>(status)); }

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
  return fmt::format("{:.1f} % of the micro-batches took longer than their drawn durations, so times are too long",
                     100 * share);
}

TimeToReach time_to_reach(const RunSummary& run) {
  const std::optional<double>& reached_s = run.time_to_target->time_s;
  return {reached_s.value_or(run.end_time_s), reached_s.has_value()};
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
  static_cast<RunName&>(summary) = static_cast<const RunName&>(run);
  if (recording.diverged) {
    summary.status = RunStatus::diverged;
    summary.reason = Diverged(recording.metrics.back().step).what();
  }
  summary.has_unshared_links = run.cluster.network && run.cluster.network->has_unshared_links();
  summary.commit = build_info().commit;
  summary.rounds = static_cast<std::int64_t>(recording.rows.size());
  summary.host_s = host_s;
  add_quality(summary, recording);
  const auto eigenvalues = measurements_of("largest_eigenvalue", recording),
             traces = measurements_of("hessian_trace", recording);
  summary.final_largest_eigenvalue = last_of(eigenvalues);
  summary.final_hessian_trace = last_of(traces);
  summary.largest_eigenvalue_fall = fall_of(eigenvalues);
  summary.hessian_trace_fall = fall_of(traces);
  summary.hessian_trace_log_change = log_change_of(traces);
  summary.largest_period = largest_period(recording);
  summary.time_to_target = time_to_target(run.evaluation, recording);
  if (summary.time_to_target) summary.steps_by_batch = steps_by_batch(*summary.time_to_target, recording);
  summary.mean_squared_gradient_norm = mean_squared_gradient_norm(recording);
  add_progress(summary, recording);
  if (totals && !recording.diverged) add_totals(summary, *totals);
  summary.samples = summary.kept_micro_batches * samples_per_micro_batch;
  return summary;
}

}  // namespace syncopate
