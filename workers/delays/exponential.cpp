#include "workers/delays/exponential.hpp"

#include <boost/math/distributions/exponential.hpp>

#include "workers/delays/limits.hpp"
#include "workers/delays/quantile_delay.hpp"

namespace syncopate {

std::shared_ptr<const DelayProcess> exponential_delay(double mean_s) {
  static const auto standard = std::make_shared<const QuantileTable>(
      [](double p) { return quantile(boost::math::exponential(), p); },
      [](double p) { return quantile(complement(boost::math::exponential(), p)); });
  return std::make_shared<QuantileDelay>(standard, 0.0, mean_s, mean_s);
}

std::shared_ptr<const DelayProcess> read_exponential_delay(Settings& settings, double unit_s) {
  return exponential_delay(unit_s * settings.number("mean", Range::between(0, longest_delay)));
}

}  // namespace syncopate
