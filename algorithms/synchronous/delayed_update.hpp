// DPU, the delayed parameter update: while the gradients of a step are summed, workers compute those of the next step
// at the model before it. So each step is along gradients that are one step old.
// Source:  the baseline in Nabli et al. 2025, "ACCO: Accumulate while you Communicate", and in its code.
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    one all-reduce of P floats and a count per step, hidden behind computation. Workers compute the gradients
//          that fit into it, at least `least_micro_batches` per worker.
// Differs: here each gradient is used once by default, as defined. ACCO's code clears its accumulated gradients only in
//          every second step, so the others average two steps' gradients and half of all are used twice; choose with
//          cleared = "every-step" | "every-second-step". In the code the first 1,000 steps are synchronous by default;
//          here a common phase can precede (training.common). Nothing is computed during the last step's all-reduce.
// Checks:  delayed SGD in closed form, cleared either way; models, times and numbers of micro-batches of an independent
//          implementation (tests/golden/methods_2026_reference.py).
#pragma once

#include "algorithms/synchronous/acco.hpp"

namespace syncopate {

class DelayedUpdate : public Algorithm {
 public:
  enum class Cleared : std::uint8_t { every_step, every_second_step };

  explicit DelayedUpdate(int least_micro_batches, Cleared cleared = Cleared::every_step)
      : least_(least_micro_batches), cleared_(cleared) {}

  void run(Worker& worker) const override {
    GradientsInTurn gradients(worker, least_);
    Gradient computed = gradients.compute(least_);
    Gradient accumulated;  // the last step's sum, unless it has been cleared
    bool is_second = false;
    while (worker.budget_left()) {
      const std::int64_t own = computed.micro_batches();
      StartedCollective started = start_sum(worker, Collective::Kind::all_reduce, computed, accumulated);
      computed = worker.steps_left() > Step{1} ? gradients.compute_during(started) : Gradient();
      const Gradient sum = worker.finish(std::move(started)).gradient;
      worker.descend(sum / sum.micro_batches(), {.micro_batches = own});
      worker.publish();
      accumulated = cleared_ == Cleared::every_step || is_second ? Gradient() : sum;
      is_second = !is_second;
    }
    worker.discard(computed);
  }

  Traits traits() const override {
    return {.publishes_stepped_models = true,
            .takes_data_in_turn = true,
            .held = {.models = 0, .states = cleared_ == Cleared::every_step ? 1.0 : 2.0},
            .exchanged_whole = sums_under_way};
  }

  std::optional<Communicated> communication(const CommunicationInput& input) const override {
    const Bytes sum = all_reduce_bytes(input.workers, input.parameter_bytes + Bytes{4});
    return Communicated{input.steps.value(), Bytes{input.steps.value() * sum.value()}};
  }

 private:
  int least_;
  Cleared cleared_;
};

inline std::unique_ptr<Algorithm> make_delayed_update(Settings& settings, const AlgorithmContext&) {
  using enum DelayedUpdate::Cleared;
  const int least = read_least_micro_batches(settings);
  const auto cleared = settings.choice(
      {"cleared", "When accumulated gradients are cleared. ACCO's code keeps them in every other step."},
      {{"every-step", every_step}, {"every-second-step", every_second_step}}, every_step);
  if (!settings.has("cleared")) settings.leave_out("cleared");
  return std::make_unique<DelayedUpdate>(least, cleared);
}

}  // namespace syncopate
