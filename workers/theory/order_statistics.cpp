#include "workers/theory/order_statistics.hpp"

#include <algorithm>
#include <boost/math/constants/constants.hpp>
#include <boost/math/distributions/beta.hpp>
#include <boost/math/distributions/normal.hpp>
#include <boost/math/quadrature/gauss_kronrod.hpp>
#include <cmath>
#include <limits>
#include <numbers>
#include <stdexcept>

namespace syncopate {

namespace {

void check(int k, int workers) {
  if (workers < 1 || k < 1 || k > workers) throw std::invalid_argument("an order statistic needs 1 <= k <= workers");
}

double normal_quantile(double p) { return boost::math::quantile(boost::math::normal(), p); }

// Before `low` some worker is almost certainly still computing; after `high` almost certainly none is.
struct Reach {
  double low;
  double high;
};
Reach reach_of_maximum(std::span<const NormalTime> times) {
  if (times.empty()) throw std::invalid_argument("a maximum needs at least one worker");
  constexpr double certain = 9;  // number of standard deviations
  Reach reach{-std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()};
  for (const NormalTime& time : times) {
    reach.low = std::max(reach.low, time.mean - certain * time.deviation);
    reach.high = std::max(reach.high, time.mean + certain * time.deviation);
  }
  return reach;
}

// The probability that all workers have finished at time t.
double all_done(std::span<const NormalTime> times, double t) {
  double probability = 1;
  for (const NormalTime& time : times) {
    if (time.deviation == 0 && t < time.mean) return 0;
    if (time.deviation == 0) continue;
    const double done = 0.5 * std::erfc((time.mean - t) / (std::numbers::sqrt2 * time.deviation));
    probability *= time.workers == 1 ? done : std::pow(done, time.workers);
    if (probability == 0) break;
  }
  return probability;
}

}  // namespace

double expected_order_statistic(std::span<const double> ascending, int k, int workers) {
  check(k, workers);
  if (ascending.empty()) throw std::invalid_argument("an order statistic needs at least one value of the distribution");
  const boost::math::beta_distribution<double> place(k, workers - k + 1);
  const auto values = static_cast<double>(ascending.size());
  // The result is the i-th smallest of n values if the quantile lies between (i - 1) / n and i / n.
  double sum = 0, above = 1;
  for (std::size_t i = ascending.size(); i-- > 0 && above > 1e-15;) {
    const double below = i == 0 ? 0 : boost::math::cdf(place, static_cast<double>(i) / values);
    sum += ascending[i] * (above - below);
    above = below;
  }
  return sum + above * ascending.front();
}

double expected_maximum(std::span<const NormalTime> times) {
  const auto [low, high] = reach_of_maximum(times);
  if (high <= low) return low;
  constexpr unsigned depth = 12;
  constexpr double tolerance = 1e-8;
  const auto still_at_work = [&](double t) { return 1 - all_done(times, t); };
  return low +
         boost::math::quadrature::gauss_kronrod<double, 31>::integrate(still_at_work, low, high, depth, tolerance);
}

double bailey_normal_maximum(int workers, double mean, double deviation) {
  if (workers < 2) throw std::invalid_argument("Bailey's approximation needs at least 2 workers");
  constexpr double gamma = boost::math::constants::euler<double>();
  const double n = workers;
  return mean + deviation *
                    ((1 - gamma) * normal_quantile(1 - 1 / n) + gamma * normal_quantile(1 - 1 / (std::numbers::e * n)));
}

}  // namespace syncopate
