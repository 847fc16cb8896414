// Functions that read the tables of an experiment file. They report faults to `root` or, if they have that parameter,
// to `faults`. If `seeds` lists several seeds, they use the first one. (The document of a single run has only one.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "experiments/sections/experiment.hpp"
#include "results/claims.hpp"
#include "results/run.hpp"
#include "workers/base/units.hpp"
#include "workers/config/settings.hpp"
#include "workers/config/toml.hpp"
#include "workers/models/models.hpp"
#include "workers/time/network.hpp"
#include "workers/time/outages.hpp"
#include "workers/time/trace.hpp"
#include "workers/training/learning_rate.hpp"
#include "workers/training/optimizers.hpp"
#include "workers/training/training.hpp"
#include "workers/worker.hpp"

namespace syncopate {

// --- claims_section.cpp: [[claim]], a statement about the experiment's results, and when it counts as reproduced

// Replaces the key `reference` of each claim by the table `paper` to which it refers: "dropcompute.figure-5-time" names
// the entry figure-5-time of results/reference/dropcompute.toml. Searches for results/reference next to the experiment
// file, in the folders above it, and in the working directory.
void apply_references(TomlNode& root, const std::string& file, FaultList& faults);

// Returns why no run of the method can have the measure, such as "needs evaluation.target_accuracy"; empty if one can.
using WhyNot = std::function<std::string(const std::string& measure, const std::string& method)>;

// Returns the claims. Checks their methods, swept keys, values and measures against the experiment's runs, if there are
// any. Without `everywhere` or `over`, a claim must select exactly one sweep point.
std::vector<Claim> read_claims(const TomlNode& root, std::span<const std::string> methods, std::span<const Run> runs,
                               const WhyNot& why_not, FaultList& faults);

// Declares the keys of claims for `list` and the reference.
void describe_claims(Settings& root);

// --- run_sections.cpp: the tables [cluster], [[delays]], [[outages]], [network], [budget], [evaluation], [checkpoint],
// [measurements] and [recording]

struct ClusterSection {
  ClusterPlan plan;
  bool workers_known = true;       // false after a fault: then plan.workers is a placeholder
  std::vector<TraceLimit> traces;  // fit_budget_to_traces checks them against the budget
  double usual_micro_batch_s = 0;  // the slowest worker's mean time per micro-batch with delays; 0: not measured yet
};

// Checks that the traces are as long as the budget. A trace with end = "stop" that ends earlier shortens the budget.
void fit_budget_to_traces(ClusterSection& cluster, Budget& budget);

// Plans the data of a cluster with this size, with the lengths of sequences. Called if cluster.micro_batch_s is a table
// of costs.
using PlanData = std::function<const ObjectivePlan&(int workers, int micro_batches)>;

// Reads [cluster], [[delays]], [[outages]] and [network]. `seed`: seed of the delays. `finite_means`: whether a delay
// without a finite mean is a fault.
ClusterSection read_cluster(Settings& root, std::uint64_t seed, bool finite_means, const PlanData& plan_data);

// Checks that no message takes longer than `longest_delay`: a large model, a slow link and many workers may together
// take too long. The fault names the key that causes most of the time.
void check_network_times(Settings& root, const NetworkModel& network, int workers, Bytes payload);

// Checks that outages are rare enough for a method with a server, because there a worker that loses its state repeats
// its whole step.
void check_outages_of_steps(Settings& root, const OutagePlan& plan, int micro_batches, double micro_batch_s,
                            const std::string& method);

// --- training_section.cpp: [training], [training.common] and [methods.training]

// [training.common] is the common phase: a first phase of training that all methods share. For each seed it is a
// separate run, and the methods start from its model. A method that overrides keys in [methods.training.common] starts
// from a different phase, which it shares with methods that override the same keys.

// Reads the keys that [training] does not have: the phase's length, `method`, `takes`, and its own [models.*] and
// [datasets.*], without the keys within these tables.
void read_common_phase_keys(Settings& root);

// Returns the table as written, and adds faults of the keys that only this table has. Returns null if the table is
// missing or has no length, or if it or its `method` is not a table.
const TomlNode* common_phase_table(const TomlNode& written, FaultList& faults);

// Returns the phase as a separate experiment. Its method is the phase's `method`, or synchronous SGD. The phase's own
// keys replace those of [training], [models.*] and [datasets.*]. The phase's length is the budget.
TomlNode with_common_phase_alone(const TomlNode& written, const TomlNode& common, FaultList& faults);

// Returns the resolved table [training.common]: the keys in which the resolved phase `alone` differs from the resolved
// file `all`, and the length and `takes` of `written`.
TomlNode resolved_common_phase(const TomlNode& written, const TomlNode& all, const TomlNode& alone);

// Whether methods start with only the body of the phase's model, and initialise their own heads.
bool takes_body_alone(const TomlNode& common);

// Returns the offsets of each body tensor in both models. Empty if the bodies differ, or if a model has no body.
std::vector<TakenElements> taken_body(const ObjectivePlan& of_phase, const ObjectivePlan& of_method);

// Returns how a method's [training] (`own`) differs from the file's [training] (`common`), for users: keys and values,
// such as "optimizer.weight_decay" and "0.05". An optimizer, or a method of the common phase, is shown by its name and
// the keys that differ from its defaults. A learning rate is shown by the keys that differ from the file's learning
// rate, or from the defaults.
KeyValues shown_differences(TomlNode own, const TomlNode& common, const ObjectivePlan& objective);

struct EpochLength {
  std::optional<Step> steps{};  // unknown without a data set, or after a fault
  bool is_faulty = false;       // unknown because of a fault that was already reported, so later readers report none
};

struct TrainingSection {
  ObjectivePlan objective;
  TrainingPlan plan;  // the learning rate is read later
  EpochLength epoch;
  Step first_step{};  // steps of the data before the run's first step: start_steps, or the steps of the common phase
};

// The optimizer of the result is never null. In a time-only run every key except `parameters` is optional.
// `after_common_phase`: the run's first step in the data, if there is a common phase. `takes_common`: whether
// [training] may contain a table `common`.
TrainingSection read_training(Settings& root, ObjectiveContext context, std::optional<Step> after_common_phase = {},
                              bool takes_common = true);

// Whether the budget limits the number of steps, and to how many. `steps` is missing if its keys are faulty.
struct StepBudget {
  bool is_counted = false;
  std::optional<Step> steps{};
};

// Reads [training.learning_rate]. The schedule ends at total_steps or, without that key, at the end of `budget`. Never
// returns null.
std::shared_ptr<const LearningRate> read_learning_rate(Settings& training, const StepBudget& budget,
                                                       const EpochLength& epoch, bool time_only);

// A schedule of [training.learning_rate].
struct LearningRateRow {
  std::string_view name;
  std::string_view sentence;
  LearningRate::Shape shape;
};
std::span<const LearningRateRow> learning_rate_schedules();

// An optimizer of [training.optimizer].
struct OptimizerRow {
  std::string_view name;
  std::string_view sentence;
  std::unique_ptr<Optimizer> (*make)(Settings& settings);
};
std::span<const OptimizerRow> optimizers();

// Returns `epochs` in optimizer steps, rounded to the nearest. Without a data set, reports a fault at `key` and returns
// nullopt.
std::optional<Step> steps_of_epochs(Settings& settings, std::string_view key, double epochs, const EpochLength& epoch);

// The table [budget]. The run ends at the first limit that it reaches. Limits in epochs are converted to steps.
struct BudgetSection {
  Budget limits;
  bool counts_steps = false;  // whether steps or epochs are limited; also true if the number is unknown after a fault
};
BudgetSection read_budget(Settings& root, const EpochLength& epoch);

// If one of the last three tables is absent, the resolved configuration does not contain it either.
EvaluationPlan read_evaluation(Settings& root, const TrainingSection& training);
CheckpointPlan read_checkpoint(Settings& root);
MeasurementPlan read_measurements(Settings& root, const TrainingSection& training);
RecordingPlan read_recording(Settings& root);

// --- definition.cpp: the whole file

struct Reading;

struct Method {
  std::string label;
  std::shared_ptr<const Algorithm> algorithm;  // null after a fault
  // The document without [[methods]], read with this method's keys of [methods.training] in place. Null if the method
  // has no [methods.training].
  std::shared_ptr<const Reading> own{};
};

// The contents of an experiment file. Complete only if there are no faults.
struct Definition {
  std::string name;
  std::string description;
  std::vector<std::uint64_t> seeds;
  ClusterSection cluster;
  TrainingSection training;
  Budget budget;
  EvaluationPlan evaluation;
  MeasurementPlan measurements;
  RecordingPlan recording;
  CheckpointPlan checkpoint;
  StepBudget steps;
  bool is_clean = false;  // no faults, and therefore no placeholders for faulty values
  std::vector<Method> methods;

  // The definition that applies to the method.
  const Definition& of(const Method& method) const;
};

// An experiment file's document, and the result of reading it.
struct Reading {
  Definition definition;
  TomlNode resolved{};
  std::vector<KnownKey> known_keys{};
  FaultList faults{};
  // The reading of [training.common], or of the method's own table with that name. Null if there is neither.
  std::shared_ptr<const Reading> common_phase{};
};

inline const Definition& Definition::of(const Method& method) const {
  return method.own ? method.own->definition : *this;
}

Reading read_document(const TomlNode& written, const std::string& file, const LoadOptions& options);

// Returns the document without [sweep], [[variants]], [[claim]] and [tune].
TomlNode without_keys_of_file(TomlNode root);

// Returns the document of one run, with one method and one seed, and without a sweep.
TomlNode document_of_run(TomlNode root, std::size_t method, std::uint64_t seed);

// Returns a hash of what the run computes. Unlike a run's hash, it ignores the names of the experiment and the method,
// keys of [training] that the method overrides, and unused models and data sets.
std::string fingerprint_of(const Reading& reading);

// Returns the run of a document with one method and one seed. Throws ConfigurationFault.
Run plan_run(TomlNode document, const std::string& file, const LoadOptions& options);

void throw_if_any(const FaultList& faults);

// Whether the value of the key `name` is a table. If it is not, adds a fault that asks for `wanted`.
bool require_table(const TomlNode& value, const std::string& name, std::string_view wanted, FaultList& faults);

// Extends a message about a missing key if a table of a variant, profile or method replaced the table that contained
// it. `document`: has the faults. `before`: the document before variants, and before profiles.
void say_what_was_replaced(FaultList& faults, const TomlNode& document, std::initializer_list<const TomlNode*> before);

// Returns all keys of an experiment file as the functions that read them describe them. `fixed`: values of keys that
// select further keys, such as {"methods.algorithm", "dropcompute"}; keys without an entry take all of their values.
const std::vector<KeyDescription>& keys_of_file(const std::map<std::string, std::string>& fixed = {});

// Returns why runs of this definition never have the measure, such as "needs a validation split: ..."; empty if they
// may have it.
std::string why_not_measured(const std::string& measure, const Definition& definition);

// Returns the step at which the training `other` continues after `done` steps of the training `own`. Both have equally
// many workers and micro-batches per step. Whole epochs stay whole. Within an epoch, the result is the first step that
// repeats no sample, or else the first step of the next epoch. Without epochs, returns `done`.
Step in_steps_of(const ObjectivePlan& other, Step done, const ObjectivePlan& own);

}  // namespace syncopate
