// Local steps by a plan that all workers share, for methods whose averages start and end between the steps of a round.
//
// Where a budget of seconds ends, a worker takes no more steps, and others may have taken more. All must start and
// finish the same averages nevertheless, and ask the same question after the same ones. So they go by the steps of the
// plan, which go on in any case.
#pragma once

#include "algorithms/local_sgd/local_sgd.hpp"

namespace syncopate {

class PlannedSteps {
 public:
  explicit PlannedSteps(Worker& worker) : worker_(worker), planned_(worker.step()) {}

  Step planned() const { return planned_; }
  // Whether the budget has steps for another round.
  bool steps_left() const { return worker_.steps_left() > behind(); }
  // The length of the round that begins here, as the rule says of a worker who has taken all steps of the plan.
  Step round(const SyncPeriod& period) const {
    return period.at(planned_, worker_.learning_rate(behind()), worker_.steps_left() - behind());
  }
  // Takes steps until so many are planned in all, fewer if the budget or this worker's own data end. `take_in` hears
  // the learning rate of each.
  template <typename TakeIn>
  void take_until(Step planned, const TakeIn& take_in) {
    for (; planned_ < planned && worker_.budget_left(Judged::alone); ++planned_) {
      take_in(worker_.learning_rate());
      take_local_steps(worker_, 1);
    }
    planned_ = planned;
  }

 private:
  Step behind() const { return planned_ - worker_.step(); }

  Worker& worker_;  // outlives it
  Step planned_;
};

}  // namespace syncopate
