#include "workers/delays/pareto.hpp"

#include <algorithm>
#include <boost/math/distributions/pareto.hpp>
#include <limits>

#include "workers/delays/limits.hpp"
#include "workers/delays/quantile_delay.hpp"

namespace syncopate {

std::shared_ptr<const DelayProcess> pareto_delay(double shape, double minimum_s) {
  using boost::math::pareto;
  const auto standard =
      std::make_shared<const QuantileTable>([shape](double p) { return quantile(pareto(1, shape), p); },
                                            [shape](double p) { return quantile(complement(pareto(1, shape), p)); });
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const double below_one = shape - 1, below_two = shape - 2;
  const StandardMoments moments{
      below_one > 0 ? shape / below_one : infinity,
      below_two > 0 ? shape / (below_one * below_one * below_two) : infinity,
      1,
  };
  return std::make_shared<QuantileDelay>(standard, moments, 0.0, minimum_s);
}

std::shared_ptr<const DelayProcess> read_pareto_delay(Settings& settings, double unit_s) {
  const double shape =
      settings.number({"shape", "The exponent of the tail; the mean is finite above 1, the variance above 2."},
                      Range::between(0.1, 1e6));
  // The key becomes known where it is written alone: it is none of this law's.
  if (std::ranges::count(settings.keys(), "scale") > 0 && settings.has("scale"))
    settings.fault("scale", "must be left out: a Pareto law has shape and minimum, which is its scale");
  const double minimum = settings.number({"minimum", "The shortest delay.", of_unit}, Range::between(0, longest_delay));
  return pareto_delay(shape, unit_s * minimum);
}

}  // namespace syncopate
