// DPU, the delayed parameter update: while the gradients of a step are summed, workers compute those of the next step
// at the model before it. So each step is along gradients that are one step old.
// Source:  the baseline in Nabli et al. 2025, "ACCO: Accumulate while you Communicate", and in its code.
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    one all-reduce of P floats and a count per step, hidden behind computation; as many gradients as fit into
//          it, at least `least_micro_batches` per worker.
// Differs: ACCO's code clears the accumulated gradients only in every second step, so it uses half of them twice. Here
//          each gradient is used once, as defined. In the code the first 1,000 steps are synchronous by default; here a
//          common phase can precede (training.common). Nothing is computed during the last step's all-reduce.
// Checks:  delayed SGD in closed form; models, times and numbers of micro-batches of an independent implementation
//          (tests/golden/methods_2026_reference.py).
#pragma once

#include "algorithms/synchronous/acco.hpp"

namespace syncopate {

class DelayedUpdate : public Algorithm {
 public:
  explicit DelayedUpdate(int least_micro_batches) : least_(least_micro_batches) {}

  void run(Worker& worker) const override {
    GradientsInTurn gradients(worker, least_);
    Gradient computed = gradients.compute(least_);
    while (worker.budget_left()) {
      const std::int64_t own = computed.micro_batches();
      StartedCollective started = start_sum(worker, Collective::Kind::all_reduce, computed);
      computed = worker.steps_left() > Step{1} ? gradients.compute_during(started) : Gradient();
      const Gradient sum = worker.finish(std::move(started)).gradient;
      worker.descend(sum / sum.micro_batches(), {.micro_batches = own});
      worker.publish();
    }
    worker.discard(computed);
  }

  Traits traits() const override {
    return {.publishes_stepped_models = true,
            .takes_data_in_turn = true,
            .held = {.models = 0, .states = 1},
            .exchanged_whole = sums_under_way};
  }

  std::optional<Communicated> communication(const CommunicationInput& input) const override {
    const Bytes sum = input.all_reduce(input.workers, input.parameter_bytes + Bytes{4});
    return Communicated{input.steps.value(), Bytes{input.steps.value() * sum.value()}};
  }

 private:
  int least_;
};

inline std::unique_ptr<Algorithm> make_delayed_update(Settings& settings, const AlgorithmContext&) {
  return std::make_unique<DelayedUpdate>(read_least_micro_batches(settings));
}

}  // namespace syncopate
