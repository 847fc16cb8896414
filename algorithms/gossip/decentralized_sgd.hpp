// Decentralised SGD (D-PSGD): each worker mixes its model with those of its neighbours on a graph, and steps along its
// own gradient. There is no common model.
// Source:  Lian et al. 2017, "Can Decentralized Algorithms Outperform Centralized Algorithms?", Algorithm 1.
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    per step a worker sends its model to each neighbour and receives a model from each (on the ring two), while
//          it computes its gradient; at the very end N - 1 models are sent for evaluation.
// Differs: the gradient is taken at the worker's own model, as in the paper, and the step starts from the mixed model.
//          Weight decay and norms are those of the mixed model; the paper has no decay. The default graph is the
//          paper's ring, on which two workers average their models. Links may go one way or change from step to step,
//          but W must be doubly stochastic. The weight of a neighbour that has left goes to the worker itself. This
//          preserves the mean of the others' models, unless links go one way. Momentum stays with its worker. A worker
//          that loses its state continues from the model that a neighbour sent it for the last mixing (gossip.hpp); its
//          old model is still a part of its receivers' models. Evaluations use the mean of all models after equal
//          numbers of steps, or each model; they take no time.
// Checks:  one worker equals SGD bit for bit; without gradients the models' differences decay by W's eigenvalues, on
//          the ring by 1/3 + 2/3 cos(2 pi k/N) per step for wave k; with linear gradients the mean of the models is
//          that of synchronous SGD; on the complete graph all models are the mean after each mixing.
#pragma once

#include <set>

#include "algorithms/gossip/gossip.hpp"

namespace syncopate {

class DecentralizedSgd : public Algorithm {
 public:
  // graph: null for the ring.
  explicit DecentralizedSgd(IndividualModels evaluated = IndividualModels::mean, GossipGraphPtr graph = nullptr)
      : evaluated_(evaluated), graph_(std::move(graph)) {}

  void run(Worker& worker) const override {
    const GossipGraphPtr graph = graph_of(worker.size());
    Gossip gossip(worker, evaluated_);
    const LinksOfWorker links(*graph, worker.rank());
    std::set<Rank> stopped;  // former neighbours
    while (worker.budget_left()) {
      for (const Neighbour& link : links.receivers(worker.step()))
        if (!stopped.contains(link.worker)) worker.send(link.worker, Message::of_model(worker.step(), worker.model()));
      const Gradient gradient = worker.compute_step_gradient();
      mix(worker, gossip, links.senders(worker.step()), stopped);
      worker.descend(gradient / worker.micro_batches());
      gossip.end_step();
    }
    std::vector<Rank> listeners = graph->all_receivers(worker.rank());
    std::erase_if(listeners, [&](Rank listener) { return stopped.contains(listener); });
    gossip.stop(listeners, {});
  }

  Traits traits() const override {
    return {.sends_to_neighbours = true,
            .follows_clock = false,
            .held = {.models = 2},
            .exchanged_whole = models_of_neighbours};
  }

  std::string remark(int workers) const override { return graph_of(workers)->remark(); }

  // Includes the models that all other workers send to worker 0 at the end, each with its weight (8 bytes).
  std::optional<Communicated> communication(const CommunicationInput& input) const override {
    const Bytes::Rep model = input.parameter_bytes.value(), last = (input.workers - 1) * (model + 8);
    const std::int64_t messages = graph_of(input.workers)->messages_in(input.steps);
    return Communicated{input.steps.value(), Bytes{messages * model + last}};
  }

 private:
  static void mix(Worker& worker, Gossip& gossip, const std::vector<Neighbour>& senders, std::set<Rank>& stopped) {
    std::vector<WeightedState> terms;
    double taken = 0;
    bool was_anybody_there = false;
    for (const auto& [sender, weight] : senders) {
      if (stopped.contains(sender)) continue;
      was_anybody_there = true;
      if (const auto message = gossip.receive_from(sender)) {
        terms.push_back({weight, message->model});
        taken += weight;
      } else {
        stopped.insert(sender);
      }
    }
    if (!was_anybody_there) return;
    terms.push_back({1 - taken, worker.model()});
    worker.set_model(worker.combine(terms));
  }

  GossipGraphPtr graph_of(int workers) const { return graph_ ? graph_ : ring(workers); }

  IndividualModels evaluated_;
  GossipGraphPtr graph_;
};

inline std::unique_ptr<Algorithm> make_decentralized_sgd(Settings& settings, const AlgorithmContext& context) {
  GossipGraphPtr graph = read_graph(settings, context, Mixing::doubly_stochastic,
                                    "Which workers mix models in each step; default: the ring.");
  return std::make_unique<DecentralizedSgd>(read_individual_models(settings), std::move(graph));
}

}  // namespace syncopate
