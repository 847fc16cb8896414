#include "workers/data/dataset.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <utility>

#include "workers/training/vector_clones.hpp"

namespace syncopate {

std::int64_t Dataset::length(Split split, std::uint32_t sample) const {
  std::vector<std::int32_t> space;
  return std::ssize(tokens(split, sample, {}, space));
}

namespace {

// Subtracts first, so that the compiler finds no multiply-add, which it would fuse in some clones only.
SYNCOPATE_VECTOR_CLONES
void normalise_plane(std::span<const std::uint8_t> pixels, float mean, float factor, float* out) {
  for (std::size_t p = 0; p < pixels.size(); ++p) out[p] = (static_cast<float>(pixels[p]) - mean) * factor;
}

// Uses a histogram: its integers are exact, so the result does not depend on the order of the pixels.
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

class RowsDataset : public Dataset {
 public:
  RowsDataset(const DatasetSize& size, SampleRows train, SampleRows test, std::vector<PixelScale> scales)
      : size_(size), splits_{std::move(train), std::move(test)}, scales_(std::move(scales)) {
    if (splits_.train.bytes && scales_.empty())
      scales_ = measured_scales({splits_.train.bytes, static_cast<std::size_t>(size.train * size.shape.features())},
                                size.shape);
  }

  const DatasetSize& size() const override { return size_; }

  void gather(Split split, std::span<const std::uint32_t> samples, float* inputs, std::int64_t* labels) const override {
    const SampleRows& rows = splits_[split];
    const auto features = static_cast<std::size_t>(size_.shape.features());
    // Rows are scattered in memory, so prefetching them halves the time of a gather.
    constexpr std::size_t ahead = 2;
    constexpr std::size_t cache_line = 64;
    for (std::size_t i = 0; i < samples.size(); ++i) {
      if (rows.floats) {
        std::copy_n(rows.floats + samples[i] * features, features, inputs + i * features);
      } else {
        if (i + ahead < samples.size())
          for (std::size_t p = 0; p < features; p += cache_line)
            __builtin_prefetch(rows.bytes + samples[i + ahead] * features + p);
        normalise({rows.bytes + samples[i] * features, features}, scales_, inputs + i * features);
      }
      labels[i] = rows.labels[samples[i]];
    }
  }

  void gather_targets(Split split, std::span<const std::uint32_t> samples, float* targets) const override {
    if (size_.targets == 0) return Dataset::gather_targets(split, samples, targets);
    for (const std::uint32_t sample : samples)
      targets = std::copy_n(splits_[split].targets + sample * size_.targets, size_.targets, targets);
  }

  StoredImage stored_image(std::uint32_t sample) const override {
    const auto features = static_cast<std::size_t>(size_.shape.features());
    const SampleRows& rows = splits_.train;
    return {.pixels = {rows.bytes + sample * features, features}, .label = rows.labels[sample]};
  }
  std::span<const PixelScale> pixel_scales() const override { return scales_; }

 private:
  DatasetSize size_;
  Splits<SampleRows> splits_;
  std::vector<PixelScale> scales_;
};

}  // namespace

std::shared_ptr<const Dataset> make_dataset(const DatasetSize& size, SampleRows train, SampleRows test,
                                            std::vector<PixelScale> scales) {
  return std::make_shared<RowsDataset>(size, std::move(train), std::move(test), std::move(scales));
}

void normalise(std::span<const std::uint8_t> pixels, std::span<const PixelScale> scales, float* out) {
  const std::size_t plane = pixels.size() / scales.size();
  for (std::size_t channel = 0; channel < scales.size(); ++channel)
    normalise_plane(pixels.subspan(channel * plane, plane), scales[channel].mean, scales[channel].factor,
                    out + channel * plane);
}

MaskedText mask(std::span<const std::int32_t> tokens, const DatasetSize& size, const MaskingOptions& options,
                const RandomStream& stream) {
  assert(size.marks.mask >= 0);
  const std::vector<std::int32_t>& never = size.marks.never_masked;
  std::vector<std::int32_t> candidates;
  for (std::size_t place = 0; place < tokens.size(); ++place)
    if (std::ranges::find(never, tokens[place]) == never.end()) candidates.push_back(static_cast<std::int32_t>(place));
  // Rounds halves to even, as BERT's Python code does.
  const auto share = static_cast<std::int64_t>(std::nearbyint(options.share * static_cast<double>(tokens.size())));
  const std::int64_t wanted = std::min(options.most, std::max<std::int64_t>(1, share));
  const auto count = static_cast<int>(std::min(wanted, std::ssize(candidates)));

  MaskedText masked{.tokens = {tokens.begin(), tokens.end()}};
  for (const int chosen : draw_set(static_cast<int>(candidates.size()), count, stream))
    masked.places.push_back(candidates[static_cast<std::size_t>(chosen)]);
  std::ranges::sort(masked.places);
  std::uint32_t index = static_cast<std::uint32_t>(count);
  for (const std::int32_t place : masked.places) {
    const double kind = stream.uniform(index++), any = stream.uniform(index++);
    std::int32_t& shown = masked.tokens[static_cast<std::size_t>(place)];
    if (kind < 0.8)
      shown = size.marks.mask;
    else if (kind >= 0.9)
      shown = static_cast<std::int32_t>(any * static_cast<double>(size.shape.vocabulary));
  }
  return masked;
}

RandomStream masking_stream(std::uint64_t seed, Split split, std::uint32_t sample, std::int64_t epoch,
                            const MaskingOptions& options) {
  constexpr std::uint8_t dynamic_stream = 0, test_stream = 1, copy_stream = 2, validation_stream = 3;
  RandomStream stream{.seed = seed,
                      .purpose = Purpose::masking,
                      .stream = dynamic_stream,
                      .worker = Rank(static_cast<int>(sample)),
                      .step = epoch};
  if (split != Split::train) {
    stream.stream = split == Split::test ? test_stream : validation_stream;
    stream.step = 0;
  } else if (options.copies > 0) {
    stream.stream = copy_stream;
    stream.step = epoch % options.copies;
  }
  return stream;
}

}  // namespace syncopate
