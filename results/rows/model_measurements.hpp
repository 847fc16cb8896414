// What is measured of models and gradients along a run, beside the evaluations, as often as the plan says.
#pragma once

#include <functional>
#include <tuple>
#include <vector>

#include "results/rows/own_models.hpp"
#include "results/rows/recording.hpp"
#include "results/run/run.hpp"
#include "workers/cluster/run_observer.hpp"
#include "workers/training/training.hpp"

namespace syncopate {

class ModelMeasurements {
 public:
  using Sink = std::function<void(Measurement)>;  // called by any thread, also after this object is gone

  // `training` outlives it. `defer`: published models are kept, and measured by finish().
  ModelMeasurements(const MeasurementPlan& plan, int workers, bool defer, Training& training, Sink sink);

  // The first publication, and the first one at or after each multiple of the plan's steps. An ensemble has no model.
  void publish(const Publication& publication);
  // Of worker 0 and a server the one steps that the other does not; whoever comes first to a step is told of.
  bool wants_step_gradient(Step step) const;
  void add_step_gradient(Step step, Time time, const Gradient& gradient);
  // Models that workers have of their own, whose distance from their mean is measured once all of a step are there.
  bool wants_worker_models(Step step) const;
  void add_worker_model(OwnModel&& model);
  // That worker has none any more.
  void end(Rank worker) { worker_models_.end(worker); }
  void take_in_worker_models();
  void finish();

 private:
  void measure(Step step, Time time, const ModelStatePtr& model);
  bool is_due(Step step) const { return step.value() % plan_.every_steps.value() == 0; }

  MeasurementPlan plan_;
  bool defer_;
  Training& training_;
  Sink sink_;
  ModelsByStep worker_models_;
  Step measured_step_{-1};
  Step measured_gradient_{};
  std::vector<std::tuple<Step, Time, ModelStatePtr>> to_be_measured_{};  // deferred
};

}  // namespace syncopate
