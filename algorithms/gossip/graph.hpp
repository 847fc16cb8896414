// Who sends to whom, where workers have no centre.
#pragma once

#include <vector>

#include "workers/units/units.hpp"

namespace syncopate {

// The workers beside one on a ring, each once: none of one worker, one of two.
std::vector<Rank> neighbours_on_ring(Rank rank, int workers);

// The directed exponential graph: in step k everybody sends to the worker 2^(k mod L) ranks further, where L is the
// number of powers of two below N. One worker alone would send to itself.
// Source: Assran et al. 2019, "Stochastic Gradient Push for Distributed Deep Learning", appendix A.
class ExponentialGraph {
 public:
  explicit ExponentialGraph(int workers);

  Rank receiver(Rank sender, Step step) const { return further(sender, distance(step)); }
  Rank sender(Rank receiver, Step step) const { return further(receiver, -distance(step)); }
  // All others to whom a worker sends in turn.
  std::vector<Rank> receivers(Rank sender) const;

 private:
  int distance(Step step) const { return powers_ == 0 ? 0 : 1 << (step.value() % powers_); }
  Rank further(Rank from, int by) const { return Rank{(from.value + workers_ + by) % workers_}; }

  int workers_;
  int powers_;  // L
};

}  // namespace syncopate
