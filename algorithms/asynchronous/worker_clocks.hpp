// The clocks of all workers: how many gradients each has delivered, and how many the slowest.
// Cost: constant per tick, whatever the number of workers (amortised over the values that the minimum passes).
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "workers/units/by_rank.hpp"

namespace syncopate {

class WorkerClocks {
 public:
  explicit WorkerClocks(int workers);

  // Of a worker that is still there. Both return whether the minimum has changed.
  bool tick(Rank worker);
  bool remove(Rank worker);  // its clock counts no more

  bool has(Rank worker) const { return clock_[worker].has_value(); }
  std::int64_t slowest() const { return slowest_; }
  std::int64_t ahead_of_slowest(Rank worker) const { return *clock_[worker] - slowest_; }

 private:
  bool raise_slowest();

  ByRank<std::optional<std::int64_t>> clock_;  // none: removed
  std::deque<int> workers_at_;                 // [i]: workers whose clock is slowest_ + i; never empty
  std::int64_t slowest_ = 0;
};

}  // namespace syncopate
