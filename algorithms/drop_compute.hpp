// DropCompute: stop accumulating micro-batches after tau seconds, then all-reduce what is there.
// Source:  Giladi et al. 2023, "DropCompute", Algorithm 1.
// Shapes:  gradient, parameters: (P,) flat float32.   Units: threshold_s (tau) in seconds.
// Cost:    one all-reduce of P floats per step; at most M gradients per worker.
// Differs: preempt = "discard" (the paper: what is in flight is lost; default), "microbatch" or
//          "backward" (the two reference codes: it finishes, or finishes once its backward pass began).
// Checks:  threshold = inf equals synchronous SGD bit for bit; the divisor is always N x M.
#pragma once

#include "algorithms/algorithm.hpp"

namespace syncopate {

class DropCompute : public Algorithm {
 public:
  DropCompute(Duration threshold, Preempt preempt, double forward_share)
      : threshold_(threshold), preempt_(preempt), forward_share_(forward_share) {}

  void run(Worker& worker) const override;

 private:
  Duration threshold_;  // from the end of the previous all-reduce; the clock that also paces the step
  Preempt preempt_;
  double forward_share_;  // of a micro-batch's duration; only for Preempt::backward
};

std::unique_ptr<Algorithm> make_drop_compute(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
