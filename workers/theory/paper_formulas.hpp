// What a threshold would have done to micro-batch times that were recorded without one.
// Source:  Giladi et al. 2023, "DropCompute", Eq. 6, and its reference code.
// Shapes:  times (N, I, M): workers, steps, micro-batches.   Units: any one unit of time for all.
// Cost:    O(N I M log G) on one worker's processor, for G thresholds.
#pragma once

#include <span>
#include <vector>

#include "workers/process/interrupt.hpp"

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
  // The reference code: as Eq. 6, but a step lasts until the last micro-batch that ends before the threshold; where all
  // that is kept takes no time, until the threshold.
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
// What takes no time is kept under any threshold, and a step of no duration is neither faster nor slower with one.
std::vector<ThresholdEffect> threshold_effects(const MicroBatchTimes& recorded, double serial_time, SpeedupForm form,
                                               std::span<const double> thresholds);

// The worker that would have dropped most, the first of several, and its share of what all would have dropped.
struct LargestDropper {
  int worker = 0;
  double share = 0;  // 0: nothing is dropped
};

// Of each threshold, given in ascending order: whether drops fall on one worker's samples.
std::vector<LargestDropper> largest_droppers(const MicroBatchTimes& recorded, std::span<const double> thresholds);

// Calls visit(step, micro-batch, end) with each micro-batch's end since its step began.
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
