#include "algorithms/quorum/expected_gain.hpp"

#include <algorithm>
#include <cstddef>

namespace syncopate {

std::optional<GradientMoments> gradient_moments(double mean_squared_norm, double squared_norm_of_mean, int gradients) {
  if (gradients < 2) return std::nullopt;
  const double k = gradients;
  const double variance = std::max(0.0, k / (k - 1) * (mean_squared_norm - squared_norm_of_mean));
  return GradientMoments{.squared_norm = std::max(0.0, squared_norm_of_mean - variance / k), .variance = variance};
}

int best_gradients(const GradientMoments& moments, double rate_times_smoothness, std::span<const double> arrival_s) {
  const double noise_share = rate_times_smoothness / (2 - rate_times_smoothness);
  auto best = arrival_s.size();
  double best_gain_per_s = 0;
  for (std::size_t k = 1; k <= arrival_s.size(); ++k) {
    const double gain = moments.squared_norm - noise_share * moments.variance / static_cast<double>(k);
    const double gain_per_s = gain / arrival_s[k - 1];
    if (gain_per_s <= best_gain_per_s) continue;
    best_gain_per_s = gain_per_s;
    best = k;
  }
  return static_cast<int>(best);
}

}  // namespace syncopate
