#include "workers/base/linear_algebra.hpp"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <utility>

namespace syncopate {

namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

// The squared norms of columns `row`, row + 1, ..., counting only elements from row `row` on.
std::vector<double> squared_norms(const Matrix& a, int row) {
  std::vector<double> norms(at(a.columns));
  for (int i = row; i < a.rows; ++i)
    for (int j = row; j < a.columns; ++j) norms[at(j)] += a(i, j) * a(i, j);
  return norms;
}

Matrix square(const Matrix& a) {
  Matrix result(a.rows, a.columns);
  const std::size_t n = at(a.rows);
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
  return std::sqrt(std::inner_product(a.values.begin(), a.values.end(), a.values.begin(), 0.0));
}

}  // namespace

PivotedQr::PivotedQr(Matrix a)
    : a_(std::move(a)), heads_(at(a_.columns)), factors_(at(a_.columns)), order_(at(a_.columns)) {
  assert(a_.rows >= a_.columns);
  std::iota(order_.begin(), order_.end(), 0);
  for (int k = 0; k < a_.columns; ++k) {
    const std::vector<double> norms = squared_norms(a_, k);
    const auto pivot = static_cast<int>(std::max_element(norms.begin() + k, norms.end()) - norms.begin());
    if (norms[at(pivot)] == 0) return;  // the remaining columns are zero
    for (int i = 0; i < a_.rows; ++i) std::swap(a_(i, k), a_(i, pivot));
    std::swap(order_[at(k)], order_[at(pivot)]);
    eliminate(k, std::sqrt(norms[at(pivot)]));
  }
}

// Reflects columns `k` and later so that column k becomes zero below the diagonal. `norm` is its norm from row k on.
void PivotedQr::eliminate(int k, double norm) {
  const double diagonal = a_(k, k) > 0 ? -norm : norm;  // the sign that avoids cancellation
  const double head = heads_[at(k)] = a_(k, k) - diagonal;
  const double factor = factors_[at(k)] = -1 / (diagonal * head);
  std::vector<double> dots(at(a_.columns));
  for (int j = k + 1; j < a_.columns; ++j) dots[at(j)] = head * a_(k, j);
  for (int i = k + 1; i < a_.rows; ++i)
    for (int j = k + 1; j < a_.columns; ++j) dots[at(j)] += a_(i, k) * a_(i, j);
  for (double& dot : dots) dot *= factor;
  for (int j = k + 1; j < a_.columns; ++j) a_(k, j) -= dots[at(j)] * head;
  for (int i = k + 1; i < a_.rows; ++i)
    for (int j = k + 1; j < a_.columns; ++j) a_(i, j) -= dots[at(j)] * a_(i, k);
  a_(k, k) = diagonal;
}

void PivotedQr::reflect(std::vector<double>& vector, int column) const {
  double dot = heads_[at(column)] * vector[at(column)];
  for (int i = column + 1; i < a_.rows; ++i) dot += a_(i, column) * vector[at(i)];
  dot *= factors_[at(column)];
  vector[at(column)] -= dot * heads_[at(column)];
  for (int i = column + 1; i < a_.rows; ++i) vector[at(i)] -= dot * a_(i, column);
}

std::vector<double> PivotedQr::times_q(std::vector<double> vector) const {
  for (int k = a_.columns - 1; k >= 0; --k) reflect(vector, k);
  return vector;
}

std::vector<double> PivotedQr::solve(std::vector<double> b) const {
  for (int k = 0; k < a_.columns; ++k) reflect(b, k);
  std::vector<double> x(at(a_.columns));
  for (int k = a_.columns - 1; k >= 0; --k) {
    double value = b[at(k)];
    for (int j = k + 1; j < a_.columns; ++j) value -= a_(k, j) * x[at(order_[at(j)])];
    x[at(order_[at(k)])] = value / a_(k, k);
  }
  return x;
}

// x = Q (z, 0), where the first `rank` equations of R^T z = P^T b determine z. The other equations follow from them.
std::vector<double> PivotedQr::solve_transposed(std::span<const double> b, int rank) const {
  std::vector<double> z(at(a_.rows));
  for (int k = 0; k < rank; ++k) {
    double value = b[at(order_[at(k)])];
    for (int i = 0; i < k; ++i) value -= a_(i, k) * z[at(i)];
    z[at(k)] = value / a_(k, k);
  }
  return times_q(std::move(z));
}

std::vector<double> PivotedQr::q_column(int column) const {
  std::vector<double> unit(at(a_.rows));
  unit[at(column)] = 1;
  return times_q(std::move(unit));
}

// A, the mixing matrix, keeps the sum of a vector. Restricted to vectors whose sum is 0, it has all its eigenvalues
// except one eigenvalue of 1. Subtracting each row's mean restricts A to these vectors. The k-th root of |A^2k| / |A^k|
// converges to the modulus much faster than the k-th root of |A^k|, because a constant factor cancels.
double second_eigenvalue(const Matrix& mixing) {
  Matrix power = mixing;
  for (int i = 0; i < power.rows; ++i) {
    double mean = 0;
    for (int j = 0; j < power.columns; ++j) mean += power(i, j) / power.columns;
    for (int j = 0; j < power.columns; ++j) power(i, j) -= mean;
  }
  constexpr int doublings = 40;
  constexpr double rounded = 1e-14;
  double log_of_norm = 0, estimate = -1;  // log |A^k|, estimated modulus
  double k = 1;
  for (int doubling = 0; doubling < doublings; ++doubling, k *= 2) {
    const double size = norm(power);
    if (!(size > rounded)) return 0;  // the power is 0 up to rounding
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
    const std::size_t place = at(places[at(row)]);
    right.push_back(-least_[place]);
    for (int k = 0; k < count; ++k) at_places(row, k) = directions_[at(k)][place];
  }
  const std::vector<double> factors = PivotedQr(std::move(at_places)).solve(std::move(right));
  std::vector<double> x = least_;
  for (std::size_t k = 0; k < directions_.size(); ++k)
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += factors[k] * directions_[k][i];
  for (const int place : places) x[at(place)] = 0;
  return x;
}

}  // namespace syncopate
