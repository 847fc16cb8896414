#include "workers/delays/quantile_table.hpp"

#include <algorithm>
#include <limits>
#include <numbers>
#include <utility>

#include "workers/instruction_set.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace syncopate {

QuantileTable::Reader QuantileTable::reader() const {
  std::call_once(fitted_, [this] {
    cells_.reserve(2 * cells_per_tail);
    for (const Tail& tail : tails_) {
      for (std::uint64_t number = first_cell; number < first_cell + cells_per_tail; ++number) {
        const auto low = std::bit_cast<double>(number << (52 - cell_bits));
        const auto high = std::bit_cast<double>((number + 1) << (52 - cell_bits));
        cells_.push_back(fit(tail, low, high - low));
      }
    }
  });
  return Reader(*this);
}

void QuantileTable::Reader::add(std::span<const double> u, const Transformation& form, std::span<double> out) const {
  std::size_t done = 0;
#if defined(__x86_64__)
  if (instruction_set != InstructionSet::scalar) done = add_by_fours(u, form, out);
#endif
  for (std::size_t i = done; i < u.size(); ++i) out[i] += std::min(form.shift + form.scale * (*this)(u[i]), form.bound);
}

#if defined(__x86_64__)
namespace {

// Four rows of four doubles become four columns.
struct Square {
  __m256d a, b, c, d;
};
[[gnu::target("avx2")]] inline Square transposed(const Square& rows) {
  const __m256d low_ab = _mm256_unpacklo_pd(rows.a, rows.b), high_ab = _mm256_unpackhi_pd(rows.a, rows.b);
  const __m256d low_cd = _mm256_unpacklo_pd(rows.c, rows.d), high_cd = _mm256_unpackhi_pd(rows.c, rows.d);
  return {_mm256_permute2f128_pd(low_ab, low_cd, 0x20), _mm256_permute2f128_pd(high_ab, high_cd, 0x20),
          _mm256_permute2f128_pd(low_ab, low_cd, 0x31), _mm256_permute2f128_pd(high_ab, high_cd, 0x31)};
}

// (a + b t) + (c + d t) t2, as `evaluate` has it: the same operations in the same order, none fused.
[[gnu::target("avx2")]] inline __m256d cubic(const Square& c, __m256d t, __m256d t2) {
  const __m256d low = _mm256_add_pd(c.a, _mm256_mul_pd(c.b, t)), high = _mm256_add_pd(c.c, _mm256_mul_pd(c.d, t));
  return _mm256_add_pd(low, _mm256_mul_pd(high, t2));
}

}  // namespace

// What operator() does, four at a time; returns how many it has done. Cells are loaded whole and turned round, which
// is faster than gathering their coefficients.
[[gnu::target("avx2")]] std::size_t QuantileTable::Reader::add_by_fours(std::span<const double> u,
                                                                        const Transformation& form,
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
    const __m256i is_far = _mm256_cmpgt_epi64(first, number);  // out in the tail, where there are no cells
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

    const __m256d to_ask = _mm256_or_pd(_mm256_castsi256_pd(is_far), _mm256_cmp_pd(value, value, _CMP_UNORD_Q));
    if (const int lanes = _mm256_movemask_pd(to_ask); lanes != 0) [[unlikely]] {
      alignas(32) std::array<double, 4> values;
      _mm256_store_pd(values.data(), value);
      for (std::size_t lane = 0; lane < 4; ++lane)
        if (lanes >> lane & 1) values[lane] = (*this)(u[i + lane]);
      value = _mm256_load_pd(values.data());
    }
    const __m256d delay = _mm256_min_pd(bound, _mm256_add_pd(shift, _mm256_mul_pd(scale, value)));
    _mm256_storeu_pd(out.data() + i, _mm256_add_pd(_mm256_loadu_pd(out.data() + i), delay));
  }
  return i;
}
#endif

// Interpolates in the Chebyshev nodes of the cell, and checks where the interpolation is worst.
QuantileTable::Cell QuantileTable::fit(const Tail& tail, double low, double width) {
  constexpr int n = std::tuple_size_v<Cell::array>;
  const auto node = [](double j) { return std::cos(std::numbers::pi * j / n); };
  const auto value_at = [&](double t) { return tail(low + width * (t + 1) / 2); };

  std::array<double, n> values;
  for (int j = 0; j < n; ++j) values[j] = value_at(node(j + 0.5));

  // f = sum of a_k T_k; T_k's coefficients follow from T_k+1 = 2 t T_k - T_k-1.
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
  for (const int extremum : {1, n / 2, n - 1}) {  // of T_n, hence of the error
    const double t = node(extremum);
    if (!(std::abs(evaluate(cell, t) - value_at(t)) <= tolerance * largest)) {
      cell.fill(std::numeric_limits<double>::quiet_NaN());
      break;
    }
  }
  return cell;
}

}  // namespace syncopate
