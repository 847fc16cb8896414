// The discrete distribution behind DropCompute's reference noise: lengths 1..999 with weight
// (1/l) exp(-(ln l - 4)^2 / 2), a log-normal density taken at the integers.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace syncopate {

class LengthTable {
 public:
  static constexpr std::size_t lengths = 999;

  static const LengthTable& of_reference_code();

  // The first length whose cumulative probability exceeds u, 0 < u < 1.
  double quantile(double u) const { return static_cast<double>(search(u) + 1); }

 private:
  std::int64_t search(double u) const {
    // The guide is never past the answer, and in 99 % of all cases there or one short of it.
    // Signed integers throughout: the processor converts them without a branch.
    std::int64_t index = guide_[static_cast<std::int64_t>(u * guides)];
    const auto u_bits = std::bit_cast<std::int64_t>(u);
    index += cumulative_bits_[index] <= u_bits;
    while (cumulative_bits_[index] <= u_bits) ++index;
    return index;
  }

 public:
  // out[i] += scale x the quantile of u[i], with the widest instructions there are.
  void add(std::span<const double> u, double scale, std::span<double> out) const;

  double mean() const { return mean_; }
  double variance() const { return variance_; }
  double cumulative(std::size_t length) const { return std::bit_cast<double>(cumulative_bits_[length - 1]); }

 private:
  LengthTable();
  std::size_t add_by_fours(std::span<const double> u, double scale, std::span<double> out) const;

  static constexpr std::size_t guides = 4096;
  // Positive doubles are ordered like their bits, which compare faster. The last one is raised to 1,
  // which no u reaches.
  std::array<std::int64_t, lengths> cumulative_bits_;
  std::array<std::uint16_t, guides> guide_;  // [g] = first index whose cumulative exceeds g / guides
  double mean_;
  double variance_;
};

}  // namespace syncopate
