// How much longer one method takes than another to the same training loss.
#pragma once

#include <optional>
#include <span>
#include <vector>

namespace syncopate {

// An evaluation: `at` is its step or its time in seconds.
struct LossAt {
  double at = 0;
  double loss = 0;
};

// When two runs first reached the same level of the loss.
struct Passage {
  double own = 0;
  double other = 0;
};

// Returns when both runs first pass through the same ten levels of their smoothed losses. Both runs are treated alike,
// so two runs that differ only by noise have a mean ratio of 1. The time until one run reaches the other's last loss
// would be biased: a first passage is early by luck, and a last value is not.
// Smoothing:  the mean logarithm of the loss over 5 evaluations, at the middle one.
// Levels:     evenly spaced in the logarithm of the loss, over the range that both smoothed losses pass through.
// Passage:    between two evaluations by linear interpolation.
// Evaluations must ascend in `at`, and losses be positive. Empty if a run has fewer than 6 evaluations or if the ranges
// do not overlap.
std::vector<Passage> passages_through_equal_losses(std::span<const LossAt> own, std::span<const LossAt> other);

// exp of the mean of log(own / other).
double ratio_of(std::span<const Passage> passages);
// The mean of own - other.
double difference_of(std::span<const Passage> passages);

}  // namespace syncopate
