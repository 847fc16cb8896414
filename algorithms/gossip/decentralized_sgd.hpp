// Decentralised SGD (D-PSGD): each worker mixes its model with those of its neighbours on a graph, and steps along its
// own gradient. Nobody holds the model of all.
// Source:  Lian et al. 2017, "Can Decentralized Algorithms Outperform Centralized Algorithms?", Algorithm 1.
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    per step and worker one model sent to each neighbour and one received, while its gradient is computed: two
//          on the ring; N - 1 models at the very end, for what is evaluated.
// Differs: the gradient is taken at the worker's own model, as in the paper, and the step from the mixed one: weight
//          decay and the norms of layer-wise optimizers are those of the mixed model. The paper has no decay; were it
//          part of the loss, it would be that of the own model. Two workers on a ring mix their halves. The graph is
//          the paper's ring unless another is given, also one whose links go one way or change from step to step: what
//          is asked of W is that it is doubly stochastic. The part of a neighbour that has left falls to the worker
//          itself, so that the mean of the others' models is preserved (not where links go one way). Momentum stays
//          with its worker. One that loses its state goes on from what a neighbour sent it last, for the last mixing
//          (gossip.hpp); its own model of before lives on in those to whom it has sent it. What is evaluated is the
//          mean of all models after as many steps (which no worker has, and which costs nothing), or each of them.
// Checks:  one worker equals SGD bit for bit; without gradients differences decay by W's eigenvalues, on the ring by
//          1/3 + 2/3 cos(2 pi k/N) per step; with linear gradients the mean of the models is that of synchronous SGD;
//          on the complete graph all models are the mean after each mixing.
#pragma once

#include <optional>
#include <utility>

#include "algorithms/gossip/gossip.hpp"
#include "algorithms/gossip/graph.hpp"
#include "algorithms/method/algorithm.hpp"

namespace syncopate {

class DecentralizedSgd : public Algorithm {
 public:
  // Without a graph: the ring.
  explicit DecentralizedSgd(OwnModels evaluated = OwnModels::mean, GossipGraphPtr graph = nullptr)
      : evaluated_(evaluated), graph_(std::move(graph)) {}

  void run(Worker& worker) const override;
  Traits traits() const override {
    return {.sends_to_neighbours = true, .follows_clock = false, .exchanged_whole = models_of_neighbours};
  }
  Forecast forecast(const PredictionInput& input) const override;
  std::optional<Communicated> communication(const CommunicationInput& input) const override;

 private:
  GossipGraphPtr graph_of(int workers) const { return graph_ ? graph_ : ring(workers); }

  OwnModels evaluated_;
  GossipGraphPtr graph_;
};

std::unique_ptr<Algorithm> make_decentralized_sgd(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
