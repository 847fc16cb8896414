// Synchronous SGD: every worker computes M micro-batches, all gradients are averaged, all step alike.
// Source:  Chen et al. 2016, "Revisiting Distributed Synchronous SGD" (b = 0).
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    one all-reduce of P floats per step; M gradients per worker.
// Differs: nothing; the baseline of every comparison.
// Checks:  one worker with N x M micro-batches gives the same parameters; step time is the slowest worker's.
#pragma once

#include "algorithms/method/algorithm.hpp"

namespace syncopate {

class SyncSgd : public Algorithm {
 public:
  void run(Worker& worker) const override;
  bool depends_on_clock() const override { return false; }
  std::optional<Step> workers_act_alike_from(const Budget&) const override { return 0; }
  std::vector<Prediction> predict(const PredictionInput& input) const override;
  std::string why_not_predicted(const PredictionInput&) const override { return has_no_variance; }
};

std::unique_ptr<Algorithm> make_sync_sgd(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
