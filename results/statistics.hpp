// Statistics over seeds: means, paired differences, restricted times, and steps at other batches.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "workers/base/units.hpp"

namespace syncopate {

inline constexpr double significance_level = 0.05;

struct Interval {
  double low = 0;
  double high = 0;

  bool holds(double value) const { return low <= value && value <= high; }
  bool operator==(const Interval&) const = default;
};

// Whether the sign-flip test applies to n differences. It needs at least 6 to reach the significance level, and at most
// 20, because it enumerates all choices of signs.
bool can_flip_signs(std::size_t n);

// The difference between two methods over common seeds. A seed gives both methods the same delays, data and initial
// parameters, so effects of these cancel in the difference.
struct PairedDifference {
  std::size_t n = 0;
  double mean = 0;                     // NaN without seeds
  std::optional<Interval> interval{};  // 95 % interval of the mean by Student's t; none below two seeds
  std::optional<double> t_p{};  // two-sided p for the hypothesis that the mean is 0; none if all differences are equal
  std::optional<double> sign_flip_p{};  // p of the sign-flip test; none below 2 and above 20 seeds

  // Whether the difference is significant at 5 %: both the interval and, if it applies, the sign-flip test exclude 0.
  bool is_significant() const;
};

// The sign-flip permutation test (Fisher 1935) assumes that both signs of a difference are equally likely. Its p is the
// share of the 2^n choices of signs whose mean is at least as far from 0 as the observed one. So p is at least 2 / 2^n.
PairedDifference paired_difference(std::span<const double> differences);

// p of the sign-flip test for the hypothesis that the expected value is `mean`; none if the test does not apply.
std::optional<double> sign_flip_p(std::span<const double> values, double mean);

// Confidence interval of the mean by Student's t; none below two values.
std::optional<Interval> interval_of_mean(std::span<const double> values, double confidence = 0.95);

// The time at which a run reached its target, or at which it ended without reaching it.
struct TimeToReach {
  double time_s = 0;  // end of the run if it did not reach the target
  bool is_reached = false;
};

// Times to a target, in which later and unknown times are replaced by a horizon. Their mean is the restricted mean time
// (Royston and Parmar 2013). Differences of such means need no assumption about times after the horizon.
struct RestrictedTimes {
  std::size_t reached = 0;        // number of runs that reached the target by the horizon
  std::vector<double> times_s{};  // in the order of the runs
};

// The latest time up to which it is known of every run whether it has reached the target: the earliest end of a run
// that missed the target or, if no run missed it, the latest time at which a run reached it. nullopt without runs.
std::optional<double> common_horizon_s(std::span<const TimeToReach> runs);

// Throws std::invalid_argument if a run that missed the target ended before horizon_s.
RestrictedTimes restricted_times(std::span<const TimeToReach> runs, double horizon_s);

struct Statistics {
  std::size_t n = 0;
  double mean = 0;  // NaN without values
  double std = 0;   // sample standard deviation, divisor n - 1; 0 for one value, NaN without values
};

// Uses one pass (Welford 1962), in which nearly equal large values lose no digits.
Statistics statistics(std::span<const double> values);

// The slope of the least-squares line through the points (x, y); nullopt if all x are equal.
std::optional<double> least_squares_slope(std::span<const std::pair<double, double>> points);

// The number of steps to a target with other batches, from one run with measured noise scales of gradients.
// Source:  McCandlish et al. 2018, "An Empirical Model of Large-Batch Training": at noise scale N, a step of batch B
//          makes 1 / (1 + N / B) of the progress of a full-gradient step. So S(B) = S_min (1 + N / B) for constant N.
//          Here each step has the last noise scale measured before it. Sums over the run's steps at its own batch b
//          then give a line in 1 / B.
// Differs: assumes that the learning rate suits every batch equally, and that gradients are of the current model.
// Units:   batches and noise scales in samples.
// Checks:  the closed form for constant N; for the run's own batch the result is the run's number of steps.
struct MeasuredNoise {
  Step step{};       // number of steps before the measurement
  double scale = 0;  // noise scale in samples
};

struct StepsByBatch {
  double least = 0;             // S_min: number of steps with full gradients
  double times_batch = 0;       // slope in 1 / B: steps(B) = least + times_batch / B
  double mean_noise_scale = 0;  // mean over the run's steps

  double steps(double batch) const { return least + times_batch / batch; }
};

// For a run that reached its target after `steps` steps of `batch` samples. Measurements must ascend in step; nullopt
// if none precedes the target.
std::optional<StepsByBatch> steps_by_batch(std::span<const MeasuredNoise> measured, Step steps, double batch);

// --- How much longer one method takes than another to the same training loss ---

// An evaluation of a run. `at`: its step, or its time in seconds.
struct LossAt {
  double at = 0;
  double loss = 0;
};

// The times at which two runs first reached the same level of the loss.
struct LossPassage {
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
std::vector<LossPassage> passages_through_equal_losses(std::span<const LossAt> own, std::span<const LossAt> other);

// The geometric mean of own / other.
double ratio_of(std::span<const LossPassage> passages);
// The mean of own - other.
double difference_of(std::span<const LossPassage> passages);

}  // namespace syncopate
