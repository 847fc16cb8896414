#include "experiments/sections/reading.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "experiments/sections/common_phase.hpp"
#include "experiments/sections/configuration_hash.hpp"
#include "experiments/sections/data_position.hpp"
#include "experiments/sections/missing_keys.hpp"
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
  say_what_asks(result.faults, result.resolved);
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

// What is wrong with the phase alone, by the keys that it has in the file.
void add_faults_of_common_phase(Reading& reading) {
  if (!reading.common_phase) return;
  FaultList faults = reading.common_phase->faults;
  for (const auto& [alone, in_file] :
       {std::pair{"training.", "training.common."}, std::pair{"methods.0.", "training.common.method."},
        std::pair{"models.", "training.common.models."}, std::pair{"datasets.", "training.common.datasets."},
        std::pair{"budget.", "training.common."}}) {
    FaultList named = reading.faults;
    named.add(faults, alone, in_file);
    faults = std::move(named);
  }
  reading.faults = std::move(faults);
}

void resolve_common_phase(Reading& reading) {
  if (!reading.common_phase || !reading.faults.empty()) return;
  TomlNode& training = *reading.resolved.find("training");
  training.set("common", {},
               resolved_common_phase(*training.find("common"), reading.resolved, reading.common_phase->resolved));
}

// What of `reading` says where its methods begin.
const TomlNode& common_table(const Reading& reading) { return *reading.resolved.find("training")->find("common"); }

// Why what is trained by `own` cannot begin at the end of its common phase, by the name of the method; empty: it can.
std::string misfit(const Reading& own, const std::string& method) {
  const ObjectivePlan& phase = own.common_phase->definition.training.objective;
  const ObjectivePlan& objective = own.definition.training.objective;
  const bool is_body = takes_body_alone(common_table(own));
  if (is_body && objective.body_tensors == 0)
    return fmt::format("takes the body of its model; that of \"{}\" has none", method);
  if (is_body && taken_body(phase, objective).empty())
    return fmt::format("takes the body of its model; must be the same as that of \"{}\", tensor by tensor", method);
  if (phase.buffers == objective.buffers && (is_body || phase.parameters == objective.parameters)) return {};
  return fmt::format(
      "its model has {} parameters and {} statistics of normalisation; must have as many as that of \"{}\", {} and {}",
      phase.parameters, phase.buffers, method, objective.parameters, objective.buffers);
}

// Where a method's phase is written, its own or the file's.
SourcePlace place_of_common_phase(const TomlNode& written, std::size_t method) {
  const TomlNode* training = written.find("methods")->array()[method].find("training");
  const TomlNode* common = training && training->is_table() ? training->find("common") : nullptr;
  return (common ? common : written.find("training")->find("common"))->place;
}

// What starts where a phase ends has a model that fits.
void check_models(Reading& reading, const TomlNode& written) {
  const std::vector<Method>& methods = reading.definition.methods;
  for (std::size_t i = 0; i < methods.size() && reading.faults.empty(); ++i) {
    const Reading& own = i < reading.own.size() && reading.own[i] ? *reading.own[i] : reading;
    if (!own.common_phase) continue;
    const std::string wrong = misfit(own, methods[i].label);
    if (!wrong.empty())
      reading.faults.add(place_of_common_phase(written, i), fmt::format("training.common; {}", wrong));
  }
}

// As a method's own [training] has it.
std::shared_ptr<Reading> read_own(const TomlNode& written, const TomlNode& table,
                                  const std::shared_ptr<const Reading>& common_phase, DefinitionOptions how) {
  const bool has_own_phase = table.find("common") != nullptr;
  how.takes_common = has_own_phase || common_phase;
  const TomlNode document = with_training_of(written, table, how.takes_common);
  FaultList faults;
  const auto phase = has_own_phase ? read_common_phase(document, how, faults) : common_phase;
  auto own = std::make_shared<Reading>(read_behind(phase, document, how));
  own->common_phase = phase;
  if (has_own_phase) add_faults_of_common_phase(*own);
  own->faults.add(faults);
  resolve_common_phase(*own);
  return own;
}

}  // namespace

Reading read_document(const TomlNode& written, const std::string& file, const LoadOptions& options) {
  DefinitionOptions how{.file = file, .finite_means = options.finite_means};
  std::vector<std::shared_ptr<const Reading>> own;
  how.reads_methods = false;
  FaultList faults;
  const auto common_phase = read_common_phase(written, how, faults);
  for (const TomlNode* table : own_training_tables(written, faults)) {
    own.push_back(table ? read_own(written, *table, common_phase, how) : nullptr);
    how.own.emplace_back(own.back(), own.back() ? &own.back()->definition : nullptr);
  }
  how.reads_methods = how.takes_common = true;
  Reading result = read_behind(common_phase, written, how);
  result.own = std::move(own);
  result.common_phase = common_phase;
  result.faults.add(faults);
  add_faults_of_common_phase(result);
  resolve_common_phase(result);
  join_own(result);
  check_models(result, written);
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

// Of a document of one method: how it is trained, and where that begins.
const Reading& own_of(const Reading& reading) {
  return reading.own.empty() || !reading.own.front() ? reading : *reading.own.front();
}

std::shared_ptr<const Reading> phase_of(const Reading& reading) { return own_of(reading).common_phase; }

bool takes_body(const Reading& reading) { return phase_of(reading) && takes_body_alone(common_table(own_of(reading))); }

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
  std::string course = configuration_hash(std::move(resolved));
  if (phase_of(reading)) course += course_of(*phase_of(reading));
  if (takes_body(reading)) course += "body";
  return course;
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
          .checkpoint = definition.checkpoint,
          .algorithm = method.algorithm};
  run.solved = solved_note(resolved.find("methods")->array().front());
  run.measurements.model.seed = run.seed;
  run.recording.parameters &= !run.training.time_only;
  const auto phase = phase_of(reading);
  if (!phase) return run;
  run.common_phase = std::make_shared<const Run>(make_run(*phase));
  if (takes_body(reading)) run.taken = taken_body(phase->definition.training.objective, definition.training.objective);
  return run;
}

MicroBatchWork work_of(const Reading& all) {
  const Reading& reading = own_of(all);
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
