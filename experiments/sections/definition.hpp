// All tables of an experiment file as read once, with the seed that stands first. Functions that take `root` add faults
// to it; those that take `faults` add them there.
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

// [[claim]] reference = "dropcompute.figure-5-time": a paper's figure from results/reference/dropcompute.toml, which
// several claims may quote. Replaces each `reference` by its table `paper`. Looks for results/reference beside the
// experiment file, in the folders above it, and in the working directory.
void apply_references(TomlNode& root, const std::string& file, FaultList& faults);

// Why no run of the method will have the measure, as "needs evaluation.target_accuracy"; empty: some will.
using WhyNot = std::function<std::string(const std::string& measure, const std::string& method)>;

// Checks claims against the experiment's runs: methods, swept keys and their values, and measures, which some run of
// the method must have. A claim without `everywhere` or `over` must mean one point.
std::vector<Claim> read_claims(const TomlNode& root, std::span<const std::string> methods, std::span<const Run> runs,
                               const WhyNot& why_not, FaultList& faults);

// Checks claims without the runs.
void check_claims_alone(const TomlNode& root, FaultList& faults);

// For the lists of keys.
void describe_claims(Settings& root);

// --- run_sections.cpp: the tables [cluster], [[delays]], [[outages]] and [network], and those of a run's records

class BatchLengths;

struct ClusterSection {
  ClusterPlan plan;
  bool workers_known = true;       // false: after a fault, plan.workers being a stand-in
  std::vector<TraceLimit> traces;  // to be checked against the budget
  double usual_micro_batch_s = 0;  // the slowest worker's, with its delays; 0: it is still to be measured
};

// Checks the traces' lengths against the budget, and cuts the budget where a trace with end = "stop" ends.
void fit_budget_to_traces(ClusterSection& cluster, Budget& budget);

// The lengths of a cluster's micro-batches, and whether they are computed padded, for a cluster.micro_batch_s that is a
// table of costs. Null lengths after a fault.
struct PlannedLengths {
  std::shared_ptr<const BatchLengths> lengths;
  bool pads = false;
};
using LengthsOf = std::function<PlannedLengths(int workers, int micro_batches)>;

// Has no other null members. `seed`: of the delays. `finite_means`: a delay without an expected value is a fault.
ClusterSection read_cluster(Settings& root, std::uint64_t seed, bool finite_means, const LengthsOf& lengths_of);

// Checks that messages arrive within the longest delay: keys may each be in range, and a large model, a slow link and
// many workers together may still take too long. The fault names the key that takes most of the time.
void check_network_times(Settings& root, const NetworkModel& network, int workers, Bytes payload);

// Checks the frequency of outages for a method with a server, where a worker that has lost its state repeats its whole
// step. `plan`: of ClusterSection.
void check_outages_of_steps(Settings& root, const OutagePlan& plan, int micro_batches, double micro_batch_s,
                            const std::string& method);

// --- training_section.cpp: [training], [training.common] and [methods.training]

// [training.common] is a first phase that methods of a seed share, as a run of its own. A method's own keys in it,
// [methods.training.common], make another phase, which methods with the same keys share.

// The table as written; null if there is none, it is no table, or has no length.
const TomlNode* common_phase_table(const TomlNode& written, FaultList& faults);

// The phase as an experiment of its own: its `method`, or synchronous SGD, with the keys of [training], [models.*] and
// [datasets.*] replaced by the phase's own, and its length as budget.
TomlNode with_common_phase_alone(const TomlNode& written, const TomlNode& common, FaultList& faults);

// The resolved table: the difference of the phase's experiment, `alone`, from `all`, both resolved, with the length and
// `takes` of `written`.
TomlNode resolved_common_phase(const TomlNode& written, const TomlNode& all, const TomlNode& alone);

// Whether methods begin with the body of the phase's model, and with a head of their own.
bool takes_body_alone(const TomlNode& common);

// For each tensor of the bodies its place in both models; empty if the bodies differ or one model has none.
std::vector<TakenElements> taken_body(const ObjectivePlan& of_phase, const ObjectivePlan& of_method);

// For the lists of keys.
void describe_common_phase(Settings& root);

// The difference of a method's [training] from the file's as shown to users. Another optimizer, or another method of
// the first phase: its name, and differences from its defaults. Another learning rate: differences from the file's
// `common` [training], or from defaults.
TomlNode shown_difference(TomlNode own, const TomlNode& common, const ObjectivePlan& objective);

// Keys with their values as shown to users: "optimizer.weight_decay", "0.05".
std::vector<std::pair<std::string, std::string>> listed_leaves(const TomlNode& table);

// Steps of an epoch: none without a data set, or if a key that determines them is faulty, which then explains later
// faults.
struct EpochLength {
  std::optional<Step> steps{};
  bool is_faulty = false;
};

struct TrainingSection {
  ObjectivePlan objective;
  TrainingPlan plan;  // its learning rate is read later
  EpochLength epoch;
  Step first_step{};  // number of the data's steps before the run's first
};

// The optimizer is never null. In a time-only run every key but `parameters` is optional. `after_common_phase`: the
// first step of the data, if there is such a phase. `takes_common`: whether there may be one.
TrainingSection read_training(Settings& root, ObjectiveContext context, std::optional<Step> after_common_phase = {},
                              bool takes_common = true);

// Whether a budget counts steps, and how many, unless its keys are faulty.
struct StepBudget {
  bool is_counted = false;
  std::optional<Step> steps{};
};

// The table [training.learning_rate]. `budget`: the number of steps unless the table has it. Never null.
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

// `epochs` in optimizer steps, rounded to the nearest; none, with a fault at `key`, without a data set.
std::optional<Step> steps_of_epochs(Settings& settings, std::string_view key, double epochs, const EpochLength& epoch);

// The table [budget]: the first limit that is reached ends the run. Epochs become steps.
struct BudgetSection {
  Budget limits;
  bool counts_steps = false;  // also if a fault hides their number
};
BudgetSection read_budget(Settings& root, const EpochLength& epoch);

// The tables [evaluation], [checkpoint], [measurements] and [recording]. An absent table of the last three leaves
// nothing in the resolved configuration.
EvaluationPlan read_evaluation(Settings& root, const TrainingSection& training);
CheckpointPlan read_checkpoint(Settings& root);
MeasurementPlan read_measurements(Settings& root, const TrainingSection& training);
RecordingPlan read_recording(Settings& root);

// --- definition.cpp: the whole file

struct Definition;

struct Method {
  std::string label;
  std::shared_ptr<const Algorithm> algorithm;  // null after a fault
  std::shared_ptr<const Definition> own{};     // all tables with the method's [methods.training]; null if it has none
};

// Complete only without faults.
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
  bool is_clean = false;  // without faults, and so without stand-ins
  std::vector<Method> methods;

  // The definition that holds for the method.
  const Definition& of(const Method& method) const { return method.own ? *method.own : *this; }
};

// An experiment file's document, and the result of reading it.
struct Reading {
  Definition definition;
  TomlNode resolved{};
  std::vector<KnownKey> known_keys{};
  FaultList faults{};
  // By method: read with its [methods.training], without methods. Null if it has none.
  std::vector<std::shared_ptr<const Reading>> own{};
  std::shared_ptr<const Reading> common_phase{};  // null: none; of a method's reading: its own phase, or the file's
};

Reading read_document(const TomlNode& written, const std::string& file, const LoadOptions& options);

// Without what says which runs the file has: [sweep], [[variants]], [[claim]] and [tune].
TomlNode without_keys_of_file(TomlNode root);

// The document of one run: one method, one seed, nothing swept.
TomlNode document_of_run(TomlNode root, std::size_t method, std::uint64_t seed);

// Runs with equal fingerprints compute the same. Unlike a run's hash, it ignores the names of experiment and method,
// [training] keys that the method overrides, and models and data sets that it does not use.
std::string fingerprint_of(const Reading& reading);

// The run of a document of one method and seed. Throws ConfigurationFault.
Run plan_run(TomlNode document, const std::string& file, const LoadOptions& options);

void throw_if_any(const FaultList& faults);

// Adds to messages about missing keys that a table of a variant, profile or method has replaced one that has the key.
// `document`: with the faults; `before`: before variants, and before profiles too.
void say_what_was_replaced(FaultList& faults, const TomlNode& document, std::initializer_list<const TomlNode*> before);

// All keys of an experiment file, as their readers describe them. `fixed`: words of the file, such as
// {"methods.algorithm", "dropcompute"}. Found once per map: readers do not change while the program runs.
const std::vector<KeyDescription>& keys_of_file(const std::map<std::string, std::string>& fixed);
const std::vector<KeyDescription>& keys_of_file();  // with any words

// Why runs of this definition never have the measure, as "needs a validation split: ..."; empty: they may. Measures are
// those of results/summary.hpp and times to equal loss.
std::string why_not_measured(const std::string& measure, const Definition& definition);

// A training's steps in the data. All trainings have the same number of workers and of micro-batches in a step.
struct DataSteps {
  std::int64_t samples_per_micro_batch = 1;
  std::int64_t steps_per_epoch = 0;  // 0: no data set, or faults
};

// `done` steps of one training in those of another: whole epochs, and then the first step that repeats no sample, or
// the next epoch if there is none. Unchanged without epochs.
Step in_steps_of(const DataSteps& other, Step done, const DataSteps& own);

}  // namespace syncopate
