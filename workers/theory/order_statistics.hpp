// Order statistics: the time of the k-th fastest of M workers with independent times of one law.
// Source:  standard results; Bailey et al. 2014 as quoted by Giladi et al. 2023, Eq. 4.
// Units:   that of the law. k counts from 1 (the fastest) to M (the maximum).
// Errors:  std::invalid_argument if k is not in 1..M, a parameter is out of range, or the mean does not exist.
#pragma once

#include <span>

namespace syncopate {

// E[X_(k:M)] for a law of which `ascending` is a sample, its values equally likely: exact, without quadrature. It is
// sorted and not empty. Extremes of many workers need a sample of many times as many values.
double expected_order_statistic(std::span<const double> ascending, int k, int workers);

// A normal time of one worker, or of several with one law.
struct NormalTime {
  double mean = 0;
  double deviation = 0;
  int workers = 1;
};
// E[max] of at least one independent normal time, which can differ, exact up to quadrature: as in the simulated curve
// of Giladi et al. 2023, Figure 2, for persistently different workers.
double expected_maximum(std::span<const NormalTime> times);

// Bailey's approximation of the maximum of N normal times, N >= 2 (Eq. 4 of Giladi et al. 2023).
double bailey_normal_maximum(int workers, double mean, double deviation);

}  // namespace syncopate
