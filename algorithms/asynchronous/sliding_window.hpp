// Sliding window: asynchronous SGD in which no gradient is overtaken by more than tau others that started later.
// Source:  this project's own; bounded delay (bounded_delay.hpp, Li et al. 2014) with single gradients for tasks.
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    per gradient P floats up and P down, and the waits.
// Differs: gradients are numbered as the server hands models out, t = 0, 1, ...; number t is handed out once all up
//          to t - tau - 1 have been applied, to whoever has waited longest. So at most tau + 1 are under way. Stale
//          synchronous parallel bounds how far a worker is ahead of another, this how far anybody is ahead of the
//          oldest gradient: with N workers of equal speed tau = s N is much like slack s, but a slow worker holds
//          the others up after tau gradients of them all, not after s of each.
// Checks:  tau = 0 is sequential SGD, workers taking turns; tau = inf equals asynchronous SGD bit for bit; staleness
//          never above 2 tau.
#pragma once

#include "algorithms/asynchronous/staleness_weight.hpp"
#include "algorithms/method/algorithm.hpp"

namespace syncopate {

class SlidingWindow : public Algorithm {
 public:
  // maximum_delay: tau, at least 0.
  explicit SlidingWindow(std::int64_t maximum_delay, const UpdateRate& rate = {})
      : maximum_delay_(maximum_delay), rate_(rate) {}

  void run(Worker& worker) const override;
  void serve(Server& server) const override;
  Traits traits() const override { return {.servers = 1, .takes_data_in_turn = true, .sends_gradients = true}; }
  Forecast forecast(const PredictionInput&) const override {
    return Forecast::none("workers wait for the oldest task, whose age depends on all");
  }

 private:
  std::int64_t maximum_delay_;
  UpdateRate rate_;
};

std::unique_ptr<Algorithm> make_sliding_window(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
