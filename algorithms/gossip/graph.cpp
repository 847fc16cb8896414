#include "algorithms/gossip/graph.hpp"

#include <bit>

namespace syncopate {

std::vector<Rank> neighbours_on_ring(Rank rank, int workers) {
  if (workers == 1) return {};
  const Rank before{(rank.value + workers - 1) % workers}, after{(rank.value + 1) % workers};
  return before == after ? std::vector{before} : std::vector{before, after};
}

ExponentialGraph::ExponentialGraph(int workers)
    : workers_(workers), powers_(std::bit_width(static_cast<unsigned>(workers - 1))) {}

std::vector<Rank> ExponentialGraph::receivers(Rank sender) const {
  std::vector<Rank> result;
  for (Step step; step < Step{powers_}; ++step) result.push_back(receiver(sender, step));
  return result;
}

}  // namespace syncopate
