// Order statistics: the time of the k-th fastest of M workers with independent times from one distribution.
// Source:  standard results; Bailey et al. 2014 as quoted by Giladi et al. 2023, Eq. 4.
// Units:   those of the distribution. k counts from 1 (the fastest) to M (the maximum).
// Errors:  std::invalid_argument if k is not in 1..M, a parameter is out of range, or the mean does not exist.
#pragma once

#include <span>

namespace syncopate {

// E[X_(k:M)] for a distribution given by a sample whose values are equally likely. Exact, without quadrature.
// `ascending` must be sorted and not empty. For extremes of M workers the sample needs many times M values.
double expected_order_statistic(std::span<const double> ascending, int k, int workers);

// The normal time of one worker, or of several workers with the same distribution.
struct NormalTime {
  double mean = 0;
  double deviation = 0;
  int workers = 1;
};
// E[max] of at least one independent normal time; means and deviations may differ. Exact up to quadrature. The
// simulated curve in Figure 2 of Giladi et al. 2023, for persistently different workers, is of this kind.
double expected_maximum(std::span<const NormalTime> times);

// Bailey's approximation of the maximum of N normal times, N >= 2 (Eq. 4 of Giladi et al. 2023).
double bailey_normal_maximum(int workers, double mean, double deviation);

}  // namespace syncopate
