#include "workers/time/quantile_table.hpp"

#include <numbers>

#include "workers/base/random.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace syncopate {

void QuantileTable::add(std::span<const double> u, const Transformation& form, std::span<double> out) const {
  std::call_once(fitted_, [this] {
    cells_.reserve(2 * cells_per_tail);
    for (const Tail& tail : tails_)
      for (std::uint64_t number = first_cell; number < first_cell + cells_per_tail; ++number) {
        const auto low = std::bit_cast<double>(number << (52 - cell_bits));
        const auto high = std::bit_cast<double>((number + 1) << (52 - cell_bits));
        cells_.push_back(fit(tail, low, high - low));
      }
  });
  std::size_t done = 0;
#if defined(__x86_64__)
  if (instruction_set == InstructionSet::avx512) done = add_by_eights(u, form, out);
  if (instruction_set != InstructionSet::scalar) done += add_by_fours(u.subspan(done), form, out.subspan(done));
#endif
  for (std::size_t i = done; i < u.size(); ++i)
    out[i] += std::min(form.shift + form.scale * quantile(u[i]), form.bound);
}

#if defined(__x86_64__)
namespace {

struct Square {
  __m256d a, b, c, d;
};
[[gnu::target("avx2")]] inline Square transposed(const Square& rows) {
  const __m256d low_ab = _mm256_unpacklo_pd(rows.a, rows.b), high_ab = _mm256_unpackhi_pd(rows.a, rows.b);
  const __m256d low_cd = _mm256_unpacklo_pd(rows.c, rows.d), high_cd = _mm256_unpackhi_pd(rows.c, rows.d);
  return {_mm256_permute2f128_pd(low_ab, low_cd, 0x20), _mm256_permute2f128_pd(high_ab, high_cd, 0x20),
          _mm256_permute2f128_pd(low_ab, low_cd, 0x31), _mm256_permute2f128_pd(high_ab, high_cd, 0x31)};
}

// (a + b t) + (c + d t) t2, as in `evaluate`: the same operations in the same order, without fusing.
[[gnu::target("avx2")]] inline __m256d cubic(const Square& c, __m256d t, __m256d t2) {
  const __m256d low = _mm256_add_pd(c.a, _mm256_mul_pd(c.b, t)), high = _mm256_add_pd(c.c, _mm256_mul_pd(c.d, t));
  return _mm256_add_pd(low, _mm256_mul_pd(high, t2));
}

// Keeps the compiler from holding an array in registers and extracting elements with shuffles, because vector
// instructions read single elements from memory at no cost.
template <typename Array>
inline void keep_in_memory(Array& array) {
  asm("" : "+m"(array));
}

[[gnu::target("avx512f")]] inline __m512d linear(__m512d a, __m512d b, __m512d t) {
  return _mm512_add_pd(a, _mm512_mul_pd(b, t));
}

}  // namespace

void QuantileTable::replace_nans(std::span<const double> u, std::span<double> values) const {
  for (std::size_t i = 0; i < u.size(); ++i)
    if (std::isnan(values[i])) values[i] = quantile(u[i]);
}

// quantile() for four numbers at a time; returns how many are done. To load whole cells and transpose them is faster
// than to gather their coefficients.
[[gnu::target("avx2")]] std::size_t QuantileTable::add_by_fours(std::span<const double> u, const Transformation& form,
                                                                std::span<double> out) const {
  const __m256i first = _mm256_set1_epi64x(first_cell), tail = _mm256_set1_epi64x(cells_per_tail);
  const __m256i mantissa = _mm256_set1_epi64x((std::int64_t{1} << 52) - 1);
  const __m256d one = _mm256_set1_pd(1), half = _mm256_set1_pd(0.5);
  const __m256d shift = _mm256_set1_pd(form.shift), scale = _mm256_set1_pd(form.scale);
  const __m256d bound = _mm256_set1_pd(form.bound);
  std::size_t i = 0;
  for (; i + 4 <= u.size(); i += 4) {
    const __m256d at = _mm256_loadu_pd(u.data() + i);
    const __m256i p = _mm256_castpd_si256(_mm256_min_pd(at, _mm256_sub_pd(one, at)));
    const __m256i is_upper = _mm256_castpd_si256(_mm256_cmp_pd(at, half, _CMP_GT_OQ));
    const __m256i number = _mm256_srli_epi64(p, 52 - cell_bits);
    const __m256i is_far = _mm256_cmpgt_epi64(first, number);  // in the far tail, which has no cells
    const __m256i cell = _mm256_add_epi64(_mm256_sub_epi64(number, first), _mm256_and_si256(is_upper, tail));
    alignas(32) std::array<std::int64_t, 4> cells;
    _mm256_store_si256(reinterpret_cast<__m256i*>(cells.data()), _mm256_andnot_si256(is_far, cell));
    const auto rows = [&](std::size_t lane) { return cells_[cells[lane]].data(); };
    const double *const a = rows(0), *const b = rows(1), *const c = rows(2), *const d = rows(3);
    const Square low = transposed({_mm256_load_pd(a), _mm256_load_pd(b), _mm256_load_pd(c), _mm256_load_pd(d)});
    const Square high =
        transposed({_mm256_load_pd(a + 4), _mm256_load_pd(b + 4), _mm256_load_pd(c + 4), _mm256_load_pd(d + 4)});

    const __m256i place = _mm256_and_si256(_mm256_slli_epi64(p, cell_bits), mantissa);
    const __m256d near_one = _mm256_castsi256_pd(_mm256_or_si256(place, _mm256_castpd_si256(one)));
    const __m256d t = _mm256_sub_pd(_mm256_add_pd(near_one, near_one), _mm256_set1_pd(3));
    const __m256d t2 = _mm256_mul_pd(t, t), t4 = _mm256_mul_pd(t2, t2);
    __m256d value = _mm256_add_pd(cubic(low, t, t2), _mm256_mul_pd(cubic(high, t, t2), t4));

    value = _mm256_or_pd(value, _mm256_castsi256_pd(is_far));  // NaN in the far tail
    if (_mm256_movemask_pd(_mm256_cmp_pd(value, value, _CMP_UNORD_Q)) != 0) [[unlikely]] {
      alignas(32) std::array<double, 4> values;
      _mm256_store_pd(values.data(), value);
      replace_nans(u.subspan(i, 4), values);
      value = _mm256_load_pd(values.data());
    }
    const __m256d delay = _mm256_min_pd(bound, _mm256_add_pd(shift, _mm256_mul_pd(scale, value)));
    _mm256_storeu_pd(out.data() + i, _mm256_add_pd(_mm256_loadu_pd(out.data() + i), delay));
  }
  return i;
}

// quantile() for eight numbers. Transposing eight cells would be slow, so eight() combines neighbouring coefficients in
// place, and only their sums change lanes. Lanes that need the tail functions become NaN.
struct QuantileTable::Wide {
  [[gnu::target("avx512f"), gnu::always_inline]] static __m512d eight(const Cell* cells, __m512d u);
};

[[gnu::target("avx512f")]] inline __m512d QuantileTable::Wide::eight(const Cell* first_of_cells, __m512d u) {
  // Cells are addressed by their offset in bytes from the first one.
  constexpr std::int64_t size = sizeof(Cell);
  constexpr int to_bytes = 52 - cell_bits - std::countr_zero(static_cast<std::uint64_t>(size));
  const __m512d one = _mm512_set1_pd(1);
  const __m512i p = _mm512_castpd_si512(_mm512_min_pd(u, _mm512_sub_pd(one, u)));
  const __mmask8 is_upper = _mm512_cmp_pd_mask(u, _mm512_set1_pd(0.5), _CMP_GT_OQ);
  const __m512i distance = _mm512_and_epi64(_mm512_srli_epi64(p, to_bytes), _mm512_set1_epi64(-size));
  const __m512i first = _mm512_set1_epi64(size * first_cell), tail = _mm512_set1_epi64(size * cells_per_tail);
  const __mmask8 is_near = _mm512_cmpge_epi64_mask(distance, first);
  const __m512i lower = _mm512_maskz_sub_epi64(is_near, distance, first);
  alignas(64) std::array<std::int64_t, 8> places;
  _mm512_store_si512(places.data(), _mm512_mask_add_epi64(lower, is_upper, lower, tail));
  keep_in_memory(places);

  const __m512i mantissa = _mm512_set1_epi64((std::int64_t{1} << 52) - 1);
  const __m512i place = _mm512_and_epi64(_mm512_slli_epi64(p, cell_bits), mantissa);
  const __m512d near_one = _mm512_castsi512_pd(_mm512_or_epi64(place, _mm512_castpd_si512(one)));
  const __m512d t = _mm512_sub_pd(_mm512_add_pd(near_one, near_one), _mm512_set1_pd(3));
  const __m512d t2 = _mm512_mul_pd(t, t), t4 = _mm512_mul_pd(t2, t2);
  alignas(64) std::array<double, 8> ts;
  _mm512_store_pd(ts.data(), t);
  keep_in_memory(ts);

  // A sum has eight elements, for two draws a and b: c0 + c1 t of a and of b, then c2 + c3 t of a and of b, and so on.
  const auto* const cells = reinterpret_cast<const char*>(first_of_cells);
  __m512d sums[4];
#pragma GCC unroll 4
  for (int pair = 0; pair < 4; ++pair) {
    const __m512d a = _mm512_load_pd(cells + places[2 * pair]), b = _mm512_load_pd(cells + places[2 * pair + 1]);
    const __m128 t_of_both = _mm_castpd_ps(_mm_load_pd(&ts[2 * pair]));
    const __m512d t_in_turn = _mm512_castps_pd(_mm512_broadcast_f32x4(t_of_both));
    sums[pair] = linear(_mm512_unpacklo_pd(a, b), _mm512_unpackhi_pd(a, b), t_in_turn);
  }
  // For four draws: (c0 + c1 t) + (c2 + c3 t) t2 of a, b, then (c4 + c5 t) + (c6 + c7 t) t2 of a, b, then both of c, d.
  constexpr int even_parts = 0x88, odd_parts = 0xdd;
  const __m512d four = linear(_mm512_shuffle_f64x2(sums[0], sums[1], even_parts),
                              _mm512_shuffle_f64x2(sums[0], sums[1], odd_parts), _mm512_shuffle_f64x2(t2, t2, 0x50));
  const __m512d more = linear(_mm512_shuffle_f64x2(sums[2], sums[3], even_parts),
                              _mm512_shuffle_f64x2(sums[2], sums[3], odd_parts), _mm512_shuffle_f64x2(t2, t2, 0xfa));
  const __m512d value =
      linear(_mm512_shuffle_f64x2(four, more, even_parts), _mm512_shuffle_f64x2(four, more, odd_parts), t4);
  return _mm512_mask_mov_pd(_mm512_set1_pd(std::numeric_limits<double>::quiet_NaN()), is_near, value);
}

[[gnu::target("avx512f")]] std::size_t QuantileTable::add_by_eights(std::span<const double> u,
                                                                    const Transformation& form,
                                                                    std::span<double> out) const {
  const __m512d shift = _mm512_set1_pd(form.shift), scale = _mm512_set1_pd(form.scale);
  const __m512d bound = _mm512_set1_pd(form.bound);
  std::size_t i = 0;
  for (; i + 8 <= u.size(); i += 8) {
    __m512d value = Wide::eight(cells_.data(), _mm512_loadu_pd(u.data() + i));
    if (_mm512_cmp_pd_mask(value, value, _CMP_UNORD_Q) != 0) [[unlikely]] {
      alignas(64) std::array<double, 8> values;
      _mm512_store_pd(values.data(), value);
      replace_nans(u.subspan(i, 8), values);
      value = _mm512_load_pd(values.data());
    }
    const __m512d delay = _mm512_min_pd(bound, linear(shift, scale, value));
    _mm512_storeu_pd(out.data() + i, _mm512_add_pd(_mm512_loadu_pd(out.data() + i), delay));
  }
  return i;
}
#endif

// Interpolates at the cell's Chebyshev nodes. Fills the cell with NaN if the error is too large at its extrema.
QuantileTable::Cell QuantileTable::fit(const Tail& tail, double low, double width) {
  constexpr int n = std::tuple_size_v<Cell::array>;
  const auto node = [](double j) { return std::cos(std::numbers::pi * j / n); };
  const auto value_at = [&](double t) { return tail(low + width * (t + 1) / 2); };

  std::array<double, n> values;
  for (int j = 0; j < n; ++j) values[j] = value_at(node(j + 0.5));

  // The interpolation is the sum of a_k T_k. T_k's coefficients follow from T_k+1 = 2 t T_k - T_k-1.
  Cell cell{}, chebyshev{{1}}, previous{};
  for (int k = 0; k < n; ++k) {
    double a = 0;
    for (int j = 0; j < n; ++j) a += values[j] * std::cos(std::numbers::pi * k * (j + 0.5) / n);
    a *= (k == 0 ? 1.0 : 2.0) / n;
    Cell next{};
    for (int i = 0; i < n; ++i) {
      cell[i] += a * chebyshev[i];
      next[i] = (i > 0 ? (k == 0 ? 1 : 2) * chebyshev[i - 1] : 0) - (k == 0 ? 0 : previous[i]);
    }
    previous = std::exchange(chebyshev, next);
  }

  double largest = 0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  constexpr double tolerance = 2e-13;
  for (const int extremum : {1, n / 2, n - 1}) {  // extrema of T_n, and thus of the error
    const double t = node(extremum);
    if (!(std::abs(evaluate(cell, t) - value_at(t)) <= tolerance * largest)) {
      cell.fill(std::numeric_limits<double>::quiet_NaN());
      break;
    }
  }
  return cell;
}

const LengthTable& LengthTable::of_reference_code() {
  static const LengthTable table;
  return table;
}

void LengthTable::add(std::span<const double> u, double scale, std::span<double> out) const {
  std::size_t done = 0;
#if defined(__x86_64__)
  if (instruction_set != InstructionSet::scalar) done = add_by_fours(u, scale, out);
#endif
  for (std::size_t i = done; i < u.size(); ++i) out[i] += scale * quantile(u[i]);
}

#if defined(__x86_64__)
// Searches one value at a time, which is faster than gathering, and computes four at a time. Returns how many are done.
[[gnu::target("avx2")]] std::size_t LengthTable::add_by_fours(std::span<const double> u, double scale,
                                                              std::span<double> out) const {
  std::size_t i = 0;
  for (; i + 4 <= u.size(); i += 4) {
    const auto length = [&](std::size_t lane) { return static_cast<int>(search(u[i + lane])) + 1; };
    const __m256d lengths = _mm256_cvtepi32_pd(_mm_setr_epi32(length(0), length(1), length(2), length(3)));
    const __m256d sums = _mm256_loadu_pd(out.data() + i);
    _mm256_storeu_pd(out.data() + i, _mm256_add_pd(sums, _mm256_mul_pd(_mm256_set1_pd(scale), lengths)));
  }
  return i;
}
#endif

LengthTable::LengthTable() {
  std::array<double, lengths> weight;
  double total = 0, first_moment = 0, second_moment = 0;
  for (std::size_t i = 0; i < lengths; ++i) {
    const double length = static_cast<double>(i + 1);
    const double deviation = std::log(length) - 4;
    weight[i] = std::exp(-deviation * deviation / 2) / length;
    total += weight[i];
    first_moment += length * weight[i];
    second_moment += length * length * weight[i];
  }
  mean_ = first_moment / total;
  variance_ = second_moment / total - mean_ * mean_;

  double sum = 0;
  for (std::size_t i = 0; i < lengths; ++i) cumulative_bits_[i] = std::bit_cast<std::int64_t>(sum += weight[i] / total);
  cumulative_bits_.back() = std::bit_cast<std::int64_t>(1.0);

  std::size_t index = 0;
  for (std::size_t g = 0; g < guides; ++g) {
    while (cumulative(index + 1) <= static_cast<double>(g) / guides) ++index;
    guide_[g] = static_cast<std::uint16_t>(index);
  }
}

}  // namespace syncopate
