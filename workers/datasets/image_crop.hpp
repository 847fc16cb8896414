// Crops and flips of images (channels, height, width) of bytes.
#pragma once

#include <cstdint>
#include <span>

#include "workers/datasets/dataset.hpp"

namespace syncopate {

struct CropAndFlip {
  std::int64_t down = 0;  // out(y, x) = in(y + down, x + right), black where that is outside
  std::int64_t right = 0;
  bool flip = false;  // afterwards, left and right
};

// `out` must not overlap `in`.
void crop_and_flip(std::span<const std::uint8_t> in, const SampleShape& shape, const CropAndFlip& change,
                   std::span<std::uint8_t> out);

}  // namespace syncopate
