#include "algorithms/local_sgd/run_periods.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <vector>

namespace syncopate {

namespace {

constexpr Step::Rep most_of_a_period = std::numeric_limits<std::int32_t>::max();

// The mean of every `each`-th number from index `first` on, without unknown (NaN) ones.
double mean_of_known(std::span<const double> all, std::size_t first, std::size_t each) {
  double sum = 0, count = 0;
  for (std::size_t i = first; i < all.size(); i += each) {
    if (std::isnan(all[i])) continue;
    sum += all[i];
    ++count;
  }
  return sum / count;
}

// The state of AdaComm's rounds on one worker. It is the same on all workers, except for the worker's own losses.
class RoundsByLoss final : public RoundLengths {
 public:
  RoundsByLoss(const LossPeriodOptions& options, Worker& worker)
      : options_(options),
        worker_(worker),
        period_(options.period.first()),
        first_rate_(worker.learning_rate()),
        first_loss_(worker),
        next_step_(options.interval_steps.value_or(0)),
        next_s_(options.interval_s.value_or(0)) {}

  Step next() override {
    end_ = worker_.step() + period_;
    return period_;
  }

  bool sees_gradients() const override { return true; }

  void see(Gradient& mean) override {
    const Step after = worker_.step() + 1;
    const bool is_first = after == Step{1}, is_last = after == end_ && after >= next_step_;
    if (is_first || is_last) last_loss_ = worker_.loss(mean);
    if (is_first) *first_loss_ = last_loss_;
  }

  // Begins an interval if one is due. With intervals in seconds, all workers gather their clocks to agree on this.
  void end_round() override {
    if (!worker_.budget_left() || worker_.step() < next_step_) return;
    constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
    std::vector<double> mine = {last_loss_};
    if (!initial_loss_) mine.push_back((*first_loss_).value_or(unknown));
    if (options_.interval_s) mine.push_back(to_seconds(worker_.now()));
    const Gathered all = *worker_.all_gather(mine, [each = mine.size()](std::span<const double> numbers) {
      Gathered result{mean_of_known(numbers, 0, each), each > 1 ? mean_of_known(numbers, 1, each) : unknown, 0};
      for (std::size_t i = each - 1; i < numbers.size(); i += each) result.time_s = std::max(result.time_s, numbers[i]);
      return result;
    });
    if (!initial_loss_) initial_loss_ = all.first_loss;
    if (options_.interval_s && all.time_s < next_s_) return;
    if (options_.interval_s) next_s_ = (std::floor(all.time_s / *options_.interval_s) + 1) * *options_.interval_s;
    if (options_.interval_steps)
      next_step_ = (worker_.step().value() / options_.interval_steps->value() + 1) * options_.interval_steps->value();
    period_ = options_.period.next(all.loss / *initial_loss_, first_rate_ / worker_.learning_rate(), period_);
  }

 private:
  struct Gathered {
    double loss, first_loss, time_s;
  };

  LossPeriodOptions options_;
  Worker& worker_;
  Step period_;                                      // tau_l
  double first_rate_;                                // eta_0
  ResetOnOutage<std::optional<double>> first_loss_;  // this worker's loss in its first step
  Step next_step_;                                   // first step at which the next interval may begin; 0: any
  double next_s_;                                    // first time at which the next interval may begin; 0: any
  Step end_{};                                       // end of the round
  double last_loss_ = 0;                             // loss of the last step before an interval
  std::optional<double> initial_loss_{};             // F_0; none: not gathered yet
};

class PeriodByLoss final : public SyncPeriod {
 public:
  explicit PeriodByLoss(const LossPeriodOptions& options) : options_(options) {}

  // The length of the first round; later ones are not known in advance.
  Step at(Step, double, Step left) const override {
    return std::clamp(options_.period.first(), Step{1}, std::max(left, Step{1}));
  }
  std::unique_ptr<RoundLengths> begin(Worker& worker) const override {
    return std::make_unique<RoundsByLoss>(options_, worker);
  }
  void describe(Traits& traits) const override {
    traits.has_formulas = false;
    traits.follows_values = true;
    traits.follows_clock |= options_.interval_s.has_value();
    traits.lockstep_from_step.reset();
  }
  bool is_known_before() const override { return false; }

 private:
  LossPeriodOptions options_;
};

StatePolicy due_after(Step done, Step period) {
  return done.value() % period.value() == 0 ? StatePolicy::average : StatePolicy::keep;
}

}  // namespace

Step LossPeriod::next(double loss, double rate, Step before) const {
  const double exact = steps(loss, rate);
  if (!std::isfinite(exact)) return before;
  const Step period = clipped(exact);
  if (period < before || not_below == NotBelow::take) return period;
  if (not_below == NotBelow::keep) return before;
  return clipped(shrinkage * static_cast<double>(before.value()));
}

double LossPeriod::steps(double loss, double rate) const {
  const double ratio = follows_rate ? rate * loss : loss;
  const auto tau_0 = static_cast<double>(initial.value());
  return form == Form::adacomm ? std::sqrt(ratio) * tau_0 : std::sqrt(tau_0 * ratio);
}

Step LossPeriod::clipped(double steps) const {
  constexpr double rounding = 1e-12;
  constexpr double longest = 1e15;  // beyond any run; exact as a double and as a Step
  const Step period{static_cast<Step::Rep>(std::ceil(std::min(steps, longest) * (1 - rounding)))};
  const Step bounded = maximum ? std::min(period, *maximum) : period;
  return std::max(bounded, minimum);
}

std::unique_ptr<const SyncPeriod> make_loss_period(const LossPeriodOptions& options) {
  return std::make_unique<PeriodByLoss>(options);
}

Step MomentSchedule::at(Step done, double, Step left) const {
  Step::Rep next = std::max(left, Step{1}).value();
  for (const Step period : {parameters_, moments_[0], moments_[1]})
    next = std::min(next, period.value() - done.value() % period.value());
  return Step{next};
}

AveragePolicy MomentSchedule::due(Step done, Step end, const AveragePolicy& usual) const {
  const StatePolicy parameters = done == end ? StatePolicy::average : due_after(done, parameters_);
  return {.moments = {due_after(done, moments_[0]), due_after(done, moments_[1])},
          .buffers = parameters == StatePolicy::average ? usual.buffers : StatePolicy::keep,
          .parameters = parameters};
}

void MomentSchedule::describe(Traits& traits) const {
  traits.has_formulas = false;
  traits.cycle = cycle();
  traits.exchanged_whole = "moments are averaged as well, with separate periods";
}

Step MomentSchedule::cycle() const {
  constexpr Step::Rep longest = 1'000'000'000;
  Step::Rep cycle = parameters_.value(), largest = cycle;
  for (const Step period : moments_) {
    if (period == never) continue;
    largest = std::max(largest, period.value());
    if (cycle <= longest) cycle *= period.value() / std::gcd(cycle, period.value());
  }
  return Step{cycle <= longest ? cycle : largest};
}

double half_life(double beta) { return beta > 0 ? std::log(0.5) / std::log(beta) : 0; }

LossPeriodOptions read_loss_period(Settings& settings, const AlgorithmContext& context) {
  LossPeriodOptions options;
  LossPeriod& period = options.period;
  const Key initial{"initial_period", "The formula's tau_0: the first period, or its square in Paddle's formula.",
                    "steps"};
  period.initial = settings.integer(initial, 1, most_of_a_period);
  using Form = LossPeriod::Form;
  period.form = settings.choice(
      {"formula", "The next period, rounded up: sqrt(F_l / F_0) tau_0 (adacomm), or sqrt(tau_0 F_l / F_0) (paddle)."},
      {{"adacomm", Form::adacomm}, {"paddle", Form::paddle}}, period.form);
  const bool is_paddle = period.form == Form::paddle;
  const Key follow_rate{
      "follow_rate", "Whether F_l is multiplied by eta_0 / eta_l, the first learning rate divided by the current one.",
      "", "true for Paddle's formula, false for the other"};
  period.follows_rate = settings.optional_flag(follow_rate).value_or(is_paddle);
  if (period.follows_rate && context.learning_rate_warmup > Step{0})
    settings.fault("follow_rate", "must be false if the learning rate has a warm-up: it would begin at a low eta_0");
  using NotBelow = LossPeriod::NotBelow;
  period.not_below = settings.choice(
      {"not_below", "If the new period is not below the last one: take it, keep the last one, or shrink the last one."},
      {{"take", NotBelow::take}, {"keep", NotBelow::keep}, {"shrink", NotBelow::shrink}}, period.not_below);
  if (period.not_below == NotBelow::shrink)
    period.shrinkage =
        settings.number({"shrinkage", "Factor by which \"shrink\" multiplies the last period, rounded up (gamma)."},
                        Range{.low = 0, .high = 1, .low_open = true, .high_open = true}, period.shrinkage);
  period.minimum = settings.integer({"minimum", "The shortest period.", "steps"}, 1, most_of_a_period, 1);
  const Stated<std::int64_t> minimum(period.minimum.value(), "minimum");
  const Key maximum{"maximum", "The longest period.", "steps", "no bound; 16 in Paddle's formula"};
  period.maximum = settings.optional_integer(maximum, minimum, most_of_a_period);
  if (is_paddle && !period.maximum) period.maximum = std::max(LossPeriod::longest_of_paddle, period.minimum);
  options.interval_steps = settings.optional_integer(
      {"interval_steps", "Steps after which the period is updated.", "steps", "at each average, or by interval_s"}, 1,
      most_of_a_period);
  options.interval_s = settings.optional_number(
      {"interval_s", "Time after which the period is updated (T_0).", "s", "at each average, or by interval_steps"},
      Range::positive());
  if (options.interval_steps && options.interval_s)
    settings.fault("interval_s", "must not be given together with interval_steps");
  return options;
}

std::unique_ptr<const SyncPeriod> read_moment_schedule(Settings& settings, const Key& parameters_key,
                                                       const AlgorithmContext& context) {
  enum class Periods { multiples, half_life, never };
  const Step parameters = settings.integer(parameters_key, 1, most_of_a_period);
  const auto periods = settings.choice(
      {"moment_periods", "Periods of the moments: 3 and 6 times K_x, half-lives (ln 0.5 / ln beta), or no averages."},
      {{"multiples", Periods::multiples}, {"half-life", Periods::half_life}, {"never", Periods::never}},
      Periods::multiples);
  const Key keys[] = {
      {"first_moment_period", "Steps between averages of the first moment, SGD's momentum (K_u).", "steps",
       "by moment_periods"},
      {"second_moment_period", "Steps between averages of the second moment (K_v).", "steps", "by moment_periods"}};
  const auto usual = [&](std::size_t moment) -> Step {
    constexpr std::array<Step::Rep, 2> multiples = {3, 6};
    if (periods == Periods::multiples) return multiples[moment] * parameters.value();
    if (periods == Periods::never) return MomentSchedule::never;
    return std::max<Step::Rep>(1, std::llround(half_life(context.moment_decays[moment])));
  };
  std::array moments = {MomentSchedule::never, MomentSchedule::never};
  for (std::size_t i = 0; i < moments.size(); ++i) {
    const bool exists = i < context.moment_decays.size();
    const auto own = settings.optional_integer(keys[i], 1, most_of_a_period);
    if (own && !exists)
      settings.fault(keys[i].name, i == 0 ? "must be left out: the optimizer has no moments"
                                          : "must be left out: the optimizer has no second moment");
    if (exists) moments[i] = own ? Step{*own} : usual(i);
  }
  return std::make_unique<MomentSchedule>(parameters, moments);
}

}  // namespace syncopate
