#include "workers/delays/lognormal.hpp"

#include <boost/math/distributions/lognormal.hpp>
#include <cmath>

#include "workers/delays/limits.hpp"
#include "workers/delays/quantile_delay.hpp"

namespace syncopate {

std::shared_ptr<const DelayProcess> lognormal_delay(double mu, double sigma, double scale_s) {
  using boost::math::lognormal;
  const auto standard =
      std::make_shared<const QuantileTable>([sigma](double p) { return quantile(lognormal(0, sigma), p); },
                                            [sigma](double p) { return quantile(complement(lognormal(0, sigma), p)); });
  const double square = sigma * sigma;
  const StandardMoments moments{std::exp(square / 2), std::expm1(square) * std::exp(square), 0};
  return std::make_shared<QuantileDelay>(standard, moments, 0.0, scale_s * std::exp(mu));
}

std::shared_ptr<const DelayProcess> read_lognormal_delay(Settings& settings, double unit_s) {
  const double mu = settings.number({"mu", "The mean of the logarithm."}, Range::between(-50, 50));
  const double sigma =
      settings.number({"sigma", "The standard deviation of the logarithm."}, Range::between(0.001, 10));
  const double scale = settings.number({"scale", "What the log-normal number is multiplied by.", of_unit},
                                       Range::between(0, longest_delay), 1.0);
  return lognormal_delay(mu, sigma, unit_s * scale);
}

}  // namespace syncopate
