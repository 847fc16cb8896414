// SyncPeriod: how many optimizer steps a worker takes on its own before models are averaged.
// Source:  Gu et al. 2024, "A Quadratic Synchronization Rule for Distributed Deep Learning" (power); Lin et al. 2020,
//          "Don't Use Large Mini-Batches, Use Local SGD" (post-local); Gupta et al. 2020, "Stochastic Weight Averaging
//          in Parallel" (SWAP); Iacob et al. 2026, "DES-LOC" (moments); Wang and Joshi 2019, "Adaptive Communication
//          Strategies to Achieve the Best Error-Runtime Trade-off in Local-Update SGD" (loss).
// Shapes:  scalars only.   Units: periods and steps in optimizer steps, coefficient in units of eta.
// Differs: every rule stops at the last step, so the last average falls on it; the reference code leaves the last T mod
//          H steps of a constant period un-averaged. `maximum` caps what eta -> 0 asks for. SWAP's first phase ends
//          after a given number of steps (switch_step); that the paper ends it at a training accuracy is not confirmed.
// Checks:  periods of a whole training against golden sequences; coefficient = 0 equals constant.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "workers/base/units.hpp"
#include "workers/config/settings.hpp"
#include "workers/training/learning_rate.hpp"
#include "workers/training/training.hpp"

namespace syncopate {

struct Traits;
class Worker;

// The rounds of one worker in one run.
class RoundLengths {
 public:
  virtual ~RoundLengths() = default;

  // The length of the round that begins now.
  virtual Step next() = 0;
  // Whether it looks at gradients; and the gradient of a step: the mean that the worker is about to descend along.
  virtual bool sees_gradients() const { return false; }
  virtual void see(Gradient&) {}
  // Called when the round's average has been taken.
  virtual void end_round() {}
};

class SyncPeriod {
 public:
  virtual ~SyncPeriod() = default;

  // The length of the round that starts after `done` steps; it is not revised within the round.
  // learning_rate: of the round's first step; left: steps until the end of the training.
  // Result in [1, max(left, 1)].
  virtual Step at(Step done, double learning_rate, Step left) const = 0;

  // The number of steps at the beginning that are synchronous SGD, whose gradients are averaged, instead of rounds.
  virtual Step synchronous_steps() const { return {}; }

  // Whether the rule decides what an average includes; otherwise the method does. due: the policy after `done` of `end`
  // steps, derived from the usual one.
  virtual bool sets_averages() const { return false; }
  virtual AveragePolicy due(Step done, Step end, const AveragePolicy& usual) const {
    static_cast<void>(done), static_cast<void>(end);
    return usual;
  }

  // The worker's rounds from its current step on: as `at` says, unless the rule follows the run.
  virtual std::unique_ptr<RoundLengths> begin(Worker& worker) const;
  // Whether `at` tells all lengths in advance.
  virtual bool is_known_before() const { return true; }
  // Sets the traits that follow from this rule.
  virtual void describe(Traits&) const {}
};

// H steps, for ever.
std::unique_ptr<const SyncPeriod> make_constant_period(Step steps);

// H = max(minimum, floor((coefficient / eta)^power)), and at most `maximum`. During the warm-up, whose low rates would
// give long periods, H = warmup_period; a round begun then may end after it. Once eta is 0 a round takes all remaining
// steps, so give a maximum if the training's end is not counted in steps.
struct PowerPeriodOptions {
  double power = 2;        // 2: the quadratic rule (QSR); 1: H ~ 1/eta; 3: the cubic rule
  double coefficient = 0;  // alpha; 0: H = warmup_period for ever; inf: one average at the very end
  Step minimum{1};         // H_base
  std::optional<Step> maximum{};
  Step warmup_steps{};
  std::optional<Step> warmup_period{};  // default: minimum
};
std::unique_ptr<const SyncPeriod> make_power_period(const PowerPeriodOptions& options);

// Synchronous SGD before `switch_step`, then a constant H.
std::unique_ptr<const SyncPeriod> make_post_local_period(Step switch_step, Step steps);

// Synchronous SGD before `switch_step`, then a single round to the end (SWAP).
std::unique_ptr<const SyncPeriod> make_swap_period(Step switch_step);

// The four above throw std::invalid_argument for a period below 1, a maximum below the minimum, negative
// steps, a negative coefficient, and a power that is not above 0.

// The facts that a rule's settings depend on.
struct SyncPeriodContext {
  Step learning_rate_warmup{};    // default of the power rule's warmup_steps, as in the reference code
  bool counts_steps = true;       // false: the budget does not count steps, and `maximum` is required
  bool budget_ends_alone = true;  // false: a round without a fixed length would never end
  // The run's, if known: rounds are counted over these steps, at this rate.
  std::optional<Step> total_steps{};
  const LearningRate* learning_rate = nullptr;
  bool time_only = false;
  std::span<const double> moment_decays{};  // one per moment of the optimizer
  bool may_follow_run = false;              // rules of run_periods.hpp are allowed, too
};

// The registry: one row per rule.
struct SyncPeriodRow {
  std::string_view name;      // `rule = ...` in TOML
  std::string_view sentence;  // one-sentence description
  std::unique_ptr<const SyncPeriod> (*make)(Settings& settings, const SyncPeriodContext& context);
};
std::span<const SyncPeriodRow> sync_periods();

// Reads a table such as { rule = "power", coefficient = 0.2, minimum = 4 }. Never null: an unknown rule is a fault and
// gives a period of 1. A coefficient, or `steps`, may be a table, { rounds = 470 } or { share = 0.2 } of the steps: it
// is then solved for, and the resolved settings contain the number.
std::unique_ptr<const SyncPeriod> make_sync_period(Settings& settings, const SyncPeriodContext& context);

// Equal communication for different rules. Counts the rounds that a rule makes in this many steps at these rates, up to
// `at_most`; and finds the coefficient, or the H, that makes a requested number. The rule itself is run along the
// schedule. The number of rounds falls as coefficient or H grows, so that a bisection finds it. Rounds are averages
// over all workers, including those of gradients before a `switch_step`: rounds / steps is the communication relative
// to synchronous SGD.
// Checks:  ceil(T / H) for a constant period; the golden sequences' own coefficients; monotony.
std::int64_t count_rounds(const SyncPeriod& period, const LearningRate& rate, Step steps,
                          std::int64_t at_most = std::numeric_limits<std::int64_t>::max());

// The value that makes the nearest number of rounds; the smaller one of two equally near. If a rate rises, rounds need
// not fall with the coefficient: the result is then the nearest that the search finds.
template <typename Value>
struct SolvedRounds {
  Value value{};
  std::int64_t rounds = 0;  // number that it makes
};

// The shortest decimal number that makes that many rounds. `scale`, above 0: where the search begins.
SolvedRounds<double> solve_coefficient(
    std::int64_t rounds, double scale,
    const std::function<std::int64_t(double coefficient, std::int64_t at_most)>& rounds_with);
// The shortest period among 1 ... `longest` that makes that many.
SolvedRounds<Step> solve_period(std::int64_t rounds, Step longest,
                                const std::function<std::int64_t(Step period, std::int64_t at_most)>& rounds_with);

}  // namespace syncopate
