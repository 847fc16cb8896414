#include "workers/compression/low_bits.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "workers/compression/packet_sizes.hpp"
#include "workers/compression/signs.hpp"
#include "workers/random/random.hpp"
#include "workers/training/flat_arithmetic.hpp"

namespace syncopate {
namespace {

constexpr std::size_t bins = bins_of_bytes;
using Level = std::uint8_t;

// Where bins begin, and how many there are per unit; 0 where all values are alike, and in the first bin.
struct Bins {
  float low = 0;
  float per_unit = 0;
};

double sum_of(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value);
  return sum;
}

Bins bins_of(std::span<const float> values, double range_std) {
  const auto size = static_cast<double>(values.size());
  const double mean = sum_of(values) / size;
  const double square = sum_of_squares(values.data(), values.size()) / size - mean * mean;
  const double range = range_std * std::sqrt(std::max(0.0, square));
  const auto per_unit = static_cast<float>(bins / (2 * range));
  return {static_cast<float>(mean - range), range > 0 && std::isfinite(per_unit) ? per_unit : 0.0f};
}

void write_levels(std::span<const float> values, const Bins& of, Level* levels) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float at = (values[i] - of.low) * of.per_unit;
    levels[i] = static_cast<Level>(std::clamp(at, 0.0f, static_cast<float>(bins - 1)));
  }
}

std::array<float, bins> means_of(std::span<const float> values, const Level* levels) {
  std::array<double, bins> sums{};
  std::array<std::int64_t, bins> counts{};
  for (std::size_t i = 0; i < values.size(); ++i) {
    sums[levels[i]] += static_cast<double>(values[i]);
    ++counts[levels[i]];
  }
  std::array<float, bins> means{};
  for (std::size_t b = 0; b < bins; ++b)
    if (counts[b] > 0) means[b] = static_cast<float>(sums[b] / static_cast<double>(counts[b]));
  return means;
}

}  // namespace

UniformBins::UniformBins(const CompressionOptions& options, std::vector<Part> parts, std::uint64_t seed)
    : Compressor(options, seed), parts_(std::move(parts)) {
  std::size_t words = 0;
  for (const Part& part : parts_) words += packet_words(options, part.size);
  exchanges_ = {{Operation::all_gather, bytes_of_words(words)}};
}

// Per part: the bins' means, then the levels. What is not finite makes its whole part so.
void UniformBins::encode(Rank, Step, const float*, std::span<float> p, float* packet) const {
  std::vector<Level> levels;
  for (const Part& part : parts_) {
    const std::span<float> values = p.subspan(part.offset, part.size);
    levels.assign(4 * ((part.size + 3) / 4), 0);
    std::array<float, bins> means;
    if (std::isfinite(sum_of_squares(values.data(), values.size()))) {
      write_levels(values, bins_of(values, options_.range_std), levels.data());
      means = means_of(values, levels.data());
    } else {
      means.fill(std::numeric_limits<float>::quiet_NaN());
    }
    for (std::size_t i = 0; i < part.size; ++i) values[i] -= means[levels[i]];
    packet = std::ranges::copy(means, packet).out;
    std::memcpy(packet, levels.data(), levels.size());
    packet += levels.size() / 4;
  }
}

void UniformBins::decode(const Received& received, std::span<float> sum) const {
  std::vector<Level> levels;
  for (const float* packet : received.packets)
    for (const Part& part : parts_) {
      const float* const means = packet;
      levels.resize(4 * ((part.size + 3) / 4));
      std::memcpy(levels.data(), packet + bins, levels.size());
      float* const out = sum.data() + part.offset;
      for (std::size_t i = 0; i < part.size; ++i) out[i] += means[levels[i]];
      packet += packet_words(options_, part.size);
    }
}

namespace {

constexpr std::size_t per_word = 8;  // four bits each
constexpr std::uint32_t sign = 8;

// Of code c > 0: 2^(c - 7), the largest 1.
constexpr std::array<float, 8> magnitudes = {0, 1.0f / 64, 1.0f / 32, 1.0f / 16, 1.0f / 8, 1.0f / 4, 1.0f / 2, 1};
// Where code c begins when the nearest is taken: halfway from the one below.
constexpr std::array<float, 8> begins = {0, 1.0f / 128, 1.5f / 64, 1.5f / 32, 1.5f / 16, 1.5f / 8, 1.5f / 4, 1.5f / 2};

std::uint32_t nearest(float magnitude) {
  std::uint32_t code = 0;
  for (std::size_t c = 1; c < begins.size(); ++c) code += magnitude >= begins[c] ? 1 : 0;
  return code;
}

// The one above, with a probability that makes it right on average, or the one below.
std::uint32_t at_random(float magnitude, double uniform) {
  std::uint32_t below = 0;
  for (std::size_t c = 1; c < magnitudes.size(); ++c) below += magnitude >= magnitudes[c] ? 1 : 0;
  if (below == magnitudes.size() - 1) return below;
  const double low = magnitudes[below], high = magnitudes[below + 1];
  return below + (uniform * (high - low) < magnitude - low ? 1 : 0);
}

float value_of(std::uint32_t code, float scale) {
  const float magnitude = scale * magnitudes[code & 7u];
  return (code & sign) != 0 ? -magnitude : magnitude;
}

// Its largest magnitude; NaN where something is not finite.
float scale_of(std::span<const float> values) {
  if (!std::isfinite(sum_of_magnitudes(values.data(), values.size()))) return std::numeric_limits<float>::quiet_NaN();
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::fabs(value));
  return largest;
}

}  // namespace

FourBitFloats::FourBitFloats(const CompressionOptions& options, std::vector<Part> parts, std::uint64_t seed)
    : Compressor(options, seed), parts_(std::move(parts)) {
  exchanges_ = {{Operation::all_gather, bytes_of_words(packet_words(options, parts_.front().size))}};
}

// The scales, then the codes.
void FourBitFloats::encode(Rank worker, Step step, const float*, std::span<float> p, float* packet) const {
  const RandomStream stream{
      .seed = seed_, .purpose = Purpose::compression, .stream = 2, .worker = worker, .step = step};
  std::vector<std::uint32_t> words(words_of_bits(4 * p.size()));
  std::vector<double> uniform(options_.rounds_at_random ? bucket() : 0);
  for (std::size_t begin = 0; begin < p.size(); begin += bucket()) {
    const std::span<float> values = p.subspan(begin, std::min(bucket(), p.size() - begin));
    const float scale = *packet++ = scale_of(values);
    if (options_.rounds_at_random)
      stream.fill_uniform(static_cast<std::uint32_t>(parts_.front().place + begin),
                          std::span(uniform).first(values.size()));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float magnitude = scale > 0 ? std::min(1.0f, std::fabs(values[i]) / scale) : 0;
      std::uint32_t code = options_.rounds_at_random ? at_random(magnitude, uniform[i]) : nearest(magnitude);
      if (values[i] < 0) code |= sign;
      values[i] -= value_of(code, scale);
      words[(begin + i) / per_word] |= code << (4 * ((begin + i) % per_word));
    }
  }
  std::memcpy(packet, words.data(), 4 * words.size());
}

void FourBitFloats::decode(const Received& received, std::span<float> sum) const {
  std::vector<std::uint32_t> words(words_of_bits(4 * sum.size()));
  for (const float* packet : received.packets) {
    std::memcpy(words.data(), packet + buckets(sum.size()), 4 * words.size());
    for (std::size_t i = 0; i < sum.size(); ++i) {
      const std::uint32_t code = (words[i / per_word] >> (4 * (i % per_word))) & 15u;
      sum[i] += value_of(code, packet[i / bucket()]);
    }
  }
}

}  // namespace syncopate
