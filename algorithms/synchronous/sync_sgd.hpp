// Synchronous SGD: every worker computes M micro-batches, all gradients are averaged, all step alike.
// Source:  Chen et al. 2016, "Revisiting Distributed Synchronous SGD" (b = 0).
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    one all-reduce of P floats per step; M gradients per worker.
// Differs: nothing; the baseline of every comparison.
// Checks:  one worker with N x M micro-batches gives the same parameters; step time is the slowest worker's.
#pragma once

#include "algorithms/method/algorithm.hpp"

namespace syncopate {

class SyncSgd : public Algorithm {
 public:
  void run(Worker& worker) const override;
  Traits traits() const override {
    return {.is_baseline = true,
            .follows_clock = false,
            .same_course_from = 0,
            .steps_along_fresh_mean = true,
            .sums_gradients = true,
            .can_overlap_backward = true};
  }
  Forecast forecast(const PredictionInput& input) const override;
  std::optional<Communicated> communication(const CommunicationInput& input) const override;
};

// Of steps that all wait for, with this communication in each.
Forecast forecast_synchronous(const PredictionInput& input, double communication_s);

std::unique_ptr<Algorithm> make_sync_sgd(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
