#include "experiments/execution/simulations.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>

#include "experiments/execution/scheduled_rounds.hpp"
#include "workers/process/run_failure.hpp"

namespace syncopate {
namespace {

// In the units of work_of: the first steps of all runs together; what a method may need to settle, which comes on top; and
// what all together may take beyond that, to end with a round or to be simulated whole.
constexpr std::int64_t most_work = 8'000'000;
constexpr std::int64_t most_work_of_one = 12'000'000;
constexpr std::int64_t most_further_work = 12'000'000;
constexpr std::int64_t fewest_steps = 8;

Step steps_after_settling(const Run& run) {
  constexpr Step fewest = 30;
  return std::max(fewest, run.algorithm->traits().cycle);
}

// How many steps each run is simulated for, if it has as many: what the short ones do not need goes to the long ones.
// Of samples a run takes as many steps as they last, which drops make more than planned.
std::vector<Step> shared_out(const std::vector<Run>& runs) {
  constexpr std::int64_t unplanned = std::numeric_limits<std::int32_t>::max();
  const auto needed = [&](std::size_t i) { return planned_steps(runs[i]).value_or(unplanned); };
  std::vector<std::size_t> order(runs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return work_of(runs[i], needed(i)); });
  std::vector<Step> steps(runs.size());
  std::int64_t left = most_work;
  for (std::size_t k = 0; k < order.size(); ++k) {
    const Run& run = runs[order[k]];
    const std::int64_t share = left / static_cast<std::int64_t>(order.size() - k);
    std::int64_t affordable = std::max(fewest_steps, share / work_of(run, 1));
    const Step settled = settles_after(run);
    if (settled > 0) affordable = std::max(affordable, settled.value() + steps_after_settling(run).value());
    steps[order[k]] = std::min(run.budget.steps.value_or(unplanned), Step{affordable});
    left = std::max<std::int64_t>(0, left - work_of(run, std::min(needed(order[k]), steps[order[k]])));
  }
  return steps;
}

std::string why_not_simulated(const Run& run) {
  if (run.algorithm->traits().follows_values) return "needs training";
  if (const KnownExchanges exchanges = known_exchanges(run); !exchanges.why_none.empty()) return exchanges.why_none;
  const Step settled = settles_after(run), all = run.budget.steps.value_or(settled);
  const bool is_too_long = settled > 0 && work_of(run, std::min(settled, all)) > most_work_of_one;
  return is_too_long ? "too long to simulate" : "";
}

class Simulator {
 public:
  // So many steps, or as many as there are where these do not stand for the rest.
  Simulation simulate(const Run& run, Step steps) {
    if (std::string why = why_not_simulated(run); !why.empty()) return {.why_none = std::move(why)};
    try {
      return simulate_within(run, steps);
    } catch (const RunFailure& failure) {
      return {.why_none = failure.what(), .failed = true};
    }
  }

 private:
  Simulation simulate_within(const Run& run, Step steps) {
    const ScheduledRounds rounds(run);
    const Step part = part_of(run, rounds, steps);
    if (part > steps) further_work_ -= work_of(run, part - steps);
    const SimulatedTime first = simulate_time(run, part);
    if (first.whole || !first.total_time_s) return {.time = first};
    Step all = std::llround(std::min(1e15, *first.total_time_s / first.step_time_s));
    if (run.budget.steps) all = std::min(all, *run.budget.steps);
    if (rounds.stand_for_all(first.steps, all)) return {.time = first};
    // How many steps other limits leave is told by the first ones' pace, which may be too slow.
    const Step expected{all.value() / (ends_by_steps(run.budget) ? 1 : 2)};
    if (const Step most = affordable(run); expected <= most && most > first.steps) {
      const SimulatedTime whole = simulate_time(run, std::min(most, run.budget.steps.value_or(most)));
      further_work_ -= work_of(run, whole.steps);
      if (whole.whole) return {.time = whole};
    }
    return {.why_none = "too long: its first steps do not stand for the rest"};
  }

  // It ends with a round.
  Step part_of(const Run& run, const ScheduledRounds& rounds, Step steps) const {
    const Step all = run.budget.steps.value_or(Step{std::numeric_limits<Step::Rep>::max() / 2});
    if (steps >= all) return steps;
    return rounds.end_of_round(settles_after(run) > 0 ? settles_after(run) + steps_after_settling(run) : Step{1}, steps,
                               std::min(all, steps + affordable(run)));
  }

  Step affordable(const Run& run) const { return Step{std::max<std::int64_t>(0, further_work_ / work_of(run, 1))}; }

  std::int64_t further_work_ = most_further_work;
};

}  // namespace

std::vector<Simulation> simulate_all(const std::vector<Run>& runs) {
  const std::vector<Step> steps = shared_out(runs);
  Simulator simulator;
  std::vector<Simulation> all;
  for (std::size_t i = 0; i < runs.size(); ++i) all.push_back(simulator.simulate(runs[i], steps[i]));
  return all;
}

std::optional<SimulatedTime> simulate_first_steps(const Run& run, Step steps) {
  Run first = run;
  first.budget = {.steps = steps};
  return simulate_all({std::move(first)}).front().time;
}

}  // namespace syncopate
