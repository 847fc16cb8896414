// Shared by tests of compression: gradients for which every compressed step is known.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "tests/workers/listed_gradients.hpp"

namespace syncopate {

// Four gradients for each of two workers, and the steps along their mean under top-1 compression with error feedback.
inline const std::vector<std::vector<std::vector<float>>> golden = {
    {{1, -0.5f, 0.25f}, {0.2f, 0.4f, -0.6f}, {0.3f, 0.3f, 0.3f}, {-1, 0.1f, 0.2f}},
    {{0, 1, -1}, {0.5f, 0.5f, 0.5f}, {-0.2f, 0.9f, 0.1f}, {0.4f, -0.4f, 0.8f}}};
inline const std::vector<std::vector<double>> golden_steps = {
    {0.5, 0.5, 0}, {0.25, 0, -0.175}, {0.25, 0.7, 0}, {-0.5, -0.2, 0}};

inline float noise_of(const MicroBatch& at, std::size_t i) {
  std::mt19937 engine(static_cast<unsigned>(1000 * at.worker.value + at.step.value() + 77 * static_cast<int>(i)));
  return std::uniform_real_distribution<float>(-1, 1)(engine);
}

// Gradients are noise in each worker's first `active` steps and zero after that, so that only residuals are sent.
inline std::shared_ptr<const Objective> noise_at_first(std::size_t size, int active,
                                                       std::vector<ParameterTensor> tensors = {}) {
  const auto listed = [size, active](const MicroBatch& at) {
    std::vector<float> values(size);
    for (std::size_t i = 0; i < size && at.step < active; ++i) values[i] = noise_of(at, i);
    return values;
  };
  return std::make_shared<ListedGradients>(size, listed, std::move(tensors));
}

inline double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = a.size() == b.size() ? 0 : std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i)
    largest = std::max(largest, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return largest;
}

}  // namespace syncopate
