#include "results/statistics/restricted_time.hpp"

#include <algorithm>
#include <stdexcept>

namespace syncopate {

std::optional<double> common_horizon_s(std::span<const TimeToReach> runs) {
  std::optional<double> censored_s, reached_s;
  for (const TimeToReach& run : runs) {
    if (run.is_reached)
      reached_s = std::max(run.time_s, reached_s.value_or(run.time_s));
    else
      censored_s = std::min(run.time_s, censored_s.value_or(run.time_s));
  }
  return censored_s ? censored_s : reached_s;
}

RestrictedTimes restricted_times(std::span<const TimeToReach> runs, double horizon_s) {
  RestrictedTimes result{.horizon_s = horizon_s, .reached = 0, .times_s = {}};
  for (const TimeToReach& run : runs) {
    if (!run.is_reached && run.time_s < horizon_s)
      throw std::invalid_argument("a run that did not reach the target ended before the horizon");
    const bool in_time = run.is_reached && run.time_s <= horizon_s;
    result.reached += in_time;
    result.times_s.push_back(in_time ? run.time_s : horizon_s);
  }
  return result;
}

}  // namespace syncopate
