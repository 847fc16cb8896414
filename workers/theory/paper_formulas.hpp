// Order statistics, formulas of the DropCompute paper, and a quantile of censored times. All times passed to one call
// have the same unit.
#pragma once

#include <span>
#include <vector>

#include "workers/base/process.hpp"

namespace syncopate {

// --- Order statistics: the time of the k-th fastest of M workers with independent times from one distribution ---
// Source:  standard results; Bailey et al. 2014 as quoted by Giladi et al. 2023, Eq. 4.
// Units:   those of the distribution. k counts from 1 (the fastest) to M (the maximum).
// Errors:  std::invalid_argument if k is not in 1..M, a parameter is out of range, or the mean does not exist.

// E[X_(k:M)] for a distribution given by a sample whose values are equally likely. Exact, without quadrature.
// `ascending` must be sorted and not empty. For extremes of M workers the sample needs many times M values.
double expected_order_statistic(std::span<const double> ascending, int k, int workers);

// The normally distributed time of one worker, or of several workers with the same distribution.
struct NormalTime {
  double mean = 0;
  double deviation = 0;
  int workers = 1;
};
// E[max] of independent normal times, at least one; means and deviations may differ. Exact up to quadrature. It gives
// the simulated curve for persistently different workers in Figure 2 of Giladi et al. 2023.
double expected_maximum(std::span<const NormalTime> times);

// DropCompute: the number of micro-batches completed before the threshold, and the speed-up.
// Source:  Giladi et al. 2023, Equations 4 (with the central limit theorem for sums of M micro-batches), 5 and 6.
struct MicroBatchLaw {   // one micro-batch; micro-batches are independent
  double mean = 0;       // mu
  double deviation = 0;  // sigma
};

// E[M~] of Eq. 5: how many of a worker's M micro-batches end before `threshold`, by the central limit theorem.
double expected_micro_batches(int micro_batches, double threshold, const MicroBatchLaw& law);

// E[T] of Eq. 4: the longest of N workers' sums of M micro-batches, by Bailey's approximation. Assumes normal sums and
// needs at least 2 workers.
double expected_slowest_worker(int workers, int micro_batches, const MicroBatchLaw& law);

// Eq. 6 for expectations: E[M~] (E[T] + T^c) / (M (min(threshold, E[T]) + T^c)). `completed` is E[M~], `slowest` is
// E[T] without a threshold, `serial` is T^c.
double effective_speedup(double completed, int micro_batches, double threshold, double slowest, double serial);

// Returns the threshold with the largest effective speed-up by these formulas, among those with a drop rate
// 1 - E[M~] / M of at most `maximum_drop_rate`. Infinite if no threshold gains anything. `slowest` is E[T], `serial` is
// T^c. No micro-batch ends before `shortest`, so no threshold below it is returned. Without this bound, the normal
// distribution could give a shorter threshold if the real distribution has a long tail.
double best_threshold(int micro_batches, const MicroBatchLaw& law, double slowest, double serial,
                      double maximum_drop_rate = 1, double shortest = 0);

// Quantiles of times of which some are censored (cut off).
// Source:  Kaplan and Meier 1958, "Nonparametric Estimation from Incomplete Observations".
struct CensoredTime {
  double seconds = 0;
  bool at_least = false;  // censored: the true time is only known to be at least this long
};

// Returns the shortest time t such that at most a share 1 - quantile of the times exceeds t; needs at least one time.
// The share that exceeds t is the product, over all uncensored times up to t, of 1 - 1 / (number of times that are at
// least as long). If too many times are censored, even the share that exceeds the longest time is too large. Then the
// result is the longest time times 1 + the excess of that share.
double kaplan_meier_quantile(std::vector<CensoredTime> times, double quantile);

// The effect of a threshold on micro-batch times that were recorded without a threshold.
// Source:  Giladi et al. 2023, "DropCompute", Eq. 6, and its reference code.
// Shapes:  times (N, I, M): workers, steps, micro-batches.
// Cost:    O(N I M log G) on one worker's processor, for G thresholds.
struct MicroBatchTimes {
  std::span<const double> times;  // row-major [worker][step][micro-batch]
  int workers = 1;
  int steps = 1;
  int micro_batches = 1;
};

// How to measure the speed-up of a threshold.
enum class SpeedupForm {
  // Ratio of micro-batches per time, over all recorded steps. A step that the threshold cuts lasts until the threshold.
  throughput,
  // Eq. 6: the mean over the recorded steps of each step's effective speed-up.
  effective,
  // As in the paper's reference code: like Eq. 6, but a step lasts until the end of the last kept micro-batch, or until
  // the threshold if all kept micro-batches take no time.
  reference,
};

struct ThresholdEffect {
  double threshold = 0;          // tau; infinite: no threshold
  double drop_rate = 0;          // share of the micro-batches that do not end before the threshold
  double time_saved = 0;         // share of the steps' time; except for throughput, the mean of the steps' shares
  double effective_speedup = 1;  // micro-batches per time, relative to running without a threshold
};

// The effect of each threshold; thresholds must ascend. serial_time: T^c, the time of a step that is not computing.
// Every threshold keeps micro-batches that take no time. A step that takes no time counts as neither faster nor slower.
std::vector<ThresholdEffect> threshold_effects(const MicroBatchTimes& recorded, double serial_time, SpeedupForm form,
                                               std::span<const double> thresholds);

// The worker with the most dropped micro-batches (the first if several have the most), and its share of all drops.
struct LargestDropper {
  int worker = 0;
  double share = 0;  // 0: no drops
};

// Returns the largest dropper for each threshold, ascending. Shows whether drops concentrate on one worker's samples.
std::vector<LargestDropper> largest_droppers(const MicroBatchTimes& recorded, std::span<const double> thresholds);

// Calls visit(step, micro-batch, end). `end`: time from the begin of the worker's step to the micro-batch's end.
template <typename Visit>
void visit_ends(const MicroBatchTimes& recorded, const Visit& visit) {
  const double* time = recorded.times.data();
  for (int n = 0; n < recorded.workers; ++n)
    for (int i = 0; i < recorded.steps; ++i) {
      throw_if_interrupted();
      double end = 0;
      for (int m = 0; m < recorded.micro_batches; ++m) visit(i, m, end += *time++);
    }
}

}  // namespace syncopate
