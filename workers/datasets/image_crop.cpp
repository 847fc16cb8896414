#include "workers/datasets/image_crop.hpp"

#include <algorithm>
#include <cassert>
#include <cstddef>

namespace syncopate {

// Row by row: what is outside is filled, what is inside is copied, and no pixel is asked where it lies.
void crop_and_flip(std::span<const std::uint8_t> in, const SampleShape& shape, const CropAndFlip& change,
                   std::span<std::uint8_t> out) {
  assert(std::ssize(in) == shape.features() && in.size() == out.size());
  const std::int64_t width = shape.width;
  const std::int64_t left = std::clamp<std::int64_t>(-change.right, 0, width);  // the columns of `out` that are inside
  const std::int64_t end = std::clamp<std::int64_t>(width - change.right, left, width);
  std::uint8_t* row = out.data();
  for (std::int64_t channel = 0; channel < shape.channels; ++channel) {
    const std::uint8_t* const plane = in.data() + channel * shape.height * width;
    for (std::int64_t y = 0; y < shape.height; ++y, row += width) {
      const std::int64_t from = y + change.down;
      const bool is_inside = from >= 0 && from < shape.height;
      const std::int64_t begin = is_inside ? left : width;
      std::fill_n(row, begin, std::uint8_t{0});
      if (!is_inside) continue;
      std::copy_n(plane + from * width + begin + change.right, end - begin, row + begin);
      std::fill_n(row + end, width - end, std::uint8_t{0});
      if (change.flip) std::reverse(row, row + width);
    }
  }
}

}  // namespace syncopate
