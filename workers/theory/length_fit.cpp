#include "workers/theory/length_fit.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "workers/linear_algebra/pivoted_qr.hpp"

namespace syncopate {
namespace {

using Row = std::array<double, 4>;  // 1, tokens, padded tokens, squares

Row row_of(const TimedLengths& one) { return {1, one.tokens, one.padded_tokens, one.squares}; }

// Least squares over the named columns; nothing where these are not told apart.
std::optional<Row> solve(std::span<const TimedLengths> timed, const std::vector<std::size_t>& columns) {
  if (timed.size() < columns.size()) return {};
  Row scale{};
  for (const TimedLengths& one : timed)
    for (const std::size_t column : columns) scale[column] = std::max(scale[column], std::abs(row_of(one)[column]));
  Matrix a(static_cast<int>(timed.size()), static_cast<int>(columns.size()));
  std::vector<double> b;
  for (std::size_t i = 0; i < timed.size(); ++i) {
    for (std::size_t k = 0; k < columns.size(); ++k)
      a(static_cast<int>(i), static_cast<int>(k)) = row_of(timed[i])[columns[k]] / scale[columns[k]];
    b.push_back(timed[i].seconds);
  }
  const std::vector<double> x = PivotedQr(std::move(a)).solve(b);
  Row costs{};
  for (std::size_t k = 0; k < columns.size(); ++k) {
    constexpr double too_large = 1e6;  // times the largest time: columns that are nearly alike
    const double largest_s = std::ranges::max(b);
    if (!std::isfinite(x[k]) || std::abs(x[k]) > too_large * largest_s) return {};
    costs[columns[k]] = x[k] / scale[columns[k]];
  }
  return costs;
}

double line(const Row& costs, const TimedLengths& one) {
  const Row row = row_of(one);
  return costs[0] * row[0] + costs[1] * row[1] + costs[2] * row[2] + costs[3] * row[3];
}

double squared_residuals(const Row& costs, std::span<const TimedLengths> timed) {
  double sum = 0;
  for (const TimedLengths& one : timed) sum += std::pow(one.seconds - line(costs, one), 2);
  return sum;
}

// Of all choices of columns with costs that are not negative, the one that leaves least; of equal ones the shortest, so
// that lengths which are all alike have no cost. Equal: but for the rounding of the solutions.
Row best_costs(std::span<const TimedLengths> timed, Computed computed) {
  const std::vector<std::vector<std::size_t>> choices = {{0},       {1},       {2},       {3},       {0, 1},
                                                         {0, 2},    {0, 3},    {1, 2},    {1, 3},    {2, 3},
                                                         {0, 1, 2}, {0, 1, 3}, {0, 2, 3}, {1, 2, 3}, {0, 1, 2, 3}};
  std::optional<Row> best;
  double least = 0, total = 0;
  for (const TimedLengths& one : timed) total += one.seconds * one.seconds;
  for (const auto& columns : choices) {
    const auto has = [&](std::size_t column) { return std::ranges::find(columns, column) != columns.end(); };
    if (computed == Computed::own && has(1) && has(2)) continue;
    if (computed == Computed::padded && has(1)) continue;
    const auto costs = solve(timed, columns);
    if (!costs || std::ranges::any_of(*costs, [](double cost) { return cost < 0; })) continue;
    const double left = squared_residuals(*costs, timed);
    constexpr double rounding = 1e-12;
    if (best && left >= least - rounding * total) continue;
    best = costs;
    least = left;
  }
  return best.value_or(Row{});
}

}  // namespace

LengthFit fit_lengths(std::span<const TimedLengths> timed, Computed computed) {
  const Row costs = best_costs(timed, computed);
  LengthFit fit{.cost = {.base_s = costs[0],
                         .per_token_s = costs[1],
                         .per_padded_token_s = costs[2],
                         .per_squared_length_s = costs[3]},
                .points = static_cast<int>(timed.size())};
  double mean = 0, variance = 0;
  for (const TimedLengths& one : timed) mean += one.seconds / fit.points;
  for (const TimedLengths& one : timed) {
    variance += std::pow(one.seconds - mean, 2) / fit.points;
    fit.largest_residual_s = std::max(fit.largest_residual_s, std::abs(one.seconds - line(costs, one)));
  }
  const double left = squared_residuals(costs, timed) / fit.points;
  fit.typical_residual_s = std::sqrt(left);
  if (variance > 0) fit.r_squared = 1 - left / variance;
  return fit;
}

}  // namespace syncopate
