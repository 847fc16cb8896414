// What a run communicates by its method's schedule alone, whatever clocks and budgets do; and so whether some of its
// steps, which are simulated, stand for all.
// Units:   steps of the experiment file.
// Cost:    a method's closed form goes round by round; what has been asked is kept.
// Checks:  closed forms of scheduled periods (tests/experiments/predicted_schedules_test.cpp).
#pragma once

#include <map>
#include <optional>

#include "experiments/sections/experiment.hpp"
#include "results/run/run_prediction.hpp"

namespace syncopate {

class ScheduledRounds {
 public:
  explicit ScheduledRounds(const Run& run);

  // False where clocks or values have a say in it, or the model's tensors are needed and not known.
  bool are_known() const { return known_; }
  // Of a run of so many steps, in which nobody leaves or loses anything. They are known.
  Communicated until(Step steps) const;

  // Whether they can be counted in a moment.
  bool are_countable(Step steps) const;
  // The last step within [at_least, at_most] at which a round, and with it a cycle of the method, ends; if there is none,
  // the first one after them and up to `limit`; else, or where rounds are not known, at_most.
  Step end_of_round(Step at_least, Step at_most, Step limit) const;

  // Whether a run of `all` steps has the rounds and the bytes, within 1 %, that it would have if all went on as between
  // the step after which its method settles and the step `first`, and no round of few is cut off there. Always where they
  // are not known.
  bool stand_for_all(Step first, Step all) const;

 private:
  bool ends_round(Step step) const { return until(step + Step{1}).rounds > until(step).rounds; }
  double misfit(Step first, Step all) const;

  const Run& run_;
  KnownExchanges exchanges_;
  bool known_;
  mutable std::map<Step, Communicated> until_{};
};

}  // namespace syncopate
