#include "experiments/sections/training_section.hpp"

#include <cmath>
#include <limits>
#include <optional>
#include <string>

namespace syncopate {
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
  plan.optimizer = read_optimizer(training, result.objective);
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
