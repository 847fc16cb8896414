// Threshold search: which tau would have served best on micro-batch times that were recorded without one.
// Source:  Giladi et al. 2023, "DropCompute", the choice of tau; the search in its reference code.
// Shapes:  times (N, I, M): workers, steps, micro-batches.   Units: any one unit of time for all.
// Cost:    O(N I M log G) on one worker's processor, for G thresholds.
// Differs: the reference code starts its grid at the earliest end of a 6th micro-batch; for M < 6 it starts
//          here after the first half of them, and never at 0, where it starts if something takes no time. A threshold
//          that would gain nothing is not set at all. By default thresholds are judged by micro-batches per time over
//          all steps: in the mean of the steps' own speed-ups the few longest steps outweigh all others if times have a
//          heavy tail, and the best threshold then lies between two points of an equally spaced grid.
// Checks:  thresholds, drop rates and speed-ups of an independent computation (tests/golden).
#pragma once

#include <optional>
#include <vector>

#include "workers/theory/threshold_effects.hpp"

namespace syncopate {

// The reference code's 200 equally spaced thresholds, both ends included.
std::vector<double> threshold_grid(const MicroBatchTimes& recorded);

// The first threshold with the highest effective speed-up among those that drop at most `maximum_drop_rate`; an
// infinite one if none of them gains anything. By Eq. 6 and the reference code the first of the reference code's grid;
// by throughput of as many in equal ratios, and then of as many between the best one's neighbours.
ThresholdEffect search_threshold(const MicroBatchTimes& recorded, double serial_time, SpeedupForm form,
                                 std::optional<double> maximum_drop_rate = {});

}  // namespace syncopate
