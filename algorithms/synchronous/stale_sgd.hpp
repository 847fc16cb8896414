// Stale SGD: synchronous SGD whose gradients are those of an old model, what staleness alone does to a training. The
// workers may be one.
// Source:  Chen et al. 2016, "Revisiting Distributed Synchronous SGD", section 2.1 and Figure 2: old gradients on one
//          machine, their staleness ramped up over the first three epochs.
// Shapes:  gradient, parameters: (P,) flat float32.   Units: staleness in steps.
// Cost:    as synchronous SGD; as many models kept as gradients are old.
// Differs: how staleness varied there is not known; here it is even over `staleness` +- `spread`, the same for all
//          workers, rounded to whole steps. The ramp is linear.
// Checks:  a staleness of 0 equals synchronous SGD bit for bit; the recurrence of delayed SGD in double precision; on a
//          quadratic of curvature a it is stable below a rate of 2 sin(pi / (4 s + 2)) / a.
#pragma once

#include "algorithms/method/algorithm.hpp"

namespace syncopate {

struct StaleOptions {
  double staleness = 0;
  double spread = 0;  // at most `staleness`
  Step ramp_steps{};  // in which it grows from 0
};

class StaleSgd : public Algorithm {
 public:
  explicit StaleSgd(const StaleOptions& options) : options_(options) {}

  void run(Worker& worker) const override;
  Traits traits() const override {
    return {.follows_clock = false, .sums_gradients = true, .can_overlap_backward = true};
  }
  Forecast forecast(const PredictionInput& input) const override;

 private:
  std::int64_t staleness_at(const Worker& worker) const;

  StaleOptions options_;
};

std::unique_ptr<Algorithm> make_stale_sgd(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
