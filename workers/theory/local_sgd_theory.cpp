#include "workers/theory/local_sgd_theory.hpp"

#include <algorithm>
#include <boost/math/distributions/normal.hpp>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <stdexcept>

#include "workers/theory/order_statistics.hpp"

namespace syncopate {

double expected_round_time(int workers, int period, double step_mean, double step_deviation, double synchronisation) {
  const double mean = period * step_mean, deviation = std::sqrt(period) * step_deviation;
  if (workers == 1 || deviation == 0) return mean + synchronisation;
  const auto quantile = [](double p) { return boost::math::quantile(boost::math::normal(), p); };
  return mean + deviation * expected_maximum(quantile, workers) + synchronisation;
}

double parallel_total(std::span<const double> step_times, int workers, double synchronisation) {
  return local_total(step_times, workers, 1, synchronisation);
}

double local_total(std::span<const double> step_times, int workers, int period, double synchronisation) {
  if (workers < 1 || period < 1 || step_times.size() % static_cast<std::size_t>(workers) != 0)
    throw std::invalid_argument("recorded step times must be as many for each worker, in rounds of at least a step");
  const std::size_t steps = step_times.size() / static_cast<std::size_t>(workers);
  double total = 0;
  for (std::size_t first = 0; first < steps; first += static_cast<std::size_t>(period)) {
    const std::size_t count = std::min(static_cast<std::size_t>(period), steps - first);
    double slowest = 0;
    for (std::size_t worker = 0; worker < step_times.size() / steps; ++worker) {
      const auto own = step_times.subspan(worker * steps + first, count);
      slowest = std::max(slowest, std::accumulate(own.begin(), own.end(), 0.0));
    }
    total += slowest + synchronisation;
  }
  return total;
}

CommunicationEstimate estimate_communication(double data_parallel_total, double other_total, double volume) {
  if (!(volume >= 0 && volume < 1))
    throw std::invalid_argument("the second run must synchronise less often than after each step");
  CommunicationEstimate estimate;
  estimate.communication = (data_parallel_total - other_total) / (1 - volume);
  estimate.computation = data_parallel_total - estimate.communication;
  return estimate;
}

}  // namespace syncopate
