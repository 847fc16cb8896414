// Bounded delay: a task is an iteration in which every worker takes part with one gradient. A worker may start its
// iteration t once all tasks up to t - tau - 1 are finished; the server steps once per finished task.
// Source:  Li et al. 2014, "Scaling Distributed Machine Learning with the Parameter Server".
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    per worker and step P floats up and P down, and the waits; the server keeps up to N (tau + 1) gradients.
// Differs: a step goes along the mean of the task's gradients (there their sum, with a rate to suit). Stale
//          synchronous parallel has the same waits with slack tau, but steps along each gradient as it comes: there a
//          worker sees what the fast ones have sent of an iteration, here only finished tasks. A worker takes the
//          newest model when it starts. It starts no iteration that the budget has no step for. Of a worker that has
//          left, the gradient still on its way counts for the oldest task under way, if its own is finished. Gradients
//          are clipped by their workers, not a task's mean.
// Checks:  tau = 0 equals synchronous SGD bit for bit; staleness never above tau; N gradients in each step.
#pragma once

#include "algorithms/method/algorithm.hpp"

namespace syncopate {

class BoundedDelay : public Algorithm {
 public:
  // maximum_delay: tau, at least 0.
  explicit BoundedDelay(std::int64_t maximum_delay) : maximum_delay_(maximum_delay) {}

  void run(Worker& worker) const override;
  void serve(Server& server) const override;
  Traits traits() const override { return {.servers = 1, .takes_data_in_turn = true, .sends_gradients = true}; }
  Forecast forecast(const PredictionInput&) const override {
    return Forecast::none("workers wait for the oldest task, whose age depends on all");
  }

 private:
  std::int64_t maximum_delay_;
};

std::unique_ptr<Algorithm> make_bounded_delay(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
