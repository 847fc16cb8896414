#include "workers/delays/length_table.hpp"

#include <cmath>

#include "workers/process/instruction_set.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace syncopate {

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
// The searches one by one, which is faster than gathering, and the arithmetic four at a time; returns how many.
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
