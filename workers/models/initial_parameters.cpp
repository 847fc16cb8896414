#include "workers/models/initial_parameters.hpp"

#include <algorithm>

#include "workers/random/standard_normal.hpp"

namespace syncopate {
namespace {

// Uniform in (-1, 1), or standard normal.
void draw(const RandomStream& stream, Initial::Law law, std::vector<double>& values) {
  if (law == Initial::Law::normal) return fill_standard_normal(stream, 0, values);
  stream.fill_uniform(0, values);
  for (double& value : values) value = 2 * value - 1;
}

}  // namespace

std::vector<float> initial_parameters(const Network& network, std::uint64_t seed) {
  std::vector<float> flat(network.parameter_floats());
  std::vector<double> values;
  for (std::size_t p = 0; p < network.parameters().size(); ++p) {
    const Parameter& parameter = network.parameters()[p];
    const auto begin = flat.begin() + static_cast<std::ptrdiff_t>(parameter.offset);
    if (parameter.given) {
      std::ranges::copy(*parameter.given, begin);
      continue;
    }
    const Initial& initial = parameter.initial;
    values.assign(parameter.size, 0);
    if (initial.spread > 0)
      draw({.seed = seed, .purpose = Purpose::initial_parameters, .step = static_cast<std::int64_t>(p)}, initial.law,
           values);
    std::ranges::transform(values, begin,
                           [&](double value) { return static_cast<float>(initial.centre + value * initial.spread); });
  }
  return flat;
}

}  // namespace syncopate
