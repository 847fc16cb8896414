// A run is one method on one cluster, with its network, model and budget, and the plan of what is recorded. It is plain
// data: the sections of an experiment file fill it in, and the clusters execute it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "algorithms/method/algorithm.hpp"
#include "algorithms/method/prediction.hpp"
#include "workers/cluster/calls.hpp"
#include "workers/config/toml.hpp"
#include "workers/theory/sampled_times.hpp"
#include "workers/time/compute_time.hpp"
#include "workers/time/network.hpp"
#include "workers/training/learning_rate.hpp"
#include "workers/training/objective.hpp"
#include "workers/training/optimizers.hpp"
#include "workers/training/training.hpp"
#include "workers/worker.hpp"

namespace syncopate {

class OutagePlan;
class Pauses;
class SampleKinds;

// Workers, their compute times, and the cost of communication.
struct ClusterPlan {
  int workers = 1;
  int micro_batches = 1;
  std::vector<std::optional<Step>> data_of{};  // steps after which a worker has used up its data; empty: never
  Pace pace = Pace::inject;
  bool to_be_measured = false;                     // micro_batch_s is not measured yet, so the run cannot start
  std::optional<double> measured_micro_batch_s{};  // measured micro_batch_s; the mean if it depends on lengths
  std::optional<ContentCost> content_cost{};       // micro_batch_s as a function of lengths
  std::optional<LengthFit> measured_fit{};         // how well content_cost fits, if it was measured for this run
  std::shared_ptr<const ComputeTime> compute_time{};
  std::shared_ptr<const Pauses> pauses{};       // null: none; only on the simulated cluster
  std::shared_ptr<const OutagePlan> outages{};  // null: none
  std::shared_ptr<const NetworkModel> network{};
};

struct TrainingPlan {
  bool time_only = false;                                              // there is no model
  bool trains_network = false;                                         // LibTorch computes the model
  std::function<std::shared_ptr<const Objective>()> make_objective{};  // loads data; null result: time-only
  std::function<std::shared_ptr<const SampleKinds>()> make_kinds{};    // loads data; empty: none
  Bytes parameter_bytes{};                                             // 4 P, for P parameters
  ObjectiveMemory memory{};                                            // memory that the objective needs; not hashed
  std::vector<ParameterTensor> tensors{};                              // empty: unknown before the objective exists
  std::int64_t samples_per_micro_batch = 1;
  std::shared_ptr<const Optimizer> optimizer{};
  std::shared_ptr<const LearningRate> learning_rate{};
  Training::Options options{};  // options that [training] sets
};

struct EvaluationPlan {
  Step every_steps{};  // write a row of metrics.csv whenever this many steps have passed, and at the end
  // Or write a row at each multiple of this time on the cluster's clock (0: not by time). The row evaluates the first
  // model that is published at or after the multiple, at that model's time. If workers have their own models, each
  // contributes its model after its first step that ends at or after the multiple (ModelsByTime). Nothing is
  // interpolated: if no model is published between two multiples, they share one row.
  Duration every_duration{};
  std::int64_t train_samples = 10000;
  std::optional<double> target_accuracy;  // for the time to the target; a fraction
  std::optional<double> target_loss;
  bool targets_validation = false;  // targets refer to the validation samples, not to the test set
};

// Measurements at chosen steps, in addition to the evaluations: measurements.csv.
struct MeasurementPlan {
  Step every_steps{};  // 0: no measurements
  MeasureOptions model{};
  bool step_gradient_norm = false;
  bool consensus_distance = false;
};

// Optional files of a run's directory. They do not change what the run computes, so they are not part of its hash. A
// finished run is repeated only if it lacks a requested file.
struct RecordingPlan {
  bool trace = false;                     // trace.json.gz; it ends at one of the next two limits
  std::optional<double> trace_seconds{};  // seconds on the cluster's clock
  std::int64_t trace_events = 100'000;
  std::optional<bool> durations{};  // durations.csv.gz; not set: only under MPI
  bool arrivals = false;            // arrivals.csv.gz
  bool samples = false;             // counts in summary.json: which kinds of samples were kept
  bool parameters = false;          // parameters.npy: parameters of the last model, if there is one

  bool records_durations(bool mpi) const { return durations.value_or(mpi); }
};

// Checkpoints of a simulated run, from which it resumes after it was killed. Not hashed.
struct CheckpointPlan {
  bool is_written = true;
  double every_s = 60;  // seconds of this machine's time between checkpoints
};

// One run: a method at one point of the sweep with one seed. All defaults are filled in.
struct Run {
  std::string experiment;                                           // name of the experiment
  std::string method;                                               // label of the method
  std::size_t method_index = 0;                                     // index among the file's methods; not hashed
  std::size_t point_index = 0;                                      // index of its point in the sweep; not hashed
  std::vector<std::pair<std::string, std::string>> sweep{};         // swept keys and values
  std::vector<std::pair<std::string, std::string>> own_training{};  // the method's overrides of [training]
  std::uint64_t seed = 0;
  std::string resolved_toml;   // the whole resolved configuration of this run alone
  std::string hash;            // its configuration_hash, which names its directory
  std::string setting;         // hash without the method, and without times that are still to be measured; runs with
                               // the same setting have the same delays
  std::string fingerprint{};   // hash of the computation, without the names of experiment and method
  std::string timing_class{};  // the text of timing_class()
  bool is_trial = false;       // whether it is a trial of tuning; not hashed

  ClusterPlan cluster;
  TrainingPlan training;
  Budget budget;  // limits; epochs are already converted to steps
  EvaluationPlan evaluation;
  MeasurementPlan measurements{};
  RecordingPlan recording;      // not hashed
  CheckpointPlan checkpoint{};  // not hashed
  std::shared_ptr<const Algorithm> algorithm;
  std::shared_ptr<const Run> common_phase{};  // the run whose last model this one starts from
  std::vector<TakenElements> taken{};         // parameters to take from common_phase; empty: all
  std::string solved{};                       // "period.steps = 9 makes 60 rounds", if solved for; empty: none

  // The step from which on all workers behave identically between collectives (Traits); nullopt: never.
  std::optional<Step> lockstep_from_step() const {
    return cluster.data_of.empty() ? algorithm->traits().lockstep_under(budget) : std::nullopt;
  }
};

// The steps of the run's budget, if it limits steps or samples.
std::optional<Step> planned_steps(const Run& run);

// Parses a text that is a number and nothing else; nullopt for other texts.
std::optional<double> number_in(std::string_view text);

// A run's label in tables and progress lines: the method, and each swept value with the last part of its key, as in
// "DropCompute, threshold_s = 0.07". Variants and bandwidths appear without their key: "DropCompute, 10 Gbit/s".
std::string run_label(const std::string& method, const std::vector<std::pair<std::string, std::string>>& sweep);

// The part of a resolved configuration that determines how long this machine takes for a micro-batch: model and data
// set with their settings, and the size of a micro-batch. Micro-batches of runs with equal texts take about equally
// long.
std::string timing_class(const TomlNode& resolved);

// Version of the program's results. It is part of every run's hash, so that outdated results are not reused. Raise it
// with each change that alters the times, models or accounts of some run. For changes of file formats raise
// results_schema_version instead. The test that compares with tests/golden/results_by_version/ fails if you must raise
// it. List the changed runs in experiments/sections/run_hash.cpp: all others keep their hash.
inline constexpr int results_version = 7;

// From this version on, a run's hash contains the version of the newest change that altered this run.
inline constexpr int first_selective_results_version = 5;

// A run's time according to a formula.
struct FormulaTime {
  Prediction prediction;
  std::optional<double> total_time_s;  // time until the budget is used up; none if only bytes limit it
};

// Samples the run's compute times. nullopt if a micro-batch has no finite expected duration, or a trace is too short.
std::optional<SampledTimes> sample_times(const Run& run);

// The messages of a run's compressed communication. Without compression all members are empty. If the messages are
// unknown before the model exists, why_none says so.
struct KnownExchanges {
  std::vector<ExchangesFrom> all{};    // exchanges of sums
  std::vector<Exchange> of_average{};  // exchanges of averages, slice after slice
  std::optional<Bytes> packet{};       // bytes of a worker's message to each server
  std::string why_none{};
};
KnownExchanges known_exchanges(const Run& run);

// The number of steps at the start, such as a warm-up, after which the mean time of a step no longer changes.
Step settles_after(const Run& run);
// Whether the number of steps is the budget's only limit.
bool ends_by_steps(const Budget& budget);

struct FormulaTimes {
  std::vector<FormulaTime> all{};
  std::string why_none;  // if there are none
};

// Evaluates all formulas of the run's method. `times`: a sample of the run's compute times, if there is one.
FormulaTimes predict_by_formula(const Run& run, const std::optional<SampledTimes>& times);

}  // namespace syncopate
