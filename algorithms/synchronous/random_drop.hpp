// Random drop: synchronous SGD in which each worker's whole local batch is left out with probability p. What
// dropping does to accuracy, without any straggler: no time is saved.
// Source:  Giladi et al. 2023, the ResNet-50 study and its reference code (resnet_sgd, resnet_lars).
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    one all-reduce of P floats per step.
// Differs: dropped batches are not computed here, so BatchNorm statistics come from kept ones alone; the
//          reference code runs them forward all the same. It drops from its third epoch on: `from_epoch`.
// Checks:  p = 0 equals synchronous SGD bit for bit; the divisor is always N x M.
#pragma once

#include "algorithms/method/algorithm.hpp"

namespace syncopate {

class RandomDrop : public Algorithm {
 public:
  RandomDrop(double rate, Step from_step) : rate_(rate), from_step_(from_step) {}

  void run(Worker& worker) const override;
  Traits traits() const override { return {.follows_clock = false}; }
  Forecast forecast(const PredictionInput& input) const override;

 private:
  double rate_;     // p
  Step from_step_;  // the first step that may drop
};

std::unique_ptr<Algorithm> make_random_drop(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
