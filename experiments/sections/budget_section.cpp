#include "experiments/sections/budget_section.hpp"

#include <algorithm>
#include <limits>

namespace syncopate {
namespace {

constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
constexpr Range positive_and_finite{.low = 0, .low_open = true, .high_open = true};

Step at_least_one(Step steps) { return std::max(steps, Step{1}); }

}  // namespace

Budget read_budget(Settings& root, std::int64_t steps_per_epoch) {
  Budget result;
  Settings budget = root.section("budget");
  if (budget.has("steps")) result.steps = budget.integer("steps", 1, most);
  if (budget.has("epochs")) {
    const double epochs = budget.number("epochs", positive_and_finite);
    const Step steps = at_least_one(steps_of_epochs(budget, "epochs", epochs, steps_per_epoch));
    result.steps = std::min(result.steps.value_or(most), steps);
  }
  if (budget.has("samples")) result.samples = budget.integer("samples", 1, most);
  if (budget.has("seconds")) result.seconds = budget.number("seconds", positive_and_finite);
  if (budget.has("bytes")) result.bytes = Bytes{budget.integer("bytes", 1, most)};
  if (!result.steps && !result.samples && !result.seconds && !result.bytes) {
    root.fault("budget", "must set at least one of steps, epochs, samples, seconds, bytes");
    result.steps = 1;
  }
  return result;
}

EvaluationPlan read_evaluation(Settings& root, const TrainingSection& training) {
  constexpr std::int64_t default_steps = 100;
  EvaluationPlan plan;
  Settings evaluation = root.section("evaluation");
  if (evaluation.has("every_epochs")) {
    if (evaluation.has("every_steps")) evaluation.fault("every_steps", "must not be given together with every_epochs");
    const double epochs = evaluation.number("every_epochs", positive_and_finite);
    plan.every_steps =
        at_least_one(steps_of_epochs(evaluation, "every_epochs", epochs, training.objective.steps_per_epoch));
  } else {
    plan.every_steps = evaluation.integer("every_steps", 1, most, default_steps);
  }
  plan.train_samples = evaluation.integer("train_samples", 1, most, plan.train_samples);
  if (evaluation.has("target_accuracy")) {
    plan.target_accuracy = evaluation.number("target_accuracy", {.low = 0, .high = 1, .low_open = true});
    if (!training.time_only && training.objective.load && !training.objective.has_accuracy) {
      evaluation.fault("target_accuracy", "must be left out: this model has no accuracy");
    }
  }
  if (evaluation.has("target_loss")) plan.target_loss = evaluation.number("target_loss", Range::any());
  return plan;
}

}  // namespace syncopate
