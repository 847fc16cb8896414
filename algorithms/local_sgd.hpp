// Local SGD: each worker takes H steps on its own, then the parameters of all are averaged.
// Source:  Lin et al. 2020 (Local and post-local SGD); Gu et al. 2024 (H by the quadratic rule).
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    one all-reduce of P floats per H steps (more if moments are averaged too).
// Differs: the last average always falls on the last step; the reference code leaves a constant
//          period's remainder un-averaged. Momentum stays with its worker (as there) unless chosen.
// Checks:  H = 1 with plain SGD equals synchronous SGD; rounds match the golden sequences of the rule.
#pragma once

#include "algorithms/algorithm.hpp"
#include "algorithms/sync_period.hpp"

namespace syncopate {

class LocalSgd : public Algorithm {
 public:
  LocalSgd(std::shared_ptr<const SyncPeriod> period, const AveragePolicy& policy)
      : period_(std::move(period)), policy_(policy) {}

  void run(Worker& worker) const override;

 private:
  std::shared_ptr<const SyncPeriod> period_;
  AveragePolicy policy_;
};

std::unique_ptr<Algorithm> make_local_sgd(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
