// The outer model of a training by fragments, as one worker holds it, and those averages of its fragments that are
// under way. An outer step along an average changes one fragment alone.
// Source:  as in streaming_diloco.hpp.
// Shapes:  outer model and momentum, the worker's model: (d,) flat float32.   Units: due in steps of the workers' plan.
// Cost:    of one outer step, on all d parameters, once for all workers of a process; each worker copies its model.
// Differs: averages end in the order in which they were started; that is also the order in which they are due, as long
//          as all have one delay. What a worker loses in an outage is in none of this: all hold the same.
#pragma once

#include <deque>
#include <vector>

#include "algorithms/local_sgd/fragments.hpp"
#include "algorithms/local_sgd/outer_optimizer.hpp"
#include "algorithms/local_sgd/state_policy.hpp"
#include "workers/worker.hpp"

namespace syncopate {

class OuterFragments {
 public:
  // Begins with the worker's model. All but the worker's fragments outlive it. `mixing` is the share of a worker's own
  // fragment that stays when an outer step has been taken.
  OuterFragments(Worker& worker, const Fragments& fragments, const OuterOptimizer& outer, double mixing,
                 const StatePolicies& policies)
      : worker_(worker),
        fragments_(fragments),
        outer_(outer),
        mixing_(mixing),
        policies_(policies),
        own_(static_cast<std::size_t>(fragments.count())),
        model_(worker.model()) {}

  bool are_under_way() const { return !under_way_.empty(); }
  bool are_due_before(Step step) const { return are_under_way() && next_due() < step; }
  Step next_due() const { return under_way_.front().due; }
  bool is_first() const { return are_under_way() && !has_come_; }  // nobody has agreed on anything but steps yet

  // A local step at this learning rate, which all fragments have taken.
  void add_step(double rate) {
    for (Own& fragment : own_) fragment.add(rate);
  }
  // Starts the average of the worker's fragment.
  void start(int fragment, Step due);
  // Waits for the oldest average; an outer step along it; the worker takes its fragment on, and publishes the model.
  void finish_next();

 private:
  // Of a fragment.
  struct Own {
    double rates = 0;  // of the local steps since its last average was started
    Step steps{};
    bool has_momentum = false;

    void add(double rate) {
      rates += rate;
      ++steps;
    }
    double mean_rate() const { return steps > 0 ? rates / static_cast<double>(steps.value()) : 0; }
  };
  struct UnderWay {
    int fragment;
    Step due;
    double rate;  // of the steps that it averages
    StartedCollective average;
  };

  Worker& worker_;
  const Fragments& fragments_;
  const OuterOptimizer& outer_;
  double mixing_;
  const StatePolicies& policies_;
  std::vector<Own> own_;
  std::deque<UnderWay> under_way_{};
  bool has_come_ = false;  // any of them
  ModelStatePtr model_;
  ModelStatePtr momentum_{};  // null before any
};

}  // namespace syncopate
