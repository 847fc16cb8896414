// All tables of an experiment file as read once, with the seed that stands first.
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
#include "workers/training/evaluation.hpp"
#include "workers/training/learning_rate.hpp"
#include "workers/training/optimizers.hpp"
#include "workers/worker.hpp"

namespace syncopate {

// [[claim]]: what somebody says that the experiment shows, and what counts as having shown it.
// [[claim]] reference = "dropcompute.figure-5-time": a paper's figure that stands in
// results/reference/dropcompute.toml, once for all claims that quote it.
// Puts the table `paper` that is meant in the place of each `reference`. The folder results/reference is looked for
// beside the experiment file and in the folders above it, then in the working directory. No such folder, file or entry
// is a fault, with the nearest known name.
void apply_references(TomlNode& root, const std::string& file, FaultList& faults);

// Why no run of the method will ever have the measure, as "needs evaluation.target_accuracy"; empty: some will.
using WhyNot = std::function<std::string(const std::string& measure, const std::string& method)>;

// Checked against the experiment's runs: methods, swept keys and their values, measures, which some run of the method
// must have, and that a claim without `everywhere` or `over` means one point. Faults are added.
std::vector<Claim> read_claims(const TomlNode& root, std::span<const std::string> methods, std::span<const Run> runs,
                               const WhyNot& why_not, FaultList& faults);

// What is wrong with the claims themselves, whatever the runs are. Faults are added.
void check_claims_alone(const TomlNode& root, FaultList& faults);

// For the lists of keys.
void describe_claims(Settings& root);

// The tables [cluster], [[delays]], [[outages]] and [network]: who works, how long a micro-batch takes, and what
// communication costs.
class BatchLengths;

struct ClusterSection {
  ClusterPlan plan;
  bool workers_known = true;       // false: what is written is a fault, and plan.workers stands in for it
  std::vector<TraceLimit> traces;  // to be checked against the budget
  double usual_micro_batch_s = 0;  // the slowest worker's, with its delays; 0: it is still to be measured
};

// Checks the traces' lengths against the budget, and cuts the budget where a trace with end = "stop" ends.
void fit_budget_to_traces(ClusterSection& cluster, Budget& budget);

// What the lengths of a cluster's micro-batches are, and whether they are computed padded; asked for where
// cluster.micro_batch_s is a table of costs. Null lengths after a fault.
struct PlannedLengths {
  std::shared_ptr<const BatchLengths> lengths;
  bool pads = false;
};
using LengthsOf = std::function<PlannedLengths(int workers, int micro_batches)>;

// Has no other null members; faults are collected by `root`. `seed` is that of the delays; with `finite_means` a delay
// without an expected value is a fault.
ClusterSection read_cluster(Settings& root, std::uint64_t seed, bool finite_means, const LengthsOf& lengths_of);

// Whether messages arrive within the limit of all durations. Each key may be in its range, and a large model, a slow
// link and many workers together may still take for ever.
// A fault names the key of [network] that most of the time comes from.
void check_network_times(Settings& root, const NetworkModel& network, int workers, Bytes payload);

// The tables [[outages]]: when workers make no progress, and whether they lose their state then.
// Null where there are none; faults are collected by `root`. `workers_known`: whether the number of workers is known.
// `micro_batch_s`: the time of the slowest worker's micro-batch with its mean delays, which bounds how often there may
// be outages.
std::shared_ptr<const OutagePlan> read_outages(Settings& root, std::uint64_t seed, int workers, bool workers_known,
                                               double micro_batch_s);

// The same bound for a method with a server, where a worker that has lost its state begins its whole step anew. `plan`
// is what read_outages gave.
void check_outages_of_steps(Settings& root, const OutagePlan& plan, int micro_batches, double micro_batch_s,
                            const std::string& method);

// The table [training]: what is trained, by which optimizer, at which learning rate.
// [training.common]: a first phase that the methods of a seed have in common, as a run of its own. What a method has
// otherwise in it, [methods.training.common], makes another phase, which methods that say the same have in common.
inline constexpr const char* common_phase_label = "common phase";

// The table, as it is written; null where there is none. One that is no table, or has no length, is a fault, and so are
// keys that no other table would tell.
const TomlNode* common_phase_table(const TomlNode& written, FaultList& faults);

// The experiment of the phase alone: its `method`, or synchronous SGD, by the keys of [training] and of [models.*] and
// [datasets.*], with the phase's own in their place, and its length as budget.
TomlNode with_common_phase_alone(const TomlNode& written, const TomlNode& common);

// The table as it is resolved: what of the experiment of the phase, `alone`, differs from `all`, both resolved, and of
// `written` what says how long it is and what is taken of it.
TomlNode resolved_common_phase(const TomlNode& written, const TomlNode& all, const TomlNode& alone);

// Whether methods begin with the body of the phase's model alone, and with a head of their own.
bool takes_body_alone(const TomlNode& common);

// The bodies' tensors, where both models have the same ones: for each of the phase's where it is in the method's. Empty
// where they do not, or one has no body.
std::vector<TakenElements> taken_body(const ObjectivePlan& of_phase, const ObjectivePlan& of_method);

// Its own keys, for lists and pages: what is written is read as the budget of the phase.
void describe_common_phase(Settings& root);

// [methods.training]: keys of [training] that one method has otherwise.
// [training] as the method has it. Its own keys take the place of the file's, one by one, also within tables; but a
// table that names another optimizer, schedule or form of randaugment stands by itself, and a length in epochs (steps,
// a share) takes the place of one that is said otherwise. Places stay where things are written.
TomlNode with_own_training(TomlNode training, const TomlNode& own);

// What of a method's [training] differs from the file's, both resolved: together with the file's it is the method's.
TomlNode training_difference(const TomlNode& common, const TomlNode& own);

// The difference as it is shown. Of another optimizer, or of a first phase's method: its name, and what differs from
// its own defaults. Of another learning rate: what differs from the file's, `common` being all of its [training], and
// of keys that the file's does not have what differs from their defaults.
TomlNode shown_difference(TomlNode difference, const TomlNode& common, const ObjectivePlan& objective);

// Keys with their values, as shown to the user: "optimizer.weight_decay", "0.05".
std::vector<std::pair<std::string, std::string>> listed_leaves(const TomlNode& table);

// How many steps an epoch has: none where there is no data set, or where what says so is faulty. What would follow from
// that is then no fault of its own.
struct EpochLength {
  std::optional<Step> steps{};
  bool is_faulty = false;
};

struct TrainingSection {
  ObjectivePlan objective;
  TrainingPlan plan;  // its learning rate is read later
  EpochLength epoch;
  Step first_step{};  // of the data: so many steps lie before the run's first
};

// Never has a null optimizer; faults are collected by the settings. In a time-only run everything but
// `parameters` is optional. `after_common_phase`: the first step of the data where there is such a phase.
// `takes_common`: whether there may be one.
TrainingSection read_training(Settings& root, ObjectiveContext context, std::optional<Step> after_common_phase = {},
                              bool takes_common = true);

// The steps of a budget: whether it counts them, and how many they are, as far as its keys are without faults.
struct StepBudget {
  bool is_counted = false;
  std::optional<Step> steps{};
};

// The table [training.learning_rate]. `budget` gives the total number of steps where the file does not. Never null.
std::shared_ptr<const LearningRate> read_learning_rate(Settings& training, const StepBudget& budget,
                                                       const EpochLength& epoch, bool time_only);

// One row per schedule that [training.learning_rate] may name.
struct LearningRateRow {
  std::string_view name;
  std::string_view sentence;
  LearningRate::Shape shape;
};
std::span<const LearningRateRow> learning_rate_schedules();

// The table [training.optimizer]. Never null.
std::unique_ptr<Optimizer> read_optimizer(Settings& training, const ObjectivePlan& objective);

// One row per optimizer that [training.optimizer] may name.
struct OptimizerRow {
  std::string_view name;
  std::string_view sentence;
  std::unique_ptr<Optimizer> (*make)(Settings& settings);
};
std::span<const OptimizerRow> optimizers();

// `epochs` in optimizer steps, rounded to the nearest; none, with a fault at `key`, where there is no data set.
std::optional<Step> steps_of_epochs(Settings& settings, std::string_view key, double epochs, const EpochLength& epoch);

// The tables [budget] and [evaluation]: when a run ends, and when its model is looked at.
// Epochs become steps; the first limit reached ends the run. Faults are collected by `root`.
struct BudgetSection {
  Budget limits;
  bool counts_steps = false;  // also where their number is not known for faults
};
BudgetSection read_budget(Settings& root, const EpochLength& epoch);

EvaluationPlan read_evaluation(Settings& root, const TrainingSection& training);

// The table [checkpoint]: how often a long run keeps what it has come to.
// Faults are collected by `root`. An absent table leaves nothing in the resolved configuration.
CheckpointPlan read_checkpoint(Settings& root);

// The table [measurements]: what is measured at chosen steps beside the evaluations.
// Faults are collected by `root`. An absent table leaves nothing in the resolved configuration.
MeasurementPlan read_measurements(Settings& root, const TrainingSection& training);

// The table [recording]: what a run leaves beside the results that every run has.
// Faults are collected by `root`. An absent table leaves nothing in the resolved configuration.
RecordingPlan read_recording(Settings& root);

struct Definition;

struct Method {
  std::string label;
  std::shared_ptr<const Algorithm> algorithm;  // null after a fault
  // All tables as they are with the method's own [methods.training]; null where it has none.
  std::shared_ptr<const Definition> own{};
};

// Complete only if there were no faults.
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
  bool is_clean = false;  // there were no faults, so nothing stands in for what is faulty
  std::vector<Method> methods;

  // What holds for the method.
  const Definition& of(const Method& method) const { return method.own ? *method.own : *this; }
};

struct DefinitionOptions {
  std::string file;                                      // which gives the experiment its name, unless it says another
  bool finite_means = false;                             // delays without an expected value are faults
  bool looks_for_data = true;                            // false: keys are read, but no data sets are looked for
  bool reads_methods = true;                             // false: all but methods
  bool takes_common = true;                              // false: [training] has no [training.common]
  std::optional<Step> after_common_phase{};              // first step of the data, where there is such a phase
  std::vector<std::shared_ptr<const Definition>> own{};  // of methods, in their order; null or left out: none
};

// Faults are collected by `root`. [sweep] is left as it is written.
Definition read_definition(Settings& root, const DefinitionOptions& options);

// An experiment file's document, and all that comes of reading it.
struct Reading {
  Definition definition;
  TomlNode resolved{};
  std::vector<KnownKey> known_keys{};
  FaultList faults{};
  // Methods' own, in their order: read with what [methods.training] says, without methods. Null where it says nothing.
  std::vector<std::shared_ptr<const Reading>> own{};
  std::shared_ptr<const Reading> common_phase{};  // null where there is none; of a method's own: its own, or the file's
};

Reading read_document(const TomlNode& written, const std::string& file, const LoadOptions& options);

// The document of one run: one method, one seed, nothing swept.
TomlNode document_of_run(TomlNode root, std::size_t method, std::uint64_t seed);

// Runs that share it compute the same. Unlike a run's hash it does not tell apart what experiment and method are
// called, what [training] says of keys that the method has otherwise, nor what is said of models and data sets that it
// does not use.
std::string course_of(const Reading& reading);

// The run of a document of one method and seed. Throws ConfigurationFault.
Run plan_run(TomlNode document, const std::string& file, const LoadOptions& options);

void throw_if_any(const FaultList& faults);

// Why a key that a file lacks is required there. Each function adds that to the messages of such faults.
// Which other key's value asks for it: `training.model = "none"` for training.parameters. `resolved`: what was read of
// the document that has the faults.
void say_what_asks(FaultList& faults, const TomlNode& resolved);

// That the file has the key in a table of another kind, which a variant's, profile's or method's own table replaces.
// `document`: the one that has the faults; `before`: as it was before variants, and before profiles too.
void say_what_was_replaced(FaultList& faults, const TomlNode& document, std::initializer_list<const TomlNode*> before);

// The hash by which runs are told apart.
// 16 hexadecimal digits of everything that decides what a run computes: the resolved configuration and the version of
// its results. The description, [recording], [checkpoint], the places of files and what numbers
// were solved for are left out; the contents of files count. Keys that were added later are left out at the value that
// held before them.
std::string configuration_hash(TomlNode resolved);

// 16 hexadecimal digits of a set of hashes, whatever their order.
std::string digest_of_hashes(std::vector<std::string> hashes);

// What an experiment file may say: the keys of all its tables, as their readers describe them.
// `fixed`: words that stand in the file, such as {"methods.algorithm", "dropcompute"}. Found once for each such map:
// the readers do not change while the program runs.
const std::vector<KeyDescription>& keys_of_file(const std::map<std::string, std::string>& fixed);
const std::vector<KeyDescription>& keys_of_file();  // whatever words stand in it

// Which measures a run can have at all, by what its experiment file asks for.
// Why runs of this definition never have the measure, as "needs a validation split: ..."; empty: they may. Measures are
// those of results/summary.hpp and times to equal loss.
std::string why_not_measured(const std::string& measure, const Definition& definition);

// How far in the data a training is, in steps of another batch.
// Steps as a training counts them. All trainings have the same number of workers and of micro-batches in a step.
struct DataSteps {
  std::int64_t samples_per_micro_batch = 1;
  std::int64_t steps_per_epoch = 0;  // 0: no data set, or faults
};

// `done` steps of one training, in those of another: as many whole epochs, and of the last one the first step that
// meets no sample again, or the next epoch where there is none. The same number where there are no epochs.
Step in_steps_of(const DataSteps& other, Step done, const DataSteps& own);

// Which runs a change of the program has altered: only these get another hash, so that all other finished runs stay
// valid.
// The version of the results of the run with this resolved configuration: that of the newest change that altered what
// such a run computes. At least `first_selective_results_version`, at most `results_version`.
int results_version_of(const TomlNode& resolved);

}  // namespace syncopate
