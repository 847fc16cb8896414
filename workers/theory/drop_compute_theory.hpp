// What theory says of DropCompute: how many micro-batches are done by the threshold, and what that gains.
// Source:  Giladi et al. 2023, Equations 4 (with the central limit for M micro-batches), 5 and 6.
// Units:   seconds, or any other, the same for all times. Micro-batches are independent, mean `mean` (mu) and
//          standard deviation `deviation` (sigma) each.
#pragma once

namespace syncopate {

struct MicroBatchLaw {
  double mean = 0;
  double deviation = 0;
};

// E[M~] of Eq. 5: micro-batches of M that are done before `threshold`, by the central limit.
double expected_micro_batches(int micro_batches, double threshold, const MicroBatchLaw& law);

// E[T] by Eq. 4: the slowest of N workers' sums of M micro-batches, taken as normal. At least 2 workers.
double expected_slowest_worker(int workers, int micro_batches, const MicroBatchLaw& law);

// Eq. 6 with expectations put in: E[M~] (E[T] + T^c) / (M (min(threshold, E[T]) + T^c)).
// `completed` is E[M~], `slowest` E[T] without a threshold, `serial` T^c.
double effective_speedup(double completed, int micro_batches, double threshold, double slowest, double serial);

struct BestThreshold {
  double threshold = 0;
  double speedup = 0;    // S_eff
  double drop_rate = 0;  // 1 - E[M~] / M
};

// The threshold that maximises the analytical S_eff, given E[T], among those that drop at most
// `maximum_drop_rate`; an infinite one where none gains anything. None is below `shortest`, before which no micro-batch
// ends: the normal law goes on below it, and finds its best there where the real one has a long tail.
BestThreshold best_threshold(int micro_batches, const MicroBatchLaw& law, double slowest, double serial,
                             double maximum_drop_rate = 1, double shortest = 0);

}  // namespace syncopate
