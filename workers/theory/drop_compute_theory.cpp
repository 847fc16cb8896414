#include "workers/theory/drop_compute_theory.hpp"

#include <algorithm>
#include <boost/math/distributions/normal.hpp>
#include <boost/math/tools/minima.hpp>
#include <cmath>
#include <limits>

#include "workers/theory/order_statistics.hpp"

namespace syncopate {

double expected_micro_batches(int micro_batches, double threshold, const MicroBatchLaw& law) {
  const boost::math::normal normal;
  double sum = 0;
  for (int m = 1; m <= micro_batches; ++m) {
    const double slack = threshold - m * law.mean;
    const double deviation = std::sqrt(m) * law.deviation;
    sum += deviation > 0 ? boost::math::cdf(normal, slack / deviation) : slack > 0 ? 1 : 0;
  }
  return sum;
}

double expected_slowest_worker(int workers, int micro_batches, const MicroBatchLaw& law) {
  return bailey_normal_maximum(workers, micro_batches * law.mean, std::sqrt(micro_batches) * law.deviation);
}

double effective_speedup(double completed, int micro_batches, double threshold, double slowest, double serial) {
  return completed * (slowest + serial) / (micro_batches * (std::min(threshold, slowest) + serial));
}

BestThreshold best_threshold(int micro_batches, const MicroBatchLaw& law, double slowest, double serial,
                             double maximum_drop_rate, double shortest) {
  const auto drop_rate = [&](double threshold) {
    return 1 - expected_micro_batches(micro_batches, threshold, law) / micro_batches;
  };
  const auto speedup = [&](double threshold) {
    return effective_speedup(micro_batches * (1 - drop_rate(threshold)), micro_batches, threshold, slowest, serial);
  };
  // The function has several local maxima, one behind each m mu, where micro-batches vary little: a grid finds the
  // best, Brent's method its top.
  constexpr int grid = 400;
  const double step = slowest / grid;
  double best = std::numeric_limits<double>::infinity();
  const auto try_it = [&](double threshold) {
    if (threshold >= shortest && drop_rate(threshold) <= maximum_drop_rate && speedup(threshold) > speedup(best))
      best = threshold;
  };
  for (int i = 1; i <= grid; ++i) try_it(i * step);
  if (std::isinf(best)) return {.threshold = best, .speedup = 1, .drop_rate = 0};
  const double low = std::max({best - step, step / 2, shortest}), high = std::min(best + step, slowest);
  try_it(boost::math::tools::brent_find_minima([&](double t) { return -speedup(t); }, low, high, 40).first);
  return {.threshold = best, .speedup = speedup(best), .drop_rate = drop_rate(best)};
}

}  // namespace syncopate
