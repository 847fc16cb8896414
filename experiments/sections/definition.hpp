// Readers of all tables of an experiment file. A file is read once per seed; the first seed counts. Functions that take
// `root` add faults to it; those that take `faults` add them there.
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

// Why no run of the method will have the measure, such as "needs evaluation.target_accuracy"; empty if some run will.
using WhyNot = std::function<std::string(const std::string& measure, const std::string& method)>;

// Checks claims against the experiment's runs: methods, swept keys and their values, and measures, which some run of
// the method must have. A claim without `everywhere` or `over` must select one point.
std::vector<Claim> read_claims(const TomlNode& root, std::span<const std::string> methods, std::span<const Run> runs,
                               const WhyNot& why_not, FaultList& faults);

// Checks claims without knowing the runs.
void check_claims_alone(const TomlNode& root, FaultList& faults);

// Declares the keys of claims, for the lists of keys.
void describe_claims(Settings& root);

// --- run_sections.cpp: the tables [cluster], [[delays]], [[outages]] and [network], and those of a run's records

class BatchLengths;

struct ClusterSection {
  ClusterPlan plan;
  bool workers_known = true;       // false after a fault: plan.workers is then a stand-in
  std::vector<TraceLimit> traces;  // still to be checked against the budget
  double usual_micro_batch_s = 0;  // mean time of the slowest worker, with its delays; 0: still to be measured
};

// Checks the traces' lengths against the budget, and shortens the budget if a trace with end = "stop" ends earlier.
void fit_budget_to_traces(ClusterSection& cluster, Budget& budget);

// The lengths of a cluster's micro-batches, and whether micro-batches are computed padded. For a cluster.micro_batch_s
// that is a table of costs. The lengths are null after a fault.
struct PlannedLengths {
  std::shared_ptr<const BatchLengths> lengths;
  bool pads = false;
};
using LengthsOf = std::function<PlannedLengths(int workers, int micro_batches)>;

// Members of the result are not null unless their comments say so. `seed`: seed of the delays. `finite_means`: whether
// a delay without an expected value is a fault.
ClusterSection read_cluster(Settings& root, std::uint64_t seed, bool finite_means, const LengthsOf& lengths_of);

// Checks that messages arrive within the longest delay. Each key may be in range, and a large model, a slow link and
// many workers together may still take too long. The fault names the key that causes most of the time.
void check_network_times(Settings& root, const NetworkModel& network, int workers, Bytes payload);

// Checks the frequency of outages for a method with a server: a worker that has lost its state there repeats its whole
// step. `plan`: the plan in ClusterSection.
void check_outages_of_steps(Settings& root, const OutagePlan& plan, int micro_batches, double micro_batch_s,
                            const std::string& method);

// --- training_section.cpp: [training], [training.common] and [methods.training]

// [training.common] is a first phase that methods of a seed share, made as a separate run. If a method overrides keys
// in [methods.training.common], it gets another phase, which methods with the same keys share.

// The table as written; null if it is missing, is no table, or has no length.
const TomlNode* common_phase_table(const TomlNode& written, FaultList& faults);

// The phase as a separate experiment. It has the phase's `method`, or synchronous SGD. The phase's own keys replace
// those of [training], [models.*] and [datasets.*], and its length is the budget.
TomlNode with_common_phase_alone(const TomlNode& written, const TomlNode& common, FaultList& faults);

// The resolved table: the difference between the phase's resolved experiment `alone` and the resolved `all`, with the
// length and `takes` of `written`.
TomlNode resolved_common_phase(const TomlNode& written, const TomlNode& all, const TomlNode& alone);

// Whether methods take only the body of the phase's model, and have their own heads.
bool takes_body_alone(const TomlNode& common);

// The place of each tensor of the bodies in both models; empty if the bodies differ or one model has none.
std::vector<TakenElements> taken_body(const ObjectivePlan& of_phase, const ObjectivePlan& of_method);

// Declares the keys of the common phase, for the lists of keys.
void describe_common_phase(Settings& root);

// How a method's [training] differs from the file's, as shown to users. For another optimizer, or another method of the
// first phase: its name, and differences from its defaults. For another learning rate: differences from the file's
// `common` [training], or from defaults.
TomlNode shown_difference(TomlNode own, const TomlNode& common, const ObjectivePlan& objective);

// Keys with their values as shown to users, such as "optimizer.weight_decay" and "0.05".
std::vector<std::pair<std::string, std::string>> listed_leaves(const TomlNode& table);

// The steps of an epoch. None without a data set, or if a key that determines them is faulty; that fault then explains
// later ones.
struct EpochLength {
  std::optional<Step> steps{};
  bool is_faulty = false;
};

struct TrainingSection {
  ObjectivePlan objective;
  TrainingPlan plan;  // the learning rate is read later
  EpochLength epoch;
  Step first_step{};  // number of the data's steps that precede the run's first step
};

// The optimizer is never null. In a time-only run every key except `parameters` is optional. `after_common_phase`: the
// first step in the data, if there is such a phase. `takes_common`: whether there may be one.
TrainingSection read_training(Settings& root, ObjectiveContext context, std::optional<Step> after_common_phase = {},
                              bool takes_common = true);

// Whether a budget counts steps, and how many. The number is missing if its keys are faulty.
struct StepBudget {
  bool is_counted = false;
  std::optional<Step> steps{};
};

// The table [training.learning_rate]. `budget`: gives the number of steps unless the table has it. Never null.
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

// `epochs` in optimizer steps, rounded to the nearest. Without a data set nullopt, with a fault at `key`.
std::optional<Step> steps_of_epochs(Settings& settings, std::string_view key, double epochs, const EpochLength& epoch);

// The table [budget]: the first limit that is reached ends the run. Epochs are converted to steps.
struct BudgetSection {
  Budget limits;
  bool counts_steps = false;  // also true if a fault hides their number
};
BudgetSection read_budget(Settings& root, const EpochLength& epoch);

// The tables [evaluation], [checkpoint], [measurements] and [recording]. If one of the last three is absent, the
// resolved configuration does not have it either.
EvaluationPlan read_evaluation(Settings& root, const TrainingSection& training);
CheckpointPlan read_checkpoint(Settings& root);
MeasurementPlan read_measurements(Settings& root, const TrainingSection& training);
RecordingPlan read_recording(Settings& root);

// --- definition.cpp: the whole file

struct Definition;

struct Method {
  std::string label;
  std::shared_ptr<const Algorithm> algorithm;  // null after a fault
  std::shared_ptr<const Definition> own{};     // all tables, with the method's [methods.training]; null if it has none
};

// Complete only if there are no faults.
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
  bool is_clean = false;  // no faults, and therefore no stand-ins
  std::vector<Method> methods;

  // The definition that applies to the method.
  const Definition& of(const Method& method) const { return method.own ? *method.own : *this; }
};

// An experiment file's document, and the result of reading it.
struct Reading {
  Definition definition;
  TomlNode resolved{};
  std::vector<KnownKey> known_keys{};
  FaultList faults{};
  // By method: the document read with its [methods.training] and without [[methods]]. Null if the method has no such
  // table.
  std::vector<std::shared_ptr<const Reading>> own{};
  std::shared_ptr<const Reading> common_phase{};  // null: none; in a method's reading: its own phase, or the file's
};

Reading read_document(const TomlNode& written, const std::string& file, const LoadOptions& options);

// The document without the keys that define the file's set of runs: [sweep], [[variants]], [[claim]] and [tune].
TomlNode without_keys_of_file(TomlNode root);

// The document of one run: one method, one seed, nothing swept.
TomlNode document_of_run(TomlNode root, std::size_t method, std::uint64_t seed);

// A hash of what the run computes: runs with equal fingerprints compute the same. Unlike a run's hash, it ignores the
// names of experiment and method, [training] keys that the method overrides, and models and data sets that it does not
// use.
std::string fingerprint_of(const Reading& reading);

// The run of a document of one method and seed. Throws ConfigurationFault.
Run plan_run(TomlNode document, const std::string& file, const LoadOptions& options);

void throw_if_any(const FaultList& faults);

// Extends messages about missing keys: says so if a table of a variant, profile or method has replaced a table with the
// key. `document`: the document with the faults; `before`: the document before variants, and that before profiles.
void say_what_was_replaced(FaultList& faults, const TomlNode& document, std::initializer_list<const TomlNode*> before);

// All keys of an experiment file, as their readers describe them. `fixed`: words of the file, such as
// {"methods.algorithm", "dropcompute"}. Computed once per map: readers do not change while the program runs.
const std::vector<KeyDescription>& keys_of_file(const std::map<std::string, std::string>& fixed);
const std::vector<KeyDescription>& keys_of_file();  // with any words

// Why runs of this definition never have the measure, such as "needs a validation split: ..."; empty if they may have
// it. Measures are those of results/summary.hpp and times to equal loss.
std::string why_not_measured(const std::string& measure, const Definition& definition);

// The lengths of a training's steps in the data. All trainings have the same number of workers and of micro-batches per
// step.
struct DataSteps {
  std::int64_t samples_per_micro_batch = 1;
  std::int64_t steps_per_epoch = 0;  // 0: no data set, or faults
};

// Converts `done` steps of one training to those of another. Whole epochs stay whole; then follows the first step that
// repeats no sample, or the next epoch if there is none. Unchanged without epochs.
Step in_steps_of(const DataSteps& other, Step done, const DataSteps& own);

}  // namespace syncopate
