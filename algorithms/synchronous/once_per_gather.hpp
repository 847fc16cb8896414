// What all workers derive from the same gathered numbers is derived once per process: with thousands of
// simulated workers, each doing it alone would cost more than the rest of the run.
#pragma once

#include <memory>
#include <mutex>

#include "workers/cluster/collective.hpp"

namespace syncopate {

template <typename Value>
class OncePerGather {
 public:
  // The value that `compute` gave when this was first asked for these numbers. Only the last one is kept, so
  // all workers ask before the next gather.
  template <typename Compute>
  std::shared_ptr<const Value> get(const SharedNumbers& numbers, const Compute& compute) const {
    const std::lock_guard lock(mutex_);
    // Identity is that of the control block, which the weak pointer holds: no later numbers get the same.
    const bool is_same = !numbers_.owner_before(numbers) && !numbers.owner_before(numbers_);
    if (!value_ || !is_same) {
      value_ = std::make_shared<const Value>(compute());
      numbers_ = numbers;
    }
    return value_;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::weak_ptr<const std::vector<double>> numbers_;
  mutable std::shared_ptr<const Value> value_;
};

}  // namespace syncopate
