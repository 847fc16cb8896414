// Exact means of order statistics, in closed form or by quadrature, as independent references.
// Source:  standard results.
// Units:   that of the distribution. k counts from 1 (the fastest) to M (the maximum).
#pragma once

#include <boost/math/distributions/beta.hpp>
#include <boost/math/distributions/normal.hpp>
#include <boost/math/quadrature/gauss_kronrod.hpp>
#include <cmath>
#include <functional>

namespace syncopate {

// E[X_(k:M)] and Var[X_(k:M)] of exponential times: sums of 1 / (rate i) and of its square over i = M - k + 1 .. M.
inline double expected_exponential(int k, int workers, double rate) {
  double sum = 0;
  for (int i = workers - k + 1; i <= workers; ++i) sum += 1 / (rate * i);
  return sum;
}

inline double variance_exponential(int k, int workers, double rate) {
  double sum = 0;
  for (int i = workers - k + 1; i <= workers; ++i) sum += 1 / (rate * i * rate * i);
  return sum;
}

// E[X_(k:M)] of any distribution with quantile function Q: the mean of Q(U) with U ~ Beta(k, M - k + 1).
inline double expected_order_statistic(const std::function<double(double)>& quantile, int k, int workers) {
  const boost::math::beta_distribution<double> place(k, workers - k + 1);
  // The integral is over z, the normal score of the uniform number. The integrand then decreases smoothly around its
  // peak, however heavy the distribution's tail is. Beyond |z| = 8.2 the probability is below a double's precision.
  constexpr double limit = 8.2;
  const boost::math::normal score;
  const auto integrand = [&](double z) {
    const double u = boost::math::cdf(score, z);
    if (u <= 0 || u >= 1) return 0.0;
    const double weight = boost::math::pdf(place, u) * boost::math::pdf(score, z);
    return weight > 0 ? quantile(u) * weight : 0.0;
  };
  // With thousands of workers the peak is narrow. Two adaptive rules that meet at the peak cannot miss it.
  const double peak = boost::math::quantile(score, k / (workers + 1.0));
  using Rule = boost::math::quadrature::gauss_kronrod<double, 31>;
  constexpr unsigned depth = 15;
  constexpr double tolerance = 1e-11;
  return Rule::integrate(integrand, -limit, peak, depth, tolerance) +
         Rule::integrate(integrand, peak, limit, depth, tolerance);
}

}  // namespace syncopate
