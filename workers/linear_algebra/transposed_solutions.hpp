// All x with x^T A = b^T, for a square matrix A of known rank.
#pragma once

#include <span>
#include <vector>

#include "workers/linear_algebra/matrix.hpp"

namespace syncopate {

// They are the one of least length, plus combinations of as many directions as the rank lacks. The directions are
// orthonormal and the first is orthogonal to them, so that nothing in a solution is larger than the solution.
class TransposedSolutions {
 public:
  TransposedSolutions(const Matrix& a, int rank, const std::vector<double>& b);

  // The one that is 0 at these different places, as many as there are directions.
  std::vector<double> vanishing_at(std::span<const int> places) const;

 private:
  std::vector<double> least_;
  std::vector<std::vector<double>> directions_;
};

}  // namespace syncopate
