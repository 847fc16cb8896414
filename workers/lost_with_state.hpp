// What a method keeps of a worker's own work in a variable, and an outage takes with the worker's state.
#pragma once

#include <utility>

#include "workers/worker.hpp"

namespace syncopate {

// As a variable of the type: `LostWithState<Step> taken(worker);`. After a loss it is what Value() is. The worker
// outlives it.
template <typename Value>
class LostWithState {
 public:
  explicit LostWithState(const Worker& worker, Value value = Value())
      : worker_(worker), losses_(worker.states_lost_), value_(std::move(value)) {}

  Value& operator*() {
    if (std::exchange(losses_, worker_.states_lost_) != worker_.states_lost_) value_ = Value();
    return value_;
  }

 private:
  const Worker& worker_;
  int losses_;  // of the worker's state, when the value was looked at last
  Value value_;
};

}  // namespace syncopate
