// DropCompute: stop accumulating micro-batches after tau seconds, then all-reduce the gradients computed so far.
// Source:  Giladi et al. 2023, "DropCompute", Algorithm 1.
// Shapes:  gradient, parameters: (P,) flat float32.   Units: threshold_s (tau) in seconds.
// Cost:    one all-reduce of P floats per step (normalisation = "computed" adds one number, or one per tensor with
//          preempt = "layer"); at most M gradients per worker; plus the cost of the threshold's rule and of the
//          compensation.
// Differs: `preempt` says what happens to the micro-batch that the deadline meets. "discard" (the paper; default): it
//          is lost. "microbatch" and "backward" (the two reference codes): it finishes, or finishes only if its
//          backward pass has begun. "layer" (the paper's future work): it stops, the tensors whose gradients are
//          finished enter the sum, and it still counts as dropped.
//          `normalisation` is the divisor. "constant" (paper and code; default): N x M, or N x M' with a larger batch.
//          "computed" (ours): the number of computed micro-batches, with "layer" for each tensor the number that
//          reached it, at least 1. "mean-rate" (ours): N x M x (1 - mean drop rate).
//          Both reference codes drop nothing in their first steps; here a fixed threshold holds from the first step.
// Checks:  threshold = inf equals synchronous SGD bit for bit; kept micro-batches by Eq. 5; each divisor; a cut
//          micro-batch contributes the gradients of exactly its last tensors, which the backward pass reaches first.
#pragma once

#include "algorithms/method/algorithm.hpp"
#include "algorithms/synchronous/drop_compensation.hpp"
#include "algorithms/synchronous/drop_threshold.hpp"

namespace syncopate {

struct DropComputeOptions {
  enum class Normalisation {
    constant,
    computed,
    mean_rate,
  };
  DropThreshold threshold{};
  Preempt preempt = Preempt::discard;
  double forward_share = 1.0 / 3;  // the forward pass's share of a micro-batch's time, for Preempt::backward and layer
  Normalisation normalisation = Normalisation::constant;
  std::optional<double> mean_drop_rate{};  // for mean_rate; none: the rate that the threshold's rule expects
  DropCompensation compensation = make_no_compensation();
};

class DropCompute : public Algorithm {
 public:
  explicit DropCompute(DropComputeOptions options) : options_(std::move(options)) {}
  // Uses a fixed threshold.
  DropCompute(Duration threshold, Preempt preempt, double forward_share)
      : DropCompute(
            {.threshold = make_fixed_threshold(threshold), .preempt = preempt, .forward_share = forward_share}) {}

  void run(Worker& worker) const override;
  Traits traits() const override;
  Forecast forecast(const PredictionInput& input) const override;

 private:
  using Normalisation = DropComputeOptions::Normalisation;

  Counted counted() const {
    if (options_.normalisation != Normalisation::computed) return Counted::none;
    return options_.preempt == Preempt::layer ? Counted::by_tensor : Counted::micro_batches;
  }
  // The divisor of the gradients' sum over all workers. `offered`: as in StepWork.
  double divisor(const Worker& worker, const Gradient& sum, int offered, double drop_rate) const;

  DropComputeOptions options_;
};

std::unique_ptr<Algorithm> make_drop_compute(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
