#include "workers/training/gradient_noise.hpp"

#include <cassert>
#include <cstddef>

namespace syncopate {

GradientNoise gradient_noise(std::size_t size, std::int64_t samples,
                             const std::function<std::vector<double>(std::int64_t sample)>& gradient_of) {
  assert(samples >= 2);
  const auto n = static_cast<double>(samples);
  std::vector<double> mean(size);
  double mean_square = 0;  // of the samples' norms
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    const std::vector<double> gradient = gradient_of(sample);
    for (std::size_t i = 0; i < size; ++i) {
      mean[i] += gradient[i] / n;
      mean_square += gradient[i] * gradient[i] / n;
    }
  }
  double square_of_mean = 0;
  for (const double element : mean) square_of_mean += element * element;
  GradientNoise noise{.variance = (mean_square - square_of_mean) * n / (n - 1)};
  const double square = square_of_mean - noise.variance / n;
  if (square > 0) noise.scale = noise.variance / square;
  return noise;
}

}  // namespace syncopate
