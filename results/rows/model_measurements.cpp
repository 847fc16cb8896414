#include "results/rows/model_measurements.hpp"

#include <utility>

#include "results/rows/evaluated_rows.hpp"

namespace syncopate {

ModelMeasurements::ModelMeasurements(const MeasurementPlan& plan, int workers, bool defer, Training& training,
                                     Sink sink)
    : plan_(plan), defer_(defer), training_(training), sink_(std::move(sink)), worker_models_(workers) {}

void ModelMeasurements::publish(const Publication& publication) {
  if (!plan_.model.any() || training_.time_only() || !publication.ensemble.empty()) return;
  const std::int64_t every = plan_.every_steps.value();
  const bool is_first_of_interval =
      measured_step_ < Step{0} || publication.step.value() / every > measured_step_.value() / every;
  if (!is_first_of_interval) return;
  measured_step_ = publication.step;
  ModelStatePtr model = without_moments(publication.model);
  if (!publication.recalibration.empty()) model = training_.recalibrated(model, publication.recalibration);
  if (defer_)
    to_be_measured_.emplace_back(publication.step, publication.time, std::move(model));
  else
    measure(publication.step, publication.time, model);
}

void ModelMeasurements::measure(Step step, Time time, const ModelStatePtr& model) {
  training_.measure(model, plan_.model, [sink = sink_, step, time](const ModelMeasures& found) {
    for (const auto& [quantity, value] :
         {std::pair("gradient_norm", found.gradient_norm), std::pair("gradient_variance", found.gradient_variance),
          std::pair("noise_scale", found.noise_scale), std::pair("hessian_trace", found.hessian_trace),
          std::pair("largest_eigenvalue", found.largest_eigenvalue), std::pair("parameter_norm", found.parameter_norm)})
      if (value) sink({step, time, quantity, *value});
  });
}

bool ModelMeasurements::wants_step_gradient(Step step) const {
  return plan_.step_gradient_norm && is_due(step) && step > measured_gradient_;
}

void ModelMeasurements::add_step_gradient(Step step, Time time, const Gradient& gradient) {
  measured_gradient_ = step;
  training_.measure_norm(gradient, [sink = sink_, step, time](double norm) {
    sink({step, time, "step_gradient_norm", norm});
  });
}

bool ModelMeasurements::wants_worker_models(Step step) const { return plan_.consensus_distance && is_due(step); }

void ModelMeasurements::add_worker_model(OwnModel&& model) {
  worker_models_.add(std::move(model));
  take_in_worker_models();
}

void ModelMeasurements::take_in_worker_models() {
  while (const auto models = worker_models_.take_first()) {
    Publication all = as_publication(*models);
    training_.measure_spread(std::move(all.own.models),
                             [sink = sink_, step = all.step, time = all.time](double spread) {
                               sink({step, time, consensus_distance_name, spread});
                             });
  }
}

void ModelMeasurements::finish() {
  for (const auto& [step, time, model] : std::exchange(to_be_measured_, {})) measure(step, time, model);
}

}  // namespace syncopate
