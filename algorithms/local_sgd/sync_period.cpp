#include "algorithms/local_sgd/sync_period.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "algorithms/local_sgd/asked_rounds.hpp"
#include "algorithms/local_sgd/rounds_of_rule.hpp"

namespace syncopate {
namespace {

constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();

Step clipped(Step period, Step left) { return std::max(std::min(period, left), Step{1}); }

void require(bool holds, const char* message) {
  if (!holds) throw std::invalid_argument(message);
}

class ConstantPeriod final : public SyncPeriod {
 public:
  explicit ConstantPeriod(Step steps) : steps_(steps) { require(steps >= 1, "a period must be at least 1 step"); }
  Step at(Step, double, Step left) const override { return clipped(steps_, left); }

 private:
  Step steps_;
};

class PostLocalPeriod final : public SyncPeriod {
 public:
  PostLocalPeriod(Step switch_step, Step steps) : switch_step_(switch_step), steps_(steps) {
    require(switch_step >= 0, "switch_step must be at least 0");
    require(steps >= 1, "a period must be at least 1 step");
  }
  Step at(Step done, double, Step left) const override { return done < switch_step_ ? Step{1} : clipped(steps_, left); }
  Step synchronous_steps() const override { return switch_step_; }

 private:
  Step switch_step_;
  Step steps_;
};

class PowerPeriod final : public SyncPeriod {
 public:
  explicit PowerPeriod(const PowerPeriodOptions& options)
      : options_(options), warmup_period_(options.warmup_period.value_or(options.minimum)) {
    require(options.power > 0, "power must be above 0");
    require(options.coefficient >= 0, "coefficient must be at least 0");
    require(options.minimum >= 1 && warmup_period_ >= 1, "a period must be at least 1 step");
    require(!options.maximum || *options.maximum >= options.minimum, "maximum must be at least the minimum");
    require(options.warmup_steps >= 0, "warmup_steps must be at least 0");
  }

  Step at(Step done, double learning_rate, Step left) const override {
    if (done < options_.warmup_steps || options_.coefficient == 0) return clipped(warmup_period_, left);
    Step period = std::max(rule(learning_rate, left), options_.minimum);
    if (options_.maximum) period = std::min(period, *options_.maximum);
    return clipped(period, left);
  }

 private:
  // (coefficient / eta)^power rounded down, at most `left`. Compared before the conversion: near the end
  // of a cosine schedule the value exceeds every integer type.
  Step rule(double learning_rate, Step left) const {
    if (learning_rate <= 0) return left;
    const double steps = std::pow(options_.coefficient / learning_rate, options_.power);
    if (!(steps < static_cast<double>(left.value()))) return left;
    return Step{static_cast<Step::Rep>(steps)};
  }

  PowerPeriodOptions options_;
  Step warmup_period_;
};

}  // namespace

// The card.
namespace {

const Key period_steps{"steps", "Steps from one average to the next; a table { rounds } or { share }: solved for.",
                       "steps"};
const Key switch_step{"switch_step", "Before this step gradients are averaged, at every step.", "steps"};

// A rule whose periods are `steps` long, which may be solved for.
std::unique_ptr<const SyncPeriod> read_steps(Settings& settings, const SyncPeriodContext& context,
                                             const std::function<std::unique_ptr<const SyncPeriod>(Step)>& make) {
  AskedRounds asked(settings, period_steps, context);
  Step steps{1};
  if (!asked.is_table()) {
    steps = settings.integer(period_steps, 1, most);
  } else if (const auto rounds = asked.rounds()) {
    const auto rounds_with = [&](Step period, std::int64_t at_most) {
      return count_rounds(*make(period), *context.learning_rate, *context.total_steps, at_most);
    };
    steps = solve_period(*rounds, *context.total_steps, rounds_with).value;
    settings.integer(period_steps.name, 1, most, steps.value());  // in the table's place
  }
  auto period = make(steps);
  asked.tell(*period);
  return period;
}

std::unique_ptr<const SyncPeriod> read_constant(Settings& settings, const SyncPeriodContext& context) {
  return read_steps(settings, context, make_constant_period);
}

std::unique_ptr<const SyncPeriod> read_power(Settings& settings, const SyncPeriodContext& context) {
  const Key coefficient{"coefficient",
                        "What is divided by the learning rate; a table { rounds } or { share }: solved for."};
  PowerPeriodOptions options;
  options.power = settings.number({"power", "The power; 2 is QSR."}, Range::positive(), options.power);
  AskedRounds asked(settings, coefficient, context);
  if (!asked.is_table()) options.coefficient = settings.number(coefficient, Range::at_least(0));
  options.minimum = settings.integer({"minimum", "The shortest period.", "steps"}, 1, most);
  options.maximum = settings.optional_integer({"maximum", "The longest period.", "steps", "no bound"},
                                              Stated(options.minimum.value(), "minimum"), most);
  if (!options.maximum && !context.counts_steps)
    settings.fault("maximum",
                   "must be given where the budget is not counted in steps or epochs: as the learning rate "
                   "falls the period grows without end");
  options.warmup_steps =
      settings.integer({"warmup_steps", "Steps in which the period is warmup_period.", "steps"}, 0, most,
                       Stated(context.learning_rate_warmup.value(), "the learning rate's warm-up"));
  options.warmup_period = settings.integer({"warmup_period", "The period during the warm-up.", "steps"}, 1, most,
                                           Stated(options.minimum.value(), "minimum"));
  if (const auto rounds = asked.rounds()) {
    const auto rounds_with = [&](double value, std::int64_t at_most) {
      options.coefficient = value;
      return count_rounds(*make_power_period(options), *context.learning_rate, *context.total_steps, at_most);
    };
    options.coefficient = solve_coefficient(*rounds, context.learning_rate->options().peak, rounds_with).value;
    settings.number(coefficient.name, Range::at_least(0), options.coefficient);  // in the table's place
  }
  auto period = make_power_period(options);
  asked.tell(*period);
  return period;
}

std::unique_ptr<const SyncPeriod> read_post_local(Settings& settings, const SyncPeriodContext& context) {
  const Step at = settings.integer(switch_step, 0, most);
  return read_steps(settings, context, [at](Step steps) { return make_post_local_period(at, steps); });
}

std::unique_ptr<const SyncPeriod> read_swap(Settings& settings, const SyncPeriodContext& context) {
  if (!context.budget_ends_alone)
    settings.fault("rule",
                   "needs a budget in steps, epochs, seconds or samples: in its last round nothing is sent, so that a "
                   "budget of bytes never ends");
  for (const std::string& key : settings.keys())
    if (key == "steps" || key == "coefficient")
      settings.fault(key, "must be left out: rounds of \"swap\" follow from its switch_step alone, and are one more");
  return make_swap_period(settings.integer(switch_step, 0, most));
}

constexpr std::array rules = {
    SyncPeriodRow{"constant", "averages every `steps` steps", read_constant},
    SyncPeriodRow{"power",
                  "averages every max(minimum, floor((coefficient / learning rate)^power)) steps; power 2 is the "
                  "quadratic synchronisation rule (QSR)",
                  read_power},
    SyncPeriodRow{"post-local", "synchronous SGD before `switch_step`, averages every `steps` steps after it",
                  read_post_local},
    SyncPeriodRow{"swap", "synchronous SGD before `switch_step`, then a single average at the very end (SWAP)",
                  read_swap},
};

}  // namespace

std::unique_ptr<const SyncPeriod> make_constant_period(Step steps) { return std::make_unique<ConstantPeriod>(steps); }

std::unique_ptr<const SyncPeriod> make_power_period(const PowerPeriodOptions& options) {
  return std::make_unique<PowerPeriod>(options);
}

std::unique_ptr<const SyncPeriod> make_post_local_period(Step switch_step, Step steps) {
  return std::make_unique<PostLocalPeriod>(switch_step, steps);
}

std::unique_ptr<const SyncPeriod> make_swap_period(Step switch_step) {
  return std::make_unique<PostLocalPeriod>(switch_step, most);
}

std::span<const SyncPeriodRow> sync_periods() { return rules; }

std::unique_ptr<const SyncPeriod> make_sync_period(Settings& settings, const SyncPeriodContext& context) {
  const auto* const row = settings.row({"rule", "Which rule."}, rules);
  return row ? row->make(settings, context) : make_constant_period(1);
}

}  // namespace syncopate
