// The result of one run in numbers: summary.json, and what the final table is made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "results/rows/arrivals.hpp"
#include "results/rows/kept_samples.hpp"
#include "results/rows/recording.hpp"
#include "results/run/run.hpp"
#include "results/run/run_prediction.hpp"
#include "results/statistics/steps_by_batch.hpp"
#include "workers/cluster/run_totals.hpp"

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

}  // namespace syncopate
