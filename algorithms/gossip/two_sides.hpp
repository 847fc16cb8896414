// Graphs with two sides (bipartite): of two workers who meet, one asks and the other answers.
// Cost:    by parity none; of a graph a list of all links.
#pragma once

#include <optional>
#include <vector>

#include "algorithms/gossip/graph.hpp"

namespace syncopate {

// The two sides of a graph on which no two of a side are linked: passive workers answer, of whom rank 0 is one, active
// ones ask.
class TwoSides {
 public:
  static TwoSides by_parity(int workers) { return TwoSides(workers); }  // all pairs of an even rank and an odd one
  // None where the graph has no two such sides.
  static std::optional<TwoSides> of(const GossipGraph& graph);

  bool is_active(Rank worker) const { return lists_.empty() ? worker.value % 2 == 1 : lists_[at(worker)].is_active; }
  // Of the other side, linked with it, in the order of the ranks.
  int partners(Rank worker) const;
  Rank partner(Rank worker, int number) const;
  std::vector<Rank> all_partners(Rank worker) const;

 private:
  struct Listed {
    bool is_active = false;
    std::vector<Rank> partners{};
  };
  explicit TwoSides(int workers) : workers_(workers) {}
  static std::size_t at(Rank worker) { return static_cast<std::size_t>(worker.value); }

  int workers_;
  std::vector<Listed> lists_;  // by rank; none: by parity
};

}  // namespace syncopate
