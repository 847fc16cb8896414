// Order statistics: the time of the k-th fastest of M workers with independent times of one law.
// Source:  standard results; Blom 1958 (normal scores); Bailey et al. 2014 as quoted by Giladi et al. 2023, Eq. 4.
// Units:   that of the law. k counts from 1 (the fastest) to M (the maximum).
// Errors:  std::invalid_argument if k is not in 1..M, a parameter is out of range, or the mean does not exist.
#pragma once

#include <functional>
#include <span>

namespace syncopate {

// The inverse distribution function of a time, on (0, 1).
using Quantile = std::function<double(double)>;

// E[X_(k:M)], exact up to quadrature: the mean of Q(U) with U ~ Beta(k, M - k + 1).
double expected_order_statistic(const Quantile& quantile, int k, int workers);
inline double expected_maximum(const Quantile& quantile, int workers) {
  return expected_order_statistic(quantile, workers, workers);
}

// The same for a sample whose values are equally likely: exact, without quadrature. `ascending` is sorted and not
// empty. Extremes of many workers need a sample of many times as many values.
double expected_order_statistic(std::span<const double> ascending, int k, int workers);

// One exact draw of X_(k:M) from one uniform number: Q(U) with U the Beta(k, M - k + 1) quantile of `uniform`.
double draw_order_statistic(const Quantile& quantile, int k, int workers, double uniform);

// Closed forms of E[X_(k:M)].
double expected_exponential(int k, int workers, double rate);            // rate mu, add the shift to it
double variance_exponential(int k, int workers, double rate);            // of X_(k:M)
double expected_pareto(int k, int workers, double scale, double shape);  // needs shape > 1 / (M - k + 1)
double expected_uniform(int k, int workers, double low, double high);
double blom_normal(int k, int workers, double mean, double deviation);  // approximation
double blom_lognormal(int k, int workers, double mu, double sigma);     // of the underlying normal; biased low

// A normal time of one worker, or of several with one law.
struct NormalTime {
  double mean = 0;
  double deviation = 0;
  int workers = 1;
};
// E[max] of at least one independent normal time, which can differ, exact up to quadrature: as in the simulated curve
// of Giladi et al. 2023, Figure 2, for persistently different workers.
double expected_maximum(std::span<const NormalTime> times);
// E[min(limit, max)], for workers that all stop at the limit.
double expected_maximum(std::span<const NormalTime> times, double limit);
// Mean and deviation of the maximum.
NormalTime law_of_maximum(std::span<const NormalTime> times);
// Mean and deviation of min(limit, time), in closed form.
NormalTime law_until(const NormalTime& time, double limit);

// Bailey's approximation of the maximum of N normal times, N >= 2 (Eq. 4 of Giladi et al. 2023).
double bailey_normal_maximum(int workers, double mean, double deviation);

// The probability that at least k workers have finished, each with its own probability.
double probability_of_at_least(int k, std::span<const double> finished);

}  // namespace syncopate
