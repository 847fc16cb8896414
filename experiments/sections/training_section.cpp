#include "experiments/sections/training_section.hpp"

#include <cmath>
#include <limits>
#include <optional>
#include <string>

#include "experiments/sections/start_section.hpp"

namespace syncopate {
namespace {

constexpr std::int64_t most_start_steps = 1'000'000'000'000;

}  // namespace

TrainingSection read_training(Settings& root, ObjectiveContext context, std::optional<Step> after_common_phase,
                              bool takes_common) {
  TrainingSection result;
  Settings training = root.section({"training", "What is trained, and how."});
  const Step start_steps = training.integer(
      {"start_steps", "Steps that lie before the first one: samples, and what is drawn for them, go on from there.",
       "steps"},
      0, most_start_steps, 0);
  result.first_step = context.first_step = after_common_phase.value_or(start_steps);
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
  plan.tensors = result.objective.tensors;
  plan.memory = result.objective.memory;
  plan.clip_norm = training.number(
      {"clip_norm", "Largest global norm of a gradient, 0: none; algorithms/README.md says which one a family clips."},
      {.low = 0, .high_open = true}, 0.0);
  plan.optimizer = read_optimizer(training, result.objective);
  plan.samples_per_micro_batch = result.objective.samples_per_micro_batch;
  plan.trains_network = result.objective.is_network;
  plan.start = read_start(training, result.objective, plan.time_only);
  if (takes_common)
    training.keep_as_written({"common",
                              "A first phase of all methods: keys of [training] that are otherwise in it, and "
                              "steps or epochs."});
  if (takes_common && plan.time_only && training.has("common"))
    training.fault("common", "must be left out: there is no model");
  plan.make_objective = result.objective.load;
  plan.make_kinds = result.objective.load_kinds;
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
