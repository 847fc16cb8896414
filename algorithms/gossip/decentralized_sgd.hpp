// Decentralised SGD (D-PSGD) on a ring: each worker mixes its model with those of its two neighbours, and steps
// along its own gradient. Nobody holds the model of all.
// Source:  Lian et al. 2017, "Can Decentralized Algorithms Outperform Centralized Algorithms?", Algorithm 1.
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    per step and worker two models sent and two received, while its gradient is computed; N - 1 models at
//          the very end, for what is evaluated.
// Differs: two workers mix their halves. The part of a neighbour that has left falls to the worker itself, so that
//          the mean of the others' models is preserved. Momentum stays with its worker. What is evaluated is
//          the mean of all models after as many steps (which no worker has, and which costs nothing), or each of them.
// Checks:  one worker equals SGD bit for bit; without gradients the ring's modes k decay by 1/3 + 2/3 cos(2 pi k/N)
//          per step; with linear gradients the mean of the models is that of synchronous SGD.
#pragma once

#include "algorithms/gossip/gossip.hpp"
#include "algorithms/method/algorithm.hpp"

namespace syncopate {

class DecentralizedSgd : public Algorithm {
 public:
  explicit DecentralizedSgd(OwnModels evaluated = OwnModels::mean) : evaluated_(evaluated) {}

  void run(Worker& worker) const override;
  Traits traits() const override { return {.follows_clock = false}; }
  Forecast forecast(const PredictionInput&) const override {
    return Forecast::none("workers wait for neighbours, who wait for theirs");
  }

 private:
  OwnModels evaluated_;
};

std::unique_ptr<Algorithm> make_decentralized_sgd(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
