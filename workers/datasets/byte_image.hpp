// One image of bytes that is being changed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "workers/datasets/dataset.hpp"

namespace syncopate {

struct ByteImage {
  std::span<std::uint8_t> pixels;  // (channels, height, width)
  SampleShape shape;

  std::size_t plane_size() const { return static_cast<std::size_t>(shape.height * shape.width); }
  std::span<std::uint8_t> plane(std::int64_t channel) const {
    return pixels.subspan(static_cast<std::size_t>(channel) * plane_size(), plane_size());
  }
};

}  // namespace syncopate
