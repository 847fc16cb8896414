// Formulas of the DropCompute paper, and a quantile of censored times. All times passed to one call have the same unit.
#pragma once

#include <span>
#include <vector>

#include "workers/base/process.hpp"
#include "workers/theory/order_statistics.hpp"

namespace syncopate {

// DropCompute: the number of micro-batches completed before the threshold, and the speed-up.
// Source:  Giladi et al. 2023, Equations 4 (with the central limit theorem for M micro-batches), 5 and 6.
struct MicroBatchLaw {   // micro-batches are independent
  double mean = 0;       // mu
  double deviation = 0;  // sigma
};

// E[M~] of Eq. 5: the number of M micro-batches that end before `threshold`, by the central limit theorem.
double expected_micro_batches(int micro_batches, double threshold, const MicroBatchLaw& law);

// E[T] by Eq. 4: the slowest of N workers' sums of M micro-batches, approximated as normal. Needs at least 2 workers.
double expected_slowest_worker(int workers, int micro_batches, const MicroBatchLaw& law);

// Eq. 6 for expectations: E[M~] (E[T] + T^c) / (M (min(threshold, E[T]) + T^c)). `completed` is E[M~], `slowest` is
// E[T] without a threshold, `serial` is T^c.
double effective_speedup(double completed, int micro_batches, double threshold, double slowest, double serial);

struct BestThreshold {
  double threshold = 0;
  double speedup = 0;    // S_eff
  double drop_rate = 0;  // 1 - E[M~] / M
};

// Returns the threshold with the largest analytical S_eff, given E[T], among thresholds that drop at most
// `maximum_drop_rate`; infinite if no threshold gains anything. It is at least `shortest`, before which no micro-batch
// ends: if the real distribution has a long tail, the best threshold of the normal distribution could be below that.
BestThreshold best_threshold(int micro_batches, const MicroBatchLaw& law, double slowest, double serial,
                             double maximum_drop_rate = 1, double shortest = 0);

// Quantiles of times of which some are censored (cut off).
// Source:  Kaplan and Meier 1958, "Nonparametric Estimation from Incomplete Observations".
struct CensoredTime {
  double seconds = 0;
  bool at_least = false;  // censored: the true time is only known to be longer
};

// The first time that at most a share 1 - quantile of the times exceeds; needs at least one time. The share that
// exceeds t is the product, over all exact times up to t, of 1 - 1 / (number of times that are at least as long). If
// too many times are censored, the result exceeds the longest time by the excess share.
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
  // Micro-batches per time, over all recorded steps. A step that the threshold cuts lasts until the threshold.
  throughput,
  // Eq. 6: the mean over the recorded steps of each step's effective speed-up.
  effective,
  // As in the reference code: like Eq. 6, but a step lasts until the last micro-batch that ends before the threshold,
  // or until the threshold if all kept micro-batches take no time.
  reference,
};

struct ThresholdEffect {
  double threshold = 0;   // tau; infinite: no threshold
  double drop_rate = 0;   // share of the micro-batches that do not end before the threshold
  double time_saved = 0;  // share of the steps' time; for Eq. 6 and the reference code, the mean of the steps' shares
  double effective_speedup = 1;  // micro-batches per time, relative to running without a threshold
};

// The effect of each threshold; thresholds must ascend. serial_time: T^c, the time of a step other than computing. Any
// threshold keeps micro-batches that take no time, and does not change steps without duration.
std::vector<ThresholdEffect> threshold_effects(const MicroBatchTimes& recorded, double serial_time, SpeedupForm form,
                                               std::span<const double> thresholds);

// The worker with the most drops (the first of several), and its share of all drops.
struct LargestDropper {
  int worker = 0;
  double share = 0;  // 0: no drops
};

// Returns it for each threshold; thresholds must ascend. Shows whether drops concentrate on one worker's samples.
std::vector<LargestDropper> largest_droppers(const MicroBatchTimes& recorded, std::span<const double> thresholds);

// Calls visit(step, micro-batch, end), where `end` is the micro-batch's end counted from the begin of its step.
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
