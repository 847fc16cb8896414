#include "experiments/sections/definition.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <mutex>
#include <set>

#include "algorithms/registry.hpp"
#include "experiments/sections/experiment.hpp"
#include "experiments/sections/variation.hpp"
#include "workers/compression/options.hpp"
#include "workers/config/patch.hpp"
#include "workers/time/compute_time.hpp"

namespace syncopate {

namespace {

struct DefinitionOptions {
  std::string file;                                   // the experiment's default name
  bool finite_means = false;                          // whether delays without a finite mean are faults
  bool looks_for_data = true;                         // false: reads keys, but does not look for data sets
  bool reads_methods = true;                          // false: reads everything except methods
  bool takes_common = true;                           // whether [training.common] is allowed
  std::optional<Step> after_common_phase{};           // the run's first step in the data, if a common phase precedes it
  std::vector<std::shared_ptr<const Reading>> own{};  // by method: Method::own; may be empty
};

// Whether each server holds the whole model.
bool has_servers_of_whole_models(const Method& method) {
  const Servers servers = method.algorithm->traits().servers;
  return servers > 0 && !servers.hold_slices();
}

// Worker 0 must not leave if its model is evaluated, which happens unless a server holds the whole model.
void check_who_leaves(Settings& root, const Definition& definition) {
  const auto& data_of = definition.cluster.plan.data_of;
  if (data_of.empty() || !data_of.front()) return;
  for (const Method& method : definition.methods) {
    if (!method.algorithm || has_servers_of_whole_models(method)) continue;
    root.section("cluster").fault(
        "leave", fmt::format("must not name worker 0, because \"{}\" evaluates worker 0's model", method.label));
    return;
  }
}

// Checks that no method has a server if workers pause after micro-batches. A server accounts only for micro-batches,
// which it may cut short, and not for pauses.
void check_pauses(Settings& root, const Definition& definition) {
  if (!definition.cluster.plan.pauses) return;
  for (const Method& method : definition.methods)
    if (method.algorithm && method.algorithm->traits().servers > 0)
      return root.fault("methods", fmt::format("\"{}\" has a server, so all delays must be part of the computation; "
                                               "leave out sleep = true in [[delays]] and cluster.trailing_s",
                                               method.label));
}

// Checks that each method can use its optimizer. (Clipping is always possible: workers clip their whole gradients.)
void check_optimizers(Settings& root, const Definition& definition) {
  for (std::size_t i = 0; i < definition.methods.size(); ++i) {
    const Method& method = definition.methods[i];
    if (!method.algorithm) continue;
    const Traits traits = method.algorithm->traits();
    const Optimizer& optimizer = *definition.of(method).training.plan.optimizer;
    std::string wrong;
    if (traits.servers.hold_slices() && optimizer.passes() > 0)
      wrong = fmt::format(
          "must be one that updates each parameter independently: a server of \"{}\" has only a slice "
          "of the model, and no norms of whole tensors",
          method.label);
    else if (!traits.has_stepped_models() && optimizer.evaluated_factor() != 0)
      wrong = fmt::format(
          "must be one that evaluates the model that it steps: \"{}\" evaluates a model without the "
          "optimizer's state (Local SGD has it with first_moment = \"average\" or \"reset\")",
          method.label);
    if (!wrong.empty() && method.own)
      root.sections("methods")[i].fault("training", "its optimizer " + wrong);
    else if (!wrong.empty())
      root.section("training").section("optimizer").fault("name", wrong);
  }
}

void check_outages(Settings& root, const Definition& definition) {
  const ClusterSection& cluster = definition.cluster;
  if (!cluster.plan.outages) return;
  const bool may_lose_state = std::ranges::any_of(cluster.plan.outages->entries(), &OutageEntry::loses_state);
  for (const Method& method : definition.methods)
    if (may_lose_state && method.algorithm && method.algorithm->compression() &&
        method.algorithm->compression()->estimates())
      return root.fault("outages",
                        fmt::format("must have state = \"kept\": \"{}\" has feedback = \"ef21\", and a worker that "
                                    "loses its state cannot get its estimate back",
                                    method.label));
  for (const Method& method : definition.methods)
    if (method.algorithm && has_servers_of_whole_models(method))
      return check_outages_of_steps(root, *cluster.plan.outages, cluster.plan.micro_batches,
                                    cluster.usual_micro_batch_s, method.label);
}

// Adds one fault for all methods that cannot overlap communication with the backward pass.
void check_overlap(Settings& root, const Definition& definition) {
  if (!definition.cluster.plan.network->overlap()) return;
  std::vector<std::string> of_others, compressed;
  for (const Method& method : definition.methods) {
    if (!method.algorithm) continue;
    if (!method.algorithm->traits().can_overlap_backward)
      of_others.push_back(fmt::format("\"{}\"", method.label));
    else if (method.algorithm->compression())
      compressed.push_back(fmt::format("\"{}\"", method.label));
  }
  Settings network = root.section("network");
  if (const auto count = of_others.size(); count > 0)
    network.fault("overlap", fmt::format("must be left out: {} exchange{} other data than sums of a step's gradients, "
                                         "and only these can start during the backward pass",
                                         fmt::join(of_others, ", "), count == 1 ? "s" : ""));
  if (const auto count = compressed.size(); count > 0)
    network.fault("overlap", fmt::format("must be left out: {} compress{} whole gradients, after the backward pass",
                                         fmt::join(compressed, ", "), count == 1 ? "es" : ""));
}

// Reports methods that do not work in combination with other parts of the experiment.
void check_methods(Settings& root, const Definition& definition) {
  check_who_leaves(root, definition);
  check_pauses(root, definition);
  check_optimizers(root, definition);
  check_outages(root, definition);
  check_overlap(root, definition);
}

std::string read_name(Settings& root, const std::string& file) {
  std::string name = root.text({"name", "The name of the results' directory."},
                               Stated(std::filesystem::path(file).stem().string(), "the file's name"));
  // The name becomes a directory of results.
  const bool usable = !name.empty() && name != "." && name != ".." &&
                      std::ranges::none_of(name, [](unsigned char c) { return c == '/' || c < 0x20; });
  if (!usable)
    root.fault("name",
               "must be a directory name: not empty, not \".\" or \"..\", and without \"/\" and control characters");
  return name;
}

std::vector<std::uint64_t> read_seeds(Settings& root) {
  const std::size_t faults = root.faults_so_far();
  const std::vector<std::int64_t> written =
      root.integers({"seeds", "One run per seed; the seed determines delays, data and initial models."}, 0,
                    std::numeric_limits<std::int64_t>::max(), std::vector<std::int64_t>{1});
  std::vector<std::uint64_t> seeds(written.begin(), written.end());
  if (seeds.empty() && root.faults_so_far() == faults) root.fault("seeds", "must list at least one seed");
  if (std::set(seeds.begin(), seeds.end()).size() < seeds.size()) root.fault("seeds", "must not list a seed twice");
  if (seeds.empty()) seeds.push_back(1);
  return seeds;
}

constexpr const char* costs_need_sequences =
    "depends on the lengths of sequences: training.dataset must be a data set of tokens, such as \"wordnet-glosses\"";

double shortest_micro_batch_s(const ClusterSection& cluster) {
  double shortest_s = std::numeric_limits<double>::infinity();
  for (int n = 0; n < cluster.plan.workers; ++n)
    shortest_s = std::min(shortest_s, cluster.plan.compute_time->shortest(Rank{n}));
  return shortest_s;
}

// Returns the budget's limits on steps and gradients, against which methods check their keys. Empty after faults.
BudgetCheck work_in(const Definition& definition) {
  if (!definition.is_clean) return {};
  const ClusterPlan& cluster = definition.cluster.plan;
  BudgetCheck work = BudgetCheck::of_steps(definition.budget.steps, cluster.workers);
  if (const auto samples = definition.budget.samples) {
    const std::int64_t of_gradient = cluster.micro_batches * definition.training.plan.samples_per_micro_batch;
    const std::int64_t gradients = (*samples - 1) / of_gradient + 1;
    work.gradients = std::min(work.gradients.value_or(gradients), gradients);
  }
  return work;
}

AlgorithmContext algorithm_context(const Definition& definition) {
  const ClusterSection& cluster = definition.cluster;
  const TrainingSection& training = definition.training;
  const Budget& budget = definition.budget;
  const int tensors = static_cast<int>(training.objective.tensors.size());
  const std::int64_t parameters = training.objective.parameters;
  const int node_size = cluster.plan.network ? cluster.plan.network->group_size() : 0;
  return {.workers = cluster.workers_known ? cluster.plan.workers : most_workers,
          .node_size = node_size > 0 ? std::optional(node_size) : std::nullopt,
          .workers_known = cluster.workers_known,
          .micro_batches = cluster.plan.micro_batches,
          .time_only = training.plan.time_only,
          .plain_sgd = training.plan.optimizer->moments() == 0 && training.plan.optimizer->weight_decay().rate == 0,
          .moment_decays = training.plan.optimizer->decays(),
          .frozen_beta1 = training.plan.optimizer->beta1_of_frozen(),
          .clips_gradients = training.plan.options.clip_norm > 0,
          .learning_rate_warmup = training.plan.learning_rate->warmup(),
          .steps_per_epoch = training.epoch.steps,
          .has_epochs = training.epoch.steps || training.epoch.is_faulty,
          .first_step = training.first_step,
          .divides_data = training.objective.divides_data,
          .total_steps = definition.steps.steps,
          .counts_steps = definition.steps.is_counted,
          .shortest_micro_batch_s =
              definition.is_clean && !cluster.plan.to_be_measured ? shortest_micro_batch_s(cluster) : 0,
          .budget_ends_alone = !budget.bytes || definition.steps.is_counted || budget.seconds || budget.samples,
          .learning_rate = training.plan.learning_rate.get(),
          .tensors = tensors > 0 ? std::optional(tensors) : std::nullopt,
          .parameters = parameters > 0 ? std::optional(parameters) : std::nullopt,
          .work = work_in(definition)};
}

std::vector<Method> read_methods(Settings& root, const Definition& definition,
                                 const std::vector<std::shared_ptr<const Reading>>& own) {
  std::vector<Method> methods;
  std::set<std::string> labels;
  const std::size_t faults = root.faults_so_far();
  for (Settings& table : root.sections({"methods", "The methods to compare; at least one entry."})) {
    const bool labelled = table.has("label");  // read first, so that it is the first key of the resolved document
    Method method;
    if (methods.size() < own.size()) method.own = own[methods.size()];
    table.keep_as_written({"training", "Keys that override those of [training] for this method."});
    method.algorithm = make_algorithm(table, algorithm_context(definition.of(method)));
    if (method.algorithm)
      check_tensors(table, method.algorithm->compression(), definition.of(method).training.objective.tensors);
    const std::string name = method.algorithm ? table.text("algorithm") : "";
    const Key label{"label", "The method's name in tables and plots."};
    if (labelled || method.algorithm) method.label = table.text(label, Stated(name, "the algorithm's name"));
    const bool is_new = method.label.empty() ? !labelled : labels.insert(method.label).second;
    if (!is_new) table.fault("label", "must be a name that no other method has");
    methods.push_back(std::move(method));
  }
  if (methods.empty() && root.faults_so_far() == faults)
    root.fault("methods", "must have at least one entry, [[methods]]");
  return methods;
}

bool is_number(const std::string& part) {
  return !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
}

// Returns the path without indices, as in descriptions of keys: "methods.1.algorithm" becomes "methods.algorithm".
std::string described(const Path& path) {
  std::string name;
  for (const std::string& part : path)
    if (!is_number(part)) name += (name.empty() ? "" : ".") + part;
  return name;
}

// Returns the path of a condition's key, with indices of the same list elements as in the missing key's path.
Path beside(const std::string& condition_key, const Path& missing) {
  Path path;
  std::size_t at = 0;
  bool is_common = true;
  for (const std::string& part : split_key(condition_key)) {
    if (is_common && at < missing.size() && is_number(missing[at])) path.push_back(missing[at++]);
    is_common = is_common && at < missing.size() && missing[at] == part;
    path.push_back(part);
    if (is_common) ++at;
  }
  return path;
}

// Returns the conditions under which the missing key is required, such as `kind = "ring"`; nullopt if one is false. A
// condition on a key of the same table names only the last part of that key. A condition on a key of another table is
// included only if a single value of that key requires the missing one. (It explains nothing that all models except
// "none" need a learning rate.) Skips conditions on tables.
std::optional<std::vector<std::string>> texts_if_true(const std::vector<Condition>& conditions, const Path& missing,
                                                      const TomlNode& resolved) {
  std::vector<std::string> texts;
  for (const Condition& condition : conditions) {
    if (condition.key.ends_with('?')) continue;
    const Path path = beside(condition.key, missing);
    const std::string_view value = text_in(found_at(resolved, path));
    if (std::ranges::count(condition.words, value) == 0) return {};
    const bool is_same_table =
        path.size() == missing.size() && std::equal(path.begin(), path.end() - 1, missing.begin());
    if (is_same_table || condition.words.size() == 1)
      texts.push_back(fmt::format("{} = \"{}\"", is_same_table ? path.back() : condition.key, value));
  }
  return texts;
}

// Returns the algorithm of the missing key's method or, if the key does not belong to one, of the first method. (To
// search the keys of all algorithms would take seconds.)
std::string algorithm_of(const Path& missing, const TomlNode& resolved) {
  const bool is_of_method = missing.size() > 2 && missing.front() == "methods" && is_number(missing[1]);
  return std::string(text_in(found_at(resolved, {"methods", is_of_method ? missing[1] : "0", "algorithm"})));
}

// Returns the values of other keys that require the missing key, for the end of the message that it is missing. For
// example, `training.model = "none"` requires training.parameters. `resolved`: the faulty document as resolved.
std::string what_asks(const Path& missing, const TomlNode& resolved) {
  const std::string name = described(missing), algorithm = algorithm_of(missing, resolved);
  const std::map<std::string, std::string> fixed = {{"methods.algorithm", algorithm.empty() ? "sync-sgd" : algorithm}};
  // A key of [methods.training] does not belong to the algorithm.
  const bool is_algorithms = name.starts_with("methods.") && !name.starts_with("methods.training.");
  for (const KeyDescription& key : keys_of_file(fixed)) {
    if (key.path != name) continue;
    // A key that is always required has a single, empty list of conditions.
    const auto ways = key.conditions.empty() ? std::vector<std::vector<Condition>>(1) : key.conditions;
    for (const std::vector<Condition>& conditions : ways) {
      auto texts = texts_if_true(conditions, missing, resolved);
      if (!texts) continue;
      if (is_algorithms && !algorithm.empty())
        texts->insert(texts->begin(), fmt::format("algorithm = \"{}\"", algorithm));
      if (!texts->empty())
        return fmt::format(": {} {} it", fmt::join(*texts, " and "), texts->size() == 1 ? "requires" : "require");
    }
  }
  return {};
}

Definition read_definition(Settings& root, const DefinitionOptions& options) {
  const auto is_clean = [&root] { return root.faults_so_far() == 0; };

  Definition result;
  result.name = read_name(root, options.file);
  result.description = root.text({"description", "The title of plots."}, "");
  result.seeds = read_seeds(root);
  // If a micro-batch's time depends on its lengths, the data set is read before the rest of [cluster].
  std::optional<std::size_t> faults_before;
  const auto read_data = [&](int workers, int micro_batches, bool needs_lengths) {
    faults_before = root.faults_so_far();
    result.training = read_training(root,
                                    {.seed = result.seeds.front(),
                                     .workers = workers,
                                     .micro_batches = micro_batches,
                                     .looks_for_data = options.looks_for_data,
                                     .needs_lengths = needs_lengths},
                                    options.after_common_phase, options.takes_common);
  };
  const auto with_lengths = [&](int workers, int micro_batches) -> const ObjectivePlan& {
    read_data(workers, micro_batches, true);
    if (!result.training.objective.lengths && is_clean() && options.looks_for_data)
      root.section("cluster").fault("micro_batch_s", costs_need_sequences);
    return result.training.objective;
  };
  result.cluster = read_cluster(root, result.seeds.front(), options.finite_means, with_lengths);
  if (!faults_before)
    read_data(result.cluster.plan.workers, result.cluster.plan.micro_batches, result.cluster.plan.to_be_measured);
  EpochLength& epoch = result.training.epoch;
  if (result.training.objective.steps_per_epoch > 0) epoch.steps = result.training.objective.steps_per_epoch;
  epoch.is_faulty = !epoch.steps && (root.faults_so_far() > *faults_before || !options.looks_for_data);

  if (is_clean())
    check_network_times(root, *result.cluster.plan.network, result.cluster.plan.workers,
                        result.training.plan.parameter_bytes);

  // The budget may count epochs, and the learning rate needs the budget's number of steps.
  const BudgetSection budget = read_budget(root, epoch);
  result.budget = budget.limits;
  if (is_clean()) fit_budget_to_traces(result.cluster, result.budget);
  StepBudget& steps = result.steps;
  steps.is_counted = budget.counts_steps || result.budget.steps;
  if (is_clean()) steps.steps = result.budget.steps;
  if (result.cluster.plan.to_be_measured && result.training.plan.time_only)
    root.section("cluster").fault(
        "micro_batch_s", "must be a number of seconds if training.model = \"none\": there is no model to measure");
  Settings training = root.section("training");
  result.training.plan.learning_rate = read_learning_rate(training, steps, epoch, result.training.plan.time_only);
  result.evaluation = read_evaluation(root, result.training);
  result.measurements = read_measurements(root, result.training);
  result.recording = read_recording(root);
  result.checkpoint = read_checkpoint(root);
  root.keep_as_written({"sweep", "Keys with several values; every combination of values is run."});
  root.keep_as_written(
      {"variants", "Named sets of keys, [[variants]]: each has a label, and keys that override the file's."});
  root.keep_as_written(
      {"profiles", "Sets of keys, [profiles.NAME], that override the file's only with --profile NAME."});
  if (options.looks_for_data)
    for (const char* const key : {"claim", "tune"}) root.keep_as_written({key});  // other functions read these
  result.is_clean = is_clean();
  if (!options.reads_methods) return result;
  result.methods = read_methods(root, result, options.own);
  check_methods(root, result);
  return result;
}

Reading read_tables(TomlNode written, const DefinitionOptions& options) {
  SettingsDocument document(std::move(written));
  Settings root = document.root();
  Reading result{read_definition(root, options)};
  result.faults = document.check();
  result.resolved = document.resolved();
  result.faults.explain_missing([&](const Path& key) { return what_asks(key, result.resolved); });
  result.known_keys = document.known_keys();
  return result;
}

// Returns each method's table [methods.training]; null for a method without such a table.
std::vector<const TomlNode*> own_training_tables(const TomlNode& written, FaultList& faults) {
  std::vector<const TomlNode*> tables;
  const TomlNode* methods = written.find("methods");
  if (!methods || !methods->is_array_of_tables()) return tables;
  for (const TomlNode& method : methods->array()) {
    const TomlNode* own = method.find("training");
    const std::string name = fmt::format("methods.{}.training", tables.size());
    const bool is_table = own && require_table(*own, name, "a table, [methods.training]", faults);
    tables.push_back(is_table && !own->table().empty() ? own : nullptr);
  }
  return tables;
}

// Returns the document with the method's keys of [methods.training] written into [training].
TomlNode with_training_of(const TomlNode& written, std::size_t method, const TomlNode& own, bool has_common_phase,
                          FaultList& faults) {
  TomlNode document = without_keys_of_file(written);
  document.erase("methods");
  const TomlNode* common = written.find("training");
  TomlNode training = !common || !common->is_table()
                          ? own
                          : with_keys_of(*common, own, fmt::format("methods.{}.training", method), faults);
  if (!has_common_phase) training.erase("common");
  document.set("training", own.place, std::move(training));
  return document;
}

// Adds the faults of readings with [methods.training]. Writes the keys that differ from [training] into the methods.
void join_own(Reading& reading) {
  for (std::size_t i = 0; i < reading.definition.methods.size(); ++i) {
    const auto& own = reading.definition.methods[i].own;
    if (!own) continue;
    reading.faults.add(own->faults, {{"training.", fmt::format("methods.{}.training.", i)}});
    if (!reading.faults.empty()) continue;  // after faults the resolved document is not used
    TomlNode& method = reading.resolved.find("methods")->array()[i];
    TomlNode differs = difference(*reading.resolved.find("training"), *own->resolved.find("training"));
    method.erase("training");
    if (!differs.table().empty()) method.set("training", {}, std::move(differs));
  }
}

// Reads the document's common phase as a separate experiment.
std::shared_ptr<const Reading> read_common_phase(const TomlNode& written, DefinitionOptions how, FaultList& faults) {
  const TomlNode* table = common_phase_table(written, faults);
  if (!table) return nullptr;
  how.reads_methods = true;
  how.own.clear();  // the phase's method is none of the document's
  return std::make_shared<const Reading>(read_tables(with_common_phase_alone(written, *table, faults), how));
}

// Reads a training that starts after the common phase. The data that the phase has consumed determine the training's
// first step. It is counted in steps of this training, whose size is known only after a first reading.
Reading read_behind(const std::shared_ptr<const Reading>& common_phase, const TomlNode& written,
                    DefinitionOptions how) {
  if (!common_phase || !common_phase->definition.steps.steps) return read_tables(written, how);
  const TrainingSection& phase = common_phase->definition.training;
  const Step end = phase.first_step + *common_phase->definition.steps.steps;
  how.after_common_phase = end;
  Reading reading = read_tables(written, how);
  how.after_common_phase = in_steps_of(reading.definition.training.objective, end, phase.objective);
  return *how.after_common_phase == end ? std::move(reading) : read_tables(written, how);
}

// Adds faults of the phase, with its keys as written in the file.
void add_faults_of_common_phase(Reading& reading) {
  if (reading.common_phase)
    reading.faults.add(reading.common_phase->faults, {{"training.", "training.common."},
                                                      {"methods.0.", "training.common.method."},
                                                      {"models.", "training.common.models."},
                                                      {"datasets.", "training.common.datasets."},
                                                      {"budget.", "training.common."}});
}

void resolve_common_phase(Reading& reading) {
  if (!reading.common_phase || !reading.faults.empty()) return;
  TomlNode& training = *reading.resolved.find("training");
  training.set("common", {},
               resolved_common_phase(*training.find("common"), reading.resolved, reading.common_phase->resolved));
}

const TomlNode& common_table(const Reading& reading) { return *found_at(reading.resolved, {"training", "common"}); }

// Returns why the method's training cannot start from the model of its common phase; empty if it can.
std::string misfit(const Reading& own, const std::string& method) {
  const ObjectivePlan& phase = own.common_phase->definition.training.objective;
  const ObjectivePlan& objective = own.definition.training.objective;
  const bool is_body = takes_body_alone(common_table(own));
  if (is_body && objective.body_tensors == 0)
    return fmt::format("takes = \"body\" needs a model with a body, but that of \"{}\" has none", method);
  if (is_body && taken_body(phase, objective).empty())
    return fmt::format("takes = \"body\": the body of its model must equal that of \"{}\", tensor by tensor", method);
  if (phase.buffers == objective.buffers && (is_body || phase.parameters == objective.parameters)) return {};
  return fmt::format(
      "its model has {} parameters and {} normalisation statistics; must equal those of \"{}\", {} and {}",
      phase.parameters, phase.buffers, method, objective.parameters, objective.buffers);
}

// Returns the position of the method's own [methods.training.common] or, if it is missing, of [training.common].
SourcePlace place_of_common_phase(const TomlNode& written, std::size_t method) {
  const TomlNode* const own = found_at(written, {"methods", std::to_string(method), "training", "common"});
  return (own ? own : found_at(written, {"training", "common"}))->place;
}

// Checks that each method's model fits the model of the phase from which it starts.
void check_models(Reading& reading, const TomlNode& written) {
  const std::vector<Method>& methods = reading.definition.methods;
  for (std::size_t i = 0; i < methods.size() && reading.faults.empty(); ++i) {
    const Reading& own = methods[i].own ? *methods[i].own : reading;
    if (!own.common_phase) continue;
    const std::string wrong = misfit(own, methods[i].label);
    if (!wrong.empty())
      reading.faults.add(place_of_common_phase(written, i), fmt::format("training.common; {}", wrong));
  }
}

// Reads the document for a method with [methods.training].
std::shared_ptr<const Reading> read_own(const TomlNode& written, std::size_t method, const TomlNode& table,
                                        const std::shared_ptr<const Reading>& common_phase, DefinitionOptions how) {
  const bool has_own_phase = table.find("common") != nullptr;
  how.takes_common = has_own_phase || common_phase;
  FaultList faults;
  const TomlNode document = with_training_of(written, method, table, how.takes_common, faults);
  const auto phase = has_own_phase ? read_common_phase(document, how, faults) : common_phase;
  auto own = std::make_shared<Reading>(read_behind(phase, document, how));
  own->common_phase = phase;
  if (has_own_phase) add_faults_of_common_phase(*own);
  own->faults.add(faults);
  resolve_common_phase(*own);
  return own;
}

// Returns the reading that applies to the document's only method.
const Reading& own_of(const Reading& reading) {
  const auto& own = reading.definition.methods.front().own;
  return own ? *own : reading;
}

// Returns the resolved tables of the document's only method. [training] and [methods.training] stay separate.
TomlNode resolved_for_method(const Reading& reading) {
  TomlNode resolved = reading.resolved;
  for (const TomlNode::Member& member : own_of(reading).resolved.table())
    if (member.key != "training") resolved.set(member.key, {}, member.value);
  return resolved;
}

// Erases tables [models.*] and [datasets.*] that are not used.
void keep_what_is_trained(TomlNode& resolved) {
  const TomlNode& training = *resolved.find("training");
  for (const auto& [described, chosen] : {std::pair{"models", "model"}, std::pair{"datasets", "dataset"}}) {
    TomlNode* tables = resolved.find(described);
    const std::string_view used = text_in(training.find(chosen));
    if (tables && tables->is_table())
      std::erase_if(tables->table(), [&](const TomlNode::Member& table) { return table.key != used; });
  }
}

std::shared_ptr<const Reading> phase_of(const Reading& reading) { return own_of(reading).common_phase; }

bool takes_body(const Reading& reading) { return phase_of(reading) && takes_body_alone(common_table(own_of(reading))); }

// Returns a hash of all keys outside [[methods]], to find runs of the same setting. It is computed before micro-batches
// are measured, because a measured time may differ from method to method.
std::string setting_of(const Reading& reading) {
  TomlNode setting = reading.resolved;
  setting.erase("methods");
  return configuration_hash(std::move(setting));
}

Run make_run(const Reading& reading) {
  const Method& method = reading.definition.methods.front();
  const Definition& definition = reading.definition.of(method);
  const TomlNode resolved = resolved_for_method(reading);
  Run run;
  run.experiment = definition.name;
  run.method = method.label;
  if (const TomlNode* const own_training = found_at(resolved, {"methods", "0", "training"}))
    run.own_training = shown_differences(*own_training, *resolved.find("training"), definition.training.objective);
  run.seed = definition.seeds.front();
  run.resolved_toml = write_toml(resolved);
  run.hash = configuration_hash(resolved);
  run.setting = setting_of(reading);
  run.fingerprint = fingerprint_of(reading);
  run.timing_class = timing_class(resolved);
  run.cluster = definition.cluster.plan;
  run.training = definition.training.plan;
  run.budget = definition.budget;
  run.evaluation = definition.evaluation;
  run.measurements = definition.measurements;
  run.recording = definition.recording;
  run.checkpoint = definition.checkpoint;
  run.algorithm = method.algorithm;
  if (const auto& restart = run.algorithm->job_restart()) {  // without outages its checkpoints still take time
    const OutagePlan none(run.seed, {});
    const OutagePlan& faults = run.cluster.outages ? *run.cluster.outages : none;
    run.cluster.outages = std::make_shared<OutagePlan>(faults, *restart, run.cluster.workers);
  }
  run.solved = solved_note(resolved.find("methods")->array().front());
  run.measurements.model.curvature.seed = run.seed;
  run.recording.parameters &= !run.training.time_only;
  const auto phase = phase_of(reading);
  if (!phase) return run;
  run.common_phase = std::make_shared<const Run>(make_run(*phase));
  if (takes_body(reading)) run.taken = taken_body(phase->definition.training.objective, definition.training.objective);
  return run;
}

MicroBatchWork work_of(const Reading& all) {
  const Reading& reading = own_of(all);
  const ObjectivePlan& objective = reading.definition.training.objective;
  std::vector<const char*> decisive = {"model", "dataset", "micro_batch_size"};
  if (objective.lengths) decisive.insert(decisive.end(), {"batching", "token_budget"});
  return {.experiment = reading.definition.name,
          .key = inline_toml(keys_of_training(reading.resolved, decisive)),
          .load = objective.load_timed ? objective.load_timed : objective.load,
          .seed = reading.definition.seeds.front(),
          .workers = reading.definition.cluster.plan.workers,
          .micro_batches = reading.definition.cluster.plan.micro_batches,
          .lengths = objective.lengths,
          .pads = objective.pads,
          .asks_for_tokens = objective.asks_for_tokens};
}

void write_measured(TomlNode& root, const MeasuredMicroBatch& measured) {
  TomlNode& cluster = *root.find("cluster");
  if (measured.fit) {
    TomlNode table;
    for (const auto& [key, cost] : content_costs) table.set(key, {}, {measured.fit->cost.*cost, {}});
    cluster.set("micro_batch_s", {}, std::move(table));
  } else {
    cluster.set("micro_batch_s", {}, {measured.micro_batch_s, {}});
  }
  cluster.set("micro_batch_measured", {}, {true, {}});
}

std::string what_was_replaced(const Path& missing, const TomlNode& document, const TomlNode& before) {
  const Path table(missing.begin(), missing.end() - 1);
  const bool is_own = table.size() > 2 && table[0] == "methods" && table[2] == "training";
  const Path of_file(table.begin() + (is_own ? 2 : 0), table.end());
  const TomlNode *now = found_at(document, table), *then = found_at(before, of_file);
  if (!now || !then || !now->is_table() || !then->is_table()) return {};
  const TomlNode* value = then->find(missing.back());
  const std::string deciding = deciding_key(*then, *now);
  if (!value || now->find(missing.back()) || deciding.empty()) return {};
  const std::string where = value->place.line > 0 ? fmt::format("line {}", value->place.line) : "the command line";
  return fmt::format("; a different {} replaces the whole table, so the {} from {} does not apply", deciding,
                     missing.back(), where);
}

}  // namespace

Reading read_document(const TomlNode& written, const std::string& file, const LoadOptions& options) {
  DefinitionOptions how{.file = file, .finite_means = options.finite_means, .reads_methods = false};
  FaultList faults;
  const auto common_phase = read_common_phase(written, how, faults);
  for (const TomlNode* table : own_training_tables(written, faults))
    how.own.push_back(table ? read_own(written, how.own.size(), *table, common_phase, how) : nullptr);
  how.reads_methods = how.takes_common = true;
  Reading result = read_behind(common_phase, written, how);
  result.common_phase = common_phase;
  result.faults.add(faults);
  add_faults_of_common_phase(result);
  resolve_common_phase(result);
  join_own(result);
  check_models(result, written);
  return result;
}

TomlNode without_keys_of_file(TomlNode root) {
  for (const char* const of_file : {"sweep", "variants", "claim", "tune"}) root.erase(of_file);
  return root;
}

TomlNode document_of_run(TomlNode root, std::size_t method, std::uint64_t seed) {
  TomlNode one_method = root.find("methods")->array()[method];
  root.find("methods")->array() = {std::move(one_method)};
  root.set("seeds", {}, {TomlNode::Array{{static_cast<std::int64_t>(seed), {}}}, {}});
  return without_keys_of_file(std::move(root));
}

std::string fingerprint_of(const Reading& reading) {
  TomlNode resolved = resolved_for_method(reading);
  if (const auto& own = reading.definition.methods.front().own) {
    TomlNode training = *own->resolved.find("training");
    training.erase("common");  // the common phase is a separate run
    resolved.set("training", {}, std::move(training));
    resolved.find("methods")->array().front().erase("training");
  }
  keep_what_is_trained(resolved);
  resolved.erase("name");
  resolved.find("methods")->array().front().erase("label");
  std::string fingerprint = configuration_hash(std::move(resolved));
  if (phase_of(reading)) fingerprint += fingerprint_of(*phase_of(reading));
  if (takes_body(reading)) fingerprint += "body";
  return fingerprint;
}

void throw_if_any(const FaultList& faults) {
  if (!faults.empty()) throw ConfigurationFault(faults.report());
}

bool require_table(const TomlNode& value, const std::string& name, std::string_view wanted, FaultList& faults) {
  if (!value.is_table()) faults.add(value.place, fmt::format("{} = {}; must be {}", name, inline_toml(value), wanted));
  return value.is_table();
}

Run plan_run(TomlNode document, const std::string& file, const LoadOptions& options) {
  std::optional<MeasuredMicroBatch> measured;
  Reading one = read_document(document, file, options);
  throw_if_any(one.faults);
  const std::string setting = setting_of(one);
  if (one.definition.cluster.plan.to_be_measured && options.measure) {
    measured = options.measure(work_of(one));
    write_measured(document, *measured);
    one = read_document(document, file, options);
    throw_if_any(one.faults);
  }
  Run run = make_run(one);
  run.setting = setting;
  if (measured) run.cluster.measured_fit = measured->fit;
  return run;
}

void say_what_was_replaced(FaultList& faults, const TomlNode& document, std::initializer_list<const TomlNode*> before) {
  faults.explain_missing([&](const Path& missing) -> std::string {
    for (const TomlNode* const earlier : before)
      if (std::string found = what_was_replaced(missing, document, *earlier); !found.empty()) return found;
    return {};
  });
}

const std::vector<KeyDescription>& keys_of_file(const std::map<std::string, std::string>& fixed) {
  static std::mutex mutex;
  static std::map<std::map<std::string, std::string>, std::vector<KeyDescription>> found;  // by `fixed`
  const std::lock_guard lock(mutex);
  if (const auto known = found.find(fixed); known != found.end()) return known->second;
  const auto read = [](Settings& root) {
    read_definition(root, {.file = "", .looks_for_data = false});
    read_common_phase_keys(root);
    describe_tune(root);
    describe_claims(root);
  };
  return found.emplace(fixed, describe(read, fixed)).first->second;
}

std::string why_not_measured(const std::string& measure, const Definition& definition) {
  const auto has = [&measure](const char* part) { return measure.find(part) != std::string::npos; };
  const EvaluationPlan& evaluation = definition.evaluation;
  const MeasurementPlan& measured = definition.measurements;
  const bool is_accuracy = has("accuracy"), is_equal_loss = has("to_equal_loss"), is_to_target = has("to_target");
  if (definition.training.plan.time_only && (is_accuracy || has("_loss") || is_equal_loss || is_to_target))
    return "trains no model";
  if (has("validation") && definition.training.objective.validation_samples == 0)
    return "needs a validation split: set training.validation_samples";
  if (is_accuracy && !definition.training.objective.has_accuracy) return "has a loss, but no accuracy";
  if (is_to_target && !evaluation.target_accuracy && !evaluation.target_loss)
    return "needs evaluation.target_accuracy or target_loss";
  if (has("largest_eigenvalue") && !measured.model.largest_eigenvalue) return "needs measurements.largest_eigenvalue";
  if (has("hessian_trace") && !measured.model.hessian_trace) return "needs measurements.hessian_trace";
  if (has("squared_gradient_norm") && (!measured.model.gradient_norm || measured.every_steps != Step{1}))
    return "needs measurements.gradient_norm at every step";
  if ((has("longest_") || has("gradient_bias")) && !definition.recording.samples) return "needs recording.samples";
  if (has("gradient_bias") && definition.training.plan.time_only) return "trains no model";
  return "";
}

Step in_steps_of(const ObjectivePlan& other, Step done, const ObjectivePlan& own) {
  if (own.steps_per_epoch == 0 || other.steps_per_epoch == 0) return done;
  const std::int64_t epochs = done.value() / own.steps_per_epoch, steps = done.value() % own.steps_per_epoch;
  const std::int64_t size = other.samples_per_micro_batch;
  const std::int64_t taken = (steps * own.samples_per_micro_batch + size - 1) / size;
  return epochs * other.steps_per_epoch + std::min(taken, other.steps_per_epoch);
}

}  // namespace syncopate
