// Bursts: a worker, or a group, is on for some steps and off for some, by a Markov chain with two states.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "workers/random/random.hpp"

namespace syncopate {

class Bursts {
 public:
  // Geometric lengths of these means, both at least 1. The first step is on with the share of on-steps, so that
  // every step is. `chains`: as many workers or groups are remembered, those beyond cost time.
  Bursts(double mean_on_steps, double mean_off_steps, std::size_t chains);

  // A pure function of the stream's seed, number and worker (or group), and of the step, whatever was asked
  // before. `stream` belongs to this object alone.
  bool is_on(RandomStream stream) const;

  double share() const { return share_; }  // of the steps that are on

 private:
  bool starts_on(RandomStream stream) const;

  // One uniform number per step decides: below `on_below_` the next state is on whatever it was, from `off_from_`
  // on it is off. Between them it is what it was, or, where states are so short that staying is less likely than
  // changing, what it was not.
  double share_;
  double on_below_;
  double off_from_;
  bool flips_;
  // Per chain, the latest step that was asked for, and its state: 2 step + on, plus 2. 0: none yet.
  mutable std::vector<std::atomic<std::int64_t>> memory_;
};

}  // namespace syncopate
