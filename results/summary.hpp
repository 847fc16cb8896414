// The result of one run in numbers: summary.json, and what the final table is made of.
#pragma once

#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "results/recorder.hpp"
#include "results/run.hpp"
#include "results/statistics.hpp"
#include "workers/base/units.hpp"
#include "workers/cluster/accounting.hpp"

namespace syncopate {

// Of summary.json, metadata.json, metrics.csv and steps.csv together; grows when a reader of the old
// files would misread the new ones. Since 2 they are listed in files.json, without which they are not whole.
inline constexpr int results_schema_version = 2;

enum class RunStatus {
  finished,
  diverged,  // the model is not finite any more
  failed,    // anything else that ended it early
};
std::string to_string(RunStatus status);

// The first evaluation that meets every target of the plan. Never interpolated or extrapolated: a
// run that has not met them is censored at its end.
struct TimeToTarget {
  std::optional<double> target_accuracy;
  std::optional<double> target_loss;
  std::optional<double> time_s;  // none: censored
  std::optional<std::int64_t> step;
  std::optional<std::int64_t> samples;
};

struct RunSummary {
  RunStatus status = RunStatus::finished;
  std::string reason;  // why it is not finished; empty if it is

  std::string experiment;
  std::string method;
  std::size_t method_index = 0;  // its place among the experiment's methods
  std::size_t point_index = 0;   // that of its point in the sweep, whose last key varies fastest
  std::vector<std::pair<std::string, std::string>> sweep;
  std::vector<std::pair<std::string, std::string>> own_training{};  // keys of [training] that the method has otherwise
  std::uint64_t seed = 0;
  std::string hash;
  std::string commit;  // of the program that made it

  // Of the test set; none in time-only runs, accuracy none where the objective has none.
  std::optional<double> final_test_accuracy;
  std::optional<double> final_test_loss;
  std::optional<double> best_test_accuracy;
  std::optional<double> best_test_loss;
  std::optional<double> final_train_loss;
  // Of what was held out of the training set, where that is so.
  std::optional<double> final_validation_accuracy{};
  std::optional<double> final_validation_loss{};
  std::optional<double> best_validation_accuracy{};
  std::optional<double> best_validation_loss{};
  // What [measurements] measured last, wherever in the run that was; none where it was not measured.
  std::optional<double> final_largest_eigenvalue{};
  std::optional<double> final_hessian_trace{};

  double end_time_s = 0;                       // T, on the cluster's clock
  std::optional<TimeToTarget> time_to_target;  // none: the plan has no target
  std::optional<StepsByBatch>
      steps_by_batch{};  // to the target; none unless it was reached, with measured noise scales
  // Of the models that steps began with, each weighted by the micro-batches that its step kept; none unless
  // measurements.gradient_norm was measured at every step, and each step has a row.
  std::optional<double> mean_squared_gradient_norm{};

  std::int64_t steps = 0;
  std::int64_t rounds = 0;
  std::optional<std::int64_t> largest_period{};  // in steps; none: there was no round
  std::int64_t samples = 0;
  std::int64_t kept_micro_batches = 0;
  std::int64_t dropped_micro_batches = 0;
  std::int64_t communicated_bytes = 0;
  std::optional<std::int64_t> collectives;  // none: the run did not come to its end
  std::optional<std::int64_t> messages;
  double host_s = 0;  // without loading data

  double step_time_s() const;            // T / steps; 0 without steps
  double drop_rate() const;              // dropped / (kept + dropped); 0 if there is neither
  double samples_per_virtual_s() const;  // 0 if no time has passed
  double samples_per_host_s() const;
  // Of a worker per step, on average over the workers; none for runs that did not come to their end.
  std::optional<double> communication_s() const;

  // Per worker; empty for runs that did not come to their end.
  std::vector<Account> accounts;
  std::vector<std::int64_t> kept_per_worker;
  std::vector<std::int64_t> dropped_per_worker;

  // [k]: gradients kept k steps after the model that they were computed at; the last is not 0. Empty for
  // methods without a server.
  std::vector<std::int64_t> staleness;
  std::optional<double> mean_staleness() const;

  // What formulas say of the run's time, the paper's own first; empty where there is none, and on the wall clock.
  std::vector<FormulaTime> predicted;

  // With pace = "emulate", where real arithmetic has to fit into drawn durations, of all workers; else 0.
  std::int64_t emulated_micro_batches = 0;
  std::int64_t overruns = 0;  // those of them that took longer
  double overrun_excess_s = 0;
  // Why the run's times are not those declared; empty if they are.
  std::string overrun_warning() const;

  // [k - 1]: the k-th arrival of a round, on average over the rounds that had as many; empty where none was recorded.
  std::vector<MeanArrival> arrivals;

  // Whether nothing waited on links (network.contention = false), as if a server had one for each worker.
  bool has_unshared_links = false;

  // Which samples went into the model; none: that was not recorded.
  std::optional<KeptSamples> samples_kept;

  // What was recorded beside the rows, so that a run need not be repeated for it.
  RecordingPlan recorded{.durations = false};
};

// Whether the files of a run that has recorded `recorded` are all that `wanted` asks for.
bool covers(const RecordingPlan& recorded, const RecordingPlan& wanted);

// `totals` is null for a run that was ended before its time: then rounds and the last evaluation
// say how far it came.
RunSummary summarise(const Run& run, const Recording& recording, const RunTotals* totals,
                     std::int64_t samples_per_micro_batch, double host_s);

// RunSummary as summary.json, and back.
// What "links" is for runs with has_unshared_links; others have none.
inline constexpr const char* unshared_links = "not shared";

std::string to_json(const RunSummary& summary);

// Nothing if the text is not a summary of this schema version: such a run is repeated, not guessed at.
// The accounts of single workers are not read back.
std::optional<RunSummary> summary_from_json(const std::string& text);

// The JSON of result files. Whole numbers are read as what they are: where one is asked for, the library by itself
// takes 1.5 for 1 and -1 for 2^64 - 1, and for 1e300 its behaviour is undefined.
template <typename Value, typename = void>
struct JsonConversion : nlohmann::adl_serializer<Value> {};

template <std::integral Integer>
requires(!std::same_as<Integer, bool>) struct JsonConversion<Integer> : nlohmann::adl_serializer<Integer> {
  // Throws the library's type_error for what is not a whole number within the range of the type.
  template <typename AnyJson>
  static void from_json(const AnyJson& json, Integer& value) {
    const auto take = [&](auto number) {
      if (!std::in_range<Integer>(number)) throw fault("the whole number is out of range", json);
      value = static_cast<Integer>(number);
    };
    if (json.is_number_unsigned())
      take(*json.template get_ptr<const std::uint64_t*>());
    else if (json.is_number_integer())
      take(*json.template get_ptr<const std::int64_t*>());
    else
      throw fault("type must be a whole number", json);
  }

 private:
  template <typename AnyJson>
  static auto fault(const char* why, const AnyJson& json) {
    constexpr int wrong_type = 302;  // the library's number for it
    return AnyJson::type_error::create(wrong_type, why, &json);
  }
};

// Keys keep the order in which they are written.
using Json = nlohmann::basic_json<nlohmann::ordered_map, std::vector, std::string, bool, std::int64_t, std::uint64_t,
                                  double, std::allocator, JsonConversion>;

// JSON files that say whether they are as they were written: their last member is the CRC-32 of all before it. It is
// there to find accidents, not forgeries, as that of files.json is.
// 8 hexadecimal digits of a value as it is written on one line.
std::string json_digest(const Json& value);

// The object, which has a member, with its digest.
std::string with_digest(const Json& object);

// `text` and what it was parsed to. A file without a digest is of an earlier program: its last member is `last`, or
// `or_last`, and it is taken as it is.
bool is_as_written(std::string_view text, const Json& object, std::string_view last, std::string_view or_last = {});

// Nanoseconds as seconds for files.
// Dividing is rounded correctly, unlike multiplying by 1e-9: 70 ms print as 0.07, with no stray last digit.
inline double exact_seconds(Duration duration) { return static_cast<double>(duration.count()) / 1e9; }
inline double exact_seconds(Time time) { return exact_seconds(time.time_since_epoch()); }

// What is not a number, in text.
// The sign of such a value depends on the machine and says nothing: it prints as "nan", never as "-nan".
inline double without_sign_of_nan(double value) {
  return std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value;
}

// Values that need not be there, as null in JSON.
template <typename Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json(nullptr);
}

template <typename Value>
std::optional<Value> optional_at(const Json& json, const char* key) {
  const Json& value = json.at(key);
  return value.is_null() ? std::nullopt : std::optional<Value>(value.get<Value>());
}

// The numbers of a run by which methods are compared: in tables, claims and tuning, under these names.
enum class Better { less, more, neither };

// How two methods' numbers are compared in tables: by their difference, by own / other, or by other / own.
enum class ComparedBy { difference, ratio, speed_up };

struct Measure {
  const char* name;         // final_test_accuracy
  const char* heading;      // "accuracy %", with the unit in which it is shown
  const char* unit;         // "%"; empty: it is a plain number
  const char* description;  // a sentence
  Better better = Better::neither;
  double shown_times = 1;                                         // 100: a share that is shown in percent
  std::function<std::optional<double>(const RunSummary&)> value;  // none: the run has no such number
  ComparedBy compared_by = ComparedBy::difference;
  const char* compared_heading = nullptr;  // of a ratio
};

// In the order in which they are listed. time_to_target_s is none also where the target was not reached: whoever means
// it over seeds takes restricted times.
std::span<const Measure> measures();

// Null if there is none of this name.
const Measure* measure_named(std::string_view name);

}  // namespace syncopate
