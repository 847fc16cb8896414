#include "experiments/sections/training_section.hpp"

#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <string>

namespace syncopate {
namespace {

WeightDecay read_weight_decay(Settings& optimizer, WeightDecay decay) {
  constexpr std::array<std::string_view, 2> scopes = {"weights", "all"};
  constexpr Range at_least_zero{.low = 0, .high_open = true};
  decay.rate = optimizer.number("weight_decay", at_least_zero, decay.rate);
  const bool all = optimizer.choice("decay", scopes, decay.scope == DecayScope::all ? "all" : "weights") == "all";
  decay.scope = all ? DecayScope::all : DecayScope::weights;
  return decay;
}

std::unique_ptr<Optimizer> read_sgd(Settings& optimizer) {
  SgdOptions options;
  const std::size_t faults = optimizer.faults_so_far();
  options.momentum = optimizer.number("momentum", {.low = 0, .high = 1, .high_open = true}, options.momentum);
  options.nesterov = optimizer.flag("nesterov", options.nesterov);
  options.weight_decay = read_weight_decay(optimizer, options.weight_decay);
  const bool decoupled = optimizer.flag("decoupled", false);
  options.weight_decay.form = decoupled ? DecayForm::decoupled : DecayForm::coupled;
  if (options.nesterov && options.momentum == 0) {
    if (optimizer.faults_so_far() == faults) optimizer.fault("nesterov", "must be false without momentum");
    options.nesterov = false;
  }
  return make_sgd(options);
}

std::unique_ptr<Optimizer> read_adamw(Settings& optimizer) {
  constexpr Range moment{.low = 0, .high = 1, .high_open = true};
  AdamWOptions options;
  options.beta1 = optimizer.number("beta1", moment, options.beta1);
  options.beta2 = optimizer.number("beta2", moment, options.beta2);
  options.epsilon = optimizer.number("epsilon", {.low = 0, .low_open = true, .high_open = true}, options.epsilon);
  options.weight_decay = read_weight_decay(optimizer, options.weight_decay);
  return make_adamw(options);
}

std::unique_ptr<Optimizer> read_optimizer(Settings optimizer, bool time_only) {
  constexpr std::array<std::string_view, 2> names = {"sgd", "adamw"};
  const auto fallback = time_only ? std::optional<std::string>("sgd") : std::nullopt;
  const std::string name = optimizer.choice("name", names, fallback);
  if (name == "sgd") return read_sgd(optimizer);
  if (name == "adamw") return read_adamw(optimizer);
  return make_sgd({});  // a stand-in: the name is a fault
}

}  // namespace

TrainingSection read_training(Settings& root, const ObjectiveContext& context) {
  TrainingSection result;
  Settings training = root.section("training");
  result.objective = plan_objective(training, root, context);
  result.time_only = training.has("model") && training.text("model") == "none";
  if (result.time_only) {
    // A data set that is named fixes the length of an epoch; the default must not.
    if (!training.has("dataset")) training.leave_out("dataset");
    const std::int64_t most = std::numeric_limits<std::int32_t>::max();
    const std::int64_t parameters = training.integer("parameters", 0, most * std::int64_t{sizeof(float)});
    result.objective.parameters = parameters;
  }
  result.parameter_bytes = result.objective.parameters * static_cast<std::int64_t>(sizeof(float));
  result.clip_norm = training.number("clip_norm", {.low = 0, .high_open = true}, 0.0);
  result.optimizer = read_optimizer(training.section("optimizer"), result.time_only);
  return result;
}

Step steps_of_epochs(Settings& settings, std::string_view key, double epochs, std::int64_t steps_per_epoch) {
  if (steps_per_epoch == 0) {
    settings.fault(key, "must not count epochs: there is no data set that fixes their length");
    return 1;
  }
  constexpr double most = 1e15;
  return std::llround(std::min(epochs * static_cast<double>(steps_per_epoch), most));
}

}  // namespace syncopate
