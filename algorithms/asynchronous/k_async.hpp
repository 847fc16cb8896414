// K-async SGD: a server steps along the mean of the first K gradients, which come from K different workers, however old
// their models are; these K then start from the new model. Nobody is cancelled.
// Source:  Dutta et al. 2018, "Slow and Stale Gradients Can Win the Race".
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    per gradient P floats up and P down; who has delivered waits for the update.
// Differs: once fewer than K workers are left, an update takes one gradient of each. The rate of an update is that of
//          its share of a step along all N, unless `rate_scaling` says otherwise. Each gradient is clipped by its
//          worker.
// Checks:  K = N equals synchronous SGD, K = 1 asynchronous SGD bit for bit; under exponential times an update takes
//          mu (H_N - H_(N-K)), as K-sync's.
#pragma once

#include "algorithms/asynchronous/staleness_weight.hpp"
#include "algorithms/method/algorithm.hpp"

namespace syncopate {

class KAsync : public Algorithm {
 public:
  // gradients: K, in [1, N].
  explicit KAsync(int gradients, const UpdateRate& rate = {}) : gradients_(gradients), rate_(rate) {}

  void run(Worker& worker) const override;
  void serve(Server& server) const override;
  Traits traits() const override { return {.servers = 1, .takes_data_in_turn = true, .sends_gradients = true}; }
  Forecast forecast(const PredictionInput& input) const override;

 private:
  int gradients_;
  UpdateRate rate_;
};

std::unique_ptr<Algorithm> make_k_async(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
