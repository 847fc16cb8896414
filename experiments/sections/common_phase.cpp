#include "experiments/sections/common_phase.hpp"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <limits>
#include <utility>

#include "experiments/sections/own_training.hpp"

namespace syncopate {
namespace {

constexpr std::array lengths = {"steps", "epochs"};

TomlNode text(std::string value) { return {std::move(value), {}}; }

}  // namespace

const TomlNode* common_phase_table(const TomlNode& written, FaultList& faults) {
  const TomlNode* methods = written.find("methods");
  for (std::size_t i = 0; methods && methods->is_array_of_tables() && i < methods->array().size(); ++i) {
    const TomlNode* own = methods->array()[i].find("training");
    if (const TomlNode* common = own ? own->find("common") : nullptr)
      faults.add(common->place,
                 fmt::format("methods.{}.training.common; must be one for all methods, [training.common]", i));
  }
  const TomlNode* training = written.find("training");
  const TomlNode* common = training ? training->find("common") : nullptr;
  if (!common) return nullptr;
  if (!common->is_table()) {
    faults.add(common->place, fmt::format("training.common = {}; must be a table", inline_toml(*common)));
    return nullptr;
  }
  if (const TomlNode* own = common->find("common"))
    faults.add(own->place, "training.common.common; must be left out: there is one first phase");
  const TomlNode *steps = common->find("steps"), *epochs = common->find("epochs");
  if (steps && epochs)
    faults.add(epochs->place, fmt::format("training.common.epochs = {}; must be left out beside steps, the same length",
                                          inline_toml(*epochs)));
  else if (!steps && !epochs)
    faults.add(common->place, "training.common; must have steps or epochs, the length of the phase");
  return steps || epochs ? common : nullptr;
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
  document.set("training", common.place, with_own_training(std::move(training), own));
  document.set("budget", common.place, std::move(budget));
  TomlNode method, recording;
  method.set("label", {}, text(common_phase_label));
  method.set("algorithm", {}, text("sync-sgd"));
  document.set("methods", {}, {TomlNode::Array{std::move(method)}, {}});
  recording.set("parameters", {}, {true, {}});
  document.set("recording", {}, std::move(recording));
  document.erase("sweep");
  document.erase("variants");
  document.erase("claim");
  document.erase("tune");
  return document;
}

void describe_common_phase(Settings& root) {
  Settings common = root.section("training").section("common");
  common.optional_integer({"steps", "Length of the phase, in optimizer steps.", "steps", "epochs"}, 1,
                          std::numeric_limits<std::int64_t>::max());
  common.optional_number({"epochs", "Length of the phase, in passes over the training data.", "epochs", "steps"},
                         Range{.low = 0, .low_open = true, .high_open = true});
}

}  // namespace syncopate
