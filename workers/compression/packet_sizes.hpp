// How long packets are, in words of four bytes.
#pragma once

#include <algorithm>
#include <cstddef>

#include "workers/compression/options.hpp"

namespace syncopate {

constexpr std::size_t words_of_bits(std::size_t bits) { return (bits + 31) / 32; }

// Of `size` values, at least one.
inline std::size_t kept_of(double ratio, std::size_t size) {
  // The small addend keeps a whole number whole that the product has left just below.
  const auto kept = static_cast<std::size_t>(ratio * static_cast<double>(size) + 1e-9);
  return std::min(size, std::max<std::size_t>(1, kept));
}

// The narrowest of 2, 4 and 8 bits that holds -s .. s.
constexpr std::size_t bits_of_levels(int levels) { return levels == 1 ? 2 : levels <= 7 ? 4 : 8; }

// Bins of eight-bit packets.
inline constexpr std::size_t bins_of_bytes = 256;

// Of one part of the gradient as signs or levels.
std::size_t packet_words(const CompressionOptions& options, std::size_t size);

inline Bytes bytes_of_words(std::size_t words) { return Bytes{static_cast<Bytes::Rep>(4 * words)}; }

}  // namespace syncopate
