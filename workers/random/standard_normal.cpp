#include "workers/random/standard_normal.hpp"

#include <boost/math/special_functions/erf.hpp>
#include <numbers>

namespace syncopate {

void fill_standard_normal(const RandomStream& stream, std::uint32_t first, std::span<double> out) {
  stream.fill_uniform(first, out);
  for (double& u : out) u = -std::numbers::sqrt2 * boost::math::erfc_inv(2 * u);
}

}  // namespace syncopate
