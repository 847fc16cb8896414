#include "workers/random/random.hpp"

#include <Random123/philox.h>

#include <algorithm>
#include <bit>

#include "workers/process/instruction_set.hpp"
#include "workers/random/philox_lanes.hpp"

namespace syncopate {
namespace {

using Block = std::array<std::uint32_t, 4>;

Block counter_of(const RandomStream& stream, std::uint32_t block) {
  return {block, static_cast<std::uint32_t>(stream.worker.value), static_cast<std::uint32_t>(stream.step.value()),
          last_word(stream)};
}

Block philox(const Block& counter, const PhiloxKey& key) {
  const auto random = r123::Philox4x32()({{counter[0], counter[1], counter[2], counter[3]}}, {{key[0], key[1]}});
  return {random[0], random[1], random[2], random[3]};
}

// 52 of 64 random bits become the mantissa of a number in [1, 2); the subtraction is exact, so every
// processor gives the same (k + 1/2) 2^-52.
double to_uniform(std::uint32_t low, std::uint32_t high) {
  const std::uint64_t bits = (static_cast<std::uint64_t>(high) << 32 | low) >> 12;
  return std::bit_cast<double>(bits | one_bits) - below_one;
}

// out[i] = number i of the blocks that begin with `counter`.
void fill_from(Block counter, const PhiloxKey& key, std::span<double> out) {
  for (std::size_t i = 0; i < out.size(); i += 2, ++counter[0]) {
    const Block random = philox(counter, key);
    out[i] = to_uniform(random[0], random[1]);
    if (i + 1 < out.size()) out[i + 1] = to_uniform(random[2], random[3]);
  }
}

#if defined(__x86_64__)
using Lanes [[gnu::vector_size(32)]] = std::uint64_t;  // a 32-bit word per lane, one lane per block
using Uniforms [[gnu::vector_size(32)]] = double;

// The low halves' products. Written as a * b, g++ 12 emits three multiplications where one suffices,
// and four blocks take twice as long.
[[gnu::target("avx2")]] inline Lanes multiply(Lanes a, std::uint32_t b) {
  return reinterpret_cast<Lanes>(_mm256_mul_epu32(reinterpret_cast<__m256i>(a), _mm256_set1_epi64x(b)));
}

[[gnu::target("avx2")]] inline void store(Uniforms numbers, std::span<double> out) {
  if (out.size() >= 4) return _mm256_storeu_pd(out.data(), numbers);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = numbers[i];
}

// Four blocks side by side.
struct Blocks {
  Lanes a, b, c, d;  // the words; upper halves of lanes are garbage that multiply ignores

  [[gnu::target("avx2")]] inline void mix(const Lanes& key0, const Lanes& key1) {
    const Lanes p = multiply(a, PHILOX_M4x32_0), q = multiply(c, PHILOX_M4x32_1);
    a = (q >> 32) ^ (b ^ key0), b = q;
    c = (p >> 32) ^ (d ^ key1), d = p;
  }

  // out[i] = uniform number i of these blocks, as many as there is room for.
  [[gnu::target("avx2")]] inline void store_uniforms(std::span<double> out) const {
    constexpr std::uint64_t low_half = 0xffffffff;
    const Lanes even_bits = ((b << 32) | (a & low_half)) >> 12 | one_bits;
    const Lanes odd_bits = ((d << 32) | (c & low_half)) >> 12 | one_bits;
    const Uniforms even = reinterpret_cast<Uniforms>(even_bits) - below_one;
    const Uniforms odd = reinterpret_cast<Uniforms>(odd_bits) - below_one;
    store(__builtin_shufflevector(even, odd, 0, 4, 1, 5), out);
    if (out.size() > 4) store(__builtin_shufflevector(even, odd, 2, 6, 3, 7), out.subspan(4));
  }
};

// The numbers of the blocks that begin with `counter`: more than 8 (groups - 1), at most 8 groups.
template <std::size_t groups>
[[gnu::target("avx2")]] inline void fill_groups(const Block& counter, const PhiloxKey& key, std::span<double> out) {
  Blocks blocks[groups];
  for (std::size_t g = 0; g < groups; ++g) {
    blocks[g] = {Lanes{0, 1, 2, 3} + counter[0] + 4 * g, Lanes{} + counter[1], Lanes{} + counter[2],
                 Lanes{} + counter[3]};
  }
  Lanes key0 = Lanes{} + key[0], key1 = Lanes{} + key[1];
  for (int round = 0; round < 10; ++round, key0 += PHILOX_W32_0, key1 += PHILOX_W32_1) {
    for (Blocks& group : blocks) group.mix(key0, key1);
  }
  for (std::size_t g = 0; g < groups; ++g) blocks[g].store_uniforms(out.subspan(8 * g));
}

// The same numbers as fill_from in a third of the time: the inner loop of time-only runs. Two groups
// take turns, since one alone waits for its multiplications.
[[gnu::target("avx2")]] void fill_from_avx2(Block counter, const PhiloxKey& key, std::span<double> out) {
  for (; out.size() > 16; out = out.subspan(16), counter[0] += 8) fill_groups<2>(counter, key, out);
  out.size() > 8 ? fill_groups<2>(counter, key, out) : fill_groups<1>(counter, key, out);
}

// As many as there is room for. Without masks, which make stores slow.
[[gnu::target("avx512f")]] inline void store_eight(__m512d numbers, std::span<double> out) {
  if (out.size() >= 8) return _mm512_storeu_pd(out.data(), numbers);
  Uniforms four = reinterpret_cast<Uniforms>(_mm512_castpd512_pd256(numbers));
  store(four, out);
  if (out.size() <= 4) return;
  four = reinterpret_cast<Uniforms>(_mm512_extractf64x4_pd(numbers, 1));
  store(four, out.subspan(4));
}

[[gnu::target("avx512f"), gnu::noinline]] void fill_many(WideCounter counter, const RoundKeys& keys,
                                                         std::span<double> out) {
  while (out.size() >= 32) {
    WideCounter next = counter;
    next.block = _mm512_add_epi64(counter.block, _mm512_set1_epi64(8));
    __m512d numbers[4];
    draw_wide<2>({counter, next}, keys, numbers);
    for (int i = 0; i < 4; ++i) _mm512_storeu_pd(out.data() + 8 * i, numbers[i]);
    counter.block = _mm512_add_epi64(counter.block, _mm512_set1_epi64(16));
    out = out.subspan(32);
  }
  while (!out.empty()) {
    __m512d numbers[2];
    draw_wide<1>({counter}, keys, numbers);
    store_eight(numbers[0], out);
    if (out.size() > 8) store_eight(numbers[1], out.subspan(8));
    counter.block = _mm512_add_epi64(counter.block, _mm512_set1_epi64(8));
    out = out.subspan(std::min<std::size_t>(out.size(), 16));
  }
}

[[gnu::target("avx512f")]] void fill_from_avx512(const RandomStream& stream, std::uint32_t block,
                                                 std::span<double> out) {
  const RoundKeys& keys = RoundKeys::of(stream.seed);
  const WideCounter counter{_mm512_add_epi64(_mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7), _mm512_set1_epi64(block)),
                            _mm512_set1_epi32(stream.worker.value),
                            _mm512_set1_epi32(static_cast<int>(stream.step.value())),
                            _mm512_set1_epi32(static_cast<int>(last_word(stream)))};
  // One worker's step is drawn without a loop, before which the compiler would load all keys.
  if (out.size() > 16) return fill_many(counter, keys, out);
  __m512d numbers[2];
  draw_wide<1>({counter}, keys, numbers);
  store_eight(numbers[0], out);
  if (out.size() > 8) store_eight(numbers[1], out.subspan(8));
}
#endif

}  // namespace

std::array<std::uint32_t, 4> RandomStream::block(std::uint32_t block) const {
  return philox(counter_of(*this, block), key_of(seed));
}

double RandomStream::uniform(std::uint32_t index) const {
  const Block random = block(index / 2);
  return index % 2 == 0 ? to_uniform(random[0], random[1]) : to_uniform(random[2], random[3]);
}

void RandomStream::fill_uniform(std::uint32_t first, std::span<double> out) const {
  if (!out.empty() && first % 2 == 1) {
    out[0] = uniform(first++);
    out = out.subspan(1);
  }
  if (out.empty()) return;
  if (out.size() == 1) {  // one micro-batch at a time, as a cluster in real time asks
    out[0] = uniform(first);
    return;
  }
#if defined(__x86_64__)
  if (instruction_set == InstructionSet::avx512) return fill_from_avx512(*this, first / 2, out);
#endif
  const Block counter = counter_of(*this, first / 2);
#if defined(__x86_64__)
  if (instruction_set == InstructionSet::avx2) return fill_from_avx2(counter, key_of(seed), out);
#endif
  fill_from(counter, key_of(seed), out);
}

}  // namespace syncopate
