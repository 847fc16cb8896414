#include "workers/delays/normal.hpp"

#include <boost/math/distributions/normal.hpp>
#include <limits>

#include "workers/delays/limits.hpp"
#include "workers/delays/quantile_delay.hpp"

namespace syncopate {

std::shared_ptr<const DelayProcess> normal_delay(double mean_s, double standard_deviation_s) {
  static const auto standard =
      std::make_shared<const QuantileTable>([](double p) { return quantile(boost::math::normal(), p); },
                                            [](double p) { return quantile(complement(boost::math::normal(), p)); });
  const StandardMoments moments{0, 1, -std::numeric_limits<double>::infinity()};
  return std::make_shared<QuantileDelay>(standard, moments, mean_s, standard_deviation_s);
}

std::shared_ptr<const DelayProcess> read_normal_delay(Settings& settings, double unit_s) {
  const double mean =
      settings.number({"mean", "The mean delay.", of_unit}, Range::between(-longest_delay, longest_delay), 0.0);
  const double deviation =
      settings.number({"standard_deviation", "Its standard deviation.", of_unit}, Range::between(0, longest_delay));
  return normal_delay(unit_s * mean, unit_s * deviation);
}

}  // namespace syncopate
