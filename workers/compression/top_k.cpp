#include "workers/compression/top_k.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <functional>

#include "workers/training/vector_clones.hpp"

namespace syncopate {
namespace {

// Without its sign a float's bits are in the order of the magnitudes.
std::uint32_t magnitude(float value) { return std::bit_cast<std::uint32_t>(value) & 0x7fffffffu; }

// A bound that is most likely below the k-th largest magnitude, and not far below: from every so many-th value.
std::uint32_t likely_bound(std::span<const float> values, std::size_t k) {
  constexpr std::size_t most_drawn = 8192;
  const std::size_t every = std::max<std::size_t>(1, values.size() / most_drawn);
  std::vector<std::uint32_t> drawn;
  drawn.reserve(values.size() / every + 1);
  for (std::size_t i = every / 2; i < values.size(); i += every) drawn.push_back(magnitude(values[i]));
  const double expected = static_cast<double>(k) / static_cast<double>(every);
  const auto rank = static_cast<std::size_t>(expected + 4 * std::sqrt(expected) + 8);
  if (rank >= drawn.size()) return 0;
  const auto nth = drawn.begin() + static_cast<std::ptrdiff_t>(rank);
  std::nth_element(drawn.begin(), nth, drawn.end(), std::greater<>());
  return *nth;
}

constexpr std::size_t block_size = 32;

// Whether any magnitude of a block reaches the bound. Both are below 2^31.
SYNCOPATE_VECTOR_CLONES
void find_blocks(const float* values, std::size_t blocks, std::int32_t bound, std::uint8_t* reached) {
  for (std::size_t block = 0; block < blocks; ++block) {
    std::int32_t largest = 0;
    for (std::size_t i = 0; i < block_size; ++i) {
      const auto bits = std::bit_cast<std::int32_t>(values[block * block_size + i]) & 0x7fffffff;
      largest = bits > largest ? bits : largest;
    }
    reached[block] = largest >= bound;
  }
}

std::vector<std::uint32_t> places_from(std::span<const float> values, std::uint32_t bound) {
  const std::size_t blocks = values.size() / block_size;
  std::vector<std::uint8_t> reached(blocks);
  find_blocks(values.data(), blocks, static_cast<std::int32_t>(bound), reached.data());
  std::vector<std::uint32_t> places;
  const auto add = [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i)
      if (magnitude(values[i]) >= bound) places.push_back(static_cast<std::uint32_t>(i));
  };
  for (std::size_t block = 0; block < blocks; ++block)
    if (reached[block]) add(block * block_size, (block + 1) * block_size);
  add(blocks * block_size, values.size());
  return places;
}

}  // namespace

std::vector<std::uint32_t> largest_magnitudes(std::span<const float> values, std::size_t k) {
  assert(k > 0 && k <= values.size());
  std::vector<std::uint32_t> places = places_from(values, likely_bound(values, k));
  if (places.size() < k) places = places_from(values, 0);  // the draw has misled
  std::vector<std::uint32_t> magnitudes;
  magnitudes.reserve(places.size());
  for (const std::uint32_t place : places) magnitudes.push_back(magnitude(values[place]));
  const auto nth = magnitudes.begin() + static_cast<std::ptrdiff_t>(k - 1);
  std::nth_element(magnitudes.begin(), nth, magnitudes.end(), std::greater<>());
  const std::uint32_t smallest = *nth;
  const auto larger = std::count_if(magnitudes.begin(), nth, [&](std::uint32_t m) { return m > smallest; });
  std::size_t equal_ones = k - static_cast<std::size_t>(larger);
  const auto is_kept = [&](std::uint32_t place) {
    const std::uint32_t own = magnitude(values[place]);
    if (own != smallest) return own > smallest;
    if (equal_ones == 0) return false;
    --equal_ones;
    return true;
  };
  std::size_t kept = 0;
  for (const std::uint32_t place : places)
    if (is_kept(place)) places[kept++] = place;
  places.resize(kept);
  return places;
}

}  // namespace syncopate
