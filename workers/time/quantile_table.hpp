// Quantile functions (inverse distribution functions) as tables.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace syncopate {

// A quantile function as piecewise polynomials. A draw from any smooth distribution then costs a few nanoseconds, while
// a library's iterations take up to a microsecond.
class QuantileTable {
 public:
  // lower(p) and upper(p), 0 < p <= 1/2: the values below and above which the probability is p. They remain in use for
  // the far tails and wherever polynomials are not accurate enough.
  using Tail = std::function<double(double)>;
  QuantileTable(Tail lower, Tail upper) : tails_{std::move(lower), std::move(upper)} {}

  // out[i] += min(shift + scale x the quantile of u[i], bound), 0 < u[i] < 1, u[i] != 1/2 (RandomStream never gives
  // 1/2), with the widest instructions of this processor. The error of a quantile is at most 1e-12 of the largest one
  // in the cell of p, which is at most p / 16 wide. The first call fits the polynomials to several thousand values of
  // the tails. This takes tens of milliseconds for a gamma distribution. (Checking an experiment file does not need the
  // polynomials.)
  struct Transformation {
    double shift = 0;
    double scale = 1;
    double bound = std::numeric_limits<double>::infinity();
  };
  void add(std::span<const double> u, const Transformation& form, std::span<double> out) const;

 private:
  // The octaves [1/4, 1/2), [1/8, 1/4), ... of p are divided into 16 cells each. Every cell is at least 16 of its own
  // widths from the singularity at 0, so that a polynomial of degree 7 is exact to 1e-13.
  static constexpr int cell_bits = 4;
  static constexpr int octaves = 15;
  static constexpr std::uint64_t cells_per_tail = octaves << cell_bits;
  static constexpr std::uint64_t first_cell = std::uint64_t{1023 - 1 - octaves} << cell_bits;
  struct Wide;                                         // eight draws at a time
  struct alignas(64) Cell : std::array<double, 8> {};  // coefficients in -1 <= t < 1; NaN: call the tail function

  static double evaluate(const Cell& c, double t) {
    const double t2 = t * t, t4 = t2 * t2;  // Estrin's scheme has shorter dependency chains than Horner's
    return ((c[0] + c[1] * t) + (c[2] + c[3] * t) * t2) + ((c[4] + c[5] * t) + (c[6] + c[7] * t) * t2) * t4;
  }
  static Cell fit(const Tail& tail, double low, double width);
  double exact(bool is_upper, double p) const { return tails_[is_upper](p); }

  // Requires the fitted cells.
  double quantile(double u) const {
    const bool is_upper = u > 0.5;
    const double p = std::min(u, 1 - u);  // exact; a branch would be mispredicted half of the time
    const auto bits = std::bit_cast<std::uint64_t>(p);
    const std::uint64_t number = bits >> (52 - cell_bits);  // the exponent and leading mantissa bits select a cell
    if (number < first_cell) return exact(is_upper, p);
    // The remaining bits of the mantissa give the position in the cell, as a number in [1, 2).
    constexpr std::uint64_t mantissa = (std::uint64_t{1} << 52) - 1;
    const double place = std::bit_cast<double>((bits << cell_bits & mantissa) | std::bit_cast<std::uint64_t>(1.0));
    const double value = evaluate(cells_[is_upper * cells_per_tail + number - first_cell], 2 * place - 3);
    return std::isnan(value) ? exact(is_upper, p) : value;
  }
  void replace_nans(std::span<const double> u, std::span<double> values) const;  // by quantile()
  std::size_t add_by_eights(std::span<const double> u, const Transformation& form, std::span<double> out) const;
  std::size_t add_by_fours(std::span<const double> u, const Transformation& form, std::span<double> out) const;

  std::array<Tail, 2> tails_;
  mutable std::once_flag fitted_;
  mutable std::vector<Cell> cells_;  // lower tail, then upper tail
};

// The discrete distribution of DropCompute's reference noise: lengths 1..999 with weight (1/l) exp(-(ln l - 4)^2 / 2),
// a log-normal density at the integers.
class LengthTable {
 public:
  static constexpr std::size_t lengths = 999;

  static const LengthTable& of_reference_code();

  // The first length whose cumulative probability exceeds u, 0 < u < 1.
  double quantile(double u) const { return static_cast<double>(search(u) + 1); }

  // out[i] += scale x the quantile of u[i], with the widest instructions of this processor.
  void add(std::span<const double> u, double scale, std::span<double> out) const;

  double mean() const { return mean_; }
  double variance() const { return variance_; }
  double cumulative(std::size_t length) const { return std::bit_cast<double>(cumulative_bits_[length - 1]); }

 private:
  LengthTable();
  std::int64_t search(double u) const {
    // guide_ never gives an index beyond the result, and in 99 % of cases one that is at most one before it. Indices
    // are signed because the processor converts signed integers without a branch.
    std::int64_t index = guide_[static_cast<std::int64_t>(u * guides)];
    const auto u_bits = std::bit_cast<std::int64_t>(u);
    index += cumulative_bits_[index] <= u_bits;
    while (cumulative_bits_[index] <= u_bits) ++index;
    return index;
  }
  std::size_t add_by_fours(std::span<const double> u, double scale, std::span<double> out) const;

  static constexpr std::size_t guides = 4096;
  // The bits of positive doubles have the same order as the doubles, and compare faster. The last element is 1, above
  // every u.
  std::array<std::int64_t, lengths> cumulative_bits_;
  std::array<std::uint16_t, guides> guide_;  // [g] = first index whose cumulative exceeds g / guides
  double mean_;
  double variance_;
};

}  // namespace syncopate
