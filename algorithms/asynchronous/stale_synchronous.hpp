// Stale synchronous parallel (SSP): asynchronous SGD in which no worker may be more than s gradients ahead of
// the slowest; who is waits. Nothing is dropped.
// Source:  Ho et al. 2013, "More Effective Distributed ML via a Stale Synchronous Parallel Parameter Server".
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    per gradient P floats up and P down, and the waits.
// Differs: the server holds back the model where there a worker waits in its read; a read returns the newest
//          model, never an older one from a cache. A worker's clock is the number of its gradients that have been
//          applied, so it starts its gradient number k, from 0, once all clocks are at least k - s. Workers that
//          have left hold nobody back; one that never answers does, for ever.
// Checks:  s = inf equals asynchronous SGD bit for bit; s = 0 is a barrier; no gap above s when a gradient starts.
#pragma once

#include "algorithms/asynchronous/staleness_weight.hpp"
#include "algorithms/method/algorithm.hpp"

namespace syncopate {

class StaleSynchronous : public Algorithm {
 public:
  // slack: s, at least 0.
  explicit StaleSynchronous(std::int64_t slack, const UpdateRate& rate = {}) : slack_(slack), rate_(rate) {}

  void run(Worker& worker) const override;
  void serve(Server& server) const override;
  Traits traits() const override { return {.servers = 1, .takes_data_in_turn = true, .sends_gradients = true}; }
  Forecast forecast(const PredictionInput&) const override {
    return Forecast::none("who waits for whom depends on how far all have come");
  }

 private:
  std::int64_t slack_;
  UpdateRate rate_;
};

std::unique_ptr<Algorithm> make_stale_synchronous(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
