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
#include <vector>

namespace syncopate {

namespace {

void check(int k, int workers) {
  if (workers < 1 || k < 1 || k > workers) throw std::invalid_argument("an order statistic needs 1 <= k <= workers");
}

double normal_quantile(double p) { return boost::math::quantile(boost::math::normal(), p); }

// The k-th of M normal scores, after Blom.
double blom_score(int k, int workers) {
  check(k, workers);
  return normal_quantile((k - 0.375) / (workers + 0.25));
}

// The sum of 1 / i^power for i = M - k + 1 .. M.
double harmonic_tail(int k, int workers, int power) {
  check(k, workers);
  double sum = 0;
  for (int i = workers - k + 1; i <= workers; ++i) sum += 1 / std::pow(i, power);
  return sum;
}

// Before `low` a worker is certainly still at work, after `high` none is.
struct Reach {
  double low;
  double high;
};
Reach reach_of_maximum(std::span<const NormalTime> times) {
  if (times.empty()) throw std::invalid_argument("a maximum needs at least one worker");
  constexpr double certain = 9;  // deviations
  Reach reach{-std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()};
  for (const NormalTime& time : times) {
    reach.low = std::max(reach.low, time.mean - certain * time.deviation);
    reach.high = std::max(reach.high, time.mean + certain * time.deviation);
  }
  return reach;
}

// The probability that all workers are done by t.
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

template <typename Function>
double integral(const Function& function, double low, double high) {
  if (high <= low) return 0;
  constexpr unsigned depth = 12;
  constexpr double tolerance = 1e-8;
  return boost::math::quadrature::gauss_kronrod<double, 31>::integrate(function, low, high, depth, tolerance);
}

}  // namespace

double expected_order_statistic(const Quantile& quantile, int k, int workers) {
  check(k, workers);
  const boost::math::beta_distribution<double> place(k, workers - k + 1);
  // As a function of the score z of the uniform number the integrand falls off smoothly on both sides, whatever the
  // law's tail. Beyond 8.2 the probability is below the precision of a double.
  constexpr double limit = 8.2;
  const boost::math::normal score;
  const auto integrand = [&](double z) {
    const double u = boost::math::cdf(score, z);
    if (u <= 0 || u >= 1) return 0.0;
    const double weight = boost::math::pdf(place, u) * boost::math::pdf(score, z);
    return weight > 0 ? quantile(u) * weight : 0.0;
  };
  // With thousands of workers the peak is narrow: adaptive rules on both sides of it cannot miss it.
  const double peak = normal_quantile(k / (workers + 1.0));
  using Rule = boost::math::quadrature::gauss_kronrod<double, 31>;
  constexpr unsigned depth = 15;
  constexpr double tolerance = 1e-11;
  const double mean = Rule::integrate(integrand, -limit, peak, depth, tolerance) +
                      Rule::integrate(integrand, peak, limit, depth, tolerance);
  if (!std::isfinite(mean)) throw std::invalid_argument("this order statistic has no finite mean");
  return mean;
}

double expected_order_statistic(std::span<const double> ascending, int k, int workers) {
  check(k, workers);
  if (ascending.empty()) throw std::invalid_argument("an order statistic needs at least one value of the law");
  const boost::math::beta_distribution<double> place(k, workers - k + 1);
  const auto values = static_cast<double>(ascending.size());
  // The i-th smallest of n values is the result if the place lies between (i - 1) / n and i / n.
  double sum = 0, above = 1;
  for (std::size_t i = ascending.size(); i-- > 0 && above > 1e-15;) {
    const double below = i == 0 ? 0 : boost::math::cdf(place, static_cast<double>(i) / values);
    sum += ascending[i] * (above - below);
    above = below;
  }
  return sum + above * ascending.front();
}

double draw_order_statistic(const Quantile& quantile, int k, int workers, double uniform) {
  check(k, workers);
  return quantile(boost::math::quantile(boost::math::beta_distribution<double>(k, workers - k + 1), uniform));
}

double expected_exponential(int k, int workers, double rate) { return harmonic_tail(k, workers, 1) / rate; }

double variance_exponential(int k, int workers, double rate) { return harmonic_tail(k, workers, 2) / (rate * rate); }

double expected_pareto(int k, int workers, double scale, double shape) {
  check(k, workers);
  if (!(shape * (workers - k + 1) > 1))
    throw std::invalid_argument("the mean of this order statistic of a Pareto law does not exist");
  return scale * std::exp(std::lgamma(workers + 1.0) + std::lgamma(workers - k + 1 - 1 / shape) -
                          std::lgamma(workers - k + 1.0) - std::lgamma(workers + 1 - 1 / shape));
}

double expected_uniform(int k, int workers, double low, double high) {
  check(k, workers);
  return low + (high - low) * k / (workers + 1);
}

double blom_normal(int k, int workers, double mean, double deviation) {
  return mean + deviation * blom_score(k, workers);
}

double blom_lognormal(int k, int workers, double mu, double sigma) {
  return std::exp(mu + sigma * blom_score(k, workers));
}

double expected_maximum(std::span<const NormalTime> times) {
  return expected_maximum(times, std::numeric_limits<double>::infinity());
}

double expected_maximum(std::span<const NormalTime> times, double limit) {
  const auto [low, high] = reach_of_maximum(times);
  if (limit <= low) return limit;
  return low + integral([&](double t) { return 1 - all_done(times, t); }, low, std::min(high, limit));
}

// With low <= X: E[(X - low)^2] is the integral of 2 (t - low) P(X > t).
NormalTime law_of_maximum(std::span<const NormalTime> times) {
  const auto [low, high] = reach_of_maximum(times);
  const double above = integral([&](double t) { return 1 - all_done(times, t); }, low, high);
  const double square =
      integral([&, low = low](double t) { return 2 * (t - low) * (1 - all_done(times, t)); }, low, high);
  return {low + above, std::sqrt(std::max(0.0, square - above * above))};
}

NormalTime law_until(const NormalTime& time, double limit) {
  if (time.deviation == 0 || std::isinf(limit)) return {std::min(time.mean, limit), time.deviation};
  const boost::math::normal normal;
  const double z = (limit - time.mean) / time.deviation;
  const double before = boost::math::cdf(normal, z), after = boost::math::cdf(boost::math::complement(normal, z));
  const double density = boost::math::pdf(normal, z);
  // First and second moment of (min(limit, time) - mean) / deviation.
  const double first = z * after - density;
  const double second = before - z * density + z * z * after;
  return {time.mean + time.deviation * first, time.deviation * std::sqrt(std::max(0.0, second - first * first))};
}

double bailey_normal_maximum(int workers, double mean, double deviation) {
  if (workers < 2) throw std::invalid_argument("Bailey's approximation needs at least 2 workers");
  constexpr double gamma = boost::math::constants::euler<double>();
  const double n = workers;
  return mean + deviation *
                    ((1 - gamma) * normal_quantile(1 - 1 / n) + gamma * normal_quantile(1 - 1 / (std::numbers::e * n)));
}

double probability_of_at_least(int k, std::span<const double> finished) {
  std::vector<double> exactly(finished.size() + 1, 0.0);  // [j]: that j of the workers so far have
  exactly[0] = 1;
  std::size_t seen = 0;
  for (const double p : finished) {
    for (std::size_t j = ++seen; j > 0; --j) exactly[j] = exactly[j] * (1 - p) + exactly[j - 1] * p;
    exactly[0] *= 1 - p;
  }
  double sum = 0;
  for (std::size_t j = finished.size() + 1; j-- > 0 && static_cast<int>(j) >= k;) sum += exactly[j];
  return sum;
}

}  // namespace syncopate
