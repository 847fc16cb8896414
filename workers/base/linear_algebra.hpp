// Linear algebra of small dense matrices with the same bits on every machine. All ranks and all processes of a sweep
// then draw the same gradient code. Results of BLAS and LAPACK depend on the processor and on threads.
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

namespace syncopate {

// A dense matrix in double precision, row by row.
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
  // Returns `count` neighbouring columns from `first` on; the column after the last one is column 0.
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

// The largest magnitude; infinity if a value is NaN.
inline double largest_magnitude(std::span<const double> values) {
  double largest = 0;
  for (const double value : values)
    largest = std::fmax(largest, std::isnan(value) ? std::numeric_limits<double>::infinity() : std::abs(value));
  return largest;
}

// The QR decomposition with column pivoting, A P = Q R, by Householder reflections. The pivots show which equations of
// a singular system to keep; LibTorch's QR has none.
// Source:  Golub, Van Loan, "Matrix Computations", section 5.4.
class PivotedQr {
 public:
  // A must have at least as many rows as columns.
  explicit PivotedQr(Matrix a);

  // Returns the x that minimises |A x - b|, for A of full rank.
  std::vector<double> solve(std::vector<double> b) const;
  // Returns the shortest x with x^T A = b^T, for a square A of rank `rank` for which a solution exists.
  std::vector<double> solve_transposed(std::span<const double> b, int rank) const;
  // Returns a column of Q. The columns from index rank(A) on span the space of vectors y with y^T A = 0.
  std::vector<double> q_column(int column) const;

 private:
  void eliminate(int k, double norm);
  void reflect(std::vector<double>& vector, int column) const;
  std::vector<double> times_q(std::vector<double> vector) const;

  Matrix a_;                     // R on and above the diagonal, the reflections' vectors v below
  std::vector<double> heads_;    // v's elements on the diagonal, where a_ has those of R
  std::vector<double> factors_;  // 2 / |v|^2; 0: no reflection
  std::vector<int> order_;       // column i of A P is column order_[i] of A
};

// The second largest modulus of the eigenvalues of a square matrix whose columns sum to 1, such as the mixing matrix of
// gossip. The largest is 1. The smaller the second one is, the faster repeated mixing makes the workers' values equal.
// Does not use LibTorch, so predictions need not load it.
// Source:  Gelfand's formula, |lambda| = lim |A^k|^(1/k), with k doubled by squaring.
// Cost:    about 20 products of N x N matrices.
// Checks:  eigenvalues that LibTorch computes of random matrices; closed forms for some graphs.
double second_eigenvalue(const Matrix& columns_sum_to_one);

// All x with x^T A = b^T, for a square matrix A of known rank: the shortest x, plus combinations of N - rank
// orthonormal directions. These are orthogonal to the shortest x, so no term of a sum is larger than the sum.
class TransposedSolutions {
 public:
  TransposedSolutions(const Matrix& a, int rank, const std::vector<double>& b);

  // Returns the solution that is 0 at the indices `places`. These must be distinct, one for each direction.
  std::vector<double> vanishing_at(std::span<const int> places) const;

 private:
  std::vector<double> least_;
  std::vector<std::vector<double>> directions_;
};

}  // namespace syncopate
