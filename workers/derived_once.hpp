// What all workers derive from what they have gathered is derived once per process: with thousands of simulated
// workers, each doing it alone would cost more than the rest of the run.
#pragma once

#include <memory>

namespace syncopate {

class DerivedOnce {
 public:
  // The value that `derive` gave when this was first asked for what is gathered there. Only the last one is kept, so
  // that all workers ask before the next gather.
  template <typename Value, typename Gathered, typename Derive>
  std::shared_ptr<const Value> get(const std::shared_ptr<const Gathered>& gathered, const Derive& derive) {
    // Identity is that of the control block, which the weak pointer holds: nothing later gets the same.
    const bool is_same = !gathered_.owner_before(gathered) && !gathered.owner_before(gathered_);
    if (!value_ || !is_same) {
      value_ = std::make_shared<const Value>(derive());
      gathered_ = gathered;
    }
    return std::static_pointer_cast<const Value>(value_);
  }

 private:
  std::weak_ptr<const void> gathered_;
  std::shared_ptr<const void> value_;
};

}  // namespace syncopate
