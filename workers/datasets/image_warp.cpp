#include "workers/datasets/image_warp.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

namespace syncopate {
namespace {

// Reads one plane of an image, whose pixels are written anew.
struct Plane {
  const std::uint8_t* pixels;
  std::int64_t height, width;

  const std::uint8_t* row(std::int64_t y) const { return pixels + std::clamp<std::int64_t>(y, 0, height - 1) * width; }
  std::size_t column(std::int64_t x) const {
    return static_cast<std::size_t>(std::clamp<std::int64_t>(x, 0, width - 1));
  }
};

// Places in 16ths of bits, as Pillow has them for images that are not huge: additions alone, with a known rounding.
constexpr int fraction_bits = 16;
std::int64_t fixed(double value) { return static_cast<std::int64_t>(std::floor(value * (1 << fraction_bits) + 0.5)); }

void warp_nearest(const Plane& in, const Warp& how, std::uint8_t* out) {
  std::int64_t row_x = fixed(how.x0 + how.xx * 0.5 + how.xy * 0.5), row_y = fixed(how.y0 + how.yx * 0.5 + how.yy * 0.5);
  for (std::int64_t y = 0; y < in.height; ++y, row_x += fixed(how.xy), row_y += fixed(how.yy)) {
    std::int64_t at_x = row_x, at_y = row_y;
    for (std::int64_t x = 0; x < in.width; ++x, at_x += fixed(how.xx), at_y += fixed(how.yx)) {
      const std::int64_t from_x = at_x >> fraction_bits, from_y = at_y >> fraction_bits;
      const bool is_inside = from_x >= 0 && from_x < in.width && from_y >= 0 && from_y < in.height;
      *out++ = is_inside ? in.pixels[from_y * in.width + from_x] : std::uint8_t{0};
    }
  }
}

double between(double a, double b, double share) { return a + (b - a) * share; }

// Beyond the outermost centres, but inside, the outermost pixels go on.
std::uint8_t interpolated(const Plane& in, double x, double y) {
  if (x < 0 || x >= static_cast<double>(in.width) || y < 0 || y >= static_cast<double>(in.height)) return 0;
  x -= 0.5, y -= 0.5;
  const auto left = static_cast<std::int64_t>(std::floor(x)), top = static_cast<std::int64_t>(std::floor(y));
  const double share_x = x - static_cast<double>(left), share_y = y - static_cast<double>(top);
  const auto of_row = [&](std::int64_t row) {
    const std::uint8_t* const pixels = in.row(row);
    return between(pixels[in.column(left)], pixels[in.column(left + 1)], share_x);
  };
  return static_cast<std::uint8_t>(between(of_row(top), of_row(top + 1), share_y));
}

void warp_bilinear(const Plane& in, const Warp& how, std::uint8_t* out) {
  for (std::int64_t row = 0; row < in.height; ++row)
    for (std::int64_t column = 0; column < in.width; ++column) {
      const double x = static_cast<double>(column) + 0.5, y = static_cast<double>(row) + 0.5;
      *out++ = interpolated(in, how.xx * x + how.xy * y + how.x0, how.yx * x + how.yy * y + how.y0);
    }
}

}  // namespace

Warp Warp::rotation(double degrees, const SampleShape& shape, double factor) {
  const double angle = degrees * std::numbers::pi / 180;
  const double c = std::cos(angle) / factor, s = std::sin(angle) / factor;
  const double x = static_cast<double>(shape.width) / 2, y = static_cast<double>(shape.height) / 2;
  return {.xx = c, .xy = -s, .x0 = x - c * x + s * y, .yx = s, .yy = c, .y0 = y - s * x - c * y};
}

void warp(const ByteImage& image, const Warp& how, Resampling resampling) {
  thread_local std::vector<std::uint8_t> before;
  before.assign(image.pixels.begin(), image.pixels.end());
  for (std::int64_t channel = 0; channel < image.shape.channels; ++channel) {
    const auto begin = static_cast<std::size_t>(channel) * image.plane_size();
    const Plane plane{.pixels = before.data() + begin, .height = image.shape.height, .width = image.shape.width};
    if (resampling == Resampling::nearest)
      warp_nearest(plane, how, image.pixels.data() + begin);
    else
      warp_bilinear(plane, how, image.pixels.data() + begin);
  }
}

}  // namespace syncopate
