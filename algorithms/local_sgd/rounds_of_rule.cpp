#include "algorithms/local_sgd/rounds_of_rule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>

namespace syncopate {
namespace {

constexpr std::int64_t most_counted = 10'000'000;         // of the fewest rounds that a rule can make
constexpr double smallest = 0x1p-300, largest = 0x1p300;  // beyond what any learning rate is compared with
constexpr double precision = 1e-13;                       // of a coefficient, relative

// Beyond that a number of rounds is farther from the one asked for than the fewest that can be had.
std::int64_t bound(std::int64_t rounds, std::int64_t fewest) { return 2 * std::max(rounds, fewest) + 2; }

bool is_nearer(std::int64_t one, std::int64_t other, std::int64_t asked) {
  const std::int64_t a = std::abs(one - asked), b = std::abs(other - asked);
  return a < b || (a == b && one < other);
}

double in_digits(double value, int digits) { return std::stod(fmt::format("{:.{}e}", value, digits - 1)); }

}  // namespace

std::int64_t count_rounds(const SyncPeriod& period, const LearningRate& rate, Step steps, std::int64_t at_most) {
  std::int64_t rounds = 0;
  for (Step done{}; done < steps && rounds < at_most; ++rounds) done += period.at(done, rate.at(done), steps - done);
  return rounds;
}

SolvedRounds<double> solve_coefficient(std::int64_t rounds, double scale,
                                       const std::function<std::int64_t(double, std::int64_t)>& rounds_with) {
  const std::int64_t fewest = rounds_with(largest, most_counted);
  const std::int64_t counted = bound(rounds, fewest);
  const std::int64_t target = std::clamp(rounds, fewest, std::max(fewest, rounds_with(smallest, counted)));
  SolvedRounds<double> best{largest, fewest};
  const auto try_out = [&](double coefficient) {
    const std::int64_t made = rounds_with(coefficient, counted);
    if (made == target || is_nearer(made, best.rounds, target)) best = {coefficient, made};
    return made;
  };
  double too_small = scale, too_large = scale;
  while (too_large < largest && try_out(too_large) > target) too_small = too_large, too_large *= 2;
  if (too_large == scale)
    while (too_small > smallest && try_out(too_small) < target) too_large = too_small, too_small /= 2;
  while (best.rounds != target && too_large > too_small * (1 + precision)) {
    const double between = std::sqrt(too_small) * std::sqrt(too_large);
    (try_out(between) > target ? too_small : too_large) = between;
  }
  for (int digits = 1; digits <= 15; ++digits) {
    const double shorter = in_digits(best.value, digits);
    if (shorter > 0 && rounds_with(shorter, counted) == best.rounds) return {shorter, best.rounds};
  }
  return best;
}

SolvedRounds<Step> solve_period(std::int64_t rounds, Step longest,
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
    return SolvedRounds<Step>{low, rounds_with(low, counted)};
  };
  const SolvedRounds<Step> fewer = shortest_with_at_most(std::max(rounds, fewest));
  if (fewer.rounds >= rounds || fewer.value == Step{1}) return fewer;
  const std::int64_t more = rounds_with(fewer.value - 1, counted);
  return is_nearer(more, fewer.rounds, rounds) ? shortest_with_at_most(more) : fewer;
}

}  // namespace syncopate
