#include "workers/compression/quantisers.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <type_traits>

#include "workers/compression/packet_sizes.hpp"
#include "workers/compression/signs.hpp"
#include "workers/random/random.hpp"
#include "workers/training/flat_arithmetic.hpp"

namespace syncopate {

namespace {

constexpr std::size_t words_at_once = 64, piece = 32 * words_at_once;

}  // namespace

ScaledSign::ScaledSign(const CompressionOptions& options, std::vector<Part> parts, std::uint64_t seed)
    : Compressor(options, seed), parts_(std::move(parts)) {
  std::size_t words = 0;
  for (const Part& part : parts_) words += packet_words(options, part.size);
  exchanges_ = {{Operation::all_gather, bytes_of_words(words)}};
}

// Per part: the mean magnitude, then the signs.
void ScaledSign::encode(Rank, Step, const float*, std::span<float> p, float* packet) const {
  std::vector<std::uint32_t> words;
  for (const Part& part : parts_) {
    float* const values = p.data() + part.offset;
    const auto size = static_cast<double>(part.size);
    const auto scale = static_cast<float>(options_.l2_scale ? std::sqrt(sum_of_squares(values, part.size) / size)
                                                            : sum_of_magnitudes(values, part.size) / size);
    words.resize(words_of_bits(part.size));
    for (std::size_t at = 0; at < part.size; at += piece) {  // which stays in the nearest cache between the two
      const std::size_t count = std::min(piece, part.size - at);
      pack_signs(values + at, count, words.data() + at / 32);
      take_out_signs(values + at, scale, count);
    }
    *packet = scale;
    std::memcpy(packet + 1, words.data(), 4 * words.size());
    packet += 1 + words.size();
  }
}

namespace {

// Adds what all packets have of a part, from the word `begin` on: a magnitude, and signs. Piece by piece, so that the
// sum's piece stays in the nearest cache.
void add_scaled_signs(std::span<const float* const> packets, std::size_t begin, std::span<float> sum) {
  std::uint32_t words[words_at_once];
  for (std::size_t at = 0; at < sum.size(); at += piece) {
    const std::size_t size = std::min(piece, sum.size() - at);
    for (const float* const packet : packets) {
      std::memcpy(words, packet + begin + 1 + at / 32, 4 * words_of_bits(size));
      add_signs(words, packet[begin], size, sum.data() + at);
    }
  }
}

}  // namespace

void ScaledSign::decode(const Received& received, std::span<float> sum) const {
  std::size_t begin = 0;
  for (const Part& part : parts_) {
    add_scaled_signs(received.packets, begin, sum.subspan(part.offset, part.size));
    begin += packet_words(options_, part.size);
  }
}

namespace {

std::vector<float> negation_of(std::span<const float> values) {
  std::vector<float> negated(values.size());
  std::ranges::transform(values, negated.begin(), std::negate<>());
  return negated;
}

}  // namespace

MajorityVote::MajorityVote(const CompressionOptions& options, const std::vector<Part>& parts, std::uint64_t seed)
    : Compressor(options, seed) {
  exchanges_ = {{Operation::all_gather, bytes_of_words(packet_words(options, parts.front().size))}};
}

// What is in p stays: it is no residual. The packet's first number is what its signs count. Where zeros abstain, each
// value has two votes, which a zero gives to either side.
void MajorityVote::encode(Rank, Step, const float*, std::span<float> p, float* packet) const {
  const double magnitude = sum_of_magnitudes(p.data(), p.size());
  *packet = !std::isfinite(magnitude) ? std::numeric_limits<float>::quiet_NaN() : magnitude > 0 ? 1 : 0;
  std::vector<std::uint32_t> words(words_of_bits(p.size()));
  if (!options_.zeros_abstain) {
    pack_signs(p.data(), p.size(), words.data());
    std::memcpy(packet + 1, words.data(), 4 * words.size());
    return;
  }
  pack_below_zero(p.data(), p.size(), words.data());
  std::memcpy(packet + 1, words.data(), 4 * words.size());
  float* const second = packet + 1 + words.size();
  *second = *packet;
  const std::vector<float> negated = negation_of(p);
  pack_below_zero(negated.data(), negated.size(), words.data());
  for (std::uint32_t& word : words) word = ~word;
  std::memcpy(second + 1, words.data(), 4 * words.size());
}

// Times the number of micro-batches, by which a method divides.
void MajorityVote::decode(const Received& received, std::span<float> sum) const {
  add_scaled_signs(received.packets, 0, sum);
  if (options_.zeros_abstain) add_scaled_signs(received.packets, 1 + words_of_bits(sum.size()), sum);
  write_signs(sum.data(), static_cast<float>(received.micro_batches), sum.size());
}

Qsgd::Qsgd(const CompressionOptions& options, std::vector<Part> parts, std::uint64_t seed)
    : Compressor(options, seed), parts_(std::move(parts)) {
  std::size_t words = 0;
  for (const Part& part : parts_) words += packet_words(options, part.size);
  exchanges_ = {{Operation::all_gather, bytes_of_words(words)}};
}

std::size_t Qsgd::buckets(std::size_t size) const {
  const auto bucket = static_cast<std::size_t>(options_.bucket);
  return (size + bucket - 1) / bucket;
}

namespace {

// Calls `use` with the number of bits as a constant, by which places in words need no division.
template <typename Use>
void with_bits(std::size_t bits, const Use& use) {
  if (bits == 2) return use(std::integral_constant<std::size_t, 2>());
  if (bits == 4) return use(std::integral_constant<std::size_t, 4>());
  use(std::integral_constant<std::size_t, 8>());
}

// Levels from -s to s, which s is added to.
template <std::size_t bits>
void write_levels(std::span<const float> values, std::span<const double> uniform, double factor, int most,
                  std::size_t at, std::vector<std::uint32_t>& words) {
  constexpr std::size_t per_word = 32 / bits;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double value = factor > 0 ? values[i] : 0;
    const int level = std::min(most, static_cast<int>(factor * std::abs(value) + uniform[i]));
    const auto shifted = static_cast<std::uint32_t>(most + (value < 0 ? -level : level));
    words[(at + i) / per_word] |= shifted << (bits * ((at + i) % per_word));
  }
}

template <std::size_t bits>
void add_levels(const std::vector<std::uint32_t>& words, float factor, int most, std::size_t begin,
                std::span<float> sum) {
  constexpr std::size_t per_word = 32 / bits;
  constexpr std::uint32_t mask = (1u << bits) - 1;
  for (std::size_t i = 0; i < sum.size(); ++i) {
    const std::size_t at = begin + i;
    const std::uint32_t shifted = (words[at / per_word] >> (bits * (at % per_word))) & mask;
    sum[i] += factor * static_cast<float>(static_cast<int>(shifted) - most);
  }
}

}  // namespace

// Per part: the norms, then the levels. A norm that is not finite makes its bucket so.
void Qsgd::encode(Rank worker, Step step, const float*, std::span<float> p, float* packet) const {
  const auto bucket = static_cast<std::size_t>(options_.bucket);
  const std::size_t bits = bits_of_levels(options_.levels);
  const RandomStream stream{
      .seed = seed_, .purpose = Purpose::compression, .stream = 1, .worker = worker, .step = step};
  std::vector<std::uint32_t> words;
  std::vector<double> uniform(bucket);
  for (const Part& part : parts_) {
    const std::span<const float> values = p.subspan(part.offset, part.size);
    words.assign(words_of_bits(part.size * bits), 0);
    with_bits(bits, [&](auto bits_of_each) {
      for (std::size_t at = 0; at < values.size(); at += bucket) {
        const std::size_t size = std::min(bucket, values.size() - at);
        const double norm = std::sqrt(sum_of_squares(values.data() + at, size));
        *packet++ = static_cast<float>(norm);
        const double factor = norm > 0 && std::isfinite(norm) ? options_.levels / norm : 0;
        stream.fill_uniform(static_cast<std::uint32_t>(part.place + at), std::span(uniform).first(size));
        write_levels<bits_of_each()>(values.subspan(at, size), uniform, factor, options_.levels, at, words);
      }
    });
    std::memcpy(packet, words.data(), 4 * words.size());
    packet += words.size();
  }
}

void Qsgd::decode(const Received& received, std::span<float> sum) const {
  const auto bucket = static_cast<std::size_t>(options_.bucket);
  const std::size_t bits = bits_of_levels(options_.levels);
  std::vector<std::uint32_t> words;
  for (const float* packet : received.packets)
    for (const Part& part : parts_) {
      const std::span<float> values = sum.subspan(part.offset, part.size);
      words.resize(words_of_bits(part.size * bits));
      std::memcpy(words.data(), packet + buckets(part.size), 4 * words.size());
      with_bits(bits, [&](auto bits_of_each) {
        for (std::size_t at = 0; at < values.size(); at += bucket) {
          const float factor = *packet++ / static_cast<float>(options_.levels);
          const std::size_t size = std::min(bucket, values.size() - at);
          add_levels<bits_of_each()>(words, factor, options_.levels, at, values.subspan(at, size));
        }
      });
      packet += words.size();
    }
}

}  // namespace syncopate
