#include "workers/delays/quantile_table.hpp"

#include <algorithm>
#include <limits>
#include <numbers>
#include <utility>

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
