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

inline void OneShot::run(Worker& worker) const {
  while (worker.budget_left()) worker.descend(worker.compute_step_gradient() / worker.micro_batches());
  worker.average_model({});  // momentum stays with each worker, BatchNorm statistics are averaged
  worker.publish();
}

inline std::unique_ptr<Algorithm> make_one_shot(Settings&, const AlgorithmContext&) {
  return std::make_unique<OneShot>();
}

}  // namespace syncopate
