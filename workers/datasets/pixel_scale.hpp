// Pixels are bytes in memory, and numbers of mean 0 and deviation 1 on the way to the model, channel by channel.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "workers/datasets/dataset.hpp"

namespace syncopate {

// A pixel becomes (pixel - mean) x factor.
struct PixelScale {
  float mean = 0;
  float factor = 1;  // 1 / deviation
};

// Over all `pixels` (n, channels, height, width); a channel of one value has a factor of 1. (channels,)
std::vector<PixelScale> measured_scales(std::span<const std::uint8_t> pixels, const SampleShape& shape);

// One sample, (channels, height, width), by scales (channels,).
void normalise(std::span<const std::uint8_t> pixels, std::span<const PixelScale> scales, float* out);

}  // namespace syncopate
