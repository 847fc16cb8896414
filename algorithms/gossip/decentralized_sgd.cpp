#include "algorithms/gossip/decentralized_sgd.hpp"

#include <algorithm>
#include <set>
#include <vector>

#include "algorithms/gossip/graph_section.hpp"

namespace syncopate {
namespace {

// A worker's place in the graph. Who has stopped is no neighbour any more.
class Neighbours {
 public:
  Neighbours(const GossipGraph& graph, Rank self) : graph_(graph), self_(self) {}

  std::vector<Rank> receivers(Step step) const {
    std::vector<Rank> there;
    for (const Link& link : graph_.receivers(self_, step))
      if (!stopped_.contains(link.worker)) there.push_back(link.worker);
    return there;
  }
  std::vector<Link> senders(Step step) const {
    std::vector<Link> there = graph_.senders(self_, step);
    std::erase_if(there, [&](const Link& link) { return stopped_.contains(link.worker); });
    return there;
  }
  std::vector<Rank> listeners() const {
    std::vector<Rank> there = graph_.all_receivers(self_);
    std::erase_if(there, [&](Rank worker) { return stopped_.contains(worker); });
    return there;
  }
  void stopped(Rank worker) { stopped_.insert(worker); }

 private:
  const GossipGraph& graph_;
  Rank self_;
  std::set<Rank> stopped_;
};

// The weighted mean of the own model and those that the neighbours have sent; the weight of those who have stopped is
// the worker's own.
void mix(Worker& worker, Gossip& gossip, Neighbours& neighbours) {
  const std::vector<Link> senders = neighbours.senders(worker.step());
  if (senders.empty()) return;
  std::vector<WeightedState> terms;
  double taken = 0;
  for (const auto& [sender, weight] : senders) {
    if (const auto message = gossip.receive_from(sender)) {
      terms.push_back({weight, message->model});
      taken += weight;
    } else {
      neighbours.stopped(sender);
    }
  }
  terms.push_back({1 - taken, worker.model()});
  worker.set_model(worker.combine(terms));
}

}  // namespace

void DecentralizedSgd::run(Worker& worker) const {
  const GossipGraphPtr graph = graph_of(worker.size());
  Gossip gossip(worker, evaluated_);
  Neighbours neighbours(*graph, worker.rank());
  while (worker.budget_left()) {
    for (const Rank receiver : neighbours.receivers(worker.step()))
      worker.send(receiver, Message::of_model(worker.step(), worker.model()));
    const Gradient gradient = worker.compute_step_gradient();
    mix(worker, gossip, neighbours);
    worker.descend(gradient / worker.micro_batches());
    worker.report_steps();
    gossip.publish_own();
  }
  gossip.stop(neighbours.listeners(), {});
}

Forecast DecentralizedSgd::forecast(const PredictionInput& input) const {
  return no_formula_but_gap(*graph_of(input.workers));
}

// At the end the others' models, with a weight each, come to worker 0.
std::optional<Communicated> DecentralizedSgd::communication(const CommunicationInput& input) const {
  const Bytes::Rep model = input.parameter_bytes.value(), last = (input.workers - 1) * (model + 8);
  const std::int64_t messages = graph_of(input.workers)->messages_in(input.steps);
  return Communicated{input.steps.value(), Bytes{messages * model + last}};
}

std::unique_ptr<Algorithm> make_decentralized_sgd(Settings& settings, const AlgorithmContext& context) {
  GossipGraphPtr graph = read_graph(settings, context, Mixing::doubly_stochastic,
                                    "Who mixes models with whom in each step; left out: the ring.");
  return std::make_unique<DecentralizedSgd>(read_own_models(settings), std::move(graph));
}

}  // namespace syncopate
