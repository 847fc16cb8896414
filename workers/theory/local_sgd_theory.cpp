#include "workers/theory/local_sgd_theory.hpp"

#include <boost/math/distributions/normal.hpp>
#include <cmath>
#include <stdexcept>

#include "workers/theory/order_statistics.hpp"

namespace syncopate {

double expected_round_time(int workers, int period, double step_mean, double step_deviation, double synchronisation) {
  const double mean = period * step_mean, deviation = std::sqrt(period) * step_deviation;
  if (workers == 1 || deviation == 0) return mean + synchronisation;
  const auto quantile = [](double p) { return boost::math::quantile(boost::math::normal(), p); };
  return mean + deviation * expected_maximum(quantile, workers) + synchronisation;
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
