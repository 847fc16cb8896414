// How much longer one method takes than another to the same training loss.
#pragma once

#include <optional>
#include <span>
#include <vector>

namespace syncopate {

// An evaluation of a run. `at`: its step, or its time in seconds.
struct LossAt {
  double at = 0;
  double loss = 0;
};

// The times at which two runs first reached the same level of the loss.
struct Passage {
  double own = 0;
  double other = 0;
};

// Returns the times at which both runs first pass through the same ten levels of their smoothed losses. Both runs are
// treated alike, so two runs that differ only by noise have a mean ratio of 1. The time until one run reaches the
// other's last loss would be biased: luck makes a first passage early, but not a last value low.
// Smoothing:  the mean logarithm of the loss over 5 evaluations, assigned to the middle one.
// Levels:     evenly spaced in the logarithm of the loss, over the range that both smoothed losses pass through.
// Passage:    by linear interpolation between two evaluations.
// Evaluations must ascend in `at`, and losses be positive. Empty if a run has fewer than 6 evaluations, or if the runs'
// ranges of losses do not overlap.
std::vector<Passage> passages_through_equal_losses(std::span<const LossAt> own, std::span<const LossAt> other);

// The geometric mean of own / other.
double ratio_of(std::span<const Passage> passages);
// The mean of own - other.
double difference_of(std::span<const Passage> passages);

}  // namespace syncopate
