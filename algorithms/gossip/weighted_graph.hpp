// Graphs that are given link by link, each with its weight: what a file says, checked.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "algorithms/gossip/graph.hpp"
#include "workers/linear_algebra/matrix.hpp"
#include "workers/network/listed_links.hpp"

namespace syncopate {

class WeightedGraph final : public GossipGraph {
 public:
  // Each pair stands once, and nobody sends to itself.
  WeightedGraph(int workers, const std::vector<WeightedLink>& links);

  int workers() const override { return static_cast<int>(receivers_.size()); }
  std::vector<Neighbour> receivers(Rank sender, Step) const override { return receivers_[at(sender)]; }
  std::vector<Neighbour> senders(Rank receiver, Step) const override { return senders_[at(receiver)]; }
  double second_eigenvalue() const override;
  double least_kept() const override { return least_kept_; }
  double least_weight() const override { return least_weight_; }

  // What is wrong with it, or nothing. Of each of the two the first.
  std::optional<std::string> why_not_connected() const;
  // Whether W's columns sum to 1 and its diagonal is positive: all keep a part of what they have.
  std::optional<std::string> why_not_column_stochastic() const;
  // Whether its rows do too: what a worker takes from others is as much as it gives.
  std::optional<std::string> why_not_doubly_stochastic() const;

 private:
  static std::size_t at(Rank rank) { return static_cast<std::size_t>(rank.value); }
  double given_by(Rank sender) const;
  double find_least_weight() const;
  Matrix matrix() const;
  std::vector<char> reached(bool backwards) const;

  std::vector<std::vector<Neighbour>> receivers_, senders_;
  double least_kept_ = 1;
  double least_weight_ = 1;
};

// Weights of links that have none. Both are doubly stochastic where all have as many neighbours, Metropolis' wherever
// links go both ways.
enum class LinkWeights {
  degree,      // 1/(d + 1), d being how many the sender has
  metropolis,  // 1/(d + 1), d being the larger of the two workers' numbers
};
void weigh(std::vector<WeightedLink>& links, int workers, LinkWeights rule);

}  // namespace syncopate
