#include "workers/delays/weibull.hpp"

#include <boost/math/distributions/weibull.hpp>
#include <cmath>

#include "workers/delays/limits.hpp"
#include "workers/delays/quantile_delay.hpp"

namespace syncopate {

std::shared_ptr<const DelayProcess> weibull_delay(double shape, double scale_s) {
  using boost::math::weibull;
  const auto standard =
      std::make_shared<const QuantileTable>([shape](double p) { return quantile(weibull(shape), p); },
                                            [shape](double p) { return quantile(complement(weibull(shape), p)); });
  const StandardMoments moments{mean(weibull(shape)), variance(weibull(shape)), 0};
  return std::make_shared<QuantileDelay>(standard, moments, 0.0, scale_s);
}

std::shared_ptr<const DelayProcess> read_weibull_delay(Settings& settings, double unit_s) {
  const double shape = settings.number({"shape", "The shape of the distribution."}, Range::between(0.05, 1e6));
  const double scale =
      settings.number({"scale", "The scale of the distribution.", of_unit}, Range::between(0, longest_delay));
  return weibull_delay(shape, unit_s * scale);
}

}  // namespace syncopate
