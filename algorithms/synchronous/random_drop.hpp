// Random drop: synchronous SGD in which each worker's whole local batch is left out with probability p. What
// dropping does to accuracy, without any straggler: no time is saved.
// Source:  Giladi et al. 2023, the ResNet-50 study and its reference code (resnet_sgd, resnet_lars).
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    one all-reduce of P floats per step.
// Differs: dropped batches are not computed, so BatchNorm statistics come from kept ones alone; with `statistics =
//          "all"` they are run forward, as in the reference code, at the cost of one number more per step (of how many
//          batches the mean is). Of compressed sums `dropped = "fold"` keeps a batch for later steps: it is computed,
//          and counts as dropped. Statistics are averaged over the workers, there each keeps its own. Batches are
//          dropped from the third epoch on, as there; without a data set from the first step.
// Checks:  p = 0 equals synchronous SGD bit for bit; the divisor is always N x M.
#pragma once

#include "algorithms/method/algorithm.hpp"

namespace syncopate {

class RandomDrop : public Algorithm {
 public:
  enum class Statistics { of_kept, of_all };

  RandomDrop(double rate, Step from_step, Statistics statistics = Statistics::of_kept)
      : rate_(rate), from_step_(from_step), statistics_(statistics) {}

  void run(Worker& worker) const override;
  Traits traits() const override {
    return {.follows_clock = false,
            .steps_along_fresh_mean = true,
            .sums_gradients = true,
            .can_overlap_backward = true,
            .drops = Drops::computed};
  }
  Forecast forecast(const PredictionInput& input) const override;

 private:
  double rate_;     // p
  Step from_step_;  // the first step that may drop
  Statistics statistics_;
};

std::unique_ptr<Algorithm> make_random_drop(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
