#include "workers/compression/top_k.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>

#include "workers/training/vector_clones.hpp"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace syncopate {
namespace {

// Without its sign a float's bits are in the order of the magnitudes.
std::uint32_t magnitude(float value) { return std::bit_cast<std::uint32_t>(value) & 0x7fffffffu; }

// How many reach the bound. All are below 2^31.
SYNCOPATE_VECTOR_CLONES
std::size_t count_from(const std::uint32_t* magnitudes, std::size_t size, std::uint32_t bound) {
  std::int32_t count = 0;
  for (std::size_t i = 0; i < size; ++i)
    count += static_cast<std::int32_t>(magnitudes[i]) >= static_cast<std::int32_t>(bound) ? 1 : 0;
  return static_cast<std::size_t>(count);
}

// The k-th largest of some magnitudes, bit by bit from the highest: it is the largest bound that k of them reach.
std::uint32_t kth_largest(std::span<const std::uint32_t> magnitudes, std::size_t k) {
  std::uint32_t found = 0;
  for (std::uint32_t bit = 1u << 30; bit != 0; bit >>= 1)
    if (count_from(magnitudes.data(), magnitudes.size(), found | bit) >= k) found |= bit;
  return found;
}

constexpr std::size_t block_size = 32;

// The largest magnitude of each whole block.
SYNCOPATE_VECTOR_CLONES
void find_maxima(const float* values, std::size_t blocks, std::uint32_t* maxima) {
  for (std::size_t block = 0; block < blocks; ++block) {
    std::int32_t largest = 0;
    for (std::size_t i = 0; i < block_size; ++i) {
      const auto bits = std::bit_cast<std::int32_t>(values[block * block_size + i]) & 0x7fffffff;
      largest = bits > largest ? bits : largest;
    }
    maxima[block] = static_cast<std::uint32_t>(largest);
  }
}

// A bound that is most likely below the k-th largest magnitude, and not far below. Of k blocks and more it is the k-th
// largest maximum, which k values reach for certain; else it is from every so many-th value.
std::uint32_t likely_bound(std::span<const float> values, std::span<const std::uint32_t> maxima, std::size_t k) {
  if (maxima.size() >= k) return kth_largest(maxima, k);
  constexpr std::size_t most_drawn = 8192;
  const std::size_t every = std::max<std::size_t>(1, values.size() / most_drawn);
  std::vector<std::uint32_t> drawn;
  drawn.reserve(values.size() / every + 1);
  for (std::size_t i = every / 2; i < values.size(); i += every) drawn.push_back(magnitude(values[i]));
  const double expected = static_cast<double>(k) / static_cast<double>(every);
  const auto rank = static_cast<std::size_t>(expected + 4 * std::sqrt(expected) + 8);
  return rank < drawn.size() ? kth_largest(drawn, rank + 1) : 0;
}

// Which of a block's magnitudes reach the bound, which is above 0, as bits. Both are below 2^31.
std::uint32_t reached_in_block(const float* values, std::uint32_t bound) {
  std::uint32_t reached = 0;
#if defined(__SSE2__)
  const __m128i below = _mm_set1_epi32(static_cast<int>(bound - 1)), no_sign = _mm_set1_epi32(0x7fffffff);
  for (int i = 0; i < 8; ++i) {
    const __m128i bits = _mm_and_si128(_mm_castps_si128(_mm_loadu_ps(values + 4 * i)), no_sign);
    const int mask = _mm_movemask_ps(_mm_castsi128_ps(_mm_cmpgt_epi32(bits, below)));
    reached |= static_cast<std::uint32_t>(mask) << (4 * i);
  }
#else
  for (std::size_t i = 0; i < block_size; ++i)
    reached |= static_cast<std::uint32_t>(magnitude(values[i]) >= bound) << i;
#endif
  return reached;
}

// Of all magnitudes that reach the bound.
std::vector<std::uint32_t> places_from(std::span<const float> values, std::span<const std::uint32_t> maxima,
                                       std::uint32_t bound) {
  std::vector<std::uint32_t> places;
  if (bound > 0) places.reserve(maxima.size());
  if (bound == 0) {
    places.resize(values.size());
    for (std::size_t i = 0; i < places.size(); ++i) places[i] = static_cast<std::uint32_t>(i);
    return places;
  }
  // Which blocks reach the bound is as good as random: by what is stored, not by branches.
  std::vector<std::uint32_t> blocks(maxima.size());
  std::size_t reaching = 0;
  for (std::size_t block = 0; block < maxima.size(); ++block) {
    blocks[reaching] = static_cast<std::uint32_t>(block);
    reaching += maxima[block] >= bound ? 1 : 0;
  }
  blocks.resize(reaching);
  for (const std::uint32_t block : blocks) {
    const std::size_t begin = block * block_size;
    for (std::uint32_t reached = reached_in_block(&values[begin], bound); reached != 0; reached &= reached - 1)
      places.push_back(static_cast<std::uint32_t>(begin) + static_cast<std::uint32_t>(std::countr_zero(reached)));
  }
  for (std::size_t i = maxima.size() * block_size; i < values.size(); ++i)
    if (magnitude(values[i]) >= bound) places.push_back(static_cast<std::uint32_t>(i));
  return places;
}

}  // namespace

std::vector<std::uint32_t> largest_magnitudes(std::span<const float> values, std::size_t k) {
  assert(k > 0 && k <= values.size());
  std::vector<std::uint32_t> maxima(values.size() / block_size);
  find_maxima(values.data(), maxima.size(), maxima.data());
  std::vector<std::uint32_t> places = places_from(values, maxima, likely_bound(values, maxima, k));
  if (places.size() < k) places = places_from(values, maxima, 0);  // the draw has misled
  std::vector<std::uint32_t> magnitudes;
  magnitudes.reserve(places.size());
  for (const std::uint32_t place : places) magnitudes.push_back(magnitude(values[place]));
  const std::uint32_t smallest = kth_largest(magnitudes, k);
  const auto larger = std::ranges::count_if(magnitudes, [&](std::uint32_t m) { return m > smallest; });
  std::size_t equal_ones = k - static_cast<std::size_t>(larger);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < places.size(); ++i) {
    const bool is_equal = magnitudes[i] == smallest && equal_ones > 0;  // of ties the lowest places
    equal_ones -= is_equal ? 1 : 0;
    places[kept] = places[i];
    kept += magnitudes[i] > smallest || is_equal ? 1 : 0;
  }
  places.resize(kept);
  return places;
}

}  // namespace syncopate
