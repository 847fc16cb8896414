// The QR decomposition with column pivoting, A P = Q R, by Householder reflections.
// Source:  Golub, Van Loan, "Matrix Computations", section 5.4.
// Why not LAPACK: a gradient code is drawn anew on each rank and in each process of a sweep, and all must get the same
//          one to the last bit; what a BLAS gives depends on the processor's kernels and on its threads. Nor does
//          LibTorch offer a decomposition with pivots, which tell which equations of a singular matrix to keep.
#pragma once

#include <span>
#include <vector>

#include "workers/linear_algebra/matrix.hpp"

namespace syncopate {

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
