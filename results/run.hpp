// A run is one method on one cluster, with its network, model and budget, and the plan of what is recorded. It is plain
// data: the sections of an experiment file fill it in, and the clusters execute it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "algorithms/method/algorithm.hpp"
#include "algorithms/method/prediction.hpp"
#include "workers/cluster/calls.hpp"
#include "workers/config/toml.hpp"
#include "workers/models/device.hpp"
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
  std::vector<std::optional<Step>> data_of{};  // steps after which each worker has used up its data; empty: never
  Pace pace = Pace::inject;
  bool to_be_measured = false;                     // micro_batch_s must be measured before the run can start
  std::optional<double> measured_micro_batch_s{};  // micro_batch_s if it was measured; a mean if it depends on lengths
  std::optional<ContentCost> content_cost{};       // micro_batch_s as a function of lengths, if it depends on them
  std::optional<LengthFit> measured_fit{};         // how well content_cost fits, if it was measured for this run
  std::shared_ptr<const ComputeTime> compute_time{};
  std::shared_ptr<const Pauses> pauses{};       // null: no pauses; only on the simulated cluster
  std::shared_ptr<const OutagePlan> outages{};  // null: no outages
  std::shared_ptr<const NetworkModel> network{};
};

struct TrainingPlan {
  bool time_only = false;                                              // whether there is no model
  bool trains_network = false;                                         // whether LibTorch computes the model
  std::function<std::shared_ptr<const Objective>()> make_objective{};  // loads the data; returns null in time-only runs
  std::function<std::shared_ptr<const SampleKinds>()> make_kinds{};    // loads the data; empty: kinds are not counted
  Arithmetic arithmetic{};                                             // where LibTorch computes the model
  ArithmeticPlaces arithmetic_places{};                                // where the keys of `arithmetic` are written
  Bytes parameter_bytes{};                                             // 4 bytes for each parameter
  ObjectiveMemory memory{};                // memory that the objective needs; not in the hash
  std::vector<ParameterTensor> tensors{};  // empty if they are unknown before the objective exists
  std::int64_t samples_per_micro_batch = 1;
  std::shared_ptr<const Optimizer> optimizer{};
  std::shared_ptr<const LearningRate> learning_rate{};
  Training::Options options{};  // options that [training] sets
};

struct EvaluationPlan {
  Step every_steps{};  // a row of metrics.csv whenever this many steps have passed, and at the end
  // If not 0, rows are by time instead: one for each multiple of this time on the cluster's clock. The row evaluates
  // the first model that is published at or after the multiple, at that model's time. If workers have their own models,
  // each contributes its model after its first step that ends at or after the multiple (ModelsByTime). If no model is
  // published between two multiples, they share one row.
  Duration every_duration{};
  std::int64_t train_samples = 10000;
  std::optional<double> target_accuracy;  // a fraction, for the time to the target
  std::optional<double> target_loss;
  bool targets_validation = false;  // whether targets are for the validation samples, not for the test set
};

// Measurements at chosen steps, in addition to the evaluations. They are written to measurements.csv.
struct MeasurementPlan {
  Step every_steps{};  // 0: no measurements
  MeasureOptions model{};
  bool step_gradient_norm = false;
  bool consensus_distance = false;
};

// Optional files of a run's directory. They do not change the run's computation, so they are not in its hash. A
// finished run is repeated only if it lacks a requested file.
struct RecordingPlan {
  bool trace = false;                     // trace.json.gz; it ends at one of the next two limits
  std::optional<double> trace_seconds{};  // on the cluster's clock
  std::int64_t trace_events = 100'000;
  std::optional<bool> durations{};  // durations.csv.gz; nullopt: only under MPI
  bool arrivals = false;            // arrivals.csv.gz
  bool samples = false;             // in summary.json: how many samples of which kinds were kept
  bool parameters = false;          // parameters.npy: parameters of the last model, if there is a model

  bool records_durations(bool mpi) const { return durations.value_or(mpi); }
};

// Checkpoints of a simulated run. If the run is killed, it resumes from the last one. Not in the hash.
struct CheckpointPlan {
  bool is_written = true;
  double every_s = 60;  // between checkpoints, on this machine's clock
};

using KeyValues = std::vector<std::pair<std::string, std::string>>;  // keys and their values, in the order of a file

// All values in a document, as TOML, by their keys as on the command line: "delays.0.kind". `by_label`: elements of
// lists are named by their labels, if they have any: methods."Local SGD".period.
KeyValues leaves_of(const TomlNode& document, bool by_label = false);

// The parts of a run's name, which tell it from the other runs of its experiment, also in results.
struct RunName {
  std::string experiment;
  std::string method;            // label of the method
  std::size_t method_index = 0;  // index among the file's methods; not in the hash
  std::size_t point_index = 0;  // index of the run's point in the sweep, whose last key varies fastest; not in the hash
  KeyValues sweep{};            // keys and values
  KeyValues own_training{};     // the method's overrides of [training]
  std::uint64_t seed = 0;
  std::string hash;  // the configuration_hash, which is in the directory's name
};

// One run: a method at one point of the sweep with one seed. All defaults have been filled in.
struct Run : RunName {
  std::string resolved_toml;  // the whole resolved configuration, for this run alone
  std::string setting;  // hash without the method and times to be measured; runs with equal ones have the same delays
  std::string fingerprint{};   // hash of the computation, without the names of the experiment and the method
  std::string timing_class{};  // result of timing_class()
  bool is_trial = false;       // whether the run is a trial of tuning; not in the hash

  ClusterPlan cluster;
  TrainingPlan training;
  Budget budget;  // epochs are already converted to steps
  EvaluationPlan evaluation;
  MeasurementPlan measurements{};
  RecordingPlan recording;      // not in the hash
  CheckpointPlan checkpoint{};  // not in the hash
  std::shared_ptr<const Algorithm> algorithm;
  std::shared_ptr<const Run> common_phase{};  // the run from whose last model this one starts
  std::vector<TakenElements> taken{};         // parameters to take from common_phase; empty: all
  std::string solved{};  // "period.steps = 9 makes 60 rounds" if a key was solved for; otherwise empty

  // The step after which all workers act alike between collectives (Traits); nullopt: never.
  std::optional<Step> lockstep_from_step() const {
    return cluster.data_of.empty() ? algorithm->traits().lockstep_under(budget) : std::nullopt;
  }
};

// The number of steps that the run's budget allows, if it limits steps or samples.
std::optional<Step> planned_steps(const Run& run);

// The number that the text consists of; nullopt for any other text.
std::optional<double> number_in(std::string_view text);

// A run's label in tables and progress lines: the method, and each swept value with the last part of its key, as in
// "DropCompute, threshold_s = 0.07". Variants and bandwidths have no key: "DropCompute, 10 Gbit/s".
std::string run_label(const std::string& method, const KeyValues& sweep);
std::string run_label(const RunName& run);
std::string label_with_seed(const RunName& run);  // the label and ", seed 3"

// These keys of [training], as far as they are written, and the tables in [models] and [datasets] of the model and data
// set that are among them.
TomlNode keys_of_training(const TomlNode& resolved, std::span<const char* const> keys);

// The part of a resolved configuration that determines how long this machine takes for a micro-batch: model and data
// set with their settings, the micro-batch's size, and the device. Runs with equal texts have about equally long
// micro-batches.
std::string timing_class(const TomlNode& resolved);

// Version of the program's results. It is part of every run's hash, so that outdated results are not reused. Raise it
// with each change that alters the times, models or accounts of some run. For changes of file formats raise
// results_schema_version instead. If you must raise it, the test that compares with tests/golden/results_by_version/
// fails. List the altered runs in experiments/sections/run_hash.cpp, because only these get another hash.
inline constexpr int results_version = 8;

// Since this version, a run's hash contains the version of the newest change that altered this run.
inline constexpr int first_selective_results_version = 5;

struct FormulaTime {
  Prediction prediction;
  std::optional<double> total_time_s;  // until the budget is used up; none if only bytes limit the run
};

// Samples the run's compute times. nullopt if a micro-batch has no finite mean duration, or if a trace is too short.
std::optional<SampledTimes> sample_times(const Run& run);

// The messages of a run's compressed communication. Without compression all members are empty. If the messages are not
// known before the model exists, why_none says so.
struct KnownExchanges {
  std::vector<ExchangesFrom> all{};    // for methods that exchange sums
  std::vector<Exchange> of_average{};  // for methods that exchange averages, slice after slice
  std::optional<Bytes> packet{};       // size of a worker's message to each server
  std::string why_none{};
};
KnownExchanges known_exchanges(const Run& run);

// After how many steps the mean time of a step no longer changes, for instance because a warm-up ends.
Step settles_after(const Run& run);
bool ends_by_steps(const Budget& budget);

struct FormulaTimes {
  std::vector<FormulaTime> all{};
  std::string why_none;  // why there are none; empty if there are some
};

// Evaluates all formulas of the run's method. `times`: a sample of the run's compute times, if one exists.
FormulaTimes predict_by_formula(const Run& run, const std::optional<SampledTimes>& times);

}  // namespace syncopate
