#include "experiments/sections/reading.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "experiments/sections/common_phase.hpp"
#include "experiments/sections/configuration_hash.hpp"
#include "experiments/sections/data_position.hpp"
#include "experiments/sections/own_training.hpp"
#include "experiments/sections/solved_numbers.hpp"
#include "results/run/work_kind.hpp"
#include "workers/settings/settings_document.hpp"

namespace syncopate {
namespace {

Reading read_tables(TomlNode written, const DefinitionOptions& options) {
  SettingsDocument document(std::move(written));
  Settings root = document.root();
  Reading result{read_definition(root, options)};
  result.faults = document.check();
  result.resolved = document.resolved();
  result.known_keys = document.known_keys();
  return result;
}

// The methods' tables [methods.training], null where there is none.
std::vector<const TomlNode*> own_training_tables(const TomlNode& written, FaultList& faults) {
  std::vector<const TomlNode*> tables;
  const TomlNode* methods = written.find("methods");
  if (!methods || !methods->is_array_of_tables()) return tables;
  for (const TomlNode& method : methods->array()) {
    const TomlNode* own = method.find("training");
    if (own && !own->is_table())
      faults.add(own->place, fmt::format("methods.{}.training = {}; must be a table, [methods.training]", tables.size(),
                                         inline_toml(*own)));
    tables.push_back(own && own->is_table() && !own->table().empty() ? own : nullptr);
  }
  return tables;
}

// The document as it would be if the method's own training keys were everybody's. A first phase in them is no method's
// own.
TomlNode with_training_of(const TomlNode& written, const TomlNode& own, bool has_common_phase) {
  TomlNode document = written;
  const TomlNode* common = written.find("training");
  const bool joins = common && common->is_table();
  TomlNode training = joins ? with_own_training(*common, own) : own;
  if (!has_common_phase) training.erase("common");
  document.set("training", own.place, std::move(training));
  document.erase("methods");
  document.erase("sweep");
  document.erase("variants");
  document.erase("claim");
  document.erase("tune");
  return document;
}

// What the own readings found beside what everybody's did, and what their methods have otherwise.
void join_own(Reading& reading) {
  for (std::size_t i = 0; i < reading.own.size(); ++i) {
    if (!reading.own[i]) continue;
    reading.faults.add(reading.own[i]->faults, "training.", fmt::format("methods.{}.training.", i));
    if (!reading.faults.empty()) continue;  // the resolved document is not looked at then
    TomlNode& method = reading.resolved.find("methods")->array()[i];
    TomlNode differs =
        training_difference(*reading.resolved.find("training"), *reading.own[i]->resolved.find("training"));
    method.erase("training");
    if (!differs.table().empty()) method.set("training", {}, std::move(differs));
  }
}

// The phase that stands in the document, as an experiment of its own.
std::shared_ptr<const Reading> read_common_phase(const TomlNode& written, DefinitionOptions how, FaultList& faults) {
  const TomlNode* table = common_phase_table(written, faults);
  if (!table) return nullptr;
  how.reads_methods = true;
  return std::make_shared<const Reading>(read_tables(with_common_phase_alone(written, *table), how));
}

DataSteps steps_of(const ObjectivePlan& objective) {
  return {objective.samples_per_micro_batch, objective.steps_per_epoch};
}

// What is trained behind the phase: its first step of the data is counted in steps of its own, which are known once it
// has been read.
Reading read_behind(const std::shared_ptr<const Reading>& common_phase, const TomlNode& written,
                    DefinitionOptions how) {
  if (!common_phase || !common_phase->definition.steps.steps) return read_tables(written, how);
  const TrainingSection& phase = common_phase->definition.training;
  const Step end = phase.first_step + *common_phase->definition.steps.steps;
  how.after_common_phase = end;
  Reading reading = read_tables(written, how);
  how.after_common_phase = in_steps_of(steps_of(reading.definition.training.objective), end, steps_of(phase.objective));
  return *how.after_common_phase == end ? std::move(reading) : read_tables(written, how);
}

// What is wrong with the phase alone, by the keys that it has in the file; and what it has otherwise.
void join_common_phase(Reading& reading) {
  if (!reading.common_phase) return;
  FaultList named = reading.faults;
  named.add(reading.common_phase->faults, "training.", "training.common.");
  reading.faults.add(named, "budget.", "training.common.");
  if (!reading.faults.empty()) return;
  TomlNode& training = *reading.resolved.find("training");
  const TomlNode& written = *training.find("common");
  TomlNode common;
  for (const char* const length : {"steps", "epochs"})
    if (const TomlNode* value = written.find(length)) common.set(length, {}, *value);
  const TomlNode differs = training_difference(training, *reading.common_phase->resolved.find("training"));
  for (const TomlNode::Member& member : differs.table()) common.set(member.key, {}, member.value);
  training.set("common", {}, std::move(common));
}

// What starts where the phase ends has a model of its size.
void check_sizes(Reading& reading, const TomlNode& written) {
  if (!reading.common_phase || !reading.faults.empty()) return;
  const auto size_of = [](const Reading& one) {
    const ObjectivePlan& objective = one.definition.training.objective;
    return std::pair(objective.parameters, objective.buffers);
  };
  const auto check = [&](const Reading& one, const std::string& whose) {
    const auto [parameters, buffers] = size_of(one);
    if (const auto of_phase = size_of(*reading.common_phase); of_phase != std::pair(parameters, buffers))
      reading.faults.add(written.find("training")->find("common")->place,
                         fmt::format("training.common; its model has {} parameters and {} statistics of "
                                     "normalisation; must have as many as that of {}, {} and {}",
                                     of_phase.first, of_phase.second, whose, parameters, buffers));
  };
  const std::vector<Method>& methods = reading.definition.methods;
  for (std::size_t i = 0; i < methods.size(); ++i) {
    const bool has_own = i < reading.own.size() && reading.own[i];
    check(has_own ? *reading.own[i] : reading, fmt::format("\"{}\"", methods[i].label));
  }
}

}  // namespace

Reading read_document(const TomlNode& written, const std::string& file, const LoadOptions& options) {
  DefinitionOptions how{.file = file, .finite_means = options.finite_means};
  std::vector<std::shared_ptr<const Reading>> own;
  how.reads_methods = false;
  FaultList faults;
  const auto common_phase = read_common_phase(written, how, faults);
  how.takes_common = common_phase != nullptr;
  for (const TomlNode* table : own_training_tables(written, faults)) {
    own.push_back(table ? std::make_shared<Reading>(
                              read_behind(common_phase, with_training_of(written, *table, how.takes_common), how))
                        : nullptr);
    how.own.emplace_back(own.back(), own.back() ? &own.back()->definition : nullptr);
  }
  how.reads_methods = how.takes_common = true;
  Reading result = read_behind(common_phase, written, how);
  result.own = std::move(own);
  result.common_phase = common_phase;
  result.faults.add(faults);
  join_own(result);
  join_common_phase(result);
  check_sizes(result, written);
  return result;
}

TomlNode document_of_run(TomlNode root, std::size_t method, std::uint64_t seed) {
  TomlNode one_method = root.find("methods")->array()[method];
  root.find("methods")->array() = {std::move(one_method)};
  root.set("seeds", {}, {TomlNode::Array{{static_cast<std::int64_t>(seed), {}}}, {}});
  for (const char* const of_file : {"sweep", "variants", "claim", "tune"}) root.erase(of_file);
  return root;
}

namespace {

// All tables as the one method of the document has them, but [training] and methods: these say what differs.
TomlNode resolved_for_method(const Reading& reading) {
  TomlNode resolved = reading.resolved;
  if (!reading.own.empty() && reading.own.front())
    for (const TomlNode::Member& member : reading.own.front()->resolved.table())
      if (member.key != "training") resolved.set(member.key, {}, member.value);
  return resolved;
}

// Of the models and data sets that the file describes those that are trained.
void keep_what_is_trained(TomlNode& resolved) {
  const TomlNode& training = *resolved.find("training");
  for (const auto& [described, chosen] : {std::pair{"models", "model"}, std::pair{"datasets", "dataset"}}) {
    TomlNode* tables = resolved.find(described);
    const TomlNode* name = training.find(chosen);
    const auto* text = name ? std::get_if<std::string>(&name->value) : nullptr;
    if (tables && tables->is_table())
      std::erase_if(tables->table(), [&](const TomlNode::Member& table) { return !text || table.key != *text; });
  }
}

}  // namespace

std::string course_of(const Reading& reading) {
  TomlNode resolved = resolved_for_method(reading);
  if (!reading.own.empty() && reading.own.front()) {
    TomlNode training = *reading.own.front()->resolved.find("training");
    training.erase("common");  // the phase is a run of its own
    resolved.set("training", {}, std::move(training));
    resolved.find("methods")->array().front().erase("training");
  }
  keep_what_is_trained(resolved);
  resolved.erase("name");
  resolved.find("methods")->array().front().erase("label");
  return configuration_hash(std::move(resolved)) + (reading.common_phase ? course_of(*reading.common_phase) : "");
}

namespace {

// A micro-batch's time is not yet measured in it: each method's own would make a setting of its own.
std::string setting_of(const Reading& reading) {
  TomlNode setting = reading.resolved;
  setting.erase("methods");
  return configuration_hash(std::move(setting));
}

Run make_run(const Reading& reading) {
  const Method& method = reading.definition.methods.front();
  const Definition& definition = reading.definition.of(method);
  const TomlNode resolved = resolved_for_method(reading);
  const TomlNode* own_training = resolved.find("methods")->array().front().find("training");
  Run run{.experiment = definition.name,
          .method = method.label,
          .own_training = own_training ? listed_leaves(shown_difference(*own_training, *resolved.find("training"),
                                                                        definition.training.objective))
                                       : decltype(Run::own_training){},
          .seed = definition.seeds.front(),
          .resolved_toml = write_toml(resolved),
          .hash = configuration_hash(resolved),
          .setting = setting_of(reading),
          .course = course_of(reading),
          .work_kind = work_kind(resolved),
          .cluster = definition.cluster.plan,
          .training = definition.training.plan,
          .budget = definition.budget,
          .evaluation = definition.evaluation,
          .measurements = definition.measurements,
          .recording = definition.recording,
          .algorithm = method.algorithm};
  run.solved = solved_note(resolved.find("methods")->array().front());
  run.measurements.model.seed = run.seed;
  run.recording.parameters &= !run.training.time_only;
  if (reading.common_phase) run.common_phase = std::make_shared<const Run>(make_run(*reading.common_phase));
  return run;
}

MicroBatchWork work_of(const Reading& all) {
  const Reading& reading = all.own.empty() || !all.own.front() ? all : *all.own.front();
  const TomlNode& training = *reading.resolved.find("training");
  const ObjectivePlan& objective = reading.definition.training.objective;
  TomlNode decisive;
  for (const char* key : {"model", "dataset", "micro_batch_size"})
    if (const TomlNode* value = training.find(key)) decisive.set(key, {}, *value);
  if (objective.lengths)
    for (const char* key : {"batching", "token_budget"})
      if (const TomlNode* value = training.find(key)) decisive.set(key, {}, *value);
  for (const auto& [tables, chosen] : {std::pair{"models", "model"}, std::pair{"datasets", "dataset"}}) {
    const TomlNode* name = decisive.find(chosen);
    const TomlNode* table = reading.resolved.find(tables);
    if (name && table) table = table->find(std::get<std::string>(name->value));
    if (name && table) decisive.set(tables, {}, *table);
  }
  return {.experiment = reading.definition.name,
          .key = inline_toml(decisive),
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
    const ContentCost& cost = measured.fit->cost;
    TomlNode table;
    for (const auto& [key, value] : {std::pair{"base_s", cost.base_s}, std::pair{"per_token_s", cost.per_token_s},
                                     std::pair{"per_padded_token_s", cost.per_padded_token_s},
                                     std::pair{"per_squared_length_s", cost.per_squared_length_s}})
      table.set(key, {}, {value, {}});
    cluster.set("micro_batch_s", {}, std::move(table));
  } else {
    cluster.set("micro_batch_s", {}, {measured.micro_batch_s, {}});
  }
  cluster.set("micro_batch_measured", {}, {true, {}});
}

}  // namespace

void throw_if_any(const FaultList& faults) {
  if (!faults.empty()) throw ConfigurationFault(faults.report());
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

}  // namespace syncopate
