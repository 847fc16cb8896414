// What all workers derive from the same gathered numbers is derived once per process: with thousands of simulated
// workers, each doing it alone would cost more than the rest of the run.
#pragma once

#include <memory>

#include "workers/cluster/collective.hpp"

namespace syncopate {

class DerivedOnce {
 public:
  // The value that `derive` gave when this was first asked for these numbers. Only the last one is kept, so that all
  // workers ask before the next gather.
  template <typename Value, typename Derive>
  std::shared_ptr<const Value> get(const SharedNumbers& numbers, const Derive& derive) {
    // Identity is that of the control block, which the weak pointer holds: no later numbers get the same.
    const bool is_same = !numbers_.owner_before(numbers) && !numbers.owner_before(numbers_);
    if (!value_ || !is_same) {
      value_ = std::make_shared<const Value>(derive());
      numbers_ = numbers;
    }
    return std::static_pointer_cast<const Value>(value_);
  }

 private:
  std::weak_ptr<const std::vector<double>> numbers_;
  std::shared_ptr<const void> value_;
};

}  // namespace syncopate
