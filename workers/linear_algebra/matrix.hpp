// A dense matrix in double precision, row after row.
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

namespace syncopate {

struct Matrix {
  Matrix(int rows, int columns)
      : rows(rows), columns(columns), values(static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns)) {}
  double& operator()(int row, int column) { return values[index(row, column)]; }
  double operator()(int row, int column) const { return values[index(row, column)]; }

  std::vector<double> column(int number) const {
    std::vector<double> result;
    for (int row = 0; row < rows; ++row) result.push_back((*this)(row, number));
    return result;
  }
  // So many neighbouring columns; after the last comes the first.
  Matrix columns_from(int first, int count) const {
    Matrix result(rows, count);
    for (int row = 0; row < rows; ++row)
      for (int k = 0; k < count; ++k) result(row, k) = (*this)(row, (first + k) % columns);
    return result;
  }

  int rows;
  int columns;
  std::vector<double> values;

 private:
  std::size_t index(int row, int column) const {
    return static_cast<std::size_t>(row) * static_cast<std::size_t>(columns) + static_cast<std::size_t>(column);
  }
};

// Infinity where a value is not a number.
inline double largest_magnitude(std::span<const double> values) {
  double largest = 0;
  for (const double value : values)
    largest = std::fmax(largest, std::isnan(value) ? std::numeric_limits<double>::infinity() : std::abs(value));
  return largest;
}

}  // namespace syncopate
