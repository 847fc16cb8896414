#include "workers/compression/low_rank.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "workers/training/vector_clones.hpp"

namespace syncopate {
namespace {

constexpr std::size_t lanes = 16, at_once = 4;

// Of one row with four vectors, sums side by side as the widest vector needs them.
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

// The same to four vectors, so that what is added is fetched once for all. `factors`: four of each.
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

SYNCOPATE_VECTOR_CLONES
void add_one(float* __restrict out, float factor, const float* __restrict in, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) out[i] += factor * in[i];
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

// From the last row to the first: those that the product before has ended with, and the one after begins with, are then
// in the nearer caches.
void write_right(const LowRank& shape, const float* matrix, const float* left, float* right) {
  const auto& [n, m, r] = shape;
  std::fill_n(right, r * m, 0.0f);
  std::size_t end = n;
  for (; end % at_once != 0; --end)
    for (std::size_t c = 0; c < r; ++c) add_one(right + c * m, left[(end - 1) * r + c], matrix + (end - 1) * m, m);
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
    for (; c < r; ++c) add_one(row, factor * of_row[c], right + c * m, m);
  }
}

void orthogonalise(std::size_t n, std::size_t r, float* left) {
  constexpr double smallest = 1e-6;  // of a column's length before: what is less is rounding of single precision
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
    const double factor = length <= smallest * before ? 0 : 1 / length;  // a NaN is none of them, and stays
    for (std::size_t i = 0; i < n; ++i) own[i] *= factor;
  }
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t c = 0; c < r; ++c) left[i * r + c] = static_cast<float>(columns[c * n + i]);
}

}  // namespace syncopate
