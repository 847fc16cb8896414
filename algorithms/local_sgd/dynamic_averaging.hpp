// Dynamic averaging: models are averaged only when they have moved far enough from their last average.
// Source:  Kamp et al. 2018, "Efficient Decentralized Deep Learning by Dynamic Model Averaging".
// Shapes:  gradient, parameters: (P,) flat float32.   Units: threshold in squared units of the parameters.
// Cost:    two numbers per worker all-gathered per check (its squared distance, its budget's end), P floats read;
//          one all-reduce of P floats per average.
// Differs: all workers look at the mean squared distance, which bounds the variance of the models, and all are
//          averaged if it is above the threshold; in the paper a coordinator first tries subsets of the workers
//          that violate their local condition. The last average falls on the last step.
// Checks:  threshold 0 equals Local SGD with the period of the checks, inf one-shot averaging; the steps of the
//          averages against a computation in double precision.
#pragma once

#include "algorithms/local_sgd/state_policy.hpp"
#include "algorithms/method/algorithm.hpp"

namespace syncopate {

class DynamicAveraging : public Algorithm {
 public:
  DynamicAveraging(double threshold, Step check_every, const StatePolicies& policies)
      : threshold_(threshold), check_every_(check_every), policies_(policies) {}

  void run(Worker& worker) const override;
  Traits traits() const override { return {.follows_values = true, .follows_clock = false}; }

 private:
  bool stays_apart(Worker& worker, const ModelStatePtr& last) const;

  double threshold_;
  Step check_every_;
  StatePolicies policies_;
};

std::unique_ptr<Algorithm> make_dynamic_averaging(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
