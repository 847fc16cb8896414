#include "experiments/execution/scheduled_rounds.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace syncopate {
namespace {

// The first step in (low, high] for which this holds; from there on it does, and at `high`.
template <typename Holds>
Step first_in(Step low, Step high, const Holds& holds) {
  while (low + Step{1} < high) {
    const Step middle = low + Step{(high - low).value() / 2};
    (holds(middle) ? high : low) = middle;
  }
  return high;
}

std::optional<Communicated> communicated(const Run& run, const KnownExchanges& exchanges, Step steps) {
  return run.algorithm->communication({.workers = run.cluster.workers,
                                       .parameter_bytes = run.training.parameter_bytes,
                                       .moments = run.training.optimizer->moments(),
                                       .steps = steps,
                                       .learning_rate = *run.training.learning_rate,
                                       .exchanges = exchanges.all,
                                       .average_exchanges = exchanges.of_average,
                                       .packet = exchanges.packet});
}

}  // namespace

ScheduledRounds::ScheduledRounds(const Run& run)
    : run_(run),
      exchanges_(known_exchanges(run)),
      known_(exchanges_.why_none.empty() && communicated(run, exchanges_, Step{1})) {}

Communicated ScheduledRounds::until(Step steps) const {
  if (steps <= 0) return {};
  const auto [found, is_new] = until_.try_emplace(steps);
  if (is_new) found->second = communicated(run_, exchanges_, steps).value();
  return found->second;
}

bool ScheduledRounds::are_countable(Step steps) const {
  constexpr double most_rounds = 1e8;
  const Step few = std::min(steps, Step{1'000'000});
  const double per_step = static_cast<double>(until(few).rounds) / static_cast<double>(few.value());
  return per_step * static_cast<double>(steps.value()) <= most_rounds;
}

Step ScheduledRounds::end_of_round(Step at_least, Step at_most, Step limit) const {
  if (const std::int64_t cycle = run_.algorithm->traits().cycle.value(); cycle > 1) {
    const Step last{at_most.value() / cycle * cycle}, next{last.value() + cycle};
    if (last > 0 && last >= at_least) return last;
    return next <= limit ? next : at_most;
  }
  if (!known_ || ends_round(at_most)) return at_most;
  // A round begins after the step at which the one before it ends.
  const std::int64_t rounds = until(at_most).rounds;
  const Step end = first_in(Step{}, at_most, [&](Step steps) { return until(steps).rounds >= rounds; }) - Step{1};
  if (end > 0 && end >= at_least) return end;
  if (limit <= at_most || until(limit).rounds == rounds) return at_most;
  return first_in(at_most, limit, [&](Step steps) { return until(steps).rounds > rounds; }) - Step{1};
}

// By how much of the whole the drawn out counts miss it.
double ScheduledRounds::misfit(Step first, Step all) const {
  constexpr std::int64_t most_rounds = 1'000'000;  // more of them say nothing new, and take long to count
  const Step settled = settles_after(run_);
  const Communicated before = until(settled), part = until(first);
  const Step longest{first.value() * std::max<std::int64_t>(1, most_rounds / std::max<std::int64_t>(1, part.rounds))};
  all = std::min(all, longest);
  const Communicated whole = until(all);
  if (whole.rounds == 0 || first <= settled) return std::numeric_limits<double>::infinity();
  const double further = static_cast<double>((all - first).value()) / static_cast<double>((first - settled).value());
  const auto of_count = [&](auto count) {
    const auto of_part = static_cast<double>(count(part)), of_whole = static_cast<double>(count(whole));
    const double drawn_out = of_part + further * (of_part - static_cast<double>(count(before)));
    return std::abs(drawn_out - of_whole) / of_whole;
  };
  return std::max(of_count([](const Communicated& one) { return one.rounds; }),
                  of_count([](const Communicated& one) { return one.bytes.value(); }));
}

bool ScheduledRounds::stand_for_all(Step first, Step all) const {
  constexpr double tolerance = 0.01;
  const std::int64_t cycle = run_.algorithm->traits().cycle.value();
  if (cycle > 1 && first.value() % cycle != 0) return first >= all;
  if (!known_) return true;
  const bool is_cut_off = !ends_round(first) && tolerance * static_cast<double>(until(first).rounds) < 1;
  return !is_cut_off && (first >= all || misfit(first, all) <= tolerance);
}

}  // namespace syncopate
