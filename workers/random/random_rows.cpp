#include "workers/random/random_rows.hpp"

#include <algorithm>
#include <limits>

#include "workers/process/instruction_set.hpp"
#include "workers/random/philox_lanes.hpp"

namespace syncopate {

RandomStream RandomRows::operator[](std::size_t row) const {
  RandomStream stream = first;
  if (along == Along::workers)
    stream.worker.value += static_cast<int>(row);
  else
    stream.step += static_cast<Step::Rep>(row);
  return stream;
}

#if defined(__x86_64__)
namespace {

// Goes through the blocks of one row after another, eight at a time.
struct BlockLanes {
  std::size_t blocks;   // of each row
  __m512i block, row;   // by lane
  std::uint32_t first;  // block

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

// From an even number on. Of rows of odd length, the last block's second number is left out.
[[gnu::target("avx512f")]] void fill_rows(const RandomRows& rows, std::uint32_t first_block, std::span<double> out) {
  const RoundKeys& keys = RoundKeys::of(rows.first.seed);
  const std::size_t length = out.size() / rows.count, blocks = (length + 1) / 2;
  const bool has_gaps = length % 2 == 1;
  BlockLanes lanes(blocks, first_block);
  std::size_t place = 0, in_row = 0;  // of the next number, gaps counted
  const std::size_t end = 2 * blocks * rows.count;
  for (double* to = out.data(); place < end; place += 32) {
    const WideCounter low = lanes.next(rows), high = lanes.next(rows);
    __m512d numbers[4];
    draw_wide<2>({low, high}, keys, numbers);
    if (!has_gaps && place + 32 <= end) {  // then in_row is not asked for before the end
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

}  // namespace
#endif

void RandomRows::fill_uniform(std::uint32_t first_number, std::span<double> out) const {
  if (count == 0 || out.empty()) return;
  const std::size_t length = out.size() / count;
#if defined(__x86_64__)
  // The step's upper half is the same in all lanes.
  const std::uint64_t low_step = static_cast<std::uint64_t>(first.step.value()) & 0xffffffff;
  const bool is_plain = along == Along::workers || low_step + count <= std::uint64_t{1} << 32;
  if (instruction_set == InstructionSet::avx512 && count > 1 && first_number % 2 == 0 && is_plain)
    return fill_rows(*this, first_number / 2, out);
#endif
  for (std::size_t row = 0; row < count; ++row)
    (*this)[row].fill_uniform(first_number, out.subspan(row * length, length));
}

}  // namespace syncopate
