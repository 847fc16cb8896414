// Small dense linear algebra in double precision: the QR decomposition with column pivoting, A P = Q R, by
// Householder reflections.
// Source:  Golub, Van Loan, "Matrix Computations", section 5.4.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace syncopate {

// Row-major.
struct Matrix {
  Matrix(int rows, int columns)
      : rows(rows), columns(columns), values(static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns)) {}
  double& operator()(int row, int column) { return values[index(row, column)]; }
  double operator()(int row, int column) const { return values[index(row, column)]; }

  int rows;
  int columns;
  std::vector<double> values;

 private:
  std::size_t index(int row, int column) const {
    return static_cast<std::size_t>(row) * static_cast<std::size_t>(columns) + static_cast<std::size_t>(column);
  }
};

class PivotedQr {
 public:
  // For at least as many rows as columns.
  explicit PivotedQr(Matrix a);

  // x of least |A x - b|, where A has full rank.
  std::vector<double> solve(std::vector<double> b) const;
  // x of least |x| among those with x^T A = b^T, where A is square of rank `rank` and such x exist.
  std::vector<double> solve_transposed(std::span<const double> b, int rank) const;
  // Column `column` of Q. Those from the rank of A on span the vectors y with y^T A = 0.
  std::vector<double> q_column(int column) const;

 private:
  void eliminate(int k, double norm);
  void reflect(std::vector<double>& vector, int column) const;
  std::vector<double> times_q(std::vector<double> vector) const;

  Matrix a_;                     // R on and above the diagonal, below it the reflections' vectors
  std::vector<double> heads_;    // of these vectors: their elements on the diagonal
  std::vector<double> factors_;  // 2 / |v|^2; 0: no reflection
  std::vector<int> order_;       // column i of A P is column order_[i] of A
};

}  // namespace syncopate
