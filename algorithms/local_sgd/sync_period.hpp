// SyncPeriod: rules for the number H of optimizer steps that a worker takes alone before models are averaged. The steps
// between two averages are a round.
// Source:  Gu et al. 2024, "A Quadratic Synchronization Rule for Distributed Deep Learning" (power); Lin et al. 2020,
//          "Don't Use Large Mini-Batches, Use Local SGD" (post-local); Gupta et al. 2020, "Stochastic Weight Averaging
//          in Parallel" (SWAP); Iacob et al. 2026, "DES-LOC" (moments); Wang and Joshi 2019, "Adaptive Communication
//          Strategies to Achieve the Best Error-Runtime Trade-off in Local-Update SGD" (loss).
// Shapes:  scalars only.   Units: periods in optimizer steps, coefficient in units of the learning rate eta.
// Differs: every rule ends its last round at the run's last step, so the last average is taken there; the reference
//          code leaves the last T mod H of T steps un-averaged with a constant H. `maximum` limits the periods, which
//          would grow without end as eta -> 0. SWAP's first phase ends after a given number of steps (switch_step); it
//          is not confirmed that the paper ends it at a training accuracy.
// Checks:  periods of a whole training against golden sequences; coefficient = 0 equals a constant period.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>

#include "algorithms/method/algorithm.hpp"

namespace syncopate {

class RoundLengths {
 public:
  virtual ~RoundLengths() = default;

  // The length of the round that begins now.
  virtual Step next() = 0;
  // Whether the rule looks at gradients. If so, `see` is called in each step with the worker's mean gradient, before
  // the step along it.
  virtual bool sees_gradients() const { return false; }
  virtual void see(Gradient&) {}
  // Called when the round's average has been taken.
  virtual void end_round() {}
};

class SyncPeriod {
 public:
  virtual ~SyncPeriod() = default;

  // Returns the length, in [1, max(left, 1)], of the round that starts after `done` steps. It does not change within
  // the round. learning_rate: the rate of the round's first step. left: steps until the end of the training.
  virtual Step at(Step done, double learning_rate, Step left) const = 0;

  // The number of steps of synchronous SGD before the first round.
  virtual Step synchronous_steps() const { return {}; }

  // Whether the rule, and not the method, decides what an average includes. `due` returns the policy of the average
  // after `done` of `end` steps, derived from the method's usual policy.
  virtual bool sets_averages() const { return false; }
  virtual AveragePolicy due(Step done, Step end, const AveragePolicy& usual) const {
    static_cast<void>(done), static_cast<void>(end);
    return usual;
  }

  // The worker's rounds from its current step on. They have the lengths that `at` returns if is_known_before().
  virtual std::unique_ptr<RoundLengths> begin(Worker& worker) const;
  // Whether `at` gives all lengths in advance.
  virtual bool is_known_before() const { return true; }
  // Sets the traits that follow from this rule.
  virtual void describe(Traits&) const {}
};

std::unique_ptr<const SyncPeriod> make_constant_period(Step steps);

// H = max(minimum, floor((coefficient / eta)^power)), and at most `maximum`. During the warm-up, whose low rates would
// give long periods, H = warmup_period; a round that begins in the warm-up may end after it. Once eta is 0 a round
// takes all remaining steps, so give a maximum if the budget does not count steps.
struct PowerPeriodOptions {
  double power = 2;               // above 0; 2: the quadratic rule (QSR); 1: H ~ 1/eta; 3: the cubic rule
  double coefficient = 0;         // alpha; 0: H = warmup_period in all rounds; inf: one average at the very end
  Step minimum{1};                // H_base
  std::optional<Step> maximum{};  // at least `minimum`
  Step warmup_steps{};
  std::optional<Step> warmup_period{};  // default: minimum
};
std::unique_ptr<const SyncPeriod> make_power_period(const PowerPeriodOptions& options);

// Synchronous SGD before `switch_step`, then a constant H.
std::unique_ptr<const SyncPeriod> make_post_local_period(Step switch_step, Step steps);

// Synchronous SGD before `switch_step`, then a single round to the end (SWAP).
std::unique_ptr<const SyncPeriod> make_swap_period(Step switch_step);

using SyncPeriodRow = RuleRow<std::unique_ptr<const SyncPeriod>(Settings&, const AlgorithmContext&)>;
std::span<const SyncPeriodRow> sync_periods();

// Reads a table such as { rule = "power", coefficient = 0.2, minimum = 4 }. Never returns null: an unknown rule is a
// fault and gives a period of 1. The keys `coefficient` and `steps` may be tables that request a number of averages,
// { rounds = 470 }, or a number of averages per step, { share = 0.2 }. The key's number is then solved for, and the
// resolved settings contain it.
// `may_follow_run`: whether rules of run_periods.hpp are allowed, too.
std::unique_ptr<const SyncPeriod> make_sync_period(Settings& settings, const AlgorithmContext& context,
                                                   bool may_follow_run = false);

// Counts the rounds that a rule makes in `steps` steps with the schedule `rate`, up to `at_most`, by running the rule
// along the schedule. A round is an average over all workers, also one of gradients before a `switch_step`. So
// rounds / steps is the communication relative to synchronous SGD.
// Checks:  ceil(T / H) rounds in T steps for a constant period; the golden sequences' own coefficients; monotony.
std::int64_t count_rounds(const SyncPeriod& period, const LearningRate& rate, Step steps,
                          std::int64_t at_most = std::numeric_limits<std::int64_t>::max());

// Equal communication for different rules: a coefficient or an H whose number of rounds is nearest to a requested one;
// the smaller of two equally near numbers. Since a larger coefficient or H makes fewer rounds, bisection finds it. If
// the learning rate rises, a larger coefficient may make more rounds; the result is then the nearest that the search
// finds.

// Returns the coefficient, with as few decimal digits as possible. `scale`: the coefficient, above 0, at which the
// search begins.
double solve_coefficient(std::int64_t rounds, double scale,
                         const std::function<std::int64_t(double coefficient, std::int64_t at_most)>& rounds_with);
// Returns the shortest such period among 1 ... `longest`.
Step solve_period(std::int64_t rounds, Step longest,
                  const std::function<std::int64_t(Step period, std::int64_t at_most)>& rounds_with);

}  // namespace syncopate
