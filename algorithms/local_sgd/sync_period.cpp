#include "algorithms/local_sgd/sync_period.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <string>

#include "algorithms/local_sgd/run_periods.hpp"

namespace syncopate {

namespace {

constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t most_rounds = 1'000'000;  // largest number that can be requested
constexpr std::int64_t most_steps = most - 1;

const Key solved_for{"solved_for",
                     "Written by the program: the request from which it found this rule's number. No effect."};

Step clipped(Step period, Step left) { return std::max(std::min(period, left), Step{1}); }

class PostLocalPeriod final : public SyncPeriod {
 public:
  PostLocalPeriod(Step switch_step, Step steps) : switch_step_(switch_step), steps_(steps) {}
  Step at(Step done, double, Step left) const override { return done < switch_step_ ? Step{1} : clipped(steps_, left); }
  Step synchronous_steps() const override { return switch_step_; }

 private:
  Step switch_step_;
  Step steps_;
};

class PowerPeriod final : public SyncPeriod {
 public:
  explicit PowerPeriod(const PowerPeriodOptions& options) : options_(options) {}

  Step at(Step done, double learning_rate, Step left) const override {
    if (done < options_.warmup_steps || options_.coefficient == 0)
      return clipped(options_.warmup_period.value_or(options_.minimum), left);
    Step period = std::max(rule(learning_rate, left), options_.minimum);
    if (options_.maximum) period = std::min(period, *options_.maximum);
    return clipped(period, left);
  }

 private:
  // (coefficient / eta)^power, rounded down, at most `left`. It is compared with `left` before it is converted, because
  // near the end of a cosine schedule it exceeds every integer type.
  Step rule(double learning_rate, Step left) const {
    if (learning_rate <= 0) return left;
    const double steps = std::pow(options_.coefficient / learning_rate, options_.power);
    if (!(steps < static_cast<double>(left.value()))) return left;
    return Step{static_cast<Step::Rep>(steps)};
  }

  PowerPeriodOptions options_;
};

// A key that has a number, or a table { rounds = 470 } or { share = 0.2 }, for which the number is solved. A run's
// resolved settings contain the number in place of the table, and `solved_for = { rounds = 470, found = 470 }` as a
// record. If these settings are read, the number is not solved again, and `solved_for` has no effect.
class AskedRounds {
 public:
  // Reads the key if it is a table. Faults: both `rounds` and `share` or neither, a budget that does not count steps,
  // more rounds than steps, or less than one round.
  AskedRounds(Settings& settings, const Key& key, const AlgorithmContext& context)
      : settings_(settings), context_(context), is_table_(settings.has_table(key)) {
    if (!is_table_) return;
    if (!context.counts_steps)
      settings.fault(key.name,
                     "must be a number if the budget is not in steps or epochs: the number of steps over which to "
                     "count rounds is unknown");
    Settings table = settings.section(key.name);
    const std::size_t faults = table.faults_so_far();
    rounds_ = table.optional_integer({"rounds", "The requested number of averages in the run.", "rounds", "share"}, 1,
                                     most_rounds);
    share_ = table.optional_number({"share", "The requested number of averages per step.", "", "rounds"},
                                   {.low = 0, .high = 1, .low_open = true});
    if (rounds_ && share_) table.fault("share", "must not be given together with rounds");
    if (table.keys().empty())
      settings.fault(key.name, "must be a number, or a table { rounds = 470 } or { share = 0.2 }");
    if (table.faults_so_far() == faults && context.total_steps && (rounds_ || share_)) {
      const Step::Rep steps = context.total_steps->value();
      if (share_) rounds_ = std::llround(*share_ * static_cast<double>(steps));
      if (*rounds_ > steps)
        table.fault("rounds", fmt::format("must be at most the run's {} steps", steps));
      else if (*rounds_ < 1 || *rounds_ > most_rounds)
        table.fault("share", fmt::format("must give from 1 to {} rounds; in {} steps it gives {}", most_rounds, steps,
                                         *rounds_));
    }
    if (table.faults_so_far() > faults || !context.total_steps || !context.learning_rate) rounds_.reset();
  }

  bool is_table() const { return is_table_; }
  // The requested number of rounds. None: the number is not solved for, or faults prevent it.
  std::optional<std::int64_t> rounds() const { return rounds_; }

  // Writes `solved_for` for this rule. If the settings already contain it, it is removed unless the rule still makes as
  // many rounds as `found` says.
  void write_solution(const SyncPeriod& period) {
    Settings table = settings_.section(solved_for);
    table.optional_number({"share", "The requested share of the steps."}, Range::any());
    table.optional_integer({"rounds", "The requested number of rounds.", "rounds"}, 1, most_rounds);
    const auto found =
        table.optional_integer({"found", "The nearest possible number, which the run has.", "rounds"}, 1, most_steps);
    if (is_table_ && (found || table.has("rounds") || table.has("share")))
      settings_.fault(
          solved_for.name,
          "must be left out: the program writes this key itself, once it has found the value for the requested rounds");
    if (!context_.total_steps || !context_.learning_rate) return;
    const auto makes = [&](std::int64_t at_most) {
      return count_rounds(period, *context_.learning_rate, *context_.total_steps, at_most);
    };
    if (rounds_) {
      if (share_) table.number("share", Range::any(), *share_);
      table.integer("rounds", 1, most_rounds, *rounds_);
      table.integer("found", 1, most_steps, makes(most_steps));
    } else if (found && makes(*found + 1) != *found) {
      for (const char* key : {"share", "rounds", "found"}) table.leave_out(key);
    }
  }

 private:
  Settings settings_;
  const AlgorithmContext& context_;
  bool is_table_;
  std::optional<double> share_{};
  std::optional<std::int64_t> rounds_{};
};

const Key period_steps{"steps", "Steps between averages; solved for if it is a table { rounds } or { share }.",
                       "steps"};
const Key switch_step{"switch_step", "Number of first steps, which average gradients instead of models.", "steps"};

// Reads a rule with periods of `steps` steps; this number may be solved for.
std::unique_ptr<const SyncPeriod> read_steps(Settings& settings, const AlgorithmContext& context,
                                             const std::function<std::unique_ptr<const SyncPeriod>(Step)>& make) {
  AskedRounds asked(settings, period_steps, context);
  Step steps{1};
  if (!asked.is_table()) {
    steps = settings.integer(period_steps, 1, most);
  } else if (const auto rounds = asked.rounds()) {
    const auto rounds_with = [&](Step period, std::int64_t at_most) {
      return count_rounds(*make(period), *context.learning_rate, *context.total_steps, at_most);
    };
    steps = solve_period(*rounds, *context.total_steps, rounds_with);
    settings.integer(period_steps.name, 1, most, steps.value());  // replaces the table
  }
  auto period = make(steps);
  asked.write_solution(*period);
  return period;
}

std::unique_ptr<const SyncPeriod> read_constant(Settings& settings, const AlgorithmContext& context) {
  return read_steps(settings, context, make_constant_period);
}

std::unique_ptr<const SyncPeriod> read_power(Settings& settings, const AlgorithmContext& context) {
  const Key coefficient{"coefficient",
                        "Divided by the learning rate; solved for if it is a table { rounds } or { share }."};
  PowerPeriodOptions options;
  options.power = settings.number({"power", "The power; 2 is QSR."}, Range::positive(), options.power);
  AskedRounds asked(settings, coefficient, context);
  if (!asked.is_table()) options.coefficient = settings.number(coefficient, Range::at_least(0));
  options.minimum = settings.integer({"minimum", "The shortest period.", "steps"}, 1, most);
  options.maximum = settings.optional_integer({"maximum", "The longest period.", "steps", "no bound"},
                                              Stated(options.minimum.value(), "minimum"), most);
  if (!options.maximum && !context.counts_steps)
    settings.fault(
        "maximum",
        "must be given if the budget is not in steps or epochs: the period grows without end as the learning "
        "rate falls");
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
    options.coefficient = solve_coefficient(*rounds, context.learning_rate->options().peak, rounds_with);
    settings.number(coefficient.name, Range::at_least(0), options.coefficient);  // replaces the table
  }
  auto period = make_power_period(options);
  asked.write_solution(*period);
  return period;
}

std::unique_ptr<const SyncPeriod> read_post_local(Settings& settings, const AlgorithmContext& context) {
  const Step at = settings.integer(switch_step, 0, most);
  return read_steps(settings, context, [at](Step steps) { return make_post_local_period(at, steps); });
}

std::unique_ptr<const SyncPeriod> read_swap(Settings& settings, const AlgorithmContext& context) {
  if (!context.budget_ends_alone)
    settings.fault("rule",
                   "needs a budget in steps, epochs, seconds or samples: its last round sends nothing, so a budget in "
                   "bytes would never end");
  for (const std::string& key : settings.keys())
    if (key == "steps" || key == "coefficient")
      settings.fault(key, "must be left out: \"swap\" has a single round, which begins at switch_step");
  return make_swap_period(settings.integer(switch_step, 0, most));
}

std::unique_ptr<const SyncPeriod> read_by_loss(Settings& settings, const AlgorithmContext& context) {
  if (context.time_only) settings.fault("rule", "needs a model: the training loss decides how long rounds are");
  return make_loss_period(read_loss_period(settings, context));
}

std::unique_ptr<const SyncPeriod> read_per_moment(Settings& settings, const AlgorithmContext& context) {
  return read_moment_schedule(settings, {"steps", "Steps between averages of the parameters.", "steps"}, context);
}

class RoundsByStep final : public RoundLengths {
 public:
  RoundsByStep(const SyncPeriod& period, Worker& worker) : period_(period), worker_(worker) {}
  Step next() override { return period_.at(worker_.step(), worker_.learning_rate(), worker_.steps_left()); }

 private:
  const SyncPeriod& period_;  // period_ and worker_ must outlive this object
  Worker& worker_;
};

constexpr std::size_t known_before = 4;  // the first rows are rules that every method can use
constexpr std::array period_rows = {
    SyncPeriodRow{"constant", "averages every `steps` steps", read_constant},
    SyncPeriodRow{"power",
                  "averages every max(minimum, floor((coefficient / learning rate)^power)) steps; power 2 is the "
                  "quadratic synchronisation rule (QSR)",
                  read_power},
    SyncPeriodRow{"post-local", "synchronous SGD before `switch_step`, averages every `steps` steps after it",
                  read_post_local},
    SyncPeriodRow{"swap", "synchronous SGD before `switch_step`, then a single average at the very end (SWAP)",
                  read_swap},
    SyncPeriodRow{"loss", "averages more often as the training loss falls (AdaComm)", read_by_loss},
    SyncPeriodRow{"per-moment",
                  "averages the parameters and each of the optimizer's moments with separate periods (DES-LOC)",
                  read_per_moment},
};

constexpr std::int64_t most_counted = 10'000'000;         // limit for counting the fewest rounds that a rule can make
constexpr double smallest = 0x1p-300, largest = 0x1p300;  // range of coefficients, beyond any learning rate
constexpr double precision = 1e-13;                       // relative precision of a coefficient

// Counting stops at this number of rounds, which is farther from the requested number than the fewest possible.
std::int64_t bound(std::int64_t rounds, std::int64_t fewest) { return 2 * std::max(rounds, fewest) + 2; }

bool is_nearer(std::int64_t one, std::int64_t other, std::int64_t asked) {
  const std::int64_t a = std::abs(one - asked), b = std::abs(other - asked);
  return a < b || (a == b && one < other);
}

double in_digits(double value, int digits) { return std::stod(fmt::format("{:.{}e}", value, digits - 1)); }

}  // namespace

std::unique_ptr<RoundLengths> SyncPeriod::begin(Worker& worker) const {
  return std::make_unique<RoundsByStep>(*this, worker);
}

std::unique_ptr<const SyncPeriod> make_constant_period(Step steps) { return make_post_local_period(0, steps); }

std::unique_ptr<const SyncPeriod> make_power_period(const PowerPeriodOptions& options) {
  return std::make_unique<PowerPeriod>(options);
}

std::unique_ptr<const SyncPeriod> make_post_local_period(Step switch_step, Step steps) {
  return std::make_unique<PostLocalPeriod>(switch_step, steps);
}

std::unique_ptr<const SyncPeriod> make_swap_period(Step switch_step) {
  return std::make_unique<PostLocalPeriod>(switch_step, most);
}

std::span<const SyncPeriodRow> sync_periods() { return period_rows; }

std::unique_ptr<const SyncPeriod> make_sync_period(Settings& settings, const AlgorithmContext& context,
                                                   bool may_follow_run) {
  const std::span<const SyncPeriodRow> known = sync_periods().first(may_follow_run ? period_rows.size() : known_before);
  const auto* const row = settings.row({"rule", "Which rule."}, known);
  return row ? row->make(settings, context) : make_constant_period(1);
}

std::int64_t count_rounds(const SyncPeriod& period, const LearningRate& rate, Step steps, std::int64_t at_most) {
  std::int64_t rounds = 0;
  for (Step done{}; done < steps && rounds < at_most; ++rounds) done += period.at(done, rate.at(done), steps - done);
  return rounds;
}

double solve_coefficient(std::int64_t rounds, double scale,
                         const std::function<std::int64_t(double, std::int64_t)>& rounds_with) {
  const std::int64_t fewest = rounds_with(largest, most_counted);
  const std::int64_t counted = bound(rounds, fewest);
  const std::int64_t target = std::clamp(rounds, fewest, std::max(fewest, rounds_with(smallest, counted)));
  double best = largest;
  std::int64_t made_by_best = fewest;
  const auto try_out = [&](double coefficient) {
    const std::int64_t made = rounds_with(coefficient, counted);
    if (made == target || is_nearer(made, made_by_best, target)) best = coefficient, made_by_best = made;
    return made;
  };
  double too_small = scale, too_large = scale;
  while (too_large < largest && try_out(too_large) > target) too_small = too_large, too_large *= 2;
  if (too_large == scale)
    while (too_small > smallest && try_out(too_small) < target) too_large = too_small, too_small /= 2;
  while (made_by_best != target && too_large > too_small * (1 + precision)) {
    const double between = std::sqrt(too_small) * std::sqrt(too_large);
    (try_out(between) > target ? too_small : too_large) = between;
  }
  for (int digits = 1; digits <= 15; ++digits) {
    const double shorter = in_digits(best, digits);
    if (shorter > 0 && rounds_with(shorter, counted) == made_by_best) return shorter;
  }
  return best;
}

Step solve_period(std::int64_t rounds, Step longest,
                  const std::function<std::int64_t(Step, std::int64_t)>& rounds_with) {
  const std::int64_t fewest = rounds_with(longest, most_counted);
  const std::int64_t counted = bound(rounds, fewest);
  const auto shortest_with_at_most = [&](std::int64_t target) {
    Step::Rep low = 1, high = longest.value();
    while (low < high) {
      const Step::Rep between = low + (high - low) / 2;
      if (rounds_with(between, counted) <= target)
        high = between;
      else
        low = between + 1;
    }
    return Step{low};
  };
  const Step period = shortest_with_at_most(std::max(rounds, fewest));
  const std::int64_t made = rounds_with(period, counted);
  if (made >= rounds || period == Step{1}) return period;
  const std::int64_t more = rounds_with(period - 1, counted);
  return is_nearer(more, made, rounds) ? shortest_with_at_most(more) : period;
}

}  // namespace syncopate
