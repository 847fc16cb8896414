// One-shot averaging: all workers train alone, and their models are averaged once, at the end.
// Source:  Zinkevich et al. 2010, "Parallelized Stochastic Gradient Descent".
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    one all-reduce of P floats in all.
// Differs: workers draw from disjoint shards of each epoch.
// Checks:  equals Local SGD with a period as long as the run, bit for bit.
#pragma once

#include "algorithms/method/algorithm.hpp"

namespace syncopate {

class OneShot : public Algorithm {
 public:
  void run(Worker& worker) const override;
};

std::unique_ptr<Algorithm> make_one_shot(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
