// AdaComm: Local SGD whose rounds become shorter as the training loss falls.
// Source:  Wang and Joshi 2019, "Adaptive Communication Strategies to Achieve the Best Error-Runtime Trade-off in
//          Local-Update SGD"; Paddle's AdaptiveLocalSGDOptimizer. The formulas: LossPeriod.
// Shapes:  gradient, parameters: (P,) flat float32.   Units: intervals in steps, or seconds of the workers' clock.
// Cost:    one all-reduce of P floats per round; per interval one all-gather of a loss, 8 bytes of each worker (the
//          first time F_0 too); with intervals in seconds one per round, with the clocks, 8 bytes more.
// Differs: by default an interval is a round, as in Paddle; the paper's is T_0 seconds: a new one begins with the first
//          average after each multiple of T_0, or of a number of steps. T_0 has no default: the paper's is not
//          established. F_l is the workers' mean loss of the last step before it, as in Paddle, not that of the whole
//          training set; F_0 is that of the first step, eta_0 its rate. Paddle's first average, after its first step,
//          is left out. A worker that loses its state in the first interval leaves its loss out of F_0; agreed numbers
//          are not lost. Momentum stays with its worker unless chosen; the last average falls on the last step.
// Checks:  a constant loss and rate equal Local SGD with the period tau_0 bit for bit; periods of a quadratic against
//          its recursion in double precision; virtual times by hand.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <stdexcept>

#include "algorithms/local_sgd/rounds.hpp"
#include "algorithms/local_sgd/sync_period.hpp"
#include "algorithms/method/algorithm.hpp"

namespace syncopate {

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

inline LossPeriod::LossPeriod(const Options& options) : options_(options) {
  if (!(options.initial >= 1 && options.minimum >= 1)) throw std::invalid_argument("a period must be at least 1 step");
  if (!(!options.maximum || *options.maximum >= options.minimum))
    throw std::invalid_argument("maximum must be at least the minimum");
  if (!(options.shrinkage > 0 && options.shrinkage < 1))
    throw std::invalid_argument("the shrinkage must be between 0 and 1");
}

inline Step LossPeriod::first() const { return clipped(steps(1, 1)); }

inline Step LossPeriod::next(double loss, double rate, Step before) const {
  const double exact = steps(loss, rate);
  if (!std::isfinite(exact)) return before;
  const Step period = clipped(exact);
  if (period < before || options_.not_below == NotBelow::take) return period;
  if (options_.not_below == NotBelow::keep) return before;
  return clipped(options_.shrinkage * static_cast<double>(before.value()));
}

inline double LossPeriod::steps(double loss, double rate) const {
  const double ratio = options_.follows_rate ? rate * loss : loss;
  const auto initial = static_cast<double>(options_.initial.value());
  return options_.form == Form::adacomm ? std::sqrt(ratio) * initial : std::sqrt(initial * ratio);
}

inline Step LossPeriod::clipped(double steps) const {
  constexpr double rounding = 1e-12;
  constexpr double longest = 1e15;  // beyond any run, and a whole number in both types
  const Step period{static_cast<Step::Rep>(std::ceil(std::min(steps, longest) * (1 - rounding)))};
  const Step bounded = options_.maximum ? std::min(period, *options_.maximum) : period;
  return std::max(bounded, options_.minimum);
}

struct AdaCommOptions {
  LossPeriod::Options period{};
  // How long an interval is; neither: a round.
  std::optional<Step> interval_steps{};
  std::optional<double> interval_s{};  // T_0
  StatePolicies policies{};
};

class AdaComm : public Algorithm {
 public:
  explicit AdaComm(const AdaCommOptions& options) : options_(options), rule_(options.period) {}

  void run(Worker& worker) const override {
    State state{rule_.first(), worker.learning_rate(), ResetOnOutage<std::optional<double>>(worker),
                options_.interval_steps.value_or(0), options_.interval_s.value_or(0)};
    while (worker.budget_left()) {
      for (Step taken{}; taken < state.period && worker.budget_left(BudgetView::local); ++taken) {
        Gradient gradient = worker.compute_step_gradient() / worker.micro_batches();
        const bool is_first = worker.step() == Step{0};
        const bool is_last = taken + 1 == state.period && worker.step() + 1 >= state.next_step;
        if (is_first || is_last) state.last_loss = worker.loss(gradient);
        if (is_first) *state.first_loss = state.last_loss;
        worker.descend(gradient);
      }
      worker.average_model({.policy = options_.policies.average, .weight = options_.policies.model_weight()});
      publish(worker, options_.policies);
      if (worker.budget_left() && worker.step() >= state.next_step) begin_interval(worker, state);
    }
  }

  Traits traits() const override {
    return {.follows_values = true,
            .follows_clock = options_.interval_s.has_value(),
            .judges_budget_locally = true,
            .publishes_rounds = true,
            .takes_data_in_turn = true,
            .averages_models = true,
            .averages_moments = options_.policies.average.averaged_vectors(2) > 1};
  }

 private:
  // The mean of every `each`-th number from the first on, without those that are not known.
  static double mean_of(std::span<const double> all, std::size_t first, std::size_t each) {
    double sum = 0, count = 0;
    for (std::size_t i = first; i < all.size(); i += each) {
      if (std::isnan(all[i])) continue;
      sum += all[i];
      ++count;
    }
    return sum / count;
  }

  struct Gathered {
    double loss, first_loss, time_s;
  };

  // Where a worker is in its training. All but its own losses are the same on all workers.
  struct State {
    Step period;                                      // tau_l
    double first_rate;                                // eta_0
    ResetOnOutage<std::optional<double>> first_loss;  // of its first step
    Step next_step;                                   // when an interval may begin; 0: after each average
    double next_s;                                    // and by the clock
    double last_loss = 0;                             // of the last step before it
    std::optional<double> initial_loss{};             // F_0, once it is known to all
  };

  // By a clock only all together know whether one begins.
  void begin_interval(Worker& worker, State& state) const {
    constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
    std::vector<double> mine = {state.last_loss};
    if (!state.initial_loss) mine.push_back((*state.first_loss).value_or(unknown));
    if (options_.interval_s) mine.push_back(to_seconds(worker.now()));
    const Gathered all = *worker.all_gather(mine, [each = mine.size()](std::span<const double> numbers) {
      Gathered result{mean_of(numbers, 0, each), each > 1 ? mean_of(numbers, 1, each) : unknown, 0};
      for (std::size_t i = each - 1; i < numbers.size(); i += each) result.time_s = std::max(result.time_s, numbers[i]);
      return result;
    });
    if (!state.initial_loss) state.initial_loss = all.first_loss;
    if (options_.interval_s && all.time_s < state.next_s) return;
    if (options_.interval_s) state.next_s = (std::floor(all.time_s / *options_.interval_s) + 1) * *options_.interval_s;
    if (options_.interval_steps)
      state.next_step =
          (worker.step().value() / options_.interval_steps->value() + 1) * options_.interval_steps->value();
    state.period = rule_.next(all.loss / *state.initial_loss, state.first_rate / worker.learning_rate(), state.period);
  }

  AdaCommOptions options_;
  LossPeriod rule_;
};

inline std::unique_ptr<Algorithm> make_adacomm(Settings& settings, const AlgorithmContext& context) {
  constexpr Step::Rep most = std::numeric_limits<std::int32_t>::max();
  if (context.time_only) settings.fault("algorithm", "needs a model: how long its rounds are follows from the loss");
  AdaCommOptions options;
  LossPeriod::Options& period = options.period;
  const Key initial{"initial_period", "The formula's tau_0: the first period, or in Paddle's formula its square.",
                    "steps"};
  period.initial = settings.integer(initial, 1, most);
  using Form = LossPeriod::Form;
  period.form = settings.choice(
      {"formula", "The next period, rounded up: sqrt(F_l / F_0) tau_0 (adacomm), or sqrt(tau_0 F_l / F_0) (paddle)."},
      {{"adacomm", Form::adacomm}, {"paddle", Form::paddle}}, period.form);
  const bool is_paddle = period.form == Form::paddle;
  const Key follow_rate{"follow_rate",
                        "Whether eta_0 / eta_l is in the root: longer rounds as the learning rate falls.", "",
                        "as in Paddle's formula, and not in the other"};
  period.follows_rate = settings.optional_flag(follow_rate).value_or(is_paddle);
  if (period.follows_rate && context.learning_rate_warmup > Step{0})
    settings.fault("follow_rate", "must be false where the learning rate has a warm-up, which begins at a low eta_0");
  using NotBelow = LossPeriod::NotBelow;
  period.not_below = settings.choice(
      {"not_below", "What follows where the new period is not below the last: it, the last again, or a part of that."},
      {{"take", NotBelow::take}, {"keep", NotBelow::keep}, {"shrink", NotBelow::shrink}}, period.not_below);
  if (period.not_below == NotBelow::shrink)
    period.shrinkage =
        settings.number({"shrinkage", "Which part, rounded up to steps (gamma); not established as the paper's."},
                        Range{.low = 0, .high = 1, .low_open = true, .high_open = true}, period.shrinkage);
  period.minimum = settings.integer({"minimum", "The shortest period.", "steps"}, 1, most, 1);
  const Stated<std::int64_t> minimum(period.minimum.value(), "minimum");
  const Key maximum{"maximum", "The longest period.", "steps", "no bound; in Paddle's formula 16"};
  period.maximum = settings.optional_integer(maximum, minimum, most);
  if (is_paddle && !period.maximum) period.maximum = std::max(LossPeriod::longest_of_paddle, period.minimum);
  options.interval_steps = settings.optional_integer(
      {"interval_steps", "After how many steps the period is set anew.", "steps", "at each average, or by interval_s"},
      1, most);
  options.interval_s = settings.optional_number(
      {"interval_s", "After how much time the period is set anew (T_0).", "s", "at each average, or by interval_steps"},
      Range::positive());
  if (options.interval_steps && options.interval_s)
    settings.fault("interval_s", "must be left out where interval_steps is given");
  options.policies = read_state_policies(settings, context);
  return std::make_unique<AdaComm>(options);
}

}  // namespace syncopate
