#include "algorithms/method/work_in_budget.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>

namespace syncopate {
namespace {

std::int64_t product(std::int64_t a, std::int64_t b) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  return a <= most / b ? a * b : most;
}

}  // namespace

WorkInBudget WorkInBudget::of_steps(std::optional<Step> steps, int workers) {
  if (!steps) return {};
  return {.gradients = product(steps->value(), workers)};
}

WorkInBudget WorkInBudget::of(std::int64_t count) const {
  return {.gradients = gradients, .in_one = product(in_one, count)};
}

std::int64_t WorkInBudget::check(Settings& settings, std::string_view key, std::int64_t count,
                                 std::int64_t together) const {
  if (!gradients) return count;
  const std::int64_t most = product(std::max<std::int64_t>(*gradients / in_one, 1), together);
  if (count <= most) return count;
  std::string why = "the whole budget has no more gradients";
  if (in_one > 1)
    why = fmt::format("the whole budget has {} gradients, and each of these takes {}", *gradients, in_one);
  if (together > 1)
    why = fmt::format("the whole budget has {} gradients, and {} of these take {}", *gradients, together, in_one);
  settings.fault(key, fmt::format("must be at most {}: {}", most, why));
  return most;
}

}  // namespace syncopate
