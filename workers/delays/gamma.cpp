#include "workers/delays/gamma.hpp"

#include <boost/math/distributions/gamma.hpp>

#include "workers/delays/limits.hpp"
#include "workers/delays/quantile_delay.hpp"

namespace syncopate {

std::shared_ptr<const DelayProcess> gamma_delay(double shape, double scale_s) {
  using boost::math::gamma_distribution;
  const auto standard = std::make_shared<const QuantileTable>(
      [shape](double p) { return quantile(gamma_distribution(shape), p); },
      [shape](double p) { return quantile(complement(gamma_distribution(shape), p)); });
  return std::make_shared<QuantileDelay>(standard, StandardMoments{shape, shape, 0}, 0.0, scale_s);
}

std::shared_ptr<const DelayProcess> read_gamma_delay(Settings& settings, double unit_s) {
  const double shape = settings.number({"shape", "The shape of the distribution."}, Range::between(0.01, 1e6));
  const double scale =
      settings.number({"scale", "The scale of the distribution.", of_unit}, Range::between(0, longest_delay));
  return gamma_delay(shape, unit_s * scale);
}

}  // namespace syncopate
