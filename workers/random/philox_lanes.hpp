// Philox 4x32-10 in eight lanes, one block of two numbers in each: what random.cpp and random_rows.cpp draw with.
#pragma once

#include <Random123/philox.h>

#include <array>
#include <bit>
#include <cstdint>

#include "workers/random/random.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace syncopate {

// The counter's words: block, worker, low half of the step, and purpose | stream << 8 | step's next 16 bits << 16.
inline std::uint32_t last_word(const RandomStream& stream) {
  const auto user = static_cast<std::uint32_t>(stream.purpose) | static_cast<std::uint32_t>(stream.stream) << 8;
  return user | static_cast<std::uint32_t>(static_cast<std::uint64_t>(stream.step.value()) >> 32) << 16;
}

using PhiloxKey = std::array<std::uint32_t, 2>;
constexpr PhiloxKey key_of(std::uint64_t seed) {
  return {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
}

// See to_uniform in random.cpp.
inline constexpr std::uint64_t one_bits = std::bit_cast<std::uint64_t>(1.0);
inline constexpr double below_one = 1 - 0x1p-53;

#if defined(__x86_64__)
// to_uniform in eight lanes, whose upper halves are garbage.
[[gnu::target("avx512f")]] inline __m512d to_uniforms(__m512i low, __m512i high) {
  constexpr __mmask16 upper = 0xaaaa;
  const __m512i bits = _mm512_mask_blend_epi32(upper, low, _mm512_slli_epi64(high, 32));
  const __m512i number = _mm512_or_epi64(_mm512_srli_epi64(bits, 12), _mm512_set1_epi64(one_bits));
  return _mm512_sub_pd(_mm512_castsi512_pd(number), _mm512_set1_pd(below_one));
}

// The keys of all rounds, in memory, where a vector instruction takes them from as if they stood in all lanes.
struct RoundKeys {
  std::uint64_t seed = 0;
  std::array<std::uint64_t, 10> key0{}, key1{};

  constexpr explicit RoundKeys(std::uint64_t seed) : seed(seed) {
    auto [low, high] = key_of(seed);
    for (std::size_t round = 0; round < 10; ++round, low += PHILOX_W32_0, high += PHILOX_W32_1)
      key0[round] = low, key1[round] = high;
  }

  // Those of the seed that this thread draws with; until it draws with another.
  static const RoundKeys& of(std::uint64_t seed) {
    thread_local constinit RoundKeys keys(0);
    if (keys.seed != seed) [[unlikely]]
      keys = RoundKeys(seed);
    return keys;
  }
};

// The counters of 8 blocks. 32-bit words stand in 64-bit lanes.
struct WideCounter {
  __m512i block, worker, step, last;
};

// The numbers of 8 blocks, in their order, or of twice as many, which take turns.
template <int groups>
[[gnu::target("avx512f")]] inline void draw_wide(const WideCounter (&counters)[groups], const RoundKeys& keys,
                                                 __m512d* numbers) {
  const __m512i multiplier0 = _mm512_set1_epi64(PHILOX_M4x32_0), multiplier1 = _mm512_set1_epi64(PHILOX_M4x32_1);
  constexpr int exclusive_or = 0x96;  // of three
  __m512i a[groups], b[groups], c[groups], d[groups];
  for (int g = 0; g < groups; ++g) {
    a[g] = counters[g].block, b[g] = counters[g].worker, c[g] = counters[g].step, d[g] = counters[g].last;
  }
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    const __m512i key0 = _mm512_set1_epi64(keys.key0[round]), key1 = _mm512_set1_epi64(keys.key1[round]);
#pragma GCC unroll 2
    for (int g = 0; g < groups; ++g) {
      const __m512i p = _mm512_mul_epu32(a[g], multiplier0), q = _mm512_mul_epu32(c[g], multiplier1);
      a[g] = _mm512_ternarylogic_epi64(_mm512_srli_epi64(q, 32), b[g], key0, exclusive_or), b[g] = q;
      c[g] = _mm512_ternarylogic_epi64(_mm512_srli_epi64(p, 32), d[g], key1, exclusive_or), d[g] = p;
    }
  }
  const __m512i low_blocks = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11);  // first and second number of each in turn
  const __m512i high_blocks = _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15);
  for (int g = 0; g < groups; ++g) {
    const __m512d first = to_uniforms(a[g], b[g]), second = to_uniforms(c[g], d[g]);
    numbers[2 * g] = _mm512_permutex2var_pd(first, low_blocks, second);
    numbers[2 * g + 1] = _mm512_permutex2var_pd(first, high_blocks, second);
  }
}
#endif

}  // namespace syncopate
