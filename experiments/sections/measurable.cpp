#include "experiments/sections/measurable.hpp"

#include "results/claims/claim.hpp"

namespace syncopate {

std::string why_not_measured(const std::string& measure, const Definition& definition) {
  const auto has = [&measure](const char* part) { return measure.find(part) != std::string::npos; };
  const EvaluationPlan& evaluation = definition.evaluation;
  const MeasurementPlan& measured = definition.measurements;
  const bool is_accuracy = has("accuracy"), is_equal_loss = has("to_equal_loss"), is_to_target = has("to_target");
  if (definition.training.plan.time_only && (is_accuracy || has("_loss") || is_equal_loss || is_to_target))
    return "trains no model";
  if (has("validation") && definition.training.objective.validation_samples == 0)
    return "needs a validation split: must stand beside training.validation_samples";
  if (is_accuracy && !definition.training.objective.has_accuracy) return "has no accuracy, but a loss alone";
  if (is_to_target && !evaluation.target_accuracy && !evaluation.target_loss)
    return "needs evaluation.target_accuracy or target_loss";
  if (has("largest_eigenvalue") && !measured.model.largest_eigenvalue) return "needs measurements.largest_eigenvalue";
  if (has("hessian_trace") && !measured.model.hessian_trace) return "needs measurements.hessian_trace";
  if (has("squared_gradient_norm") && (!measured.model.gradient_norm || measured.every_steps != Step{1}))
    return "needs measurements.gradient_norm at every step";
  if (has("longest_") && !definition.recording.samples) return "needs recording.samples";
  return "";
}

}  // namespace syncopate
