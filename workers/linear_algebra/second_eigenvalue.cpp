#include "workers/linear_algebra/second_eigenvalue.hpp"

#include <cmath>
#include <cstddef>
#include <utility>

namespace syncopate {
namespace {

Matrix square(const Matrix& a) {
  Matrix result(a.rows, a.columns);
  const auto n = static_cast<std::size_t>(a.rows);
  for (std::size_t i = 0; i < n; ++i) {
    double* const to = result.values.data() + i * n;
    for (std::size_t k = 0; k < n; ++k) {
      const double factor = a.values[i * n + k];
      const double* const from = a.values.data() + k * n;
      for (std::size_t j = 0; j < n; ++j) to[j] += factor * from[j];
    }
  }
  return result;
}

double norm(const Matrix& a) {
  double sum = 0;
  for (const double value : a.values) sum += value * value;
  return std::sqrt(sum);
}

}  // namespace

// Values that sum to 0 keep doing so, and among them all eigenvalues but the 1 are found: the columns' means are taken
// off. Of the norms' ratio from one power to its square the root goes to the modulus much faster than that of the norm,
// which has a factor with it.
double second_eigenvalue(const Matrix& mixing) {
  Matrix power = mixing;
  for (int i = 0; i < power.rows; ++i) {
    double mean = 0;
    for (int j = 0; j < power.columns; ++j) mean += power(i, j) / power.columns;
    for (int j = 0; j < power.columns; ++j) power(i, j) -= mean;
  }
  constexpr int doublings = 40;
  constexpr double rounded = 1e-14;
  double log_of_norm = 0, estimate = -1;  // of A^k
  double k = 1;
  for (int doubling = 0; doubling < doublings; ++doubling, k *= 2) {
    const double size = norm(power);
    if (!(size > rounded)) return 0;  // the power is 0 but for rounding
    log_of_norm += std::log(size);
    for (double& value : power.values) value /= size;
    Matrix next = square(power);
    const double grown = norm(next);
    if (!(grown > rounded)) return 0;
    // |A^2k| = exp(2 log_of_norm) grown
    const double before = std::exchange(estimate, std::exp((log_of_norm + std::log(grown)) / k));
    if (std::abs(estimate - before) < 1e-13) break;
    log_of_norm *= 2;
    power = std::move(next);
  }
  return estimate;
}

}  // namespace syncopate
