#include "algorithms/gossip/decentralized_sgd.hpp"

#include <vector>

#include "algorithms/gossip/gossip.hpp"
#include "algorithms/gossip/graph.hpp"

namespace syncopate {
namespace {

// The weighted mean of the own model and those that the neighbours have sent; who has stopped is no neighbour
// any more, and its weight is the worker's own.
ModelStatePtr mix(const Worker& worker, Gossip& gossip, std::vector<Rank>& neighbours, double weight) {
  std::vector<WeightedState> terms;
  std::erase_if(neighbours, [&](Rank neighbour) {
    const auto message = gossip.receive_from(neighbour);
    if (message) terms.push_back({weight, message->model});
    return !message;
  });
  terms.push_back({1 - weight * static_cast<double>(terms.size()), worker.model()});
  return worker.combine(terms);
}

}  // namespace

void DecentralizedSgd::run(Worker& worker) const {
  Gossip gossip(worker, evaluated_);
  std::vector<Rank> neighbours = neighbours_on_ring(worker.rank(), worker.size());
  const double weight = 1.0 / static_cast<double>(neighbours.size() + 1);
  while (worker.budget_left()) {
    for (const Rank neighbour : neighbours) worker.send(neighbour, Message::of_model(worker.step(), worker.model()));
    const Gradient gradient = worker.compute_step_gradient();
    if (!neighbours.empty()) worker.set_model(mix(worker, gossip, neighbours, weight));
    worker.descend(gradient / worker.micro_batches());
    worker.report_steps();
    gossip.publish_own();
  }
  gossip.stop(neighbours, {});
}

std::unique_ptr<Algorithm> make_decentralized_sgd(Settings& settings, const AlgorithmContext&) {
  return std::make_unique<DecentralizedSgd>(read_own_models(settings));
}

}  // namespace syncopate
