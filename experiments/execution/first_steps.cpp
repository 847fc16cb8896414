#include "experiments/execution/first_steps.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "results/run/run_prediction.hpp"

namespace syncopate {
namespace {

// The first step after `low`, up to `high`, for which this holds; from there on it always does.
template <typename Holds>
Step first_in(Step low, Step high, const Holds& holds) {
  while (low + Step{1} < high) {
    const Step middle = low + Step{(high - low).value() / 2};
    (holds(middle) ? high : low) = middle;
  }
  return high;
}

}  // namespace

std::optional<Communicated> scheduled_communication(const Run& run, Step steps) {
  KnownExchanges exchanges = known_exchanges(run);
  if (!exchanges.why_none.empty()) return std::nullopt;
  return run.algorithm->communication({.workers = run.cluster.workers,
                                       .parameter_bytes = run.training.parameter_bytes,
                                       .moments = run.training.optimizer->moments(),
                                       .steps = steps,
                                       .learning_rate = *run.training.learning_rate,
                                       .exchanges = std::move(exchanges.all),
                                       .average_exchanges = std::move(exchanges.of_average),
                                       .packet = exchanges.packet});
}

Step end_of_round(const Run& run, Step at_least, Step at_most, Step limit) {
  if (!scheduled_communication(run, at_most)) return at_most;
  const auto rounds = [&](Step steps) { return scheduled_communication(run, steps)->rounds; };
  const std::int64_t last = rounds(at_most);  // with the one that is cut off there
  if (rounds(at_most + Step{1}) > last) return at_most;
  // A round begins after the step at which the one before it ends.
  const Step end = first_in(Step{}, at_most, [&](Step steps) { return rounds(steps) >= last; }) - Step{1};
  if (end > 0 && end >= at_least) return end;
  if (limit <= at_most || rounds(limit) == last) return at_most;
  return first_in(at_most, limit, [&](Step steps) { return rounds(steps) > last; }) - Step{1};
}

bool first_steps_stand_for_all(const Run& run, Step settled, Step first, Step all) {
  constexpr double tolerance = 0.02;
  if (first >= all || first <= settled) return true;
  const auto of_all = scheduled_communication(run, all), of_first = scheduled_communication(run, first);
  if (!of_all || !of_first || of_all->rounds == 0) return true;
  const auto before = settled > 0 ? scheduled_communication(run, settled).value_or(Communicated{}) : Communicated{};
  const double further = static_cast<double>((all - first).value()) / static_cast<double>((first - settled).value());
  const auto is_drawn_out = [&](auto count) {  // but for the last round, which may be cut off
    const auto whole = static_cast<double>(count(*of_all)), part = static_cast<double>(count(*of_first));
    const double drawn_out = part + further * (part - static_cast<double>(count(before)));
    return std::abs(drawn_out - whole) <= tolerance * whole + whole / static_cast<double>(of_all->rounds);
  };
  return is_drawn_out([](const Communicated& one) { return one.rounds; }) &&
         is_drawn_out([](const Communicated& one) { return one.bytes.value(); });
}

}  // namespace syncopate
