#include "workers/compression/signs.hpp"

#include <bit>
#include <cmath>

#include "workers/training/vector_clones.hpp"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace syncopate {
namespace {

constexpr std::uint32_t sign_bit = 0x80000000u;

std::uint32_t pack_word(const float* values) {
  std::uint32_t word = 0;
#if defined(__SSE2__)
  for (int i = 0; i < 8; ++i)
    word |= static_cast<std::uint32_t>(_mm_movemask_ps(_mm_loadu_ps(values + 4 * i))) << (4 * i);
#else
  for (int i = 0; i < 32; ++i) word |= (std::bit_cast<std::uint32_t>(values[i]) >> 31) << i;
#endif
  return word;
}

std::uint32_t pack_below_zero(const float* values) {
  std::uint32_t word = 0;
#if defined(__SSE2__)
  for (int i = 0; i < 8; ++i) {
    const __m128 below = _mm_cmplt_ps(_mm_loadu_ps(values + 4 * i), _mm_setzero_ps());
    word |= static_cast<std::uint32_t>(_mm_movemask_ps(below)) << (4 * i);
  }
#else
  for (int i = 0; i < 32; ++i) word |= static_cast<std::uint32_t>(values[i] < 0) << i;
#endif
  return word;
}

float signed_as(float scale, std::uint32_t bit) {  // 0 or 1
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scale) ^ (bit << 31));
}

}  // namespace

void pack_signs(const float* values, std::size_t size, std::uint32_t* words) {
  std::size_t at = 0;
  for (; at + 32 <= size; at += 32) *words++ = pack_word(values + at);
  if (at == size) return;
  std::uint32_t word = 0;
  for (std::size_t i = at; i < size; ++i) word |= (std::bit_cast<std::uint32_t>(values[i]) >> 31) << (i - at);
  *words = word;
}

void pack_below_zero(const float* values, std::size_t size, std::uint32_t* words) {
  std::size_t at = 0;
  for (; at + 32 <= size; at += 32) *words++ = pack_below_zero(values + at);
  if (at == size) return;
  std::uint32_t word = 0;
  for (std::size_t i = at; i < size; ++i) word |= static_cast<std::uint32_t>(values[i] < 0) << (i - at);
  *words = word;
}

SYNCOPATE_VECTOR_CLONES
void spread_bits(const std::uint32_t* __restrict words, std::size_t count, std::uint32_t* __restrict masks) {
  for (std::size_t w = 0; w < count; ++w) {
    const std::uint32_t word = words[w];
    for (std::uint32_t i = 0; i < 32; ++i) masks[32 * w + i] = 0u - ((word >> i) & 1u);
  }
}

SYNCOPATE_VECTOR_CLONES
void add_signs(const std::uint32_t* __restrict words, float scale, std::size_t size, float* __restrict sum) {
  const std::size_t whole = size / 32;
  for (std::size_t w = 0; w < whole; ++w) {
    const std::uint32_t word = words[w];
    for (std::uint32_t i = 0; i < 32; ++i) sum[32 * w + i] += signed_as(scale, (word >> i) & 1u);
  }
  for (std::size_t i = 32 * whole; i < size; ++i) sum[i] += signed_as(scale, (words[whole] >> (i % 32)) & 1u);
}

SYNCOPATE_VECTOR_CLONES
void take_out_signs(float* values, float scale, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i)
    values[i] -= signed_as(scale, (std::bit_cast<std::uint32_t>(values[i]) & sign_bit) >> 31);
}

SYNCOPATE_VECTOR_CLONES
double sum_of_magnitudes(const float* values, std::size_t size) {
  constexpr std::size_t lanes = 16;
  double sums[lanes] = {};
  std::size_t at = 0;
  for (; at + lanes <= size; at += lanes)
    for (std::size_t lane = 0; lane < lanes; ++lane) sums[lane] += static_cast<double>(std::fabs(values[at + lane]));
  for (; at < size; ++at) sums[at % lanes] += static_cast<double>(std::fabs(values[at]));
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

SYNCOPATE_VECTOR_CLONES
void write_signs(float* values, float factor, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i)
    values[i] = values[i] > 0 ? factor : values[i] < 0 ? -factor : values[i];  // a NaN stays one
}

}  // namespace syncopate
