// The table `graph` of a method without a centre.
#pragma once

#include "algorithms/gossip/graph.hpp"
#include "algorithms/method/algorithm.hpp"

namespace syncopate {

// What the method needs of W.
enum class Mixing {
  doubly_stochastic,  // the mean of all models is preserved by itself (D-PSGD)
  column_stochastic,  // weights that are mixed along correct for who has got more (push-sum)
  in_pairs,           // its links alone, which go both ways: two workers at a time mix their halves (AD-PSGD)
};

// Null where the table is not written: the method's own graph; and after a fault. The sentence is the table's.
GossipGraphPtr read_graph(Settings& settings, const AlgorithmContext& context, Mixing needed,
                          std::string_view sentence);

// Why gossip has no formula, with the gap of its graph.
Forecast no_formula_but_gap(const GossipGraph& graph);

}  // namespace syncopate
