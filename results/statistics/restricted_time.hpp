// Times to a target that some runs did not reach.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace syncopate {

// Of one run: when it reached the target, or that it had not by its end.
struct TimeToReach {
  double time_s = 0;  // else the run's end
  bool is_reached = false;
};

// Times up to a horizon: a run that reached the target later, or not at all, counts as the horizon. Their mean is the
// restricted mean time (Royston and Parmar 2013); a difference of it needs no assumption on what would have come later.
struct RestrictedTimes {
  double horizon_s = 0;
  std::size_t reached = 0;      // by the horizon
  std::vector<double> times_s;  // in the order of the runs
};

// The horizon up to which all runs are known: the earliest end of one that did not reach the target, or else the latest
// time at which one did. None without runs.
std::optional<double> common_horizon_s(std::span<const TimeToReach> runs);

// horizon_s must not lie beyond the end of a run that did not reach the target: std::invalid_argument.
RestrictedTimes restricted_times(std::span<const TimeToReach> runs, double horizon_s);

}  // namespace syncopate
