#include "workers/linear_algebra/transposed_solutions.hpp"

#include <cstddef>
#include <utility>

#include "workers/linear_algebra/pivoted_qr.hpp"

namespace syncopate {

TransposedSolutions::TransposedSolutions(const Matrix& a, int rank, const std::vector<double>& b) {
  const PivotedQr qr(a);
  least_ = qr.solve_transposed(b, rank);
  for (int i = rank; i < a.rows; ++i) directions_.push_back(qr.q_column(i));
}

std::vector<double> TransposedSolutions::vanishing_at(std::span<const int> places) const {
  const int count = static_cast<int>(directions_.size());
  Matrix at_places(count, count);
  std::vector<double> right;
  for (int row = 0; row < count; ++row) {
    const auto place = static_cast<std::size_t>(places[static_cast<std::size_t>(row)]);
    right.push_back(-least_[place]);
    for (int k = 0; k < count; ++k) at_places(row, k) = directions_[static_cast<std::size_t>(k)][place];
  }
  const std::vector<double> factors = PivotedQr(std::move(at_places)).solve(std::move(right));
  std::vector<double> x = least_;
  for (std::size_t k = 0; k < directions_.size(); ++k)
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += factors[k] * directions_[k][i];
  for (const int place : places) x[static_cast<std::size_t>(place)] = 0;
  return x;
}

}  // namespace syncopate
