#include "workers/linear_algebra/pivoted_qr.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>
#include <utility>

namespace syncopate {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

// Of all columns, from row `row` on.
std::vector<double> squared_norms(const Matrix& a, int row) {
  std::vector<double> norms(at(a.columns));
  for (int i = row; i < a.rows; ++i)
    for (int j = row; j < a.columns; ++j) norms[at(j)] += a(i, j) * a(i, j);
  return norms;
}

void swap_columns(Matrix& a, int first, int second) {
  for (int i = 0; i < a.rows; ++i) std::swap(a(i, first), a(i, second));
}

}  // namespace

PivotedQr::PivotedQr(Matrix a)
    : a_(std::move(a)), heads_(at(a_.columns)), factors_(at(a_.columns)), order_(at(a_.columns)) {
  assert(a_.rows >= a_.columns);
  std::iota(order_.begin(), order_.end(), 0);
  for (int k = 0; k < a_.columns; ++k) {
    const std::vector<double> norms = squared_norms(a_, k);
    const auto pivot = static_cast<int>(std::max_element(norms.begin() + k, norms.end()) - norms.begin());
    if (norms[at(pivot)] == 0) return;  // nothing is left
    swap_columns(a_, k, pivot);
    std::swap(order_[at(k)], order_[at(pivot)]);
    eliminate(k, std::sqrt(norms[at(pivot)]));
  }
}

// Reflects the columns from `k` on so that column k, of this norm from row k on, has nothing below the diagonal.
void PivotedQr::eliminate(int k, double norm) {
  const double diagonal = a_(k, k) > 0 ? -norm : norm;  // the sign without cancellation
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

// x = Q (z, 0) with R^T z = P^T b: the first `rank` equations decide z, the others follow from them.
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

}  // namespace syncopate
