#include "experiments/sections/training_section.hpp"

#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <string>

namespace syncopate {
namespace {

WeightDecay read_weight_decay(Settings& optimizer, WeightDecay decay) {
  constexpr Range at_least_zero{.low = 0, .high_open = true};
  decay.rate = optimizer.number({"weight_decay", "Rate of the weight decay; 0: none."}, at_least_zero, decay.rate);
  decay.scope =
      optimizer.choice({"decay", "Which parameters decay: weights alone, or biases and normalisation as well."},
                       {{"weights", DecayScope::weights}, {"all", DecayScope::all}}, decay.scope);
  return decay;
}

std::unique_ptr<Optimizer> read_sgd(Settings& optimizer) {
  SgdOptions options;
  const std::size_t faults = optimizer.faults_so_far();
  options.momentum = optimizer.number({"momentum", "Share of the last update that the next one keeps; 0: none."},
                                      {.low = 0, .high = 1, .high_open = true}, options.momentum);
  options.nesterov = optimizer.flag({"nesterov", "Whether the momentum is Nesterov's."}, options.nesterov);
  options.weight_decay = read_weight_decay(optimizer, options.weight_decay);
  const bool decoupled = optimizer.flag(
      {"decoupled", "Whether weights decay beside the gradient (as in AdamW), not as a part of it."}, false);
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
  options.beta1 = optimizer.number({"beta1", "Decay of the first moment."}, moment, options.beta1);
  options.beta2 = optimizer.number({"beta2", "Decay of the second moment."}, moment, options.beta2);
  options.epsilon = optimizer.number({"epsilon", "What is added to the root of the second moment."},
                                     {.low = 0, .low_open = true, .high_open = true}, options.epsilon);
  options.weight_decay = read_weight_decay(optimizer, options.weight_decay);
  return make_adamw(options);
}

constexpr std::array rows = {
    OptimizerRow{"sgd", "stochastic gradient descent, with momentum or Nesterov's, and weight decay", read_sgd},
    OptimizerRow{"adamw", "Adam with decoupled weight decay", read_adamw},
};

std::unique_ptr<Optimizer> read_optimizer(Settings optimizer, bool time_only) {
  const auto* const row = optimizer.row({"name", "Which optimizer."}, rows, time_only ? "sgd" : "");
  return row ? row->make(optimizer) : make_sgd({});  // a stand-in: the name is a fault
}

}  // namespace

std::span<const OptimizerRow> optimizers() { return rows; }

TrainingSection read_training(Settings& root, const ObjectiveContext& context) {
  TrainingSection result;
  Settings training = root.section({"training", "What is trained, and how."});
  result.objective = plan_objective(training, root, context);
  TrainingPlan& plan = result.plan;
  plan.time_only = result.objective.time_only;
  if (plan.time_only) {
    // A data set that is named fixes the length of an epoch; the default must not.
    if (!training.has("dataset")) training.leave_out("dataset");
    const std::int64_t most = std::numeric_limits<std::int32_t>::max();
    const std::int64_t parameters =
        training.integer({"parameters", "Size of the model that a run without one sends, in parameters of 4 bytes."}, 0,
                         most * std::int64_t{sizeof(float)});
    result.objective.parameters = parameters;
  }
  plan.parameter_bytes = result.objective.parameters * static_cast<std::int64_t>(sizeof(float));
  plan.clip_norm = training.number({"clip_norm", "Largest global norm of a gradient; 0: gradients are not clipped."},
                                   {.low = 0, .high_open = true}, 0.0);
  plan.optimizer =
      read_optimizer(training.section({"optimizer", "Which optimizer, and its settings."}), plan.time_only);
  plan.samples_per_micro_batch = result.objective.samples_per_micro_batch;
  plan.trains_network = result.objective.has_accuracy;
  plan.make_objective = result.objective.load;
  if (plan.time_only) plan.make_objective = [] { return nullptr; };
  return result;
}

std::optional<Step> steps_of_epochs(Settings& settings, std::string_view key, double epochs, const EpochLength& epoch) {
  constexpr double most = 1e15;
  if (epoch.steps) return Step{std::llround(std::min(epochs * static_cast<double>(epoch.steps->value()), most))};
  if (!epoch.is_faulty) settings.fault(key, "must not count epochs: there is no data set that fixes their length");
  return std::nullopt;
}

}  // namespace syncopate
