#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "experiments/sections/training_section.hpp"

namespace syncopate {
namespace {

using Shape = LearningRate::Shape;
constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
constexpr Range non_negative{.low = 0, .high_open = true};

constexpr std::array rows = {
    LearningRateRow{"constant", "stays at `peak`", Shape::constant},
    LearningRateRow{"step", "is multiplied by `factor` at each of `decay_epochs` or `decay_steps`", Shape::step},
    LearningRateRow{"exponential", "is multiplied by `factor` every so many steps, gradually or at once (a staircase)",
                    Shape::exponential},
    LearningRateRow{"linear", "falls from `peak` to `final` on a straight line", Shape::linear},
    LearningRateRow{"polynomial", "falls from `peak` to `final` as a power of what is left of the way",
                    Shape::polynomial},
    LearningRateRow{"cosine", "falls from `peak` to `final` on half a cosine", Shape::cosine},
    LearningRateRow{"modified-cosine", "falls on half a cosine, and stays where it is from a step on",
                    Shape::modified_cosine},
    LearningRateRow{"cosine-step", "falls on half a cosine, rounded to the nearest power of `base`",
                    Shape::cosine_step},
};

bool has_end(Shape shape) { return shape != Shape::constant && shape != Shape::step && shape != Shape::exponential; }
bool has_hold(Shape shape) { return shape != Shape::constant && shape != Shape::step; }

void exclusive(Settings& settings, std::string_view key, std::string_view other) {
  settings.fault(key, fmt::format("must not be given together with {}", other));
}

// A stretch of the schedule in steps, in epochs or as a share of all steps.
struct Length {
  std::string_view key;  // as it is written, or would be
  Step steps{};
  double share = 0;
  bool is_known = true;  // not a fault
};

struct LengthKeys {
  Key steps;
  Key epochs;
  Key share;
};
const LengthKeys warmup_keys{
    .steps = {"warmup_steps", "Steps in which the rate rises to `peak` on a straight line.", "steps"},
    .epochs = {"warmup_epochs", "Length of the warm-up in epochs, instead of warmup_steps.", "epochs", "warmup_steps"},
    .share = {"warmup_share", "The same as a share of all steps; may end between two.", "", "warmup_steps"}};
const LengthKeys hold_keys{
    .steps = {"hold_steps", "Steps after the warm-up in which the rate stays at `peak`.", "steps"},
    .epochs = {"hold_epochs", "Length of the hold in epochs, instead of hold_steps.", "epochs", "hold_steps"},
    .share = {"hold_share", "The same as a share of all steps; may end between two.", "", "hold_steps"}};

Length read_length(Settings& rate, const LengthKeys& keys, const EpochLength& epoch) {
  const auto epochs = rate.optional_number(keys.epochs, non_negative);
  const auto share = rate.optional_number(keys.share, {.low = 0, .high = 1, .high_open = true});
  const std::string_view key = epochs ? keys.epochs.name : share ? keys.share.name : keys.steps.name;
  for (const std::string_view other : {keys.steps.name, keys.share.name})
    if (key != other && rate.has(other)) exclusive(rate, other, key);
  if (epochs) {
    const auto steps = steps_of_epochs(rate, keys.epochs.name, *epochs, epoch);
    return {.key = key, .steps = steps.value_or(0), .is_known = steps.has_value()};
  }
  if (share) return {.key = key, .share = *share};
  return {.key = key, .steps = rate.integer(keys.steps, 0, most, 0)};
}

std::vector<Step> read_decay_points(Settings& rate, const EpochLength& epoch) {
  const bool in_epochs = rate.has("decay_epochs");
  const std::string_view key = in_epochs ? "decay_epochs" : "decay_steps";
  if (in_epochs && rate.has("decay_steps")) exclusive(rate, "decay_steps", "decay_epochs");
  std::vector<Step> points;
  const std::size_t faults = rate.faults_so_far();
  if (in_epochs) {
    const Key described{key, "At which epochs the rate is multiplied, instead of decay_steps.", "epochs"};
    for (const double epochs : rate.numbers(described, non_negative)) {
      const auto point = steps_of_epochs(rate, key, epochs, epoch);
      if (!point) return {};
      points.push_back(*point);
    }
  } else {
    const Key described{key, "Steps at which the rate is multiplied by `factor`, in ascending order.", "steps"};
    for (const std::int64_t step : rate.integers(described, 0, most)) points.emplace_back(step);
  }
  if (std::ranges::adjacent_find(points, std::greater_equal<>{}) != points.end()) {
    if (rate.faults_so_far() == faults) rate.fault(key, "must ascend, at least a step apart");
    points.clear();
  }
  return points;
}

// T: declared, or that of a budget in steps or epochs. None where it is not known for faults.
std::optional<Step> read_total(Settings& rate, const StepBudget& budget, std::string_view schedule) {
  const Key total{"total_steps", "The step at which the schedule ends; left out: that at which the budget does.",
                  "steps"};
  if (const auto steps = rate.optional_integer(total, 1, most)) return *steps;
  if (budget.is_counted) return budget.steps;
  rate.fault("total_steps", fmt::format("must be given: the {} schedule ends there, and the budget counts neither "
                                        "steps nor epochs",
                                        schedule));
  return std::nullopt;
}

// When the rate is multiplied by `factor` once more.
Step read_decay_every(Settings& rate, const EpochLength& epoch) {
  const auto epochs = rate.optional_number(
      {"decay_every_epochs", "The same in epochs, instead of decay_every_steps.", "epochs", "decay_every_steps"},
      {.low = 0, .low_open = true, .high_open = true});
  if (!epochs)
    return rate.integer({"decay_every_steps", "Steps in which the rate is multiplied by `factor` once.", "steps"}, 1,
                        most);
  if (rate.has("decay_every_steps")) exclusive(rate, "decay_every_steps", "decay_every_epochs");
  return std::max(steps_of_epochs(rate, "decay_every_epochs", *epochs, epoch).value_or(1), Step{1});
}

Step read_constant_from(Settings& rate, const EpochLength& epoch) {
  const auto epochs = rate.optional_number(
      {"constant_from_epoch", "The same in epochs, instead of constant_from_step.", "epochs", "constant_from_step"},
      non_negative);
  if (!epochs) return rate.integer({"constant_from_step", "The step from which on the rate stays.", "steps"}, 0, most);
  if (rate.has("constant_from_step")) exclusive(rate, "constant_from_step", "constant_from_epoch");
  return steps_of_epochs(rate, "constant_from_epoch", *epochs, epoch).value_or(0);
}

// The keys of one schedule alone.
void read_course(Settings& rate, const EpochLength& epoch, LearningRate::Options& options) {
  constexpr Range positive{.low = 0, .low_open = true, .high_open = true};
  if (options.shape == Shape::step) options.decay_steps = read_decay_points(rate, epoch);
  if (options.shape == Shape::exponential) options.decay_every = read_decay_every(rate, epoch);
  if (options.shape == Shape::step || options.shape == Shape::exponential)
    options.decay_factor =
        rate.number({"factor", "What the rate is multiplied by then."}, positive, options.decay_factor);
  if (options.shape == Shape::exponential)
    options.staircase = rate.flag({"staircase", "Whether it falls at once, and stays in between."}, options.staircase);
  if (options.shape == Shape::polynomial)
    options.power = rate.number({"power", "The power; 1 is a straight line."}, positive, options.power);
  if (options.shape == Shape::modified_cosine) options.constant_from = read_constant_from(rate, epoch);
  if (options.shape == Shape::cosine_step)
    options.base = rate.number({"base", "Of whose powers the rate is the nearest."},
                               {.low = 1, .low_open = true, .high_open = true}, options.base);
}

// What does not fit is left out of the options, and is a fault unless it follows from others (`is_certain` is false).
void check_lengths(Settings& rate, const Length& warmup, const Length& hold, bool is_certain,
                   LearningRate::Options& options) {
  const auto T = static_cast<double>(options.total_steps.value());
  const double warmed = static_cast<double>(warmup.steps.value()) + warmup.share * T;
  const double held = warmed + static_cast<double>(hold.steps.value()) + hold.share * T;
  if (const bool is_limited = has_end(options.shape) || warmup.share + hold.share > 0; is_limited && held >= T) {
    const std::string_view key = warmed >= T ? warmup.key : hold.key;
    if (is_certain)
      rate.fault(key, fmt::format("must end before the schedule does, at step {}", options.total_steps.value()));
    options.warmup_steps = options.hold_steps = 0;
    options.warmup_share = options.hold_share = 0;
  }
  if (options.shape != Shape::modified_cosine || static_cast<double>(options.constant_from.value()) >= warmed) return;
  if (is_certain)
    rate.fault(rate.has("constant_from_epoch") ? "constant_from_epoch" : "constant_from_step",
               "must not be within the warm-up");
  options.constant_from = most;
}

}  // namespace

std::span<const LearningRateRow> learning_rate_schedules() { return rows; }

std::shared_ptr<const LearningRate> read_learning_rate(Settings& training, const StepBudget& budget,
                                                       const EpochLength& epoch, bool time_only) {
  Settings rate = training.section({"learning_rate", "The learning rate as a function of the step."});
  LearningRate::Options options;
  const auto* const row = rate.row({"schedule", "Its course after the warm-up."}, rows, time_only ? "constant" : "");
  if (row) options.shape = row->shape;
  options.peak =
      rate.number({"peak", "The highest rate, after the warm-up."}, {.low = 0, .low_open = true, .high_open = true},
                  time_only ? std::optional(options.peak) : std::nullopt);
  options.final = rate.number({"final", "The rate at the end of a schedule that has one."}, non_negative, 1e-6);
  options.warmup_start = rate.number({"warmup_start", "The rate of the warm-up's first step."}, non_negative,
                                     Stated(options.final, "final"));
  options.counter = rate.choice(
      {"counter", "What counts: steps done, the next step's number, or an optimizer's counter (1, 1, 2, ...)."},
      {{"done", LearningRate::Counter::done},
       {"next", LearningRate::Counter::next},
       {"optimizer", LearningRate::Counter::optimizer}},
      options.counter);
  const std::size_t faults = rate.faults_so_far();
  const Length warmup = read_length(rate, warmup_keys, epoch);
  const Length hold = has_hold(options.shape) ? read_length(rate, hold_keys, epoch) : Length{.key = "hold_steps"};
  options.warmup_steps = warmup.steps, options.warmup_share = warmup.share;
  options.hold_steps = hold.steps, options.hold_share = hold.share;
  read_course(rate, epoch, options);
  options.total_steps = most;
  bool is_known = warmup.is_known && hold.is_known;
  if (row && (has_end(options.shape) || warmup.share + hold.share > 0)) {
    const std::optional<Step> total_steps = read_total(rate, budget, row->name);
    options.total_steps = total_steps.value_or(most);
    is_known &= total_steps.has_value();
  }
  check_lengths(rate, warmup, hold, is_known && rate.faults_so_far() == faults, options);
  return std::make_shared<LearningRate>(std::move(options));
}

}  // namespace syncopate
