// SyncPeriod: how many optimizer steps a worker takes on its own before models are averaged.
// Source:  Gu et al. 2024, "A Quadratic Synchronization Rule for Distributed Deep Learning" (power);
//          Lin et al. 2020, "Don't Use Large Mini-Batches, Use Local SGD" (post-local);
//          Gupta et al. 2020, "Stochastic Weight Averaging in Parallel" (SWAP).
// Shapes:  scalars only.   Units: periods and steps in optimizer steps, coefficient in units of eta.
// Cost:    one call per round.
// Differs: every rule stops at the last step, so the last average falls on it; the reference code leaves
//          the last T mod H steps of a constant period un-averaged. `maximum` caps what eta -> 0 asks for.
//          SWAP's first phase ends after a number of steps that is given (switch_step), whatever the training accuracy
//          is; that the paper ends it at an accuracy is not confirmed, and is no option here.
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

class SyncPeriod {
 public:
  virtual ~SyncPeriod() = default;

  // The length of the round that starts after `done` steps; it is not revised within the round.
  // learning_rate: of the round's first step; left: steps until the end of the training.
  // Result in [1, max(left, 1)].
  virtual Step at(Step done, double learning_rate, Step left) const = 0;

  // Steps at the beginning that are no rounds: synchronous SGD, whose gradients are averaged.
  virtual Step synchronous_steps() const { return {}; }
};

// H steps, for ever.
std::unique_ptr<const SyncPeriod> make_constant_period(Step steps);

// H = max(minimum, floor((coefficient / eta)^power)), and at most `maximum`. During the warm-up, whose
// low rates would ask for long periods, H = warmup_period; a round begun then may end after it. All that
// is left once eta is 0, so give a maximum where the training's end is not counted in steps.
struct PowerPeriodOptions {
  double power = 2;        // 2: the quadratic rule (QSR); 1: H ~ 1/eta; 3: the cubic rule
  double coefficient = 0;  // alpha; 0: H = warmup_period for ever; inf: one average at the very end
  Step minimum{1};         // H_base
  std::optional<Step> maximum{};
  Step warmup_steps{};
  std::optional<Step> warmup_period{};  // minimum, unless given
};
std::unique_ptr<const SyncPeriod> make_power_period(const PowerPeriodOptions& options);

// Synchronous SGD before `switch_step`, then a constant H.
std::unique_ptr<const SyncPeriod> make_post_local_period(Step switch_step, Step steps);

// Synchronous SGD before `switch_step`, then a single round to the end (SWAP).
std::unique_ptr<const SyncPeriod> make_swap_period(Step switch_step);

// The four above throw std::invalid_argument for a period below 1, a maximum below the minimum, negative
// steps, a negative coefficient, and a power that is not above 0.

// What a rule's settings depend on.
struct SyncPeriodContext {
  Step learning_rate_warmup{};    // of the rate that rounds go by: default of the power rule's warmup_steps, as in the
                                  // reference code
  bool counts_steps = true;       // false: the end is not counted in steps, and `maximum` is required
  bool budget_ends_alone = true;  // false: a round without a fixed length would never end
  // Of the run, where they are known: what rounds are counted over, and the rate that they go by.
  std::optional<Step> total_steps{};
  const LearningRate* learning_rate = nullptr;
};

// The registry: one row per rule.
struct SyncPeriodRow {
  std::string_view name;      // `rule = ...` in TOML
  std::string_view sentence;  // what it does
  std::unique_ptr<const SyncPeriod> (*make)(Settings& settings, const SyncPeriodContext& context);
};
std::span<const SyncPeriodRow> sync_periods();

// Reads a table such as { rule = "power", coefficient = 0.2, minimum = 4 }. An unknown rule is a fault of
// the settings; the result is then a period of 1, never null. A coefficient, or `steps`, may be a table, { rounds = 470
// } or { share = 0.2 } of the steps: it is solved for, and the resolved settings have the number.
std::unique_ptr<const SyncPeriod> make_sync_period(Settings& settings, const SyncPeriodContext& context);

// How many rounds a rule makes, and the coefficient, or the H, with which it makes as many as are asked for: equal
// communication of unlike rules.
// Method:  the rule itself is walked along the run's schedule, as it is when it runs; the number of rounds falls as
//          coefficient or H grows, so a bisection finds where it passes the one asked for.
// Units:   rounds are averages over all workers, those of gradients before a `switch_step` too, so that the share of
//          rounds in steps is the communication in multiples of synchronous SGD's.
// Checks:  ceil(T / H) of a constant period; the golden sequences' own coefficients; monotony.
// Over so many steps at these rates; counted no further than `at_most`.
std::int64_t count_rounds(const SyncPeriod& period, const LearningRate& rate, Step steps,
                          std::int64_t at_most = std::numeric_limits<std::int64_t>::max());

// What makes the number of rounds that is nearest to the one asked for: of two that are as near, the fewer rounds.
// Where a rate rises, so that rounds need not fall with the coefficient, it is the nearest that the search meets.
template <typename Value>
struct SolvedRounds {
  Value value{};
  std::int64_t rounds = 0;  // that it makes
};

// The number has as few digits as make that many rounds. `scale`, above 0, is where the search begins.
SolvedRounds<double> solve_coefficient(
    std::int64_t rounds, double scale,
    const std::function<std::int64_t(double coefficient, std::int64_t at_most)>& rounds_with);
// Among 1 ... `longest`; the shortest period that makes that many.
SolvedRounds<Step> solve_period(std::int64_t rounds, Step longest,
                                const std::function<std::int64_t(Step period, std::int64_t at_most)>& rounds_with);

// After which steps what is averaged, where parameters and each moment of the optimizer have periods of their own.
// Source:  Iacob et al. 2026, "DES-LOC: Desynced Low Communication Adaptive Optimizers for Training Foundation Models".
// Units:   steps.
// Cost:    one all-reduce after each step that anything falls on, of what falls on it; per step 1 / K_x + 1 / K_u +
//          1 / K_v vectors of P floats, in multiples of a gradient's all-reduce at every step.
class MomentSchedule final : public SyncPeriod {
 public:
  static constexpr Step never{std::numeric_limits<Step::Rep>::max()};

  // K_x; K_u and K_v, `never` for a moment that the optimizer does not have; what becomes of BatchNorm statistics when
  // the parameters are averaged. Throws std::invalid_argument for a period below 1.
  MomentSchedule(Step parameters, const std::array<Step, 2>& moments, StatePolicy buffers = StatePolicy::average);

  // Until the next step after which anything is averaged.
  Step at(Step done, double learning_rate, Step left) const override;
  // What is averaged after so many steps. After the run's last, `end`, the parameters are.
  AveragePolicy due(Step done, Step end) const;
  // After so many steps all of it comes again; the longest period where that would be more than 10^9.
  Step cycle() const;

 private:
  Step parameters_;
  std::array<Step, 2> moments_;
  StatePolicy buffers_;
};

// Steps after which half of what a moment was is left in it: ln 0.5 / ln beta. 0 for beta = 0.
double half_life(double beta);

// AdaComm's rule: rounds become shorter as the training loss falls.
// Source:  Wang and Joshi 2019, "Adaptive Communication Strategies to Achieve the Best Error-Runtime Trade-off in
//          Local-Update SGD", after code of others that has its rule; Paddle's AdaptiveLocalSGDOptimizer.
// Units:   periods in optimizer steps.
//   adacomm:  tau_l = ceil(sqrt(F_l / F_0) tau_0), with rates ceil(sqrt(eta_0 F_l / (eta_l F_0)) tau_0)
//   paddle:   tau_l = ceil(sqrt(tau_0 eta_0 F_l / (eta_l F_0))), clipped to [1, 16]
// Differs: not established as the paper's: the rule that takes gamma tau_{l-1} where tau_l is not below tau_{l-1}
//          (`shrink`), its gamma of 1/2 and its rounding (here up). min(tau_l, tau_{l-1}) (`keep`) is others' code. A
//          value within rounding (1e-12) above a whole number is that number. Where it is no number, or infinite, as
//          where F_0 or eta_l is 0, the period stays.
// Checks:  constant loss and rate give tau_0 for ever, or ceil(sqrt(tau_0)) by Paddle's formula, which is its first
//          period too; periods against formulas.
class LossPeriod {
 public:
  enum class Form { adacomm, paddle };
  // What follows a period that the next one is not below.
  enum class NotBelow {
    take,    // the next one
    keep,    // the same again
    shrink,  // gamma of it
  };
  struct Options {
    Step initial{1};  // tau_0
    Form form = Form::adacomm;
    bool follows_rate = false;  // the factor eta_0 / eta_l inside the root
    NotBelow not_below = NotBelow::take;
    double shrinkage = 0.5;  // gamma
    Step minimum{1};
    std::optional<Step> maximum{};
  };
  static constexpr Step longest_of_paddle{16};

  // Throws std::invalid_argument for a period below 1, a maximum below the minimum, and gamma outside (0, 1).
  explicit LossPeriod(const Options& options);

  bool follows_rate() const { return options_.follows_rate; }
  // Of the first interval: the rule's own at F_0 and eta_0.
  Step first() const;
  // loss: F_l / F_0; rate: eta_0 / eta_l; before: tau_{l-1}.
  Step next(double loss, double rate, Step before) const;

 private:
  double steps(double loss, double rate) const;
  Step clipped(double steps) const;

  Options options_;
};

}  // namespace syncopate
