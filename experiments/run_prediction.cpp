#include "experiments/run_prediction.hpp"

#include "experiments/time_simulation.hpp"

namespace syncopate {

std::optional<SampledTimes> sample_times(const Run& run) {
  if (!run.compute_time->has_finite_mean()) return std::nullopt;
  try {
    return sample_times(*run.compute_time, run.workers, run.micro_batches, planned_steps(run));
  } catch (const RunFailure&) {  // a trace that ends: a run may not need what the sample asks for
    return std::nullopt;
  }
}

std::vector<FormulaTime> predict_by_formula(const Run& run, const SampledTimes& times) {
  const PredictionInput input{.workers = run.workers,
                              .micro_batches = run.micro_batches,
                              .times = times,
                              .network = *run.network,
                              .parameter_bytes = run.parameter_bytes,
                              .moments = run.optimizer->moments(),
                              .budget = run.budget,
                              .samples_per_micro_batch = run.samples_per_micro_batch,
                              .learning_rate = *run.learning_rate};
  // Who leaves, or is down for a while, changes the maximum, and so do sleeps; no formula follows that.
  if (!run.data_of.empty() || run.outages || run.pauses) return {};
  std::vector<FormulaTime> result;
  for (Prediction& prediction : run.algorithm->predict(input)) {
    const auto total_time_s = time_of_budget(input, prediction);
    result.push_back({std::move(prediction), total_time_s});
  }
  return result;
}

}  // namespace syncopate
