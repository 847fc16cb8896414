// DropCompute: stop accumulating micro-batches after tau seconds, then all-reduce what is there.
// Source:  Giladi et al. 2023, "DropCompute", Algorithm 1.
// Shapes:  gradient, parameters: (P,) flat float32.   Units: threshold_s (tau) in seconds.
// Cost:    one all-reduce of P floats per step (normalisation = "computed" adds one number, or one per tensor with
//          preempt = "layer"); at most M gradients per worker; plus the cost of the threshold's rule and of the
//          compensation.
// Differs: preempt says what happens to the micro-batch in flight: "discard" (the paper, default: it is lost),
//          "microbatch" or "backward" (the two reference codes: it finishes, or finishes if its backward pass has
//          begun), "layer" (the paper's future work: it stops, tensors whose gradient is finished count, and it still
//          counts as dropped). normalisation = "constant" (paper and code, default: the divisor is N x M, or N x M' of
//          a larger batch), "computed" or "mean-rate" (ours).
//          With "layer", "constant" divides all tensors by N x M, and "computed" each tensor by the number of
//          micro-batches that reached it, at least 1. Both reference codes drop nothing in their first steps; here a
//          fixed threshold holds from the first one.
// Checks:  threshold = inf equals synchronous SGD bit for bit; kept micro-batches by Eq. 5; each divisor; a cut
//          micro-batch contributes exactly its last tensors.
#pragma once

#include "algorithms/method/algorithm.hpp"
#include "algorithms/synchronous/drop_compensation.hpp"
#include "algorithms/synchronous/drop_threshold.hpp"

namespace syncopate {

struct DropComputeOptions {
  // The divisor of the sum of gradients.
  enum class Normalisation {
    constant,   // N x M; for a larger batch N x M': a dropped micro-batch counts as zero
    computed,   // the number of computed micro-batches; with Preempt::layer, for each tensor
    mean_rate,  // the mean number of computed micro-batches, N x M x (1 - mean drop rate)
  };
  std::shared_ptr<const DropThreshold> threshold{};
  Preempt preempt = Preempt::discard;
  double forward_share = 1.0 / 3;  // share of a micro-batch's duration; only for Preempt::backward and layer
  Normalisation normalisation = Normalisation::constant;
  std::optional<double> mean_drop_rate{};  // for mean_rate; none: the rate that the threshold's rule expects
  std::shared_ptr<const DropCompensation> compensation = make_no_compensation();
};

class DropCompute : public Algorithm {
 public:
  explicit DropCompute(DropComputeOptions options) : options_(std::move(options)) {}
  // Uses a fixed threshold, counted from the end of the previous step.
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
  // The divisor of the sum over all workers. `offered`: as in StepWork.
  double divisor(const Worker& worker, const Gradient& sum, int offered, double drop_rate) const;

  DropComputeOptions options_;
};

std::unique_ptr<Algorithm> make_drop_compute(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
