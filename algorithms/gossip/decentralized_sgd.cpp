#include "algorithms/gossip/decentralized_sgd.hpp"

#include <set>
#include <vector>

#include "algorithms/gossip/graph_section.hpp"

namespace syncopate {
namespace {

// The weighted mean of the own model and those that the neighbours have sent; the weight of those who have stopped is
// the worker's own.
void mix(Worker& worker, Gossip& gossip, const std::vector<Neighbour>& senders, std::set<Rank>& stopped) {
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

}  // namespace

void DecentralizedSgd::run(Worker& worker) const {
  const GossipGraphPtr graph = graph_of(worker.size());
  Gossip gossip(worker, evaluated_);
  const LinksOfWorker links(*graph, worker.rank());
  std::set<Rank> stopped;  // neighbours no more
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
