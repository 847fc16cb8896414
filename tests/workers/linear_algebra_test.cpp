#include <gtest/gtest.h>

#include "workers/base/linear_algebra.hpp"
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

// A matrix of rank 5: solutions of x^T A = b^T are many, and the shortest is orthogonal to all y with y^T A = 0.
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

}  // namespace
}  // namespace syncopate
