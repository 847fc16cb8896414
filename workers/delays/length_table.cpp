#include "workers/delays/length_table.hpp"

#include <cmath>

namespace syncopate {

const LengthTable& LengthTable::of_reference_code() {
  static const LengthTable table;
  return table;
}

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
