// The summary of a run's results, summary.json. Tables are made from summaries.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <limits>
#include <nlohmann/json.hpp>

#include "results/recorder.hpp"
#include "results/statistics.hpp"

namespace syncopate {

// Version of summary.json, metadata.json, metrics.csv and steps.csv together. Raise it when programs that read the old
// files would misread the new ones. Since version 2 a complete run has files.json, which lists its other files.
inline constexpr int results_schema_version = 2;

enum class RunStatus {
  finished,
  diverged,  // the model is no longer finite
  failed,    // the run ended early for any other reason
};
std::string to_string(RunStatus status);

// The first evaluation that meets every target of the plan. Its time is neither interpolated nor extrapolated. If a run
// has no such evaluation, its time to the target is censored at its end.
struct TimeToTarget {
  std::optional<double> target_accuracy;
  std::optional<double> target_loss;
  std::optional<double> time_s{};  // none: censored
  std::optional<std::int64_t> step{};
  std::optional<std::int64_t> samples{};
};

struct RunSummary : RunName {
  RunStatus status = RunStatus::finished;
  std::string reason;  // why the run did not finish; otherwise empty

  std::string commit;  // commit of the program that made the run

  // On the test set. None in time-only runs; accuracies also none if the objective has no accuracy.
  std::optional<double> final_test_accuracy;
  std::optional<double> final_test_loss;
  std::optional<double> best_test_accuracy;
  std::optional<double> best_test_loss;
  std::optional<double> final_train_loss;
  // On the validation samples, if there are such.
  std::optional<double> final_validation_accuracy{};
  std::optional<double> final_validation_loss{};
  std::optional<double> best_validation_accuracy{};
  std::optional<double> best_validation_loss{};
  // The last values that [measurements] measured, at any step of the run.
  std::optional<double> final_largest_eigenvalue{};  // the Hessian's
  std::optional<double> final_hessian_trace{};
  // The first measured value minus the last one, which shows how much flatter the model has become.
  std::optional<double> largest_eigenvalue_fall{};
  std::optional<double> hessian_trace_fall{};
  // The change of ln(trace) from the second measurement to the last, along the least-squares line. It leaves out the
  // change before the second measurement, which a single average of models causes.
  std::optional<double> hessian_trace_log_change{};

  double end_time_s = 0;                         // T, on the cluster's clock
  std::optional<TimeToTarget> time_to_target;    // none if the plan has no target
  std::optional<StepsByBatch> steps_by_batch{};  // for a run that reached its target, from measured noise scales
  // Mean over the steps, weighted by the micro-batches that a step kept; measured at the model before each step. None
  // unless measurements.gradient_norm was measured at every step, and each step has a row.
  std::optional<double> mean_squared_gradient_norm{};

  std::int64_t steps = 0;
  std::int64_t rounds = 0;
  std::optional<std::int64_t> largest_period{};  // in steps; none if no round ended
  std::int64_t samples = 0;
  std::int64_t kept_micro_batches = 0;
  std::int64_t dropped_micro_batches = 0;
  std::int64_t communicated_bytes = 0;
  std::optional<std::int64_t> collectives;  // none if the run did not finish
  std::optional<std::int64_t> messages;
  double host_s = 0;  // host time without loading data

  double step_time_s() const;            // T / steps; 0 without steps
  double drop_rate() const;              // dropped / (kept + dropped); 0 if there is neither
  double samples_per_virtual_s() const;  // 0 if no time passed
  double samples_per_host_s() const;
  // Communication time per step, as a mean over the workers; none for runs that did not finish.
  std::optional<double> communication_s() const;

  // By worker; empty for runs that did not finish.
  std::vector<Account> accounts;
  std::vector<std::int64_t> kept_per_worker;
  std::vector<std::int64_t> dropped_per_worker;

  // [k]: number of gradients that a server applied k steps after the model at which they were computed. The last
  // element is not 0. Empty for methods without a server.
  std::vector<std::int64_t> staleness;
  std::optional<double> mean_staleness() const;

  // The run's times by formulas, beginning with the paper's own. Empty under MPI and for methods without a formula.
  std::vector<FormulaTime> predicted;

  // For pace = "emulate", where a micro-batch's real arithmetic must fit into its drawn duration. Summed over all
  // workers; 0 for other values of pace.
  std::int64_t emulated_micro_batches = 0;
  std::int64_t overruns = 0;  // number of micro-batches that took longer than their drawn durations
  double overrun_excess_s = 0;
  // A warning if too many micro-batches took longer than their drawn durations; otherwise empty.
  std::string overrun_warning() const;

  // [k - 1]: the mean time of a round's k-th arrival; empty if arrivals were not recorded.
  std::vector<MeanArrival> arrivals;

  // Whether network.contention = false: messages did not wait for each other, as if each server had a separate link to
  // each worker.
  bool has_unshared_links = false;

  // Counts of the samples that went into the model, if they were recorded.
  std::optional<KeptSamples> samples_kept;

  // Measures by name, for a run that is known from a table alone (runs_of_table); otherwise empty.
  std::map<std::string, double, std::less<>> tabled{};

  // Optional files that the run's directory has. A finished run is repeated only if it lacks a requested file.
  RecordingPlan recorded{.durations = false};
};

// The time at which a run reached its target, or at which it ended without reaching it. The run must have a target.
TimeToReach time_to_reach(const RunSummary& run);

// Whether a run that was recorded by the plan `recorded` has all files that `wanted` asks for.
bool covers(const RecordingPlan& recorded, const RecordingPlan& wanted);

// `totals`: null for a run that ended early, whose summary then shows the progress in its rows and evaluations.
RunSummary summarise(const Run& run, const Recording& recording, const RunTotals* totals,
                     std::int64_t samples_per_micro_batch, double host_s);

// The value of "links" in summary.json for runs with has_unshared_links. Other runs lack this key.
inline constexpr const char* unshared_links = "not shared";

std::string to_json(const RunSummary& summary);

// nullopt if the text is not a summary of this schema version. The run is then repeated.
std::optional<RunSummary> summary_from_json(const std::string& text);

// Conversion of JSON in result files, which reads whole numbers strictly. The library's own conversion reads 1.5 as 1
// and -1 as 2^64 - 1, and is undefined for 1e300.
template <typename Value, typename = void>
struct JsonConversion : nlohmann::adl_serializer<Value> {};

// An optional value is null if there is none.
template <typename Value>
struct JsonConversion<std::optional<Value>> {
  template <typename AnyJson>
  static void to_json(AnyJson& json, const std::optional<Value>& value) {
    json = value ? AnyJson(*value) : AnyJson(nullptr);
  }
  template <typename AnyJson>
  static void from_json(const AnyJson& json, std::optional<Value>& value) {
    value = json.is_null() ? std::nullopt : std::optional<Value>(json.template get<Value>());
  }
};

// Writes members of an object (of a Json), or reads them (of a const Json). So one function lists a struct's keys for
// both directions: list_members(JsonMembers<AnyJson>, Listed<Struct, AnyJson>&). It makes the struct convertible.
template <typename AnyJson>
struct JsonMembers {
  AnyJson& json;
  static constexpr bool reads = std::is_const_v<AnyJson>;

  // A key that every object has.
  template <typename Value>
  void operator()(const char* key, Value& value) const {
    if constexpr (reads)
      json.at(key).get_to(value);
    else
      json[key] = value;
  }
  // A key that objects may lack. If it is absent, reading leaves the value unchanged.
  template <typename Value>
  void operator()(const char* key, Value& value, bool is_written) const {
    if (has(key, is_written)) (*this)(key, value);
  }
  // A key that objects have only if there is a value. It is never null.
  template <typename Optional>
  void if_any(const char* key, Optional& value) const {
    if (!has(key, value.has_value())) return;
    if constexpr (reads)
      value = json.at(key).template get<typename Optional::value_type>();
    else
      json[key] = *value;
  }
  // An enumerator by its name. `names`: in the order of the enumerators. Reading throws if the name is unknown.
  template <typename Enum, std::size_t count>
  void named(const char* key, Enum& value, const std::array<const char*, count>& names) const {
    std::string name = names.at(static_cast<std::size_t>(value));
    (*this)(key, name);
    if constexpr (reads) {
      const auto found = std::ranges::find(names, name);
      if (found == names.end()) throw std::invalid_argument("unknown name " + name);
      value = static_cast<Enum>(found - names.begin());
    }
  }
  bool has(const char* key, bool is_written) const { return reads ? json.contains(key) : is_written; }
  // The members of an object within this one. It is null until a member is written.
  JsonMembers in(const char* key) const {
    if constexpr (reads)
      return {json.at(key)};
    else
      return {json[key]};
  }
};

template <typename Struct, typename AnyJson>
using Listed = std::conditional_t<JsonMembers<AnyJson>::reads, Struct, const Struct>;

template <typename Struct>
concept HasMembers = requires(JsonMembers<nlohmann::ordered_json> members, const Struct& value) {
  list_members(members, value);
};

template <HasMembers Struct>
struct JsonConversion<Struct> {
  template <typename AnyJson>
  static void to_json(AnyJson& json, const Struct& value) {
    list_members(JsonMembers<AnyJson>{json}, value);
  }
  template <typename AnyJson>
  static void from_json(const AnyJson& json, Struct& value) {
    list_members(JsonMembers<const AnyJson>{json}, value);
  }
};

template <std::integral Integer>
requires(!std::same_as<Integer, bool>) struct JsonConversion<Integer> : nlohmann::adl_serializer<Integer> {
  // Throws the library's type_error unless the value is a whole number within the range of the type.
  template <typename AnyJson>
  static void from_json(const AnyJson& json, Integer& value) {
    constexpr int wrong_type = 302;  // the library's number of this error
    const auto fault = [&json](const char* why) { return AnyJson::type_error::create(wrong_type, why, &json); };
    const auto take = [&](auto number) {
      if (!std::in_range<Integer>(number)) throw fault("the whole number is out of range");
      value = static_cast<Integer>(number);
    };
    if (json.is_number_unsigned())
      take(*json.template get_ptr<const std::uint64_t*>());
    else if (json.is_number_integer())
      take(*json.template get_ptr<const std::int64_t*>());
    else
      throw fault("type must be a whole number");
  }
};

// Keeps the order of keys.
using Json = nlohmann::basic_json<nlohmann::ordered_map, std::vector, std::string, bool, std::int64_t, std::uint64_t,
                                  double, std::allocator, JsonConversion>;

// CRC-32 of the value's text on one line, as 8 hexadecimal digits.
std::string json_digest(const Json& value);

// The text of a non-empty object with one more member at its end: the CRC-32 of the text before it. It reveals
// accidental changes, but no forgery.
std::string with_digest(const Json& object);

// Whether a text matches the digest in `object`, which was parsed from it. Accepts files of earlier programs, which
// have no digest, if their last member is `last` or `or_last`.
bool is_as_written(std::string_view text, const Json& object, std::string_view last, std::string_view or_last = {});

// Seconds for files. Division rounds correctly, unlike multiplication by 1e-9: 70 ms become exactly 0.07.
inline double exact_seconds(Duration duration) { return static_cast<double>(duration.count()) / 1e9; }
inline double exact_seconds(Time time) { return exact_seconds(time.time_since_epoch()); }

template <typename AnyJson>
void list_members(JsonMembers<AnyJson> members, Listed<FormulaTime, AnyJson>& formula) {
  auto& prediction = formula.prediction;
  members("formula", prediction.formula);
  members("sampled", prediction.is_sampled, true);  // older files lack this key
  members("step_time_s", prediction.step_time_s);
  members("communication_s", prediction.communication_s);
  members("kept", prediction.kept);
  members("drop_rate", prediction.drop_rate);
  members("sync_step_time_s", prediction.sync_step_time_s);
  if constexpr (!members.reads) members.json["effective_speedup"] = prediction.effective_speedup();
  members("total_time_s", formula.total_time_s);
}
Json json_with_errors(const FormulaTime& formula);  // with standard errors, for `predict --json`
Json json_of_error(double error);                   // null if the time was not sampled

// nullopt for NaN, which marks a missing value: the accuracy of an objective that has none, or a validation loss
// without validation samples.
inline std::optional<double> unless_nan(double value) {
  return std::isnan(value) ? std::nullopt : std::optional(value);
}

enum class Better { less, more, neither };

// How tables compare a method with another method: by difference, by own / other (ratio), or by other / own (speed_up).
enum class ComparedBy { difference, ratio, speed_up };

// A quantity of a run by which tables, claims and tuning compare methods.
struct Measure {
  const char* name;         // "final_test_accuracy"
  const char* heading;      // "accuracy %", with the displayed unit
  const char* unit;         // "%"; empty: a plain number
  const char* description;  // one sentence
  Better better = Better::neither;
  double shown_times = 1;                                         // factor for display, such as 100 for percent
  std::function<std::optional<double>(const RunSummary&)> value;  // nullopt if the run has no such number
  ComparedBy compared_by = ComparedBy::difference;
  const char* compared_heading = nullptr;  // heading of the compared column, for a ratio
};

// All measures in the order of listings. time_to_target_s is nullopt for a run that missed its target, so its means
// over seeds need RestrictedTimes.
std::span<const Measure> measures();

const Measure* measure_named(std::string_view name);

// The measure of a run, from its summary or, for a run that is known from a table alone, from `tabled`.
std::optional<double> measured(const Measure& measure, const RunSummary& run);

}  // namespace syncopate
