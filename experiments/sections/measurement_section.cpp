#include "experiments/sections/measurement_section.hpp"

#include <limits>
#include <string>

namespace syncopate {

MeasurementPlan read_measurements(Settings& root, const TrainingSection& training) {
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  MeasurementPlan plan;
  if (!root.has("measurements")) return plan;
  Settings table = root.section({"measurements", "What is measured at chosen steps; it takes no time on the clock."});
  plan.every_steps = table.integer({"every_steps", "After how many steps; also before the first.", "steps"}, 1, most);
  MeasureOptions& model = plan.model;
  model.gradient_norm =
      table.flag({"gradient_norm", "Of the loss on `samples`, without augmentation, smoothing and dropout."}, false);
  model.noise_scale = table.flag(
      {"noise_scale", "Of single samples' gradients: their variance over their mean's square, in samples."}, false);
  plan.step_gradient_norm = table.flag(
      {"step_gradient_norm", "Of the gradient of a step, worker 0's or a server's, before the step clips it."}, false);
  plan.consensus_distance = table.flag(
      {"consensus_distance", "Root mean square distance of the workers' models from their mean, after own steps."},
      false);
  model.largest_eigenvalue =
      table.flag({"largest_eigenvalue", "Of the Hessian of the same loss, by power iteration."}, false);
  model.hessian_trace = table.flag({"hessian_trace", "Of that Hessian, by Hutchinson's estimator."}, false);
  model.samples = table.integer({"samples", "The first so many training samples.", "samples"}, 1, most, model.samples);
  model.most_products = static_cast<int>(
      table.integer({"most_products", "Products of the Hessian and a vector, at most, for each of the two."}, 1,
                    100'000, model.most_products));
  model.tolerance = table.number({"tolerance", "Both stop once their estimate changes by less than this part of it."},
                                 {.low = 0, .high = 1, .high_open = true}, model.tolerance);
  if (const std::string& why = training.objective.why_no_derivative; model.any() && !why.empty())
    table.fault("every_steps",
                "must go without gradient_norm, noise_scale, largest_eigenvalue and hessian_trace: " + why);
  if (model.noise_scale && training.objective.load && training.objective.steps_per_epoch == 0)
    table.fault("noise_scale", "must be false: this model has no samples, whose gradients could differ");
  if (training.plan.time_only) table.fault("every_steps", "needs a model to measure");
  return plan;
}

}  // namespace syncopate
