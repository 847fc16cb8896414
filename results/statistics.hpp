// Mean and sample standard deviation over seeds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "workers/base/units.hpp"

namespace syncopate {

// How much two methods differ over seeds that both have run. A seed gives both the same delays, data and first
// parameters, so what the two have in common cancels in the difference of each seed.
inline constexpr double significance_level = 0.05;

struct Interval {
  double low = 0;
  double high = 0;

  bool holds(double value) const { return low <= value && value <= high; }
  bool operator==(const Interval&) const = default;
};

// Whether sign flips of so many differences can reach that level at all (6), and are few enough to be tried (20).
bool can_flip_signs(std::size_t n);

struct PairedDifference {
  std::size_t n = 0;
  double mean = 0;                      // NaN without seeds
  std::optional<Interval> interval{};   // of the mean, 95 %, by Student's t; none below two seeds
  std::optional<double> t_p{};          // two-sided, that the mean is 0; none where all differences are equal
  std::optional<double> sign_flip_p{};  // the same by sign flips; none beyond 20 seeds

  // Whether there is a difference, at 5 %: by the interval, and by sign flips where these can say so at all (6 seeds).
  bool is_significant() const;
};

// Of each seed's difference. The sign-flip permutation test (Fisher 1935) takes every difference to be as likely of
// either sign: its p is the share of the 2^n choices of signs whose mean is at least as far from 0, so that it is never
// below 2 / 2^n, and cannot reach 5 % with fewer than 6 seeds.
PairedDifference paired_difference(std::span<const double> differences);

// The sign-flip test's p that the mean of `values` is this one; none where it cannot say so at 5 % (below 6 values), or
// there are more than 20.
std::optional<double> sign_flip_p(std::span<const double> values, double mean);

// Whether the mean is within (-margin, margin): the larger p of two one-sided t tests (Schuirmann 1987). Equivalence at
// 5 % is where the 90 % interval lies within. None below two differences. margin > 0.
std::optional<double> equivalence_p(std::span<const double> differences, double margin);

// The mean's interval of this confidence, by Student's t; none below two values.
std::optional<Interval> interval_of_mean(std::span<const double> values, double confidence = 0.95);

// Times to a target that some runs did not reach.
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

struct Statistics {
  std::size_t n = 0;
  double mean = 0;  // NaN without values
  double std = 0;   // sample standard deviation, divisor n - 1; 0 for a single value, NaN without values
};

// One pass (Welford 1962), so that nearly equal large values lose no digits.
Statistics statistics(std::span<const double> values);

// How many steps a target takes at another batch, from one run along which the noise scale of gradients was measured.
// Source:  McCandlish et al. 2018, "An Empirical Model of Large-Batch Training": a step at a batch of B samples makes 1
//          / (1 + N / B) of the progress of one along the whole gradient, where N is the noise scale there; so S(B) =
//          S_min (1 + N / B) where N stays the same.
// Method:  each of the run's steps at its batch b made 1 / (1 + N / b) of a whole step's progress, with the N measured
//          last before it. At a batch of B, whole steps take 1 + N / B steps each; both sums over the run make a line
//          in 1 / B.
// Differs: it takes the learning rate to be as good at every batch, and gradients to be of the current model.
// Units:   batches and noise scales in samples.
// Checks:  the closed form where N stays the same; the run's own batch has the run's own steps.
struct MeasuredNoise {
  Step step{};       // after so many
  double scale = 0;  // in samples
};

struct StepsByBatch {
  double least = 0;             // steps along whole gradients
  double times_batch = 0;       // b: steps(B) = least + b / B
  double mean_noise_scale = 0;  // of the run's steps

  double steps(double batch) const { return least + times_batch / batch; }
};

// Of a run that reached its target after so many steps at a batch of so many samples. None without a measurement before
// the target. Measurements in ascending order.
std::optional<StepsByBatch> steps_by_batch(std::span<const MeasuredNoise> measured, Step steps, double batch);

}  // namespace syncopate
