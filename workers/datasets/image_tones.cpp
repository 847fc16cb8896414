#include "workers/datasets/image_tones.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <numeric>
#include <vector>

namespace syncopate {
namespace {

constexpr int tones = 256;
using Table = std::array<std::uint8_t, tones>;

template <typename Of>
Table table_of(const Of& of) {
  Table table{};
  for (int tone = 0; tone < tones; ++tone) table[static_cast<std::size_t>(tone)] = of(tone);
  return table;
}

void look_up(const Table& table, std::span<std::uint8_t> pixels) {
  for (std::uint8_t& pixel : pixels) pixel = table[pixel];
}

std::array<std::int64_t, tones> histogram(std::span<const std::uint8_t> pixels) {
  std::array<std::int64_t, tones> count{};
  for (const std::uint8_t pixel : pixels) ++count[pixel];
  return count;
}

// Pillow's grey of a pixel, in 16 bits of fraction.
std::vector<std::uint8_t> grey_of(const ByteImage& image) {
  const auto first = image.plane(0);
  if (image.shape.channels == 1) return {first.begin(), first.end()};
  assert(image.shape.channels == 3);
  constexpr std::uint32_t red = 19595, green = 38470, blue = 7471, half = 0x8000;
  std::vector<std::uint8_t> grey(image.plane_size());
  for (std::size_t i = 0; i < grey.size(); ++i)
    grey[i] =
        static_cast<std::uint8_t>((first[i] * red + image.plane(1)[i] * green + image.plane(2)[i] * blue + half) >> 16);
  return grey;
}

// From `from` to the pixels: the fraction is cut off, as a conversion to bytes does.
std::uint8_t blended(int from, int pixel, float factor) {
  const float value = static_cast<float>(from) + factor * static_cast<float>(pixel - from);
  return static_cast<std::uint8_t>(std::clamp(value, 0.0f, 255.0f));
}

void blend(std::span<const std::uint8_t> from, std::span<std::uint8_t> pixels, double factor) {
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = blended(from[i], pixels[i], static_cast<float>(factor));
}

// The mean of 3 x 3 pixels with the middle one five times, rounded; the border stays.
std::vector<std::uint8_t> smoothed(std::span<const std::uint8_t> plane, const SampleShape& shape) {
  std::vector<std::uint8_t> smooth(plane.begin(), plane.end());
  const auto width = static_cast<std::size_t>(shape.width), height = static_cast<std::size_t>(shape.height);
  for (std::size_t y = 1; y + 1 < height; ++y)
    for (std::size_t x = 1; x + 1 < width; ++x) {
      const std::size_t at = y * width + x;
      int sum = 4 * plane[at];
      for (const std::size_t row : {at - width, at, at + width}) sum += plane[row - 1] + plane[row] + plane[row + 1];
      smooth[at] = static_cast<std::uint8_t>((2 * sum + 13) / 26);
    }
  return smooth;
}

}  // namespace

void posterize(const ByteImage& image, int bits) {
  const auto mask = static_cast<std::uint8_t>(0xff00 >> bits);
  for (std::uint8_t& pixel : image.pixels) pixel &= mask;
}

void solarize(const ByteImage& image, double threshold) {
  look_up(table_of([&](int tone) { return static_cast<std::uint8_t>(tone < threshold ? tone : 255 - tone); }),
          image.pixels);
}

void autocontrast(const ByteImage& image) {
  for (std::int64_t channel = 0; channel < image.shape.channels; ++channel) {
    const auto plane = image.plane(channel);
    const auto [low, high] = std::ranges::minmax_element(plane);
    const int darkest = *low, brightest = *high;
    if (brightest <= darkest) continue;
    const double scale = 255.0 / (brightest - darkest), offset = -darkest * scale;
    look_up(table_of([&](int tone) {
              return static_cast<std::uint8_t>(std::clamp(static_cast<int>(tone * scale + offset), 0, 255));
            }),
            plane);
  }
}

// Every 255th of the pixels, those of the brightest tone left out, is a step upwards.
void equalize(const ByteImage& image) {
  for (std::int64_t channel = 0; channel < image.shape.channels; ++channel) {
    const auto plane = image.plane(channel);
    const auto count = histogram(plane);
    const auto step = (std::ssize(plane) - count[std::ranges::max(plane)]) / 255;
    if (step == 0) continue;
    std::int64_t below = step / 2;
    Table table{};
    for (std::size_t tone = 0; tone < tones; below += count[tone++])
      table[tone] = static_cast<std::uint8_t>(std::min<std::int64_t>(below / step, 255));
    look_up(table, plane);
  }
}

void brightness(const ByteImage& image, double factor) {
  look_up(table_of([&](int tone) { return blended(0, tone, static_cast<float>(factor)); }), image.pixels);
}

void contrast(const ByteImage& image, double factor) {
  const auto grey = grey_of(image);
  const auto sum = std::accumulate(grey.begin(), grey.end(), std::int64_t{0});
  const int mean = static_cast<int>(std::floor(static_cast<double>(sum) / static_cast<double>(grey.size()) + 0.5));
  look_up(table_of([&](int tone) { return blended(mean, tone, static_cast<float>(factor)); }), image.pixels);
}

void colour(const ByteImage& image, double factor) {
  if (image.shape.channels == 1) return;
  const auto grey = grey_of(image);
  for (std::int64_t channel = 0; channel < image.shape.channels; ++channel) blend(grey, image.plane(channel), factor);
}

void sharpness(const ByteImage& image, double factor) {
  for (std::int64_t channel = 0; channel < image.shape.channels; ++channel)
    blend(smoothed(image.plane(channel), image.shape), image.plane(channel), factor);
}

}  // namespace syncopate
