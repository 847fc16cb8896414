#include "workers/training/curvature.hpp"

#include <cmath>
#include <numeric>

#include "workers/random/random.hpp"
#include "workers/random/standard_normal.hpp"

namespace syncopate {
namespace {

constexpr std::uint8_t start_stream = 0, sign_stream = 1;

double dot(std::span<const double> a, std::span<const double> b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

bool is_settled(double before, double after, double tolerance) {
  constexpr double nothing = 1e-12;
  return std::abs(after - before) <= tolerance * std::abs(before) + nothing;
}

// The eigenvalue of the largest magnitude of H - shift.
double dominant_eigenvalue(std::size_t size, const HessianProduct& product, double shift,
                           const CurvatureOptions& options) {
  std::vector<double> vector(size);
  fill_standard_normal({.seed = options.seed, .purpose = Purpose::measurement, .stream = start_stream}, 0, vector);
  double value = 0;
  for (int i = 0; i < options.most_products; ++i) {
    const double length = std::sqrt(dot(vector, vector));
    if (length == 0 || !std::isfinite(length)) return length == 0 ? 0 : length;
    for (double& element : vector) element /= length;
    std::vector<double> next = product(vector);
    for (std::size_t j = 0; j < size; ++j) next[j] -= shift * vector[j];
    const double before = value;
    value = dot(vector, next);
    vector = std::move(next);
    if (i > 0 && is_settled(before, value, options.tolerance)) break;
  }
  return value;
}

}  // namespace

double largest_eigenvalue(std::size_t size, const HessianProduct& product, const CurvatureOptions& options) {
  const double value = dominant_eigenvalue(size, product, 0, options);
  return value >= 0 || !std::isfinite(value) ? value : value + dominant_eigenvalue(size, product, value, options);
}

double hessian_trace(std::size_t size, const HessianProduct& product, const CurvatureOptions& options) {
  std::vector<double> signs(size);
  double mean = 0;
  for (int draw = 0; draw < options.most_products; ++draw) {
    const RandomStream stream{
        .seed = options.seed, .purpose = Purpose::measurement, .stream = sign_stream, .step = Step{draw}};
    stream.fill_uniform(0, signs);
    for (double& sign : signs) sign = sign < 0.5 ? -1 : 1;
    const double before = mean;
    mean += (dot(signs, product(signs)) - mean) / (draw + 1);
    if (draw > 0 && is_settled(before, mean, options.tolerance)) break;
  }
  return mean;
}

}  // namespace syncopate
