#include "workers/delays/exponential.hpp"

#include <boost/math/distributions/exponential.hpp>

#include "workers/delays/limits.hpp"
#include "workers/delays/quantile_delay.hpp"

namespace syncopate {

std::shared_ptr<const DelayProcess> exponential_delay(double mean_s) { return shifted_exponential_delay(0, mean_s); }

std::shared_ptr<const DelayProcess> shifted_exponential_delay(double shift_s, double mean_s) {
  static const auto standard = std::make_shared<const QuantileTable>(
      [](double p) { return quantile(boost::math::exponential(), p); },
      [](double p) { return quantile(complement(boost::math::exponential(), p)); });
  return std::make_shared<QuantileDelay>(standard, StandardMoments{1, 1, 0}, shift_s, mean_s);
}

std::shared_ptr<const DelayProcess> read_exponential_delay(Settings& settings, double unit_s) {
  return exponential_delay(unit_s *
                           settings.number({"mean", "The mean delay.", of_unit}, Range::between(0, longest_delay)));
}

std::shared_ptr<const DelayProcess> read_shifted_exponential_delay(Settings& settings, double unit_s) {
  const double shift = settings.number({"shift", "The shortest delay, to which the exponential one is added.", of_unit},
                                       Range::between(0, longest_delay));
  const double mean =
      settings.number({"mean", "The mean of the exponential part.", of_unit}, Range::between(0, longest_delay));
  return shifted_exponential_delay(unit_s * shift, unit_s * mean);
}

}  // namespace syncopate
