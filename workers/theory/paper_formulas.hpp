// What a threshold would have done to micro-batch times that were recorded without one.
// Source:  Giladi et al. 2023, "DropCompute", Eq. 6, and its reference code.
// Shapes:  times (N, I, M): workers, steps, micro-batches.   Units: any one unit of time for all.
// Cost:    O(N I M log G) on one worker's processor, for G thresholds.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "workers/base/process.hpp"
#include "workers/theory/order_statistics.hpp"

namespace syncopate {

// How many backup workers are best: fewer gradients per step cost more steps, but each step waits for fewer.
// Source:  Chen et al. 2016, section 3.1 (time to converge = steps needed x expected time of the N-th arrival).
// Units:   step times in the unit of the law.
// Steps to converge when N gradients make a step.
using StepsNeeded = std::function<double(int quorum)>;

// The straight line through two measured points, as in the paper.
StepsNeeded steps_on_a_line(int quorum_a, double steps_a, int quorum_b, double steps_b);

struct BestQuorum {
  int quorum = 0;         // N; the rest of the machines are backups
  double step_time = 0;   // expected time of the N-th arrival
  double total_time = 0;  // steps needed x (step_time + communication)
};

// The best N in lowest..machines. Each step's late work is cancelled, or its expected time would be longer.
BestQuorum best_quorum(int machines, int lowest, const Quantile& worker_time, const StepsNeeded& steps,
                       double communication = 0);

// What theory says of DropCompute: how many micro-batches are done by the threshold, and what that gains.
// Source:  Giladi et al. 2023, Equations 4 (with the central limit for M micro-batches), 5 and 6.
// Units:   seconds, or any other, the same for all times. Micro-batches are independent, mean `mean` (mu) and
//          standard deviation `deviation` (sigma) each.
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

// Quantiles of times of which some were cut off.
// Source:  Kaplan and Meier 1958, "Nonparametric Estimation from Incomplete Observations".
struct CensoredTime {
  double seconds = 0;
  bool at_least = false;  // it was cut off then, and is only known to be longer
};

// The first time that no more than 1 - quantile exceed; times are at least one. The share that takes longer than t is
// the product, over all times up to t that are known exactly, of 1 - 1 / (how many took at least as long). Where too
// many were cut off to tell, it lies above the longest by the share that is in excess.
double kaplan_meier_quantile(std::vector<CensoredTime> times, double quantile);

// What Local SGD's rounds cost: waiting for the slowest sum of H steps, and communication once per round.
// Source:  Gu et al. 2024 for the estimate of communication from two measured totals; the round time is the
//          expected maximum of N sums.
// Units:   times in seconds, hours, or any other unit, the same for all.
// Expected time of a round of `period` local steps, each of mean and deviation as given, on N workers: the maximum
// of N normal sums (exact for the normal law), plus the synchronisation.
double expected_round_time(int workers, int period, double step_mean, double step_deviation, double synchronisation);

// The totals of a data-parallel run and of Local SGD on the same recorded step times [worker][step]: the sum over
// steps of the slowest worker's step, and the sum over rounds of `period` steps of the slowest worker's sum, each
// with a synchronisation; what is left at the end is a round of its own. How much less the second is, beside the
// communication, is the benefit of averaging straggling out within rounds.
double parallel_total(std::span<const double> step_times, int workers, double synchronisation);
double local_total(std::span<const double> step_times, int workers, int period, double synchronisation);

// Communication and computation of a whole training, told apart by the totals of the data-parallel run (a
// synchronisation after each step) and of one with a constant period H > 1:
//   T_dp = C + P,  T_H = C / H + P.
// What straggling costs less with a longer period is thereby booked as communication.
struct CommunicationEstimate {
  double communication = 0;  // C, of the data-parallel run
  double computation = 0;    // P

  // The total of a run that synchronises in a share `volume` of its steps, and its communication.
  double total(double volume) const { return computation + volume * communication; }
  double communication_of(double volume) const { return volume * communication; }
};

// `volume` is 1 / H of the second run. Throws std::invalid_argument unless it is in [0, 1).
CommunicationEstimate estimate_communication(double data_parallel_total, double other_total, double volume);

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
