// Whether the whole budget has as much as one round is to be made of: else the run would end long after its budget.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "workers/settings/settings.hpp"
#include "workers/units/units.hpp"

namespace syncopate {

struct WorkInBudget {
  // A step of one worker is a gradient. Of all workers together; none: not known beforehand, as in seconds.
  std::optional<std::int64_t> gradients{};
  std::int64_t in_one = 1;  // in one of what is counted; rounds of all workers: if they are alike

  // N in each step of the experiment file.
  static WorkInBudget of_steps(std::optional<Step> steps, int workers);

  // Of what takes `count` of these.
  WorkInBudget of(std::int64_t count) const;
  // A fault of the key, which asks for `count`, where the budget has fewer; one is always allowed. `together` of what is
  // counted are one. Returns the count, or after a fault the most that would have been right.
  std::int64_t check(Settings& settings, std::string_view key, std::int64_t count, std::int64_t together = 1) const;
};

}  // namespace syncopate
