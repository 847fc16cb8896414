#include "experiments/sections/budget_section.hpp"

#include <algorithm>
#include <limits>

#include "workers/delays/limits.hpp"

namespace syncopate {
namespace {

constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
constexpr Range positive_and_finite{.low = 0, .low_open = true, .high_open = true};

Step at_least_one(Step steps) { return std::max(steps, Step{1}); }

}  // namespace

BudgetSection read_budget(Settings& root, const EpochLength& epoch) {
  Budget result;
  Settings budget = root.section({"budget", "When a run ends: at the first limit that is reached; at least one."});
  result.steps = budget.optional_integer({"steps", "Optimizer steps.", "steps", "no limit"}, 1, most);
  const Key in_epochs{"epochs", "Times that all workers together see the training data.", "epochs", "no limit"};
  if (const auto epochs = budget.optional_number(in_epochs, positive_and_finite)) {
    if (const auto steps = steps_of_epochs(budget, "epochs", *epochs, epoch))
      result.steps = std::min(result.steps.value_or(most), at_least_one(*steps));
  }
  const bool counts_steps = result.steps || budget.has("epochs");
  result.samples = budget.optional_integer(
      {"samples", "Samples whose gradients were used, of all workers.", "samples", "no limit"}, 1, most);
  result.seconds =
      budget.optional_number({"seconds", "Time on the cluster's clock.", "s", "no limit"}, positive_and_finite);
  result.bytes =
      budget.optional_integer({"bytes", "What is communicated, of all workers.", "bytes", "no limit"}, 1, most);
  const bool is_limited = counts_steps || result.samples || result.seconds || result.bytes;
  if (!is_limited) root.fault("budget", "must set at least one of steps, epochs, samples, seconds, bytes");
  return {result, counts_steps || !is_limited};
}

EvaluationPlan read_evaluation(Settings& root, const TrainingSection& training) {
  constexpr std::int64_t default_steps = 100;
  EvaluationPlan plan;
  Settings evaluation = root.section({"evaluation", "When the model is looked at; it takes no time on the clock."});
  const Key in_epochs{"every_epochs", "After how many epochs models are evaluated, instead of every_steps.", "epochs"};
  const Key in_seconds{"every_seconds", "After how much time on the cluster's clock, instead of every_steps.", "s"};
  constexpr Range clock_ticks{.low = 1e-9, .high = longest_delay};
  if (const auto seconds = evaluation.optional_number(in_seconds, clock_ticks)) {
    for (const char* const other : {"every_steps", "every_epochs"})
      if (evaluation.has(other)) evaluation.fault(other, "must not be given together with every_seconds");
    plan.every_duration = from_seconds(*seconds);
  } else if (const auto epochs = evaluation.optional_number(in_epochs, positive_and_finite)) {
    if (evaluation.has("every_steps")) evaluation.fault("every_steps", "must not be given together with every_epochs");
    plan.every_steps = at_least_one(steps_of_epochs(evaluation, "every_epochs", *epochs, training.epoch).value_or(1));
  } else {
    plan.every_steps = evaluation.integer(
        {"every_steps", "The model is evaluated each time so many steps are passed, and at the end.", "steps"}, 1, most,
        default_steps);
  }
  plan.train_samples =
      evaluation.integer({"train_samples", "How many training samples the training loss is taken of.", "samples"}, 1,
                         most, plan.train_samples);
  plan.target_accuracy = evaluation.optional_number(
      {"target_accuracy", "The accuracy of \"time to target\", as a fraction.", "", "no target"},
      {.low = 0, .high = 1, .low_open = true});
  if (plan.target_accuracy) {
    if (!training.plan.time_only && training.objective.load && !training.objective.has_accuracy) {
      evaluation.fault("target_accuracy", "must be left out: this model has no accuracy");
    }
  }
  plan.target_loss =
      evaluation.optional_number({"target_loss", "The loss of \"time to target\".", "", "no target"}, Range::any());
  if (!plan.target_accuracy && !plan.target_loss) return plan;
  plan.targets_validation =
      evaluation.choice({"target_of", "Which samples the targets are of: training.validation_samples are held out."},
                        {{"test", false}, {"validation", true}}, false);
  if (plan.targets_validation && training.objective.load && training.objective.validation_samples == 0)
    evaluation.fault("target_of", "must be \"test\": there are no training.validation_samples");
  return plan;
}

}  // namespace syncopate
