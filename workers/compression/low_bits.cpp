#include "workers/compression/low_bits.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "workers/compression/packet_sizes.hpp"
#include "workers/compression/signs.hpp"
#include "workers/random/random.hpp"
#include "workers/training/flat_arithmetic.hpp"
#include "workers/training/vector_clones.hpp"

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

SYNCOPATE_VECTOR_CLONES
void write_levels(const float* __restrict values, std::size_t size, const Bins of, Level* __restrict levels) {
  constexpr float last = bins - 1;
  for (std::size_t i = 0; i < size; ++i) {
    const float at = (values[i] - of.low) * of.per_unit;
    const float within = at < 0 ? 0.0f : at > last ? last : at;
    levels[i] = static_cast<Level>(static_cast<std::int32_t>(within));
  }
}

// Values of one bin come one after another where these are alike: two sums each, so that they need not wait.
std::array<float, bins> means_of(std::span<const float> values, const Level* levels) {
  std::array<std::array<double, bins>, 2> sums{};
  std::array<std::array<std::int32_t, bins>, 2> counts{};
  const auto take = [&](std::size_t i, std::size_t lane) {
    sums[lane][levels[i]] += static_cast<double>(values[i]);
    ++counts[lane][levels[i]];
  };
  for (std::size_t i = 0; i + 1 < values.size(); i += 2) take(i, 0), take(i + 1, 1);
  if (values.size() % 2 == 1) take(values.size() - 1, 0);
  std::array<float, bins> means{};
  for (std::size_t b = 0; b < bins; ++b)
    if (const double count = static_cast<double>(counts[0][b]) + counts[1][b]; count > 0)
      means[b] = static_cast<float>((sums[0][b] + sums[1][b]) / count);
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
      write_levels(values.data(), values.size(), bins_of(values, options_.range_std), levels.data());
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

SYNCOPATE_VECTOR_CLONES
void write_nearest(const float* __restrict values, float scale, std::size_t size, std::uint8_t* __restrict codes) {
  for (std::size_t i = 0; i < size; ++i) {
    const float magnitude = std::fabs(values[i]) / scale;
    std::int32_t code = values[i] < 0 ? static_cast<std::int32_t>(sign) : 0;
    for (std::size_t c = 1; c < begins.size(); ++c) code += magnitude >= begins[c] ? 1 : 0;
    codes[i] = static_cast<std::uint8_t>(code);
  }
}

// The one above, with a probability that makes it right on average, or the one below.
std::uint32_t at_random(float magnitude, double uniform) {
  std::uint32_t below = 0;
  for (std::size_t c = 1; c < magnitudes.size(); ++c) below += magnitude >= magnitudes[c] ? 1 : 0;
  if (below == magnitudes.size() - 1) return below;
  const double low = magnitudes[below], high = magnitudes[below + 1];
  return below + (uniform * (high - low) < magnitude - low ? 1 : 0);
}

// The exponent's bits of a float are those of the code and 120 more.
inline float value_of(std::uint32_t code, float scale) {
  const std::uint32_t exponent = (code & 7u) == 0 ? 0u : (code & 7u) + 120u;
  return scale * std::bit_cast<float>((code & sign) << 28 | exponent << 23);
}

SYNCOPATE_VECTOR_CLONES
void take_out(const std::uint8_t* __restrict codes, float scale, std::size_t size, float* __restrict values) {
  for (std::size_t i = 0; i < size; ++i) values[i] -= value_of(codes[i], scale);
}

SYNCOPATE_VECTOR_CLONES
void add_values(const std::uint8_t* __restrict codes, float scale, std::size_t size, float* __restrict sum) {
  for (std::size_t i = 0; i < size; ++i) sum[i] += value_of(codes[i], scale);
}

// Eight codes a word, the first in the lowest bits.
void pack(const std::uint8_t* codes, std::span<std::uint32_t> words) {
  for (std::uint32_t& word : words) {
    word = 0;
    for (std::size_t i = 0; i < per_word; ++i) word |= static_cast<std::uint32_t>(codes[i]) << (4 * i);
    codes += per_word;
  }
}
void unpack(std::span<const std::uint32_t> words, std::uint8_t* codes) {
  for (const std::uint32_t word : words)
    for (std::size_t i = 0; i < per_word; ++i) *codes++ = static_cast<std::uint8_t>((word >> (4 * i)) & 15u);
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
  std::vector<std::uint8_t> codes(per_word * words.size());
  std::vector<double> uniform(options_.rounds_at_random ? bucket() : 0);
  for (std::size_t begin = 0; begin < p.size(); begin += bucket()) {
    const std::span<float> values = p.subspan(begin, std::min(bucket(), p.size() - begin));
    const float scale = *packet++ = scale_of(values);
    if (!(scale > 0)) continue;  // all of them are 0, or the scale makes them no numbers
    if (!options_.rounds_at_random) {
      write_nearest(values.data(), scale, values.size(), codes.data() + begin);
      take_out(codes.data() + begin, scale, values.size(), values.data());
      continue;
    }
    stream.fill_uniform(static_cast<std::uint32_t>(parts_.front().place + begin),
                        std::span(uniform).first(values.size()));
    for (std::size_t i = 0; i < values.size(); ++i)
      codes[begin + i] =
          static_cast<std::uint8_t>(at_random(std::fabs(values[i]) / scale, uniform[i]) | (values[i] < 0 ? sign : 0u));
    take_out(codes.data() + begin, scale, values.size(), values.data());
  }
  pack(codes.data(), words);
  std::memcpy(packet, words.data(), 4 * words.size());
}

void FourBitFloats::decode(const Received& received, std::span<float> sum) const {
  std::vector<std::uint32_t> words(words_of_bits(4 * sum.size()));
  std::vector<std::uint8_t> codes(per_word * words.size());
  for (const float* packet : received.packets) {
    std::memcpy(words.data(), packet + buckets(sum.size()), 4 * words.size());
    unpack(words, codes.data());
    for (std::size_t begin = 0; begin < sum.size(); begin += bucket())
      add_values(codes.data() + begin, *packet++, std::min(bucket(), sum.size() - begin), sum.data() + begin);
  }
}

}  // namespace syncopate
