// Random drop: synchronous SGD that leaves out each worker's whole local batch with probability p. It shows what
// dropping does to accuracy, without stragglers; it saves no time.
// Source:  Giladi et al. 2023, the ResNet-50 study and its reference code (resnet_sgd, resnet_lars).
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    one all-reduce of P floats per step, of P + 1 with `statistics = "all"`.
// Differs: dropped batches are not computed, so only kept ones enter BatchNorm statistics; `statistics = "all"` runs
//          them forward, as the reference code does. With compressed sums, `dropped = "fold"` computes a dropped batch,
//          which still counts as dropped, and keeps its gradient for later steps. Statistics are averaged over the
//          workers; in the reference code each worker keeps its own. By default dropping starts in the third epoch, as
//          in the reference code, or in the first step if there is no data set.
// Checks:  p = 0 equals synchronous SGD bit for bit; the divisor is always N x M.
#pragma once

#include <limits>

#include "algorithms/method/algorithm.hpp"

namespace syncopate {

class RandomDrop : public Algorithm {
 public:
  enum class Statistics { of_kept, of_all };

  RandomDrop(double rate, Step from_step, Statistics statistics = Statistics::of_kept)
      : rate_(rate), from_step_(from_step), statistics_(statistics) {}

  void run(Worker& worker) const override {
    while (worker.budget_left()) {
      Gradient sum = worker.compute_step_gradient();
      const bool dropped = worker.step() >= from_step_ && worker.uniform(worker.step()) < rate_;
      const Gradient batch = dropped ? sum : Gradient();
      if (dropped) worker.discard(sum);
      if (dropped && statistics_ == Statistics::of_all) sum.keep_statistics_alone();
      if (dropped && statistics_ == Statistics::of_kept) sum = {};
      SumOptions options;
      if (dropped) options.dropped = &batch;
      if (statistics_ == Statistics::of_all) options.with_statistics = worker.micro_batches();
      worker.all_reduce_sum(sum, options);
      worker.descend(sum / (worker.size() * worker.micro_batches()));
      worker.publish();
    }
  }

  Traits traits() const override {
    return {.follows_clock = false,
            .steps_along_fresh_mean = true,
            .sums_gradients = true,
            .can_overlap_backward = true,
            .drops = Drops::computed,
            .held = {.models = 0, .moments = 0}};
  }

 private:
  double rate_;     // p
  Step from_step_;  // the first step that may drop
  Statistics statistics_;
};

inline std::unique_ptr<Algorithm> make_random_drop(Settings& settings, const AlgorithmContext& context) {
  using Statistics = RandomDrop::Statistics;
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  const double rate =
      settings.number({"drop_rate", "Probability that a worker's batch is left out of a step."}, Range::below_one());
  const Statistics statistics = settings.choice(
      {"statistics", "Batches in BatchNorm statistics: only kept batches, or all (dropped batches run forward only)."},
      {{"kept", Statistics::of_kept}, {"all", Statistics::of_all}}, Statistics::of_kept);
  constexpr std::int64_t usual_epoch = 2;
  std::optional<std::int64_t> epoch = settings.optional_integer(
      {"from_epoch", "The first epoch in which batches are left out.", "epochs", "2 with a data set"}, 0, most);
  const auto step =
      settings.optional_integer({"from_step", "The first step in which batches are left out, instead of from_epoch.",
                                 "steps", "0 without a data set"},
                                0, most);
  if (epoch && !context.has_epochs) settings.fault("from_epoch", "needs a data set; without one, give from_step");
  if (epoch && step) settings.fault("from_step", "must not be given together with from_epoch");
  if (!epoch && !step && context.has_epochs) epoch = usual_epoch;
  Step from{step.value_or(0)};
  if (epoch && context.steps_per_epoch) from = Step{*epoch * context.steps_per_epoch->value()};
  return std::make_unique<RandomDrop>(rate, from, statistics);
}

}  // namespace syncopate
