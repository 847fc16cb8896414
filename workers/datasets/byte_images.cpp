#include "workers/datasets/byte_images.hpp"

#include <array>
#include <cassert>
#include <utility>

namespace syncopate {
namespace {

class ByteImageDataset : public Dataset {
 public:
  ByteImageDataset(const DatasetSize& size, ByteImages train, ByteImages test, std::vector<PixelScale> scales)
      : size_(size), splits_{std::move(train), std::move(test)}, scales_(std::move(scales)) {
    assert(std::ssize(scales_) == size_.shape.channels);
    size_.has_byte_images = true;
  }

  const DatasetSize& size() const override { return size_; }

  void gather(Split split, std::span<const std::uint32_t> samples, float* inputs, std::int64_t* labels) const override {
    const ByteImages& images = splits_[split == Split::train ? 0 : 1];
    const auto features = static_cast<std::size_t>(size_.shape.features());
    // Rows lie anywhere in memory: asking for them early halves the time of a gather.
    constexpr std::size_t ahead = 2;
    constexpr std::size_t cache_line = 64;
    const auto fetch = [&](std::uint32_t sample) {
      const std::uint8_t* row = images.pixels.data() + sample * features;
      for (std::size_t p = 0; p < features; p += cache_line) __builtin_prefetch(row + p);
    };
    for (std::size_t i = 0; i < samples.size(); ++i) {
      if (i + ahead < samples.size()) fetch(samples[i + ahead]);
      normalise({images.pixels.data() + samples[i] * features, features}, scales_, inputs + i * features);
      labels[i] = images.labels[samples[i]];
    }
  }

  StoredImage stored_image(std::uint32_t sample) const override {
    const auto features = static_cast<std::size_t>(size_.shape.features());
    return {.pixels = {splits_[0].pixels.data() + sample * features, features}, .label = splits_[0].labels[sample]};
  }
  std::span<const PixelScale> pixel_scales() const override { return scales_; }

 private:
  DatasetSize size_;
  std::array<ByteImages, 2> splits_;
  std::vector<PixelScale> scales_;
};

}  // namespace

std::shared_ptr<const Dataset> make_byte_images(const DatasetSize& size, ByteImages train, ByteImages test,
                                                std::vector<PixelScale> scales) {
  return std::make_shared<ByteImageDataset>(size, std::move(train), std::move(test), std::move(scales));
}

}  // namespace syncopate
