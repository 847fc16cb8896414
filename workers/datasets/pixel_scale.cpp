#include "workers/datasets/pixel_scale.hpp"

#include <array>
#include <cmath>

#include "workers/training/vector_clones.hpp"

namespace syncopate {
namespace {

// Subtraction first, so that there is no multiply-add that only some of the clones would fuse.
SYNCOPATE_VECTOR_CLONES
void normalise_plane(std::span<const std::uint8_t> pixels, float mean, float factor, float* out) {
  for (std::size_t p = 0; p < pixels.size(); ++p) out[p] = (static_cast<float>(pixels[p]) - mean) * factor;
}

// Sums over bytes are exact in integers: a histogram gives the same constants in any order.
PixelScale scale_of(const std::array<std::int64_t, 256>& count) {
  double pixels = 0, mean = 0, variance = 0;
  for (const std::int64_t n : count) pixels += static_cast<double>(n);
  for (std::size_t value = 0; value < count.size(); ++value)
    mean += static_cast<double>(value) * static_cast<double>(count[value]) / pixels;
  for (std::size_t value = 0; value < count.size(); ++value) {
    const double away = static_cast<double>(value) - mean;
    variance += away * away * static_cast<double>(count[value]) / pixels;
  }
  const double deviation = variance > 0 ? std::sqrt(variance) : 1;
  return {static_cast<float>(mean), static_cast<float>(1 / deviation)};
}

}  // namespace

std::vector<PixelScale> measured_scales(std::span<const std::uint8_t> pixels, const SampleShape& shape) {
  const auto channels = static_cast<std::size_t>(shape.channels);
  const auto plane = static_cast<std::size_t>(shape.height * shape.width);
  std::vector<std::array<std::int64_t, 256>> counts(channels);
  for (std::size_t begin = 0; begin < pixels.size(); begin += plane) {
    auto& count = counts[begin / plane % channels];
    for (const std::uint8_t pixel : pixels.subspan(begin, plane)) ++count[pixel];
  }
  std::vector<PixelScale> scales;
  for (const auto& count : counts) scales.push_back(scale_of(count));
  return scales;
}

void normalise(std::span<const std::uint8_t> pixels, std::span<const PixelScale> scales, float* out) {
  const std::size_t plane = pixels.size() / scales.size();
  for (std::size_t channel = 0; channel < scales.size(); ++channel)
    normalise_plane(pixels.subspan(channel * plane, plane), scales[channel].mean, scales[channel].factor,
                    out + channel * plane);
}

}  // namespace syncopate
