#include "workers/base/random.hpp"

#include <Random123/philox.h>

#include <algorithm>
#include <bit>
#include <boost/math/special_functions/erf.hpp>
#include <cmath>
#include <numbers>
#include <numeric>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace syncopate {

std::vector<std::uint32_t> permutation(const RandomStream& stream, std::size_t size, std::uint32_t first) {
  std::vector<double> uniform(size);
  stream.fill_uniform(first, uniform);
  std::vector<std::uint32_t> order(size);
  std::iota(order.begin(), order.end(), 0u);
  for (std::size_t last = size; last-- > 1;)
    std::swap(order[last], order[static_cast<std::size_t>(uniform[last] * static_cast<double>(last + 1))]);
  return order;
}

namespace {

// The last of a counter's four words, which are: block, worker, low half of the step, and purpose | stream << 8 | the
// step's next 16 bits << 16.
inline std::uint32_t last_word(const RandomStream& stream) {
  const auto user = static_cast<std::uint32_t>(stream.purpose) | static_cast<std::uint32_t>(stream.stream) << 8;
  return user | static_cast<std::uint32_t>(static_cast<std::uint64_t>(stream.step.value()) >> 32) << 16;
}

using PhiloxKey = std::array<std::uint32_t, 2>;
constexpr PhiloxKey key_of(std::uint64_t seed) {
  return {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
}

// Constants of to_uniform.
inline constexpr std::uint64_t one_bits = std::bit_cast<std::uint64_t>(1.0);
inline constexpr double below_one = 1 - 0x1p-53;

#if defined(__x86_64__)
// to_uniform for eight lanes. Ignores the upper halves of the inputs' lanes.
[[gnu::target("avx512f")]] inline __m512d to_uniforms(__m512i low, __m512i high) {
  constexpr __mmask16 upper = 0xaaaa;
  const __m512i bits = _mm512_mask_blend_epi32(upper, low, _mm512_slli_epi64(high, 32));
  const __m512i number = _mm512_or_epi64(_mm512_srli_epi64(bits, 12), _mm512_set1_epi64(one_bits));
  return _mm512_sub_pd(_mm512_castsi512_pd(number), _mm512_set1_pd(below_one));
}

// Philox's keys of all rounds. They are in memory, from where a vector instruction can broadcast a key to all lanes.
struct RoundKeys {
  std::uint64_t seed = 0;
  std::array<std::uint64_t, 10> key0{}, key1{};

  constexpr explicit RoundKeys(std::uint64_t seed) : seed(seed) {
    auto [low, high] = key_of(seed);
    for (std::size_t round = 0; round < 10; ++round, low += PHILOX_W32_0, high += PHILOX_W32_1)
      key0[round] = low, key1[round] = high;
  }

  // The keys of a seed. The reference is valid until this thread asks for another seed.
  static const RoundKeys& of(std::uint64_t seed) {
    thread_local constinit RoundKeys keys(0);
    if (keys.seed != seed) [[unlikely]]
      keys = RoundKeys(seed);
    return keys;
  }
};

// The counters of 8 blocks: one 32-bit word per 64-bit lane.
struct WideCounter {
  __m512i block, worker, step, last;
};

// Draws the numbers of 8 blocks (one group) or 16 blocks (two groups, whose instructions are interleaved), in order.
template <int groups>
[[gnu::target("avx512f")]] inline void draw_wide(const WideCounter (&counters)[groups], const RoundKeys& keys,
                                                 __m512d* numbers) {
  const __m512i multiplier0 = _mm512_set1_epi64(PHILOX_M4x32_0), multiplier1 = _mm512_set1_epi64(PHILOX_M4x32_1);
  constexpr int exclusive_or = 0x96;  // truth table of x ^ y ^ z
  __m512i a[groups], b[groups], c[groups], d[groups];
  for (int g = 0; g < groups; ++g)
    a[g] = counters[g].block, b[g] = counters[g].worker, c[g] = counters[g].step, d[g] = counters[g].last;
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
  // Interleaves the first and second numbers of the blocks.
  const __m512i low_blocks = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11);
  const __m512i high_blocks = _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15);
  for (int g = 0; g < groups; ++g) {
    const __m512d first = to_uniforms(a[g], b[g]), second = to_uniforms(c[g], d[g]);
    numbers[2 * g] = _mm512_permutex2var_pd(first, low_blocks, second);
    numbers[2 * g + 1] = _mm512_permutex2var_pd(first, high_blocks, second);
  }
}
#endif

using Block = std::array<std::uint32_t, 4>;

Block counter_of(const RandomStream& stream, std::uint32_t block) {
  return {block, static_cast<std::uint32_t>(stream.worker.value), static_cast<std::uint32_t>(stream.step.value()),
          last_word(stream)};
}

Block philox(const Block& counter, const PhiloxKey& key) {
  const auto random = r123::Philox4x32()({{counter[0], counter[1], counter[2], counter[3]}}, {{key[0], key[1]}});
  return {random[0], random[1], random[2], random[3]};
}

// 52 of 64 random bits become the mantissa of a number in [1, 2). The subtraction is exact, so every processor gives
// the same (k + 1/2) 2^-52.
double to_uniform(std::uint32_t low, std::uint32_t high) {
  const std::uint64_t bits = (static_cast<std::uint64_t>(high) << 32 | low) >> 12;
  return std::bit_cast<double>(bits | one_bits) - below_one;
}

// out[i] = number i of the blocks from `counter` on.
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

// Multiplies the low halves of the lanes of `a` by `b`. With the expression a * b, for which g++ 12 emits three
// multiplications instead of one, four blocks would take twice as long.
[[gnu::target("avx2")]] inline Lanes multiply(Lanes a, std::uint32_t b) {
  return reinterpret_cast<Lanes>(_mm256_mul_epu32(reinterpret_cast<__m256i>(a), _mm256_set1_epi64x(b)));
}

[[gnu::target("avx2")]] inline void store(Uniforms numbers, std::span<double> out) {
  if (out.size() >= 4) return _mm256_storeu_pd(out.data(), numbers);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = numbers[i];
}

struct Blocks {
  Lanes a, b, c, d;  // words of four blocks; upper halves of lanes are undefined and ignored by multiply

  [[gnu::target("avx2")]] inline void mix(const Lanes& key0, const Lanes& key1) {
    const Lanes p = multiply(a, PHILOX_M4x32_0), q = multiply(c, PHILOX_M4x32_1);
    a = (q >> 32) ^ (b ^ key0), b = q;
    c = (p >> 32) ^ (d ^ key1), d = p;
  }

  // out[i] = uniform number i of these blocks, up to the size of `out`.
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

// Draws numbers of the blocks from `counter` on. `out` has more than 8 (groups - 1) and at most 8 x groups elements.
template <std::size_t groups>
[[gnu::target("avx2")]] inline void fill_groups(const Block& counter, const PhiloxKey& key, std::span<double> out) {
  Blocks blocks[groups];
  for (std::size_t g = 0; g < groups; ++g)
    blocks[g] = {Lanes{0, 1, 2, 3} + counter[0] + 4 * g, Lanes{} + counter[1], Lanes{} + counter[2],
                 Lanes{} + counter[3]};
  Lanes key0 = Lanes{} + key[0], key1 = Lanes{} + key[1];
  for (int round = 0; round < 10; ++round, key0 += PHILOX_W32_0, key1 += PHILOX_W32_1)
    for (Blocks& group : blocks) group.mix(key0, key1);
  for (std::size_t g = 0; g < groups; ++g) blocks[g].store_uniforms(out.subspan(8 * g));
}

// Draws the same numbers as fill_from in a third of the time. This is the inner loop of time-only runs. Two groups are
// interleaved, because the instructions of a single group would wait for its multiplications.
[[gnu::target("avx2")]] void fill_from_avx2(Block counter, const PhiloxKey& key, std::span<double> out) {
  for (; out.size() > 16; out = out.subspan(16), counter[0] += 8) fill_groups<2>(counter, key, out);
  out.size() > 8 ? fill_groups<2>(counter, key, out) : fill_groups<1>(counter, key, out);
}

// Stores as many numbers as fit into `out`. Does not use masked stores, which are slow.
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
  // Draws up to 16 numbers (a worker's step) without a loop, because the compiler would load all keys before a loop.
  if (out.size() > 16) return fill_many(counter, keys, out);
  __m512d numbers[2];
  draw_wide<1>({counter}, keys, numbers);
  store_eight(numbers[0], out);
  if (out.size() > 8) store_eight(numbers[1], out.subspan(8));
}

// Iterates over the blocks of all rows, row by row, eight at a time.
struct BlockLanes {
  std::size_t blocks;   // per row
  __m512i block, row;   // per lane; blocks are counted from 0 in each row
  std::uint32_t first;  // number of each row's block 0 in its stream

  [[gnu::target("avx512f")]] BlockLanes(std::size_t blocks, std::uint32_t first) : blocks(blocks), first(first) {
    alignas(64) std::array<std::uint64_t, 8> block_of, row_of;
    for (std::size_t lane = 0; lane < 8; ++lane) block_of[lane] = lane % blocks, row_of[lane] = lane / blocks;
    block = _mm512_load_si512(block_of.data());
    row = _mm512_load_si512(row_of.data());
  }

  [[gnu::target("avx512f"), gnu::always_inline]] inline WideCounter next(const RandomRows& rows) {
    const RandomStream& stream = rows.first;
    const bool along_workers = rows.along == RandomRows::Along::workers;
    const __m512i worker = _mm512_set1_epi64(stream.worker.value);
    const __m512i step = _mm512_set1_epi64(stream.step.value());
    const WideCounter counter{_mm512_add_epi64(block, _mm512_set1_epi64(first)),
                              along_workers ? _mm512_add_epi64(worker, row) : worker,
                              along_workers ? step : _mm512_add_epi64(step, row), _mm512_set1_epi64(last_word(stream))};
    const __m512i of_row = _mm512_set1_epi64(static_cast<std::int64_t>(blocks));
    block = _mm512_add_epi64(block, _mm512_set1_epi64(static_cast<std::int64_t>(8 % blocks)));
    row = _mm512_add_epi64(row, _mm512_set1_epi64(static_cast<std::int64_t>(8 / blocks)));
    const __mmask8 is_past = _mm512_cmpge_epu64_mask(block, of_row);
    block = _mm512_mask_sub_epi64(block, is_past, block, of_row);
    row = _mm512_mask_add_epi64(row, is_past, row, _mm512_set1_epi64(1));
    return counter;
  }
};

// Fills `out` with each row's numbers from 2 x first_block on. Rows of odd length skip their last block's second
// number.
[[gnu::target("avx512f")]] void fill_rows(const RandomRows& rows, std::uint32_t first_block, std::span<double> out) {
  const RoundKeys& keys = RoundKeys::of(rows.first.seed);
  const std::size_t length = out.size() / rows.count, blocks = (length + 1) / 2;
  const bool has_gaps = length % 2 == 1;
  BlockLanes lanes(blocks, first_block);
  std::size_t place = 0, in_row = 0;  // place of the next number; also counts skipped numbers
  const std::size_t end = 2 * blocks * rows.count;
  for (double* to = out.data(); place < end; place += 32) {
    const WideCounter low = lanes.next(rows), high = lanes.next(rows);
    __m512d numbers[4];
    draw_wide<2>({low, high}, keys, numbers);
    if (!has_gaps && place + 32 <= end) {  // without gaps, in_row is not needed
      for (int i = 0; i < 4; ++i, to += 8) _mm512_storeu_pd(to, numbers[i]);
      continue;
    }
    alignas(64) std::array<double, 32> drawn;
    for (std::size_t i = 0; i < 4; ++i) _mm512_store_pd(&drawn[8 * i], numbers[i]);
    for (std::size_t i = 0; i < std::min<std::size_t>(32, end - place); ++i) {
      const bool ends_row = ++in_row == 2 * blocks;
      if (ends_row) in_row = 0;
      if (!(ends_row && has_gaps)) *to++ = drawn[i];
    }
  }
}
#endif

// Advances to the next set in lexicographic order; false after the last.
bool advance(std::vector<int>& set, int count) {
  const int size = static_cast<int>(set.size());
  int i = size - 1;
  while (i >= 0 && set[static_cast<std::size_t>(i)] == count - size + i) --i;
  if (i < 0) return false;
  std::iota(set.begin() + i, set.end(), set[static_cast<std::size_t>(i)] + 1);
  return true;
}

double number_of_sets(int count, int chosen) {
  double sets = 1;
  for (int i = 0; i < chosen; ++i) sets *= static_cast<double>(count - i) / (i + 1);
  return std::round(sets);
}

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
  if (out.size() == 1) {  // real-time clusters draw for one micro-batch at a time
    out[0] = uniform(first);
    return;
  }
  const std::uint32_t block = first / 2;
#if defined(__x86_64__)
  if (instruction_set == InstructionSet::avx512) return fill_from_avx512(*this, block, out);
  if (instruction_set == InstructionSet::avx2) return fill_from_avx2(counter_of(*this, block), key_of(seed), out);
#endif
  fill_from(counter_of(*this, block), key_of(seed), out);
}

RandomStream RandomRows::operator[](std::size_t row) const {
  RandomStream stream = first;
  if (along == Along::workers)
    stream.worker.value += static_cast<int>(row);
  else
    stream.step += static_cast<Step::Rep>(row);
  return stream;
}

void RandomRows::fill_uniform(std::uint32_t first_number, std::span<double> out) const {
  if (count == 0 || out.empty()) return;
  const std::size_t length = out.size() / count;
#if defined(__x86_64__)
  // fill_rows uses one upper half of the step for all lanes, so the lower half must not overflow.
  const std::uint64_t low_step = static_cast<std::uint64_t>(first.step.value()) & 0xffffffff;
  const bool is_plain = along == Along::workers || low_step + count <= std::uint64_t{1} << 32;
  if (instruction_set == InstructionSet::avx512 && count > 1 && first_number % 2 == 0 && is_plain)
    return fill_rows(*this, first_number / 2, out);
#endif
  for (std::size_t row = 0; row < count; ++row)
    (*this)[row].fill_uniform(first_number, out.subspan(row * length, length));
}

// Floyd's algorithm.
std::vector<int> draw_set(int count, int chosen, const RandomStream& stream, std::uint32_t first) {
  std::vector<int> result;
  for (int i = 0; i < chosen; ++i) {
    const int top = count - chosen + i;
    const double u = stream.uniform(first + static_cast<std::uint32_t>(i));
    const int drawn = std::min(top, static_cast<int>(u * (top + 1)));
    result.push_back(std::find(result.begin(), result.end(), drawn) == result.end() ? drawn : top);
  }
  return result;
}

bool holds_for_sets(int count, int chosen, int most_sets, const RandomStream& stream,
                    const std::function<bool(std::span<const int>)>& holds_for) {
  if (number_of_sets(count, chosen) > most_sets) {
    for (int i = 0; i < most_sets; ++i)
      if (!holds_for(draw_set(count, chosen, stream, static_cast<std::uint32_t>(i * chosen)))) return false;
    return true;
  }
  std::vector<int> set(static_cast<std::size_t>(chosen));
  std::iota(set.begin(), set.end(), 0);
  do {
    if (!holds_for(set)) return false;
  } while (advance(set, count));
  return true;
}

void fill_standard_normal(const RandomStream& stream, std::uint32_t first, std::span<double> out) {
  stream.fill_uniform(first, out);
  for (double& u : out) u = -std::numbers::sqrt2 * boost::math::erfc_inv(2 * u);
}

InstructionSet instruction_set = [] {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f")) return InstructionSet::avx512;
  if (__builtin_cpu_supports("avx2")) return InstructionSet::avx2;
#endif
  return InstructionSet::scalar;
}();

}  // namespace syncopate
