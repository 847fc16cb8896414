// Synchronous SGD: each of N workers computes M micro-batches, and all step along the mean of all gradients.
// Source:  Chen et al. 2016, "Revisiting Distributed Synchronous SGD" (b = 0).
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    one all-reduce of P floats per step; M gradients per worker.
// Differs: nothing; the baseline of every comparison.
// Checks:  one worker with N x M micro-batches gives the same parameters; a step takes the slowest worker's time.
#pragma once

#include "algorithms/method/algorithm.hpp"

namespace syncopate {

class SyncSgd : public Algorithm {
 public:
  void run(Worker& worker) const override {
    while (worker.budget_left()) {
      Gradient sum = worker.compute_step_gradient();
      worker.all_reduce_sum(sum);
      worker.descend(sum / (worker.size() * worker.micro_batches()));
      worker.publish();
    }
  }

  Traits traits() const override {
    return {.is_baseline = true,
            .has_formulas = true,
            .follows_clock = false,
            .lockstep_from_step = 0,
            .steps_along_fresh_mean = true,
            .sums_gradients = true,
            .can_overlap_backward = true,
            .held = {.models = 0, .moments = 0}};
  }

  Forecast forecast(const PredictionInput& input) const override {
    const std::optional<double> visible_s = input.visible_all_reduce_s();
    if (!visible_s) return Forecast::none("too many micro-batches to compute when each gradient bucket is ready");
    Forecast forecast{.why_none = has_no_variance, .minds_overlap = true};
    for (const SlowestWorker& slowest : slowest_workers(input)) {
      forecast.why_none.clear();
      forecast.predictions.push_back({.formula = slowest.formula,
                                      .step_time_s = slowest.step_s + *visible_s,
                                      .communication_s = *visible_s,
                                      .drop_rate = 0,
                                      .sync_step_time_s = slowest.step_s + input.sync_sgd_s(),
                                      .step_error_s = slowest.error_s,
                                      .sync_step_error_s = slowest.error_s,
                                      .is_sampled = slowest.is_sampled});
    }
    return forecast;
  }

  std::optional<Communicated> communication(const CommunicationInput& input) const override {
    return Communicated{input.steps.value(), input.of_gradients()};
  }
};

inline std::unique_ptr<Algorithm> make_sync_sgd(Settings&, const AlgorithmContext&) {
  return std::make_unique<SyncSgd>();
}

}  // namespace syncopate
