// What Local SGD's rounds cost: waiting for the slowest sum of H steps, and communication once per round.
// Source:  Gu et al. 2024 for the estimate of communication from two measured totals; the round time is the
//          expected maximum of N sums.
// Units:   times in seconds, hours, or any other unit, the same for all.
#pragma once

#include <span>

namespace syncopate {

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

}  // namespace syncopate
