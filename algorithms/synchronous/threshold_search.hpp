// Threshold search: which tau would have served best on micro-batch times that were recorded without one.
// Source:  Giladi et al. 2023, "DropCompute", Eq. 6 and the choice of tau; the search in its reference code.
// Shapes:  times (N, I, M): workers, steps, micro-batches.   Units: any one unit of time for all.
// Cost:    O(N I M log G) on one worker's processor, for G thresholds.
// Differs: the reference code starts its grid at the earliest end of a 6th micro-batch; for M < 6 it starts
//          here after the first half of them. A threshold that would gain nothing is not set at all. By default
//          thresholds are judged by micro-batches per time over all steps: in the mean of the steps' own speed-ups the
//          few longest steps outweigh all others if times have a heavy tail, and the best threshold then lies between
//          two points of an equally spaced grid.
// Checks:  thresholds, drop rates and speed-ups of an independent computation (tests/golden).
#pragma once

#include <optional>
#include <span>
#include <vector>

namespace syncopate {

struct MicroBatchTimes {
  std::span<const double> times;  // row-major [worker][step][micro-batch]
  int workers = 1;
  int steps = 1;
  int micro_batches = 1;
};

// By what a threshold is judged.
enum class SpeedupForm {
  // Micro-batches per time, over all recorded steps. A step that the threshold cuts lasts until the threshold.
  throughput,
  // Eq. 6: the mean over the recorded steps of each step's effective speed-up.
  effective,
  // The reference code: as Eq. 6, but a step lasts until the last micro-batch that ends before the threshold.
  reference,
};

// What a threshold would have done.
struct ThresholdEffect {
  double threshold = 0;          // tau, infinite: none
  double drop_rate = 0;          // share of the micro-batches that do not end before it
  double time_saved = 0;         // share of the steps' time; by Eq. 6 and the reference code the mean of their shares
  double effective_speedup = 1;  // micro-batches per time, in multiples of those without a threshold
};

// The effect of each threshold, given in ascending order. serial_time: T^c, what a step takes besides computing.
std::vector<ThresholdEffect> threshold_effects(const MicroBatchTimes& recorded, double serial_time, SpeedupForm form,
                                               std::span<const double> thresholds);

// The reference code's 200 equally spaced thresholds, both ends included.
std::vector<double> threshold_grid(const MicroBatchTimes& recorded);

// The first threshold with the highest effective speed-up among those that drop at most `maximum_drop_rate`; an
// infinite one if none of them gains anything. By Eq. 6 and the reference code the first of the reference code's grid;
// by throughput of as many in equal ratios, and then of as many between the best one's neighbours.
ThresholdEffect search_threshold(const MicroBatchTimes& recorded, double serial_time, SpeedupForm form,
                                 std::optional<double> maximum_drop_rate = {});

}  // namespace syncopate
