#include "algorithms/asynchronous/steps_by_speed.hpp"

#include <algorithm>
#include <cmath>

namespace syncopate {

Step DynamicSteps::at(double share_of_fastest, Step most) const {
  constexpr double rounded_away = 1e-9;  // by sums of times: equal speeds are equal
  const double steps = share_of_fastest * static_cast<double>(most.value());
  const double whole = rounding == Rounding::up ? std::ceil(steps - rounded_away) : std::floor(steps + rounded_away);
  return std::max(minimum, Step{static_cast<Step::Rep>(whole)});
}

StepsBySpeed::StepsBySpeed(const std::optional<DynamicSteps>& rule, Step most, int workers)
    : rule_(rule), most_(most), pace_(workers) {}

std::vector<double> StepsBySpeed::to_tell(Rank worker) const {
  if (!rule_) return {};
  return {static_cast<double>(of(worker).value())};
}

void StepsBySpeed::take_in(const Message& difference, int micro_batches) {
  if (!rule_) return;
  measure(difference.from, difference.work().micro_batches / micro_batches, difference.numbers.front());
}

void StepsBySpeed::measure(Rank worker, std::int64_t steps, double seconds) {
  Pace& pace = pace_[worker];
  pace.steps += steps;
  pace.seconds += seconds;
  pace.steps_per_s = pace.seconds > 0 ? static_cast<double>(pace.steps) / pace.seconds : 0;
  if (pace.steps_per_s > pace_[fastest_].steps_per_s) fastest_ = worker;
  if (worker != fastest_) return;
  for (const Rank other : Ranks(pace_.size()))
    if (pace_[other].steps_per_s > pace_[fastest_].steps_per_s) fastest_ = other;
}

Step StepsBySpeed::of(Rank worker) const {
  const double own = pace_[worker].steps_per_s;
  return rule_ && own > 0 ? rule_->at(own / pace_[fastest_].steps_per_s, most_) : most_;
}

// The card.
std::optional<DynamicSteps> read_dynamic_steps(Settings& settings, Step most) {
  using Rounding = DynamicSteps::Rounding;
  const auto rounding = settings.choice<std::optional<Rounding>>(
      {"steps_by_speed", "Slower workers take fewer steps (DyLU): local_steps by their measured speed, rounded."},
      {{"no", std::nullopt}, {"up", Rounding::up}, {"down", Rounding::down}}, std::nullopt);
  if (!rounding) return std::nullopt;
  DynamicSteps rule{.rounding = *rounding};
  rule.minimum =
      settings.integer({"minimum_steps", "No worker takes fewer.", "steps"}, 1, Stated(most.value(), "local_steps"), 1);
  return rule;
}

}  // namespace syncopate
