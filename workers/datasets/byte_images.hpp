// Labelled images whose pixels are bytes in memory.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "workers/datasets/dataset.hpp"
#include "workers/datasets/pixel_scale.hpp"

namespace syncopate {

struct ByteImages {
  std::vector<std::uint8_t> pixels;  // (n, channels, height, width)
  std::vector<std::uint8_t> labels;  // (n,), each below the number of classes
};

// `scales`: (channels,), for both splits.
std::shared_ptr<const Dataset> make_byte_images(const DatasetSize& size, ByteImages train, ByteImages test,
                                                std::vector<PixelScale> scales);

}  // namespace syncopate
