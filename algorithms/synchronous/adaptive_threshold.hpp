// Adaptive thresholds: tau follows the workers' step times over a sliding window, by a quantile or by
// median + k MAD (the median absolute deviation, not scaled).
// Source:  none for the rules; Kaplan and Meier 1958 for quantiles of times of which some were cut off.
// Shapes:  what is shared: (N, u) step times of u steps.   Units: seconds.
// Cost:    every u steps one all-gather of N u numbers, and one sort of a window of N W times per process.
// Differs: from a threshold that is set once: it follows what changes, and the drop rate is what is set.
// Checks:  thresholds of hand-written windows; in a steady state the share of late workers is 1 - quantile.
#pragma once

#include "algorithms/synchronous/drop_threshold.hpp"
#include "workers/theory/kaplan_meier.hpp"

namespace syncopate {

struct AdaptiveThresholdOptions {
  enum class Statistic { quantile, median_and_deviations };
  Statistic statistic = Statistic::quantile;
  double quantile = 0.9;        // in (0, 1)
  double deviations = 3;        // k
  Step window_steps{40};        // no threshold until the window is full
  Step update_every_steps{10};  // u; the window is made of whole updates
};
std::shared_ptr<const DropThreshold> make_adaptive_threshold(const AdaptiveThresholdOptions& options);

// How long all micro-batches of a usual step took a worker. Of one that was cut off it is only known that they
// would have taken longer than it had.
using StepTime = CensoredTime;
StepTime time_of(const TimedStep& step);

// Of the times of a window, at least one. Its quantiles are those of the Kaplan-Meier estimate, which takes times
// that are only known to be longer for what they are: the first time that no more than 1 - q exceed. Where too
// many were cut off to tell, it lies above the longest by the share that is in excess, so that a threshold which
// is too low for most rises by up to 1 + q with each update.
double adaptive_threshold(std::vector<StepTime> times, const AdaptiveThresholdOptions& options);

// Keys of both: window_steps, update_every_steps; and quantile, or deviations.
std::shared_ptr<const DropThreshold> read_quantile_threshold(Settings& settings, const DropThresholdContext& context);
std::shared_ptr<const DropThreshold> read_deviation_threshold(Settings& settings, const DropThresholdContext& context);

}  // namespace syncopate
