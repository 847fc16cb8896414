#include "results/directory/summary_json.hpp"

#include <cmath>
#include <stdexcept>

#include "results/directory/formula_json.hpp"
#include "results/formats/exact_seconds.hpp"
#include "results/formats/json.hpp"
#include "results/formats/optional_json.hpp"

namespace syncopate {
namespace {

Json json_of(const TimeToTarget& target) {
  Json json;
  json["target_accuracy"] = or_null(target.target_accuracy);
  json["target_loss"] = or_null(target.target_loss);
  json["time_s"] = or_null(target.time_s);
  json["step"] = or_null(target.step);
  json["samples"] = or_null(target.samples);
  json["censored"] = !target.time_s;
  return json;
}

TimeToTarget target_of(const Json& json) {
  TimeToTarget target;
  target.target_accuracy = optional_at<double>(json, "target_accuracy");
  target.target_loss = optional_at<double>(json, "target_loss");
  target.time_s = optional_at<double>(json, "time_s");
  target.step = optional_at<std::int64_t>(json, "step");
  target.samples = optional_at<std::int64_t>(json, "samples");
  return target;
}

// {"compute": ..., ...} of all workers together, and a list per activity with one number per worker.
Json worker_seconds(const std::vector<Account>& accounts) {
  Json summed = Json::object();
  Json per_worker = Json::object();
  long double total_ns = 0;  // of very many workers more than a Duration, the clock of one, can hold
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

Json staleness_of(const RunSummary& summary) {
  Json json;
  json["mean"] = or_null(summary.mean_staleness());
  json["max"] = summary.staleness.size() - 1;
  json["histogram"] = summary.staleness;
  return json;
}

Json overruns_of(const RunSummary& summary) {
  Json json;
  json["micro_batches"] = summary.overruns;
  json["of"] = summary.emulated_micro_batches;
  json["excess_s"] = summary.overrun_excess_s;
  const std::string warning = summary.overrun_warning();
  json["warning"] = warning.empty() ? Json(nullptr) : Json(warning);
  return json;
}

Json json_of(const RecordingPlan& recorded) {
  Json json;
  json["trace"] = nullptr;
  if (recorded.trace) json["trace"] = {{"seconds", or_null(recorded.trace_seconds)}, {"events", recorded.trace_events}};
  json["durations"] = recorded.durations.value_or(false);
  if (recorded.parameters) json["parameters"] = true;
  if (recorded.arrivals) json["arrivals"] = true;
  if (recorded.samples) json["samples"] = true;
  return json;
}

RecordingPlan recorded_of(const Json& json) {
  RecordingPlan recorded{.durations = json.at("durations").get<bool>(),
                         .arrivals = json.value("arrivals", false),
                         .samples = json.value("samples", false),
                         .parameters = json.value("parameters", false)};
  const Json& trace = json.at("trace");
  recorded.trace = !trace.is_null();
  if (!recorded.trace) return recorded;
  recorded.trace_seconds = optional_at<double>(trace, "seconds");
  trace.at("events").get_to(recorded.trace_events);
  return recorded;
}

// Lists by k, from 1.
Json json_of(const std::vector<MeanArrival>& arrivals) {
  Json json{{"mean_s", Json::array()}, {"rounds", Json::array()}};
  for (const MeanArrival& arrival : arrivals) {
    json["mean_s"].push_back(arrival.mean_s);
    json["rounds"].push_back(arrival.rounds);
  }
  return json;
}

std::vector<MeanArrival> arrivals_of(const Json& json) {
  std::vector<MeanArrival> arrivals(json.at("mean_s").size());
  for (std::size_t i = 0; i < arrivals.size(); ++i)
    arrivals[i] = {.mean_s = json.at("mean_s").at(i), .rounds = json.at("rounds").at(i)};
  return arrivals;
}

Json json_of(const KeptSamples::Kinds& kinds) {
  if (kinds.offered.empty()) return {{"kept", kinds.kept}};
  Json shares = Json::array();
  for (std::size_t i = 0; i < kinds.kept.size(); ++i)
    shares.push_back(kinds.offered[i] > 0
                         ? Json(static_cast<double>(kinds.kept[i]) / static_cast<double>(kinds.offered[i]))
                         : Json(nullptr));
  return {{"kept", kinds.kept}, {"offered", kinds.offered}, {"kept_share", std::move(shares)}};
}

Json json_of(const KeptSamples& samples) {
  Json json;
  if (!samples.by_class.kept.empty()) json["by_class"] = json_of(samples.by_class);
  if (!samples.longest.empty()) {
    json["by_length"] = json_of(samples.by_length);
    json["by_length"]["longest"] = samples.longest;
    for (const auto& [key, values] :
         {std::pair{"test_loss", &samples.test_loss}, {"test_accuracy", &samples.test_accuracy}})
      for (const double value : *values)
        json["by_length"][key].push_back(std::isnan(value) ? Json(nullptr) : Json(value));
  }
  return json;
}

KeptSamples samples_of(const Json& json) {
  KeptSamples samples;
  for (auto [key, kinds] : {std::pair{"by_class", &samples.by_class}, std::pair{"by_length", &samples.by_length}}) {
    if (!json.contains(key)) continue;
    json.at(key).at("kept").get_to(kinds->kept);
    if (json.at(key).contains("offered")) json.at(key).at("offered").get_to(kinds->offered);
    if (!kinds->offered.empty() && kinds->offered.size() != kinds->kept.size())
      throw std::invalid_argument("as many kinds of samples must be offered as are kept");
  }
  if (!json.contains("by_length")) return samples;
  json.at("by_length").at("longest").get_to(samples.longest);
  for (auto [key, values] : {std::pair{"test_loss", &samples.test_loss}, {"test_accuracy", &samples.test_accuracy}})
    if (json.at("by_length").contains(key))
      for (const Json& value : json.at("by_length").at(key))
        values->push_back(value.is_null() ? std::nan("") : value.get<double>());
  return samples;
}

RunStatus status_of(const std::string& name) {
  for (const RunStatus status : {RunStatus::finished, RunStatus::diverged, RunStatus::failed}) {
    if (name == to_string(status)) return status;
  }
  throw std::invalid_argument("unknown status " + name);
}

}  // namespace

std::string to_json(const RunSummary& summary) {
  Json json;
  json["schema_version"] = results_schema_version;
  json["status"] = to_string(summary.status);
  json["reason"] = summary.reason.empty() ? Json(nullptr) : Json(summary.reason);
  json["experiment"] = summary.experiment;
  json["method"] = summary.method;
  json["method_index"] = summary.method_index;
  json["point_index"] = summary.point_index;
  json["sweep"] = summary.sweep;                                                   // pairs, in the order of the file
  if (!summary.own_training.empty()) json["own_training"] = summary.own_training;  // likewise
  if (summary.has_unshared_links) json["links"] = unshared_links;
  json["seed"] = summary.seed;
  json["hash"] = summary.hash;
  json["commit"] = summary.commit;
  json["final_test_accuracy"] = or_null(summary.final_test_accuracy);
  json["final_test_loss"] = or_null(summary.final_test_loss);
  json["best_test_accuracy"] = or_null(summary.best_test_accuracy);
  json["best_test_loss"] = or_null(summary.best_test_loss);
  json["final_train_loss"] = or_null(summary.final_train_loss);
  if (summary.final_validation_loss) {
    json["final_validation_accuracy"] = or_null(summary.final_validation_accuracy);
    json["final_validation_loss"] = or_null(summary.final_validation_loss);
    json["best_validation_accuracy"] = or_null(summary.best_validation_accuracy);
    json["best_validation_loss"] = or_null(summary.best_validation_loss);
  }
  json["end_time_s"] = summary.end_time_s;
  json["time_to_target"] = summary.time_to_target ? json_of(*summary.time_to_target) : Json(nullptr);
  json["steps"] = summary.steps;
  json["rounds"] = summary.rounds;
  json["samples"] = summary.samples;
  json["kept_micro_batches"] = summary.kept_micro_batches;
  json["dropped_micro_batches"] = summary.dropped_micro_batches;
  json["drop_rate"] = summary.drop_rate();
  json["communicated_bytes"] = summary.communicated_bytes;
  json["collectives"] = or_null(summary.collectives);
  json["messages"] = or_null(summary.messages);
  json["host_s"] = summary.host_s;
  json["samples_per_virtual_s"] = summary.samples_per_virtual_s();
  json["samples_per_host_s"] = summary.samples_per_host_s();
  if (!summary.predicted.empty()) {
    json["predicted"] = Json::array();
    for (const FormulaTime& formula : summary.predicted) json["predicted"].push_back(json_of(formula));
  }
  json["worker_seconds"] = summary.accounts.empty() ? Json(nullptr) : worker_seconds(summary.accounts);
  json["kept_micro_batches_per_worker"] = summary.kept_per_worker;
  json["dropped_micro_batches_per_worker"] = summary.dropped_per_worker;
  if (!summary.staleness.empty()) json["staleness"] = staleness_of(summary);
  if (summary.largest_period) json["largest_period"] = *summary.largest_period;
  if (summary.final_largest_eigenvalue) json["final_largest_eigenvalue"] = *summary.final_largest_eigenvalue;
  if (summary.final_hessian_trace) json["final_hessian_trace"] = *summary.final_hessian_trace;
  if (const auto& by_batch = summary.steps_by_batch)
    json["steps_by_batch"] = {{"least", by_batch->least},
                              {"times_batch", by_batch->times_batch},
                              {"mean_noise_scale", by_batch->mean_noise_scale}};
  if (summary.mean_squared_gradient_norm) json["mean_squared_gradient_norm"] = *summary.mean_squared_gradient_norm;
  if (!summary.arrivals.empty()) json["arrivals"] = json_of(summary.arrivals);
  if (summary.samples_kept) json["samples_kept"] = json_of(*summary.samples_kept);
  if (summary.emulated_micro_batches > 0) json["overruns"] = overruns_of(summary);
  if (summary.recorded.trace || summary.recorded.durations.value_or(false) || summary.recorded.parameters ||
      summary.recorded.arrivals || summary.recorded.samples)
    json["recorded"] = json_of(summary.recorded);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::optional<RunSummary> summary_from_json(const std::string& text) {
  try {
    const Json json = Json::parse(text);
    if (json.at("schema_version") != results_schema_version) return {};
    RunSummary summary;
    summary.status = status_of(json.at("status"));
    if (!json.at("reason").is_null()) summary.reason = json.at("reason");
    json.at("experiment").get_to(summary.experiment);
    json.at("method").get_to(summary.method);
    json.at("method_index").get_to(summary.method_index);
    summary.point_index = json.value("point_index", std::size_t{0});  // not in runs made before it was written
    json.at("sweep").get_to(summary.sweep);
    if (json.contains("own_training")) json.at("own_training").get_to(summary.own_training);
    summary.has_unshared_links = json.contains("links") && json.at("links") == unshared_links;
    json.at("seed").get_to(summary.seed);
    json.at("hash").get_to(summary.hash);
    json.at("commit").get_to(summary.commit);
    summary.final_test_accuracy = optional_at<double>(json, "final_test_accuracy");
    summary.final_test_loss = optional_at<double>(json, "final_test_loss");
    summary.best_test_accuracy = optional_at<double>(json, "best_test_accuracy");
    summary.best_test_loss = optional_at<double>(json, "best_test_loss");
    summary.final_train_loss = optional_at<double>(json, "final_train_loss");
    if (json.contains("final_validation_loss")) {
      summary.final_validation_accuracy = optional_at<double>(json, "final_validation_accuracy");
      summary.final_validation_loss = optional_at<double>(json, "final_validation_loss");
      summary.best_validation_accuracy = optional_at<double>(json, "best_validation_accuracy");
      summary.best_validation_loss = optional_at<double>(json, "best_validation_loss");
    }
    json.at("end_time_s").get_to(summary.end_time_s);
    if (!json.at("time_to_target").is_null()) summary.time_to_target = target_of(json.at("time_to_target"));
    if (json.contains("predicted"))
      for (const Json& formula : json.at("predicted")) summary.predicted.push_back(formula_of(formula));
    json.at("steps").get_to(summary.steps);
    json.at("rounds").get_to(summary.rounds);
    json.at("samples").get_to(summary.samples);
    json.at("kept_micro_batches").get_to(summary.kept_micro_batches);
    json.at("dropped_micro_batches").get_to(summary.dropped_micro_batches);
    json.at("communicated_bytes").get_to(summary.communicated_bytes);
    // Summaries of runs that were made before these were written have neither.
    if (json.contains("collectives")) summary.collectives = optional_at<std::int64_t>(json, "collectives");
    if (json.contains("messages")) summary.messages = optional_at<std::int64_t>(json, "messages");
    json.at("host_s").get_to(summary.host_s);
    if (!json.at("worker_seconds").is_null()) summary.accounts = accounts_of(json.at("worker_seconds"));
    json.at("kept_micro_batches_per_worker").get_to(summary.kept_per_worker);
    json.at("dropped_micro_batches_per_worker").get_to(summary.dropped_per_worker);
    if (json.contains("staleness")) json.at("staleness").at("histogram").get_to(summary.staleness);
    if (json.contains("samples_kept")) summary.samples_kept = samples_of(json.at("samples_kept"));
    if (json.contains("largest_period")) json.at("largest_period").get_to(summary.largest_period.emplace());
    if (json.contains("final_largest_eigenvalue"))
      json.at("final_largest_eigenvalue").get_to(summary.final_largest_eigenvalue.emplace());
    if (json.contains("final_hessian_trace"))
      json.at("final_hessian_trace").get_to(summary.final_hessian_trace.emplace());
    if (json.contains("steps_by_batch")) {
      const Json& by_batch = json.at("steps_by_batch");
      summary.steps_by_batch = StepsByBatch{.least = by_batch.at("least"),
                                            .times_batch = by_batch.at("times_batch"),
                                            .mean_noise_scale = by_batch.at("mean_noise_scale")};
    }
    if (json.contains("mean_squared_gradient_norm"))
      summary.mean_squared_gradient_norm = json.at("mean_squared_gradient_norm").get<double>();
    if (json.contains("arrivals")) summary.arrivals = arrivals_of(json.at("arrivals"));
    if (json.contains("overruns")) {
      const Json& overruns = json.at("overruns");
      overruns.at("micro_batches").get_to(summary.overruns);
      overruns.at("of").get_to(summary.emulated_micro_batches);
      overruns.at("excess_s").get_to(summary.overrun_excess_s);
    }
    if (json.contains("recorded")) summary.recorded = recorded_of(json.at("recorded"));
    return summary;
  } catch (const std::exception&) {  // not JSON, a missing key, a wrong type
    return {};
  }
}

}  // namespace syncopate
