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

// The facts that a rule's settings depend on.
struct SyncPeriodContext {
  Step learning_rate_warmup{};    // default of the power rule's warmup_steps, as in the reference code
  bool counts_steps = true;       // false: the end is not counted in steps, and `maximum` is required
  bool budget_ends_alone = true;  // false: a round without a fixed length would never end
  // The run's, where they are known: rounds are counted over these steps, at this rate.
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

// Reads a table such as { rule = "power", coefficient = 0.2, minimum = 4 }. Never null: after an unknown rule, which is
// a fault, a period of 1. A coefficient, or `steps`, may be a table, { rounds = 470 } or { share = 0.2 } of the steps:
// it is solved for, and the resolved settings have the number.
std::unique_ptr<const SyncPeriod> make_sync_period(Settings& settings, const SyncPeriodContext& context);

// Equal communication of unlike rules: how many rounds a rule makes in so many steps at these rates, counted up to
// `at_most`, and the coefficient, or the H, that makes as many as are asked for. The rule itself is walked along the
// run's schedule; the number of rounds falls as coefficient or H grows, so that a bisection finds it. Rounds are
// averages over all workers, also those of gradients before a `switch_step`: their share in steps is the communication
// in multiples of synchronous SGD's.
// Checks:  ceil(T / H) of a constant period; the golden sequences' own coefficients; monotony.
std::int64_t count_rounds(const SyncPeriod& period, const LearningRate& rate, Step steps,
                          std::int64_t at_most = std::numeric_limits<std::int64_t>::max());

// The value that makes the nearest number of rounds; of two equally near numbers, the smaller. Where a rate rises,
// rounds need not fall with the coefficient: then the nearest that the search meets.
template <typename Value>
struct SolvedRounds {
  Value value{};
  std::int64_t rounds = 0;  // that it makes
};

// The shortest decimal number that makes that many rounds. `scale`, above 0: where the search begins.
SolvedRounds<double> solve_coefficient(
    std::int64_t rounds, double scale,
    const std::function<std::int64_t(double coefficient, std::int64_t at_most)>& rounds_with);
// Among 1 ... `longest`; the shortest period that makes that many.
SolvedRounds<Step> solve_period(std::int64_t rounds, Step longest,
                                const std::function<std::int64_t(Step period, std::int64_t at_most)>& rounds_with);

// DES-LOC's schedule: parameters and each moment of the optimizer are averaged at periods of their own. Whatever falls
// on one step is one all-reduce; per step that is 1 / K_x + 1 / K_u + 1 / K_v vectors of P floats.
class MomentSchedule final : public SyncPeriod {
 public:
  static constexpr Step never{std::numeric_limits<Step::Rep>::max()};

  // K_x; K_u and K_v, `never` for a moment that the optimizer does not have; what an average of the parameters does to
  // BatchNorm statistics. Throws std::invalid_argument for a period below 1.
  MomentSchedule(Step parameters, const std::array<Step, 2>& moments, StatePolicy buffers = StatePolicy::average);

  // Until the next step after which anything is averaged.
  Step at(Step done, double learning_rate, Step left) const override;
  // The averages after so many steps. After the run's last, `end`, the parameters are averaged.
  AveragePolicy due(Step done, Step end) const;
  // The steps after which the schedule repeats; the longest period where that would be more than 10^9.
  Step cycle() const;

 private:
  Step parameters_;
  std::array<Step, 2> moments_;
  StatePolicy buffers_;
};

// Steps after which half of what a moment was is left in it: ln 0.5 / ln beta. 0 for beta = 0.
double half_life(double beta);

// AdaComm's rule: rounds become shorter as the training loss falls.
// Source:  after others' code of Wang and Joshi's rule; Paddle's AdaptiveLocalSGDOptimizer.
//   adacomm:  tau_l = ceil(sqrt(F_l / F_0) tau_0), with rates ceil(sqrt(eta_0 F_l / (eta_l F_0)) tau_0)
//   paddle:   tau_l = ceil(sqrt(tau_0 eta_0 F_l / (eta_l F_0))), clipped to [1, 16]
// Differs: not established as the paper's: `shrink`, which takes gamma tau_{l-1} where tau_l is not below tau_{l-1},
//          its gamma of 1/2 and its rounding (here up). `keep`, min(tau_l, tau_{l-1}), is others' code. A value within
//          1e-12 (relative) above a whole number is that number. Where it is NaN or infinite, as for F_0 = 0 or eta_l =
//          0, the period stays.
// Checks:  constant loss and rate give tau_0 for ever, or ceil(sqrt(tau_0)) by Paddle's formula, its first period too.
class LossPeriod {
 public:
  enum class Form { adacomm, paddle };
  // The period after one that the next is not below.
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
  // The first interval's period: the rule's own at F_0 and eta_0.
  Step first() const;
  // loss: F_l / F_0; rate: eta_0 / eta_l; before: tau_{l-1}.
  Step next(double loss, double rate, Step before) const;

 private:
  double steps(double loss, double rate) const;
  Step clipped(double steps) const;

  Options options_;
};

}  // namespace syncopate
