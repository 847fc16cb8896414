#include "workers/base/linear_algebra.hpp"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "workers/base/random.hpp"

namespace syncopate {
namespace {

Matrix normal_matrix(int rows, int columns, std::uint64_t seed) {
  Matrix matrix(rows, columns);
  fill_standard_normal({.seed = seed}, 0, matrix.values);
  return matrix;
}

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix result(a.rows, b.columns);
  for (int i = 0; i < a.rows; ++i)
    for (int j = 0; j < b.columns; ++j)
      for (int k = 0; k < a.columns; ++k) result(i, j) += a(i, k) * b(k, j);
  return result;
}

double at(const std::vector<double>& values, int i) { return values[static_cast<std::size_t>(i)]; }

TEST(PivotedQr, SolvesSquareSystems) {
  const Matrix a = normal_matrix(7, 7, 1);
  std::vector<double> b(7);
  for (int i = 0; i < 7; ++i)
    for (int j = 0; j < 7; ++j) b[static_cast<std::size_t>(i)] += a(i, j) * (j - 3);
  const auto x = PivotedQr(a).solve(b);
  for (int j = 0; j < 7; ++j) EXPECT_NEAR(at(x, j), j - 3, 1e-12);
}

TEST(PivotedQr, TheLeastSquaresResidualIsOrthogonalToTheColumns) {
  const Matrix a = normal_matrix(9, 4, 2);
  const std::vector<double> b = {3, 1, 4, 1, 5, 9, 2, 6, 5};
  const auto x = PivotedQr(a).solve(b);
  ASSERT_EQ(x.size(), 4u);
  for (int column = 0; column < 4; ++column) {
    double dot = 0;
    for (int i = 0; i < 9; ++i) {
      double residual = -at(b, i);
      for (int j = 0; j < 4; ++j) residual += a(i, j) * at(x, j);
      dot += a(i, column) * residual;
    }
    EXPECT_NEAR(dot, 0, 1e-12);
  }
}

// A has rank 5, so x^T A = b^T has many solutions. The shortest is orthogonal to all y with y^T A = 0.
TEST(PivotedQr, FindsTheShortestSolutionAndTheLeftNullSpaceOfAMatrixOfLowerRank) {
  constexpr int size = 8, rank = 5;
  const Matrix a = product(normal_matrix(size, rank, 3), normal_matrix(rank, size, 4));
  std::vector<double> b(size);
  for (int j = 0; j < size; ++j)
    for (int i = 0; i < size; ++i) b[static_cast<std::size_t>(j)] += (i % 3) * a(i, j);
  const PivotedQr qr(a);
  const auto x = qr.solve_transposed(b, rank);
  for (int j = 0; j < size; ++j) {
    double value = 0;
    for (int i = 0; i < size; ++i) value += at(x, i) * a(i, j);
    EXPECT_NEAR(value, at(b, j), 1e-11);
  }
  for (int column = rank; column < size; ++column) {
    const auto y = qr.q_column(column);
    double length = 0, dot = 0;
    for (int i = 0; i < size; ++i) {
      length += at(y, i) * at(y, i);
      dot += at(y, i) * at(x, i);
    }
    EXPECT_NEAR(length, 1, 1e-12);
    EXPECT_NEAR(dot, 0, 1e-12);
    for (int j = 0; j < size; ++j) {
      double value = 0;
      for (int i = 0; i < size; ++i) value += at(y, i) * a(i, j);
      EXPECT_NEAR(value, 0, 1e-12);
    }
  }
}

// A matrix that is not symmetric, with some zeros. Each column has the sum 1, but rows have other sums.
Matrix random_columns(int size, std::uint64_t seed) {
  Matrix matrix(size, size);
  fill_standard_normal({.seed = seed}, 0, matrix.values);
  for (double& value : matrix.values) value = std::max(value, 0.0);
  for (int j = 0; j < size; ++j) {
    matrix(j, j) += 0.5;
    double sum = 0;
    for (int i = 0; i < size; ++i) sum += matrix(i, j);
    for (int i = 0; i < size; ++i) matrix(i, j) /= sum;
  }
  return matrix;
}

double by_libtorch(const Matrix& matrix) {
  std::vector<double> values = matrix.values;
  const auto tensor = torch::from_blob(values.data(), {matrix.rows, matrix.columns}, torch::kFloat64);
  const auto moduli = torch::linalg_eigvals(tensor).abs().to(torch::kFloat64).contiguous();
  std::vector<double> all(moduli.data_ptr<double>(), moduli.data_ptr<double>() + matrix.rows);
  std::ranges::sort(all, std::greater<>());
  EXPECT_NEAR(all[0], 1, 1e-12);
  return all[1];
}

TEST(SecondEigenvalue, IsThatOfLibTorchForMatricesThatAreNotSymmetric) {
  for (const int size : {2, 3, 5, 12, 40})
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      const Matrix matrix = random_columns(size, seed);
      EXPECT_NEAR(second_eigenvalue(matrix), by_libtorch(matrix), 1e-8) << size << ", " << seed;
    }
}

// A shift round a ring has all N-th roots of 1 as eigenvalues. Half a shift plus half the identity has the eigenvalues
// (1 + root) / 2.
TEST(SecondEigenvalue, OfHalfAShiftRoundARingIsItsCosine) {
  for (const int size : {2, 3, 7, 30}) {
    Matrix matrix(size, size);
    for (int i = 0; i < size; ++i) {
      matrix(i, i) += 0.5;
      matrix((i + 1) % size, i) += 0.5;
    }
    EXPECT_NEAR(second_eigenvalue(matrix), size == 2 ? 0 : std::cos(std::acos(-1.0) / size), 1e-9) << size;
  }
}

TEST(SecondEigenvalue, IsNothingWhereAllRowsAreAlikeAndOneWhereNothingIsMixed) {
  Matrix mean(4, 4), kept(4, 4), alone(1, 1);
  for (int i = 0; i < 4; ++i) {
    kept(i, i) = 1;
    for (int j = 0; j < 4; ++j) mean(i, j) = 0.25;
  }
  alone(0, 0) = 1;
  EXPECT_EQ(second_eigenvalue(mean), 0);
  EXPECT_NEAR(second_eigenvalue(kept), 1, 1e-12);
  EXPECT_EQ(second_eigenvalue(alone), 0);
}

}  // namespace
}  // namespace syncopate
