// Beside the eigenvalues that LibTorch computes.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "workers/base/linear_algebra.hpp"
#include "workers/base/random.hpp"

namespace syncopate {
namespace {

// Not symmetric, some elements 0, and in none of them all rows alike.
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

// A shift has all N-th roots of 1; kept for one half, they are (1 + w) / 2.
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
