// 1-bit Adam: ordinary Adam for the first steps; then the second moment is frozen, and workers exchange first moments
// instead of gradients, compressed to signs and a scale.
// Source:  Tang et al. 2021, "1-bit Adam: Communication Efficient Large-Scale Training with Adam's Convergence Speed",
//          and DeepSpeed's code.
// Shapes:  gradient, parameters, moments, residual: (P,) flat float32.
// Cost:    one all-reduce of P floats in each of the first `freeze_step` steps; then each worker sends 2 (N - 1)
//          packets in two phases, each with P / N signs, or compressed as the table `compression` says.
// Differs: worker i has m_i = beta1 m + (1 - beta1) g_i and sends m_i + residual_i, compressed. The owner of each chunk
//          averages what it receives and compresses the mean again, with a residual of its own; this is the new m.
//          Then x -= rate m / (sqrt(v) + epsilon), plus weight decay. A chunk's scale is its root mean square unless
//          `scope` says otherwise (in the code a worker has one scale per tensor, for all chunks, by the tensor's
//          padded length). The sign of 0 is +1. The optimizer must leave out bias correction, as the code does in both
//          phases. A value that stays 0 cannot be sent as 0, and with a second moment of 0 its parameter would step by
//          rate / epsilon times the scale. So parameters whose second moment is 0 at the freeze are masked: their first
//          moment stays 0, and only weight decay moves them. The code masks rows that its user names. As in the code,
//          residuals are not masked (workers/compression/compressed_exchanges.hpp).
// Checks:  freeze_step beyond the run equals synchronous SGD with Adam bit for bit; without compression it is momentum
//          SGD with a fixed preconditioner; one worker with values of equal magnitude is exact; a parameter without
//          gradients does not change.
#pragma once

#include <algorithm>

#include "algorithms/method/algorithm.hpp"

namespace syncopate {

class OneBitAdam : public Algorithm {
 public:
  explicit OneBitAdam(Step freeze_step) : freeze_step_(freeze_step) {}

  void run(Worker& worker) const override {
    while (worker.budget_left()) {
      const bool is_frozen = worker.step() >= freeze_step_;
      Gradient sum = worker.compute_step_gradient();
      worker.all_reduce_sum(sum, {.is_dense = !is_frozen});  // once frozen, workers send first moments
      worker.descend(sum / (worker.size() * worker.micro_batches()), {.keeps_second_moment = is_frozen});
      worker.publish();
    }
  }

  Traits traits() const override {
    return {.follows_clock = false,
            .settles_after = freeze_step_,
            .lockstep_from_step = 0,
            .sums_moments = true,
            .held = {.models = 0, .moments = 0}};
  }

  std::optional<Communicated> communication(const CommunicationInput& input) const override {
    const std::int64_t dense = std::min(freeze_step_, input.steps).value(), rest = input.steps.value() - dense;
    const Bytes compressed =
        input.exchanges.empty() ? input.of_gradient() : input.of_exchanges(input.exchanges.back().exchanges);
    return Communicated{input.steps.value(), Bytes{dense * input.of_gradient().value() + rest * compressed.value()}};
  }

 private:
  Step freeze_step_;
};

inline std::unique_ptr<Algorithm> make_one_bit_adam(Settings& settings, const AlgorithmContext& context) {
  const auto freeze_step = settings.integer(
      {"freeze_step", "Steps of Adam before the second moment is frozen; 100,000 in the paper's code.", "steps"}, 1,
      1'000'000'000);
  if (!context.frozen_beta1)
    settings.fault("algorithm",
                   "needs training.optimizer \"adam\" or \"adamw\" with bias_correction = false, and no weight decay "
                   "in the gradient (of adam)");
  if (context.clips_gradients)
    settings.fault("algorithm",
                   "needs training.clip_norm = 0: after `freeze_step` workers exchange moments instead of gradients");
  return std::make_unique<OneBitAdam>(Step{freeze_step});
}

}  // namespace syncopate
