// What a run is: a method on a cluster, with a network, a model and a budget, and what is to be recorded of it. Plain
// data, which sections of an experiment file fill and the clusters execute.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/method/algorithm.hpp"
#include "algorithms/method/prediction.hpp"
#include "workers/cluster/calls.hpp"
#include "workers/config/toml.hpp"
#include "workers/theory/sampled_times.hpp"
#include "workers/time/compute_time.hpp"
#include "workers/time/network.hpp"
#include "workers/training/evaluation.hpp"
#include "workers/training/learning_rate.hpp"
#include "workers/training/objective.hpp"
#include "workers/training/optimizers.hpp"
#include "workers/worker.hpp"

namespace syncopate {

class OutagePlan;
class Pauses;
class SampleKinds;

// Who works, how long that takes, and what communication costs.
struct ClusterPlan {
  int workers = 1;
  int micro_batches = 1;
  std::vector<std::optional<Step>> data_of{};  // steps after which a worker has used up its data; empty: none does
  Pace pace = Pace::inject;
  bool to_be_measured = false;                     // micro_batch_s is not known yet, so the run cannot be made
  std::optional<double> measured_micro_batch_s{};  // micro_batch_s, where it was measured; by lengths: its mean
  std::optional<ContentCost> content_cost{};       // micro_batch_s, where it goes by lengths
  std::optional<LengthFit> measured_fit{};         // then, where it was measured for this run: how well the line fits
  std::shared_ptr<const ComputeTime> compute_time{};
  std::shared_ptr<const Pauses> pauses{};       // null: there are none; on the simulated cluster alone
  std::shared_ptr<const OutagePlan> outages{};  // null: there are none
  std::shared_ptr<const NetworkModel> network{};
};

// What is trained, and by which steps.
struct TrainingPlan {
  bool time_only = false;                                              // there is no model
  bool trains_network = false;                                         // LibTorch computes the model
  std::function<std::shared_ptr<const Objective>()> make_objective{};  // loads data; null result: time-only
  std::function<std::shared_ptr<const SampleKinds>()> make_kinds{};    // loads data; empty: there are none
  Bytes parameter_bytes{};                                             // 4 P: what collectives carry
  ObjectiveMemory memory{};                                            // of the objective that is made; not hashed
  std::vector<ParameterTensor> tensors{};                              // empty: not known before it is made
  std::int64_t samples_per_micro_batch = 1;
  std::shared_ptr<const Optimizer> optimizer{};
  double clip_norm = 0;
  std::shared_ptr<const LearningRate> learning_rate{};
  std::shared_ptr<const StartingPoint> start{};  // null: at the model's own first values
};

struct EvaluationPlan {
  Step every_steps{};  // a row of metrics.csv each time this many steps are passed, and at the end
  // Likewise each time so much time has passed on the cluster's clock, instead: of the first model that is published at
  // or after each multiple, at its own time; where workers have models of their own, of each the one after its first
  // step that ends at or after it, at the time of the last, while all have one. Nothing is interpolated, and multiples
  // that no model lies between have one row. 0: not by time.
  Duration every_duration{};
  std::int64_t train_samples = 10000;
  std::optional<double> target_accuracy;  // for "time to target", fraction
  std::optional<double> target_loss;
  bool targets_validation = false;  // the targets are of what was held out of the training set, not of the test set
};

// What is measured at chosen steps beside the evaluations: measurements.csv.
struct MeasurementPlan {
  Step every_steps{};  // 0: nothing
  MeasureOptions model{};
  bool step_gradient_norm = false;
  bool consensus_distance = false;
};

// What a run leaves beside its rows. It does not change what a run computes, so it is no part of the hash: a
// finished run is repeated only where it lacks a file that is asked for.
struct RecordingPlan {
  bool trace = false;                     // trace.json.gz; it ends at the first of the next two
  std::optional<double> trace_seconds{};  // on the cluster's clock
  std::int64_t trace_events = 100'000;
  std::optional<bool> durations{};  // durations.csv.gz; left out: under MPI alone
  bool arrivals = false;            // arrivals.csv.gz
  bool samples = false;             // in summary.json: which kinds of samples were kept
  bool parameters = false;          // parameters.npy: of the last model; nothing where there is no model

  bool records_durations(bool mpi) const { return durations.value_or(mpi); }
};

// What is kept of a run while it goes on, on the simulated cluster, for whoever starts it again after it has been
// killed. It does not change what a run computes either.
struct CheckpointPlan {
  bool is_written = true;
  double every_s = 60;  // of this machine's time
};

// One run: a method at one point of the sweep with one seed. All defaults are filled in.
struct Run {
  std::string experiment;                                           // name of the experiment
  std::string method;                                               // label of the method
  std::size_t method_index = 0;                                     // its place among the file's methods; not hashed
  std::size_t point_index = 0;                                      // that of its point in the sweep; not hashed
  std::vector<std::pair<std::string, std::string>> sweep{};         // key and value of what is swept
  std::vector<std::pair<std::string, std::string>> own_training{};  // keys of [training] that the method has otherwise
  std::uint64_t seed = 0;
  std::string resolved_toml;  // the whole resolved configuration of this run alone
  std::string hash;           // its configuration_hash; names the directory
  std::string setting;        // likewise, also without the method, and with times yet to be measured as such: runs
                              // that share it meet the same delays
  std::string course{};       // likewise of what it computes, whatever experiment and method are called
  std::string work_kind{};    // WorkKind's words
  bool is_trial = false;      // of tuning; not hashed

  ClusterPlan cluster;
  TrainingPlan training;
  Budget budget;  // epochs are already steps
  EvaluationPlan evaluation;
  MeasurementPlan measurements{};
  RecordingPlan recording;      // not hashed
  CheckpointPlan checkpoint{};  // likewise
  std::shared_ptr<const Algorithm> algorithm;
  std::shared_ptr<const Run> common_phase{};  // a run at whose end this one starts; null: none
  std::vector<TakenElements> taken{};         // what of its parameters; empty: all
  std::string solved{};  // what a number of the method was solved for, and gives; empty: nothing was

  // The step from which on all workers take the same course (Traits).
  std::optional<Step> same_course_from() const {
    return cluster.data_of.empty() ? algorithm->traits().same_course_under(budget) : std::nullopt;
  }
};

// The steps of the run's budget, where it counts them or samples.
std::optional<Step> planned_steps(const Run& run);

// What a run is called in tables and lines.
// "DropCompute, threshold_s = 0.07": the method and the swept values, each by the last part of its key; a
// variant, and a rate with its unit, by itself: "DropCompute, 10 Gbit/s".
std::string run_label(const std::string& method, const std::vector<std::pair<std::string, std::string>>& sweep);

// What decides how long this machine takes for a micro-batch of a run, as far as the configuration says it.
// Of a run's resolved configuration: its model, its data set, with their settings, and the size of a micro-batch. Runs
// of one kind cost this machine about the same per micro-batch; equal texts are one kind.
std::string work_kind(const TomlNode& resolved);

// What the program computes, as a number: part of every run's hash, so that results which it would not give any more
// are not taken for its own.
// Raise it by one with each change that alters what some run computes: its times, its models, its accounts. A change of
// files' formats is results_schema_version's. tests/golden/results_by_version/ holds the results of each version; the
// test that compares with it says when. Name the runs that changed in experiments/sections/definition.cpp: all
// others keep their hash.
inline constexpr int results_version = 7;

// From this version on, a run's hash has the version of the newest change that altered this run.
inline constexpr int first_selective_results_version = 5;

// What formulas say of a run's time, without running anything.
struct FormulaTime {
  Prediction prediction;
  std::optional<double> total_time_s;  // of the budget; none where bytes alone limit it
};

// A sample of the run's compute times; nothing where a micro-batch has no expected duration, or a
// trace has too few.
std::optional<SampledTimes> sample_times(const Run& run);

// What its compressed sums, or its averages, exchange, of those of slices one after the other; or what a worker's
// compressed message has, to each server. None: they are dense, or it is not known before the model is made.
struct KnownExchanges {
  std::vector<ExchangesFrom> all{};
  std::vector<Exchange> of_average{};
  std::optional<Bytes> packet{};
  std::string why_none{};
};
KnownExchanges known_exchanges(const Run& run);

// Steps after which its pace is that of the rest of the run.
Step settles_after(const Run& run);
// Whether nothing but a number of steps ends it.
bool ends_by_steps(const Budget& budget);

struct FormulaTimes {
  std::vector<FormulaTime> all;
  std::string why_none;  // where there are none
};

// As many as there are for the run's method; `times` is a sample of it, if there is one.
FormulaTimes predict_by_formula(const Run& run, const std::optional<SampledTimes>& times);

}  // namespace syncopate
