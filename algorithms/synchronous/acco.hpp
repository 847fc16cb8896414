// ACCO: workers compute during all-reduces. A step has two of them, each of half the gradients. A tentative step along
// the first half gives the model at which the next step's first half is computed while the second half is summed.
// Source:  Nabli et al. 2025, "ACCO: Accumulate while you Communicate", and its code (trainer_decoupled.py).
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    two all-reduces of P floats and a count per step, hidden behind computation. Workers compute the gradients
//          that fit into them, at least `least_micro_batches` per worker and all-reduce. A step takes two all-reduces,
//          after each the rest of the slowest micro-batch, and a second optimizer step.
// Differs: in the second phase the code sums both halves. Here it sums the second half and adds the known sum of the
//          first: equally many bytes, and equal up to rounding. The code's learning rate follows the number of
//          micro-batches, here the number of steps. The code shards the optimizer's state (ZeRO-1); here an all-reduce
//          stands for its reduce-scatter and all-gather. Nothing is computed during the last step's second phase.
// Checks:  without noise, and with equal data on all workers, it equals synchronous SGD; models, times and numbers of
//          micro-batches of an independent implementation (tests/golden/methods_2026_reference.py).
#pragma once

#include "algorithms/method/algorithm.hpp"

namespace syncopate {

// A worker's gradients of its micro-batches, which it takes in turn, whatever its step.
class GradientsInTurn {
 public:
  GradientsInTurn(Worker& worker, int least) : worker_(worker), least_(least) {}

  // The sum over the given number of micro-batches at the worker's model.
  Gradient compute(int count) {
    Gradient sum;
    while (sum.micro_batches() < count) sum += next();
    return sum;
  }
  // The sum over all micro-batches that fit in until the collective has ended. Micro-batches without a duration
  // would be infinitely many, so the worker waits after the least number of them.
  Gradient compute_during(const StartedCollective& collective) {
    Gradient sum = compute(least_);
    while (sum.compute_time() > Duration{} && !worker_.has_ended(collective)) sum += next();
    return sum;
  }

 private:
  Gradient next() {
    const std::int64_t number = taken_++;
    return *worker_.compute_gradient(
        {worker_.rank(), number / worker_.micro_batches(), static_cast<int>(number % worker_.micro_batches())});
  }

  Worker& worker_;
  int least_;
  std::int64_t taken_ = 0;
};

// Traits::exchanged_whole of the methods of this file and of delayed_update.hpp.
inline constexpr std::string_view sums_under_way = "only sums that workers wait for can be compressed";

// Starts the sum of this worker's gradients and of their micro-batches, which are all that it has planned. `known`: the
// sum of the step's first part.
inline StartedCollective start_sum(Worker& worker, Collective::Kind kind, const Gradient& gradient,
                                   const Gradient& known = {}) {
  const auto count = static_cast<double>(gradient.micro_batches());
  Collective sum = Collective::all_reduce(gradient, {&count, 1});
  sum.kind = kind;
  sum.planned = gradient.micro_batches();
  sum.known = known;
  return worker.start(std::move(sum));
}

class Acco : public Algorithm {
 public:
  explicit Acco(int least_micro_batches) : least_(least_micro_batches) {}

  void run(Worker& worker) const override {
    GradientsInTurn gradients(worker, least_);
    Gradient of_estimate = gradients.compute(least_);
    while (worker.budget_left()) {
      StartedCollective first = start_sum(worker, Collective::Kind::first_part, of_estimate);
      const Gradient of_model = gradients.compute_during(first);
      const Gradient half = worker.finish(std::move(first)).gradient;

      StartedCollective second = start_sum(worker, Collective::Kind::all_reduce, of_model, half);
      const std::int64_t own = of_estimate.micro_batches() + of_model.micro_batches();
      of_estimate = {};
      if (worker.steps_left() > Step{1})
        worker.tentatively(half / half.micro_batches(), [&] { of_estimate = gradients.compute_during(second); });
      const Gradient sum = worker.finish(std::move(second)).gradient;
      worker.descend(sum / sum.micro_batches(), {.micro_batches = own});
      worker.publish();
    }
    worker.discard(of_estimate);
  }

  Traits traits() const override {
    return {.publishes_stepped_models = true,
            .takes_data_in_turn = true,
            .held = {.models = 0, .states = 2},
            .exchanged_whole = sums_under_way};
  }

  std::optional<Communicated> communication(const CommunicationInput& input) const override {
    const Bytes sum = all_reduce_bytes(input.workers, input.parameter_bytes + Bytes{4});
    return Communicated{input.steps.value(), Bytes{2 * input.steps.value() * sum.value()}};
  }

 private:
  int least_;
};

inline int read_least_micro_batches(Settings& settings) {
  return static_cast<int>(settings.integer(
      {"least_micro_batches", "The least number of micro-batches that a worker computes during each all-reduce."}, 1,
      1'000'000, 1));
}

inline std::unique_ptr<Algorithm> make_acco(Settings& settings, const AlgorithmContext&) {
  return std::make_unique<Acco>(read_least_micro_batches(settings));
}

}  // namespace syncopate
