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
    LearningRateRow{"linear", "falls from `peak` to `final` on a straight line", Shape::linear},
    LearningRateRow{"cosine", "falls from `peak` to `final` on half a cosine", Shape::cosine},
};

void exclusive(Settings& settings, std::string_view key, std::string_view other) {
  settings.fault(key, fmt::format("must not be given together with {}", other));
}

// None where it is not known for faults.
std::optional<Step> read_warmup(Settings& rate, const EpochLength& epoch) {
  const auto epochs = rate.optional_number(
      {"warmup_epochs", "Length of the warm-up in epochs, instead of warmup_steps.", "epochs"}, non_negative);
  if (!epochs)
    return rate.integer(
        {"warmup_steps", "Steps in which the rate rises from `final` to `peak` on a straight line.", "steps"}, 0, most,
        0);
  if (rate.has("warmup_steps")) exclusive(rate, "warmup_steps", "warmup_epochs");
  return steps_of_epochs(rate, "warmup_epochs", *epochs, epoch);
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

// T of linear and cosine: declared, or that of a budget in steps or epochs. None where it is not known for faults.
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

}  // namespace

std::span<const LearningRateRow> learning_rate_schedules() { return rows; }

std::shared_ptr<const LearningRate> read_learning_rate(Settings& root, const StepBudget& budget,
                                                       const EpochLength& epoch, bool time_only) {
  Settings rate = root.section("training").section({"learning_rate", "The learning rate as a function of the step."});
  LearningRate::Options options;
  const auto* const row = rate.row({"schedule", "Its course after the warm-up."}, rows, time_only ? "constant" : "");
  if (row) options.shape = row->shape;
  options.peak =
      rate.number({"peak", "The highest rate, after the warm-up."}, {.low = 0, .low_open = true, .high_open = true},
                  time_only ? std::optional(options.peak) : std::nullopt);
  options.final = rate.number({"final", "The rate at the end of a linear or cosine schedule."}, non_negative, 1e-6);
  const std::size_t faults = rate.faults_so_far();
  const std::optional<Step> warmup_steps = read_warmup(rate, epoch);
  options.warmup_steps = warmup_steps.value_or(0);
  if (options.shape == Shape::step) {
    options.decay_steps = read_decay_points(rate, epoch);
    options.decay_factor = rate.number({"factor", "What the rate is multiplied by at each of them."},
                                       {.low = 0, .low_open = true, .high_open = true}, options.decay_factor);
  } else if (options.shape != Shape::constant) {
    const std::optional<Step> total_steps = read_total(rate, budget, row->name);
    options.total_steps = total_steps.value_or(most);
    if (total_steps && warmup_steps && *total_steps <= *warmup_steps) {
      const std::string_view warmup = rate.has("warmup_epochs") ? "warmup_epochs" : "warmup_steps";
      if (rate.faults_so_far() == faults)
        rate.fault(warmup, fmt::format("must end before the schedule does, at step {}", options.total_steps.value()));
      options.warmup_steps = 0;
    }
  }
  return std::make_shared<LearningRate>(std::move(options));
}

}  // namespace syncopate
