#include "experiments/sections/common_phase.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "experiments/sections/own_training.hpp"

namespace syncopate {
namespace {

constexpr std::array lengths = {"steps", "epochs"};
constexpr std::array described = {"models", "datasets"};
constexpr const char* body = "body";

TomlNode text(std::string value) { return {std::move(value), {}}; }

void check_takes(const TomlNode& common, FaultList& faults) {
  const TomlNode* takes = common.find("takes");
  if (!takes || takes_body_alone(common) || inline_toml(*takes) == inline_toml(text("all"))) return;
  faults.add(takes->place,
             fmt::format("training.common.takes = {}; must be one of \"all\", \"body\"", inline_toml(*takes)));
}

// Whether the phase has a method that can be read, its own or the usual one.
bool check_method(const TomlNode& common, FaultList& faults) {
  const TomlNode* method = common.find("method");
  if (!method) return true;
  if (!method->is_table()) {
    faults.add(method->place, fmt::format("training.common.method = {}; must be a table, such as "
                                          "{{ algorithm = \"dropcompute\", threshold_s = 0.2 }}",
                                          inline_toml(*method)));
    return false;
  }
  for (const char* const key : {"label", "training"})
    if (const TomlNode* own = method->find(key))
      faults.add(own->place, fmt::format("training.common.method.{}; must be left out: the phase has {}", key,
                                         std::string(key) == "label" ? "a name" : "its keys in training.common"));
  return true;
}

}  // namespace

const TomlNode* common_phase_table(const TomlNode& written, FaultList& faults) {
  const TomlNode* training = written.find("training");
  const TomlNode* common = training ? training->find("common") : nullptr;
  if (!common) return nullptr;
  if (!common->is_table()) {
    faults.add(common->place, fmt::format("training.common = {}; must be a table", inline_toml(*common)));
    return nullptr;
  }
  if (const TomlNode* own = common->find("common"))
    faults.add(own->place, "training.common.common; must be left out: there is one first phase");
  check_takes(*common, faults);
  for (const char* const tables : described)
    if (const TomlNode* own = common->find(tables); own && !own->is_table())
      faults.add(own->place, fmt::format("training.common.{} = {}; must be a table", tables, inline_toml(*own)));
  const bool has_method = check_method(*common, faults);
  const TomlNode *steps = common->find("steps"), *epochs = common->find("epochs");
  if (steps && epochs)
    faults.add(epochs->place, fmt::format("training.common.epochs = {}; must be left out beside steps, the same length",
                                          inline_toml(*epochs)));
  else if (!steps && !epochs)
    faults.add(common->place, "training.common; must have steps or epochs, the length of the phase");
  return (steps || epochs) && has_method ? common : nullptr;
}

TomlNode with_common_phase_alone(const TomlNode& written, const TomlNode& common) {
  TomlNode document = written;
  TomlNode training = *written.find("training");
  training.erase("common");
  TomlNode own = common, budget;
  for (const char* const length : lengths) {
    if (const TomlNode* value = common.find(length)) budget.set(length, value->place, *value);
    own.erase(length);
  }
  for (const char* const tables : described) {
    const TomlNode *of_file = written.find(tables), *of_phase = common.find(tables);
    own.erase(tables);
    if (!of_phase || !of_phase->is_table()) continue;
    const bool joins = of_file && of_file->is_table();
    document.set(tables, of_phase->place, joins ? with_own_training(*of_file, *of_phase) : *of_phase);
  }
  TomlNode method, recording;
  if (const TomlNode* of_phase = common.find("method")) method = *of_phase;
  method.set("label", {}, text(common_phase_label));
  if (!method.find("algorithm")) method.set("algorithm", {}, text("sync-sgd"));
  own.erase("method");
  own.erase("takes");
  document.set("training", common.place, with_own_training(std::move(training), own));
  document.set("budget", common.place, std::move(budget));
  document.set("methods", {}, {TomlNode::Array{std::move(method)}, {}});
  recording.set("parameters", {}, {true, {}});
  document.set("recording", {}, std::move(recording));
  document.erase("sweep");
  document.erase("variants");
  document.erase("claim");
  document.erase("tune");
  return document;
}

TomlNode resolved_common_phase(const TomlNode& written, const TomlNode& all, const TomlNode& alone) {
  TomlNode common;
  for (const char* const key : {"steps", "epochs", "takes"})
    if (const TomlNode* value = written.find(key)) common.set(key, {}, *value);
  if (written.find("method")) {
    TomlNode method = alone.find("methods")->array().front();
    method.erase("label");
    common.set("method", {}, std::move(method));
  }
  const TomlNode differs = training_difference(*all.find("training"), *alone.find("training"));
  for (const TomlNode::Member& member : differs.table()) common.set(member.key, {}, member.value);
  for (const char* const tables : described) {
    const TomlNode *of_file = all.find(tables), *of_phase = alone.find(tables);
    if (!of_file || !of_phase) continue;
    TomlNode own = training_difference(*of_file, *of_phase);
    if (!own.table().empty()) common.set(tables, {}, std::move(own));
  }
  return common;
}

bool takes_body_alone(const TomlNode& common) {
  const TomlNode* takes = common.find("takes");
  return takes && inline_toml(*takes) == inline_toml(text(body));
}

std::vector<TakenElements> taken_body(const ObjectivePlan& of_phase, const ObjectivePlan& of_method) {
  std::vector<TakenElements> taken;
  if (of_phase.body_tensors != of_method.body_tensors) return taken;
  for (const ParameterTensor& own : of_method.tensors) {
    if (own.place >= of_method.body_tensors) continue;
    const auto found = std::ranges::find(of_phase.tensors, own.place, &ParameterTensor::place);
    if (found == of_phase.tensors.end() || found->name != own.name || found->size != own.size) return {};
    taken.push_back({.from = found->offset, .to = own.offset, .size = own.size});
  }
  return taken;
}

void describe_common_phase(Settings& root) {
  Settings common = root.section("training").section("common");
  common.optional_integer({"steps", "Length of the phase, in optimizer steps.", "steps", "epochs"}, 1,
                          std::numeric_limits<std::int64_t>::max());
  common.optional_number({"epochs", "Length of the phase, in passes over the training data.", "epochs", "steps"},
                         Range{.low = 0, .low_open = true, .high_open = true});
  common.keep_as_written({"method", "Its algorithm and that one's keys; left out: synchronous SGD."});
  static_cast<void>(common.choice({"takes", "What of its model a method starts with: all, or all but its head."},
                                  {{"all", false}, {"body", true}}, false));
  for (const char* const tables : described)
    common.keep_as_written({tables, "Tables [models.*] or [datasets.*], with what is otherwise in the phase."});
}

}  // namespace syncopate
