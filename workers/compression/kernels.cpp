#include "workers/compression/kernels.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <numeric>

#include "workers/training/flat_arithmetic.hpp"
#include "workers/training/vector_clones.hpp"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace syncopate {

namespace {

constexpr std::size_t lanes = 16, at_once = 4;

// Dot products of one row with four vectors, with one partial sum per lane of the widest registers.
SYNCOPATE_VECTOR_CLONES
void four_dots(const float* __restrict row, const float* __restrict a, const float* __restrict b,
               const float* __restrict c, const float* __restrict d, std::size_t size, float* __restrict out) {
  float sums[4][lanes] = {};
  std::size_t at = 0;
  for (; at + lanes <= size; at += lanes)
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      const float value = row[at + lane];
      sums[0][lane] += value * a[at + lane];
      sums[1][lane] += value * b[at + lane];
      sums[2][lane] += value * c[at + lane];
      sums[3][lane] += value * d[at + lane];
    }
  for (; at < size; ++at) {
    sums[0][at % lanes] += row[at] * a[at];
    sums[1][at % lanes] += row[at] * b[at];
    sums[2][at % lanes] += row[at] * c[at];
    sums[3][at % lanes] += row[at] * d[at];
  }
  for (int i = 0; i < 4; ++i) {
    float total = 0;
    for (std::size_t lane = 0; lane < lanes; ++lane) total += sums[i][lane];
    out[i] = total;
  }
}

SYNCOPATE_VECTOR_CLONES
float dot(const float* __restrict row, const float* __restrict a, std::size_t size) {
  float sums[lanes] = {};
  std::size_t at = 0;
  for (; at + lanes <= size; at += lanes)
    for (std::size_t lane = 0; lane < lanes; ++lane) sums[lane] += row[at + lane] * a[at + lane];
  for (; at < size; ++at) sums[at % lanes] += row[at] * a[at];
  float total = 0;
  for (std::size_t lane = 0; lane < lanes; ++lane) total += sums[lane];
  return total;
}

SYNCOPATE_VECTOR_CLONES
void add_four(float* __restrict out, const float* factors, const float* __restrict a, const float* __restrict b,
              const float* __restrict c, const float* __restrict d, std::size_t size) {
  const float u = factors[0], v = factors[1], w = factors[2], x = factors[3];
  for (std::size_t i = 0; i < size; ++i) out[i] += (u * a[i] + v * b[i]) + (w * c[i] + x * d[i]);
}

// add_four for four output vectors, which share each load of a, b, c and d. `factors`: four per output.
SYNCOPATE_VECTOR_CLONES
void add_four_to_four(float* __restrict p, float* __restrict q, float* __restrict r, float* __restrict s,
                      const float* factors, const float* __restrict a, const float* __restrict b,
                      const float* __restrict c, const float* __restrict d, std::size_t size) {
  float f[16];
  for (int i = 0; i < 16; ++i) f[i] = factors[i];
  for (std::size_t i = 0; i < size; ++i) {
    const float u = a[i], v = b[i], w = c[i], x = d[i];
    p[i] += (f[0] * u + f[1] * v) + (f[2] * w + f[3] * x);
    q[i] += (f[4] * u + f[5] * v) + (f[6] * w + f[7] * x);
    r[i] += (f[8] * u + f[9] * v) + (f[10] * w + f[11] * x);
    s[i] += (f[12] * u + f[13] * v) + (f[14] * w + f[15] * x);
  }
}

float signed_as(float scale, std::uint32_t bit) {  // `bit` is 0 or 1
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scale) ^ (bit << 31));
}

// As integers, the bits without the sign order floats by magnitude.
std::uint32_t magnitude(float value) { return std::bit_cast<std::uint32_t>(value) & 0x7fffffffu; }

// The number of magnitudes of at least `bound`. All magnitudes are below 2^31.
SYNCOPATE_VECTOR_CLONES
std::size_t count_from(const std::uint32_t* magnitudes, std::size_t size, std::uint32_t bound) {
  std::int32_t count = 0;
  for (std::size_t i = 0; i < size; ++i)
    count += static_cast<std::int32_t>(magnitudes[i]) >= static_cast<std::int32_t>(bound) ? 1 : 0;
  return static_cast<std::size_t>(count);
}

// The k-th largest magnitude is the largest bound that at least k magnitudes reach. It is found bit by bit from the
// highest.
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

// A bound that is most likely slightly below the k-th largest magnitude: with at least k blocks the k-th largest of
// their maxima, which k values certainly reach; with fewer blocks an estimate from a sample at equal distances.
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

// One bit per magnitude of a block, set if it is at least `bound`, which is above 0. Magnitudes and bound are below
// 2^31.
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

// Indices of all magnitudes of at least `bound`, ascending.
std::vector<std::uint32_t> places_from(std::span<const float> values, std::span<const std::uint32_t> maxima,
                                       std::uint32_t bound) {
  std::vector<std::uint32_t> places;
  if (bound == 0) {
    places.resize(values.size());
    std::iota(places.begin(), places.end(), 0u);
    return places;
  }
  places.reserve(maxima.size());
  // A branch on whether a block reaches the bound would be unpredictable. So every block's index is stored, but the
  // counter advances only for blocks that reach it.
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

void write_left(const LowRank& shape, const float* matrix, const float* right, float* left) {
  const auto& [n, m, r] = shape;
  for (std::size_t i = 0; i < n; ++i) {
    const float* const row = matrix + i * m;
    float* const out = left + i * r;
    std::size_t c = 0;
    for (; c + at_once <= r; c += at_once)
      four_dots(row, right + c * m, right + (c + 1) * m, right + (c + 2) * m, right + (c + 3) * m, m, out + c);
    for (; c < r; ++c) out[c] = dot(row, right + c * m, m);
  }
}

// Goes from the last row to the first: the rows at which write_left ended, and at which the next product begins, are in
// the nearer caches.
void write_right(const LowRank& shape, const float* matrix, const float* left, float* right) {
  const auto& [n, m, r] = shape;
  std::fill_n(right, r * m, 0.0f);
  std::size_t end = n;
  for (; end % at_once != 0; --end)
    for (std::size_t c = 0; c < r; ++c) add_scaled(right + c * m, left[(end - 1) * r + c], matrix + (end - 1) * m, m);
  for (; end > 0; end -= at_once) {
    const std::size_t i = end - at_once;
    const float* const row = matrix + i * m;
    std::size_t c = 0;
    for (; c + at_once <= r; c += at_once) {
      float factors[at_once * at_once];
      for (std::size_t k = 0; k < at_once * at_once; ++k) factors[k] = left[(i + k % at_once) * r + c + k / at_once];
      float* const out = right + c * m;
      add_four_to_four(out, out + m, out + 2 * m, out + 3 * m, factors, row, row + m, row + 2 * m, row + 3 * m, m);
    }
    for (; c < r; ++c) {
      const float factors[] = {left[i * r + c], left[(i + 1) * r + c], left[(i + 2) * r + c], left[(i + 3) * r + c]};
      add_four(right + c * m, factors, row, row + m, row + 2 * m, row + 3 * m, m);
    }
  }
}

void add_product(const LowRank& shape, float factor, const float* left, const float* right, float* matrix) {
  const auto& [n, m, r] = shape;
  std::size_t i = 0;
  for (; i + at_once <= n && r == at_once; i += at_once) {
    float factors[at_once * at_once];
    for (std::size_t k = 0; k < at_once * at_once; ++k) factors[k] = factor * left[i * r + k];
    float* const row = matrix + i * m;
    add_four_to_four(row, row + m, row + 2 * m, row + 3 * m, factors, right, right + m, right + 2 * m, right + 3 * m,
                     m);
  }
  for (; i < n; ++i) {
    float* const row = matrix + i * m;
    const float* const of_row = left + i * r;
    std::size_t c = 0;
    for (; c + at_once <= r; c += at_once) {
      const float factors[] = {factor * of_row[c], factor * of_row[c + 1], factor * of_row[c + 2],
                               factor * of_row[c + 3]};
      add_four(row, factors, right + c * m, right + (c + 1) * m, right + (c + 2) * m, right + (c + 3) * m, m);
    }
    for (; c < r; ++c) add_scaled(row, factor * of_row[c], right + c * m, m);
  }
}

void orthogonalise(std::size_t n, std::size_t r, float* left) {
  constexpr double smallest = 1e-6;  // share of the column's length; a smaller rest is single-precision rounding
  std::vector<double> columns(n * r);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t c = 0; c < r; ++c) columns[c * n + i] = left[i * r + c];
  const auto product = [&](const double* a, const double* b) {
    double sum = 0;
    for (std::size_t i = 0; i < n; ++i) sum += a[i] * b[i];
    return sum;
  };
  for (std::size_t c = 0; c < r; ++c) {
    double* const own = &columns[c * n];
    const double before = std::sqrt(product(own, own));
    for (int pass = 0; pass < 2; ++pass)
      for (std::size_t other = 0; other < c; ++other) {
        const double* const done = &columns[other * n];
        const double share = product(own, done);
        for (std::size_t i = 0; i < n; ++i) own[i] -= share * done[i];
      }
    const double length = std::sqrt(product(own, own));
    const double factor = length <= smallest * before ? 0 : 1 / length;  // NaN fails the comparison and stays NaN
    for (std::size_t i = 0; i < n; ++i) own[i] *= factor;
  }
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t c = 0; c < r; ++c) left[i * r + c] = static_cast<float>(columns[c * n + i]);
}

template <Bit bit>
void pack_bits(const float* values, std::size_t size, std::uint32_t* words) {
  std::size_t at = 0;
#if defined(__SSE2__)
  for (; at + 32 <= size; at += 32) {
    std::uint32_t word = 0;
    for (std::size_t i = 0; i < 32; i += 4) {
      __m128 four = _mm_loadu_ps(values + at + i);
      if (bit == Bit::is_below_zero) four = _mm_cmplt_ps(four, _mm_setzero_ps());
      word |= static_cast<std::uint32_t>(_mm_movemask_ps(four)) << i;
    }
    *words++ = word;
  }
#endif
  for (; at < size; at += 32) {
    std::uint32_t word = 0;
    for (std::size_t i = 0; i < std::min<std::size_t>(32, size - at); ++i) {
      const float value = values[at + i];
      word |= std::uint32_t{bit == Bit::is_minus ? std::signbit(value) : value < 0} << i;
    }
    *words++ = word;
  }
}
template void pack_bits<Bit::is_minus>(const float* values, std::size_t size, std::uint32_t* words);
template void pack_bits<Bit::is_below_zero>(const float* values, std::size_t size, std::uint32_t* words);

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
  for (std::size_t i = 0; i < size; ++i) values[i] -= signed_as(scale, std::bit_cast<std::uint32_t>(values[i]) >> 31);
}

SYNCOPATE_VECTOR_CLONES
double sum_of_magnitudes(const float* values, std::size_t size) {
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
    values[i] = values[i] > 0 ? factor : values[i] < 0 ? -factor : values[i];  // NaN stays NaN
}

std::vector<std::uint32_t> largest_magnitudes(std::span<const float> values, std::size_t k) {
  assert(k > 0 && k <= values.size());
  std::vector<std::uint32_t> maxima(values.size() / block_size);
  find_maxima(values.data(), maxima.size(), maxima.data());
  std::vector<std::uint32_t> places = places_from(values, maxima, likely_bound(values, maxima, k));
  if (places.size() < k) places = places_from(values, maxima, 0);  // the sample of likely_bound was misleading
  std::vector<std::uint32_t> magnitudes;
  magnitudes.reserve(places.size());
  for (const std::uint32_t place : places) magnitudes.push_back(magnitude(values[place]));
  const std::uint32_t smallest = kth_largest(magnitudes, k);
  const auto larger = std::ranges::count_if(magnitudes, [&](std::uint32_t m) { return m > smallest; });
  std::size_t equal_ones = k - static_cast<std::size_t>(larger);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < places.size(); ++i) {
    const bool is_equal = magnitudes[i] == smallest && equal_ones > 0;  // ties go to the lowest places
    equal_ones -= is_equal ? 1 : 0;
    places[kept] = places[i];
    kept += magnitudes[i] > smallest || is_equal ? 1 : 0;
  }
  places.resize(kept);
  return places;
}

std::vector<float> means_of_bins(std::span<const float> values, std::size_t bins, double range, bool mirrored,
                                 std::uint8_t* levels) {
  const auto size = static_cast<double>(values.size());
  std::vector<double> sums(bins), counts(bins);
  double mean = 0, squares = 0;
  for (const float value : values) mean += static_cast<double>(value) / size;
  for (const float value : values) squares += (static_cast<double>(value) - mean) * (static_cast<double>(value) - mean);
  const double width = values.size() > 1 ? range * std::sqrt(squares / (size - 1)) / static_cast<double>(bins) : 0;
  const bool is_finite = std::isfinite(width) && std::isfinite(mean);
  const double last = static_cast<double>(bins - 1), middle = static_cast<double>(bins) / 2;
  const double per_unit = width > 0 && is_finite ? (mirrored ? -1 : 1) / width : 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double at = is_finite ? std::nearbyint((static_cast<double>(values[i]) - mean) * per_unit + middle) : 0;
    const auto bin = static_cast<std::size_t>(std::clamp(at, 0.0, last));
    levels[i] = static_cast<std::uint8_t>(bin);
    sums[bin] += static_cast<double>(values[i]);
    ++counts[bin];
  }
  std::vector<float> means(bins);
  for (std::size_t bin = 0; bin < bins; ++bin)
    if (!is_finite)
      means[bin] = std::numeric_limits<float>::quiet_NaN();
    else if (counts[bin] > 0)
      means[bin] = static_cast<float>(sums[bin] / counts[bin]);
  return means;
}

}  // namespace syncopate
