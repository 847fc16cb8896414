// Forms of compressors in which papers and published code differ, against recursions in double precision that share
// nothing with them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "tests/workers/exact_recursions.hpp"
#include "tests/workers/exchanged_steps.hpp"

namespace syncopate {
namespace {

using Kind = CompressionOptions::Kind;
using By = CompressionOptions::ClippedBy;
using Removed = CompressionOptions::Removed;
using Vector = std::vector<float>;
using Exact = std::vector<double>;

constexpr int steps = 12;

// u = m (u + g), v += u + g; every third step leaves its gradient out and folds it in: as if it had been there.
TEST(DeepGradientCompression, WithNesterovFollowsTheRecursion) {
  constexpr std::size_t size = 10;
  const CompressionOptions options{.kind = Kind::dgc, .ratio = 0.2, .momentum = 0.8, .nesterov = true};
  const auto compressor = make_compressor(options, std::vector<Part>{{0, size}}, 5, 1);
  ExchangedSteps found(*compressor, 1, size);
  Exact u(size), v(size);
  for (int t = 0; t < steps; ++t) {
    auto g = normal_gradients(1, size, t);
    const Vector whole = g.front();
    const bool drops = t % 3 == 1;
    if (drops) std::ranges::fill(g.front(), 0.0f);
    for (std::size_t i = 0; i < size; ++i) u[i] = 0.8 * (u[i] + g[0][i]), v[i] += u[i] + g[0][i];
    Exact sum(size);
    for (const std::size_t i : largest(v, 2)) sum[i] = v[i], v[i] = u[i] = 0;
    expect_near(found.step(t, g), sum, 1e-5, "step " + std::to_string(t));
    if (!drops) continue;
    compressor->fold(whole, 0, found.memory.front());
    for (std::size_t i = 0; i < size; ++i) u[i] += 0.8 * whole[i], v[i] += 1.8 * whole[i];
  }
}

// Tensors (3, 4) and (0, -12) of the sum of two micro-batches; norms 5, 12 and 13, of their mean half of that.
TEST(DeepGradientCompression, ClipsAWorkersMeanGradient) {
  const std::vector<Part> parts = {{0, 2, 1, 2}, {2, 2}};
  const auto clipped = [&](By by, double clip, bool by_workers = false) {
    CompressionOptions options{.kind = Kind::dgc};
    options.clip = clip;
    options.clipped_by = by;
    options.clip_by_workers = by_workers;
    const auto compressor = make_compressor(options, parts, 5, 4);
    EXPECT_TRUE(compressor->clips());
    Vector gradient{3, 4, 0, -12};
    compressor->clip(gradient, 2);
    return gradient;
  };
  expect_near(clipped(By::norm, 6.5), {3, 4, 0, -12}, 0);
  expect_near(clipped(By::norm, 3.25), {1.5, 2, 0, -6}, 1e-6);
  expect_near(clipped(By::norm, 6.5, true), {1.5, 2, 0, -6}, 1e-6);  // 1 / sqrt(4)
  expect_near(clipped(By::tensor_norm, 3), {3, 4, 0, -6}, 1e-6);
  expect_near(clipped(By::tensor_norm, 0.5), {0.6, 0.8, 0, -1}, 1e-6);
  expect_near(clipped(By::value, 1.5), {3, 3, 0, -3}, 0);
  EXPECT_FALSE(make_compressor({.kind = Kind::dgc}, parts, 5, 4)->clips());
  const auto compressor = make_compressor({.kind = Kind::dgc, .clip = 1}, parts, 5, 4);
  Vector gradient{3, std::numeric_limits<float>::quiet_NaN(), 0, 1};
  compressor->clip(gradient, 1);
  EXPECT_TRUE(std::isnan(gradient[1]));
}

// mean - d where a value is below its column's mean, else mean + d, with d the mean distance.
TEST(OneBit, WithAThresholdAtTheMeanIsWhatItsDefinitionSays) {
  for (const auto& [rows, columns] : {std::pair<std::size_t, std::size_t>(37, 21), {2500, 3}, {1, 70}, {70, 1}}) {
    const std::size_t size = rows * columns;
    CompressionOptions options{.kind = Kind::one_bit, .scope = CompressionOptions::Scope::column};
    options.threshold = CompressionOptions::Threshold::mean;
    const auto compressor = make_compressor(options, std::vector<Part>{{0, size, rows, columns}}, 5, 1);
    ExchangedSteps found(*compressor, 1, size);
    auto g = normal_gradients(1, size, 1);
    for (float& value : g.front()) value += 2;
    Exact expected(size);
    for (std::size_t column = 0; column < columns; ++column) {
      double mean = 0, distance = 0;
      for (std::size_t i = column; i < size; i += columns) mean += g[0][i] / static_cast<double>(rows);
      for (std::size_t i = column; i < size; i += columns)
        distance += std::fabs(g[0][i] - mean) / static_cast<double>(rows);
      for (std::size_t i = column; i < size; i += columns)
        expected[i] = g[0][i] < mean ? mean - distance : mean + distance;
    }
    const Vector sum = found.step(0, g);
    if (rows > 1) expect_near(sum, expected, 1e-4, std::to_string(columns) + " columns");
    for (std::size_t i = 0; i < size; ++i) EXPECT_NEAR(sum[i] + found.memory[0][i], g[0][i], 1e-5);
  }
}

TEST(OneBit, WithAThresholdAtTheMeanIsExactForTwoValues) {
  CompressionOptions options{.kind = Kind::one_bit, .scope = CompressionOptions::Scope::model};
  options.threshold = CompressionOptions::Threshold::mean;
  const auto compressor = make_compressor(options, std::vector<Part>{{0, 4}}, 5, 1);
  ExchangedSteps found(*compressor, 1, 4);
  expect_near(found.step(0, {{5, 3, 3, 5}}), {5, 3, 3, 5}, 1e-6);  // with a threshold of 0 they all were 4
  const Vector sum = found.step(1, {{1, 1, std::numeric_limits<float>::quiet_NaN(), 1}});
  EXPECT_TRUE(std::ranges::all_of(sum, [](float value) { return std::isnan(value); }));
}

// Columns of a (rows, r) matrix, made orthonormal by Gram-Schmidt.
std::vector<Exact> orthonormal(std::vector<Exact> columns) {
  const auto product = [](const Exact& a, const Exact& b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
  };
  for (std::size_t c = 0; c < columns.size(); ++c) {
    for (int pass = 0; pass < 2; ++pass)
      for (std::size_t o = 0; o < c; ++o) {
        const double share = product(columns[c], columns[o]);
        for (std::size_t i = 0; i < columns[c].size(); ++i) columns[c][i] -= share * columns[o][i];
      }
    const double length = std::sqrt(product(columns[c], columns[c]));
    for (double& value : columns[c]) value /= length;
  }
  return columns;
}

CompressionOptions in_turn(int rank, Removed removed = Removed::own) {
  CompressionOptions options{.kind = Kind::power, .rank = rank, .least_rate = 0, .removed = removed};
  options.factors = CompressionOptions::Factors::in_turn;
  return options;
}

// From the first step's own factor on, as the library draws it, the recursion of the package: the factor of the step
// before, made orthogonal; the other one from it; what they make out of the residual. A vector goes along whole.
TEST(PowerSgd, InTurnFollowsTheRecursion) {
  constexpr std::size_t n = 5, m = 7, r = 2, size = n * m + 3;
  constexpr int workers = 3;
  for (const Removed removed : {Removed::own, Removed::shared}) {
    const auto compressor =
        make_compressor(in_turn(r, removed), std::vector<Part>{{0, n * m, n, m}, {n * m, 3}}, 5, workers);
    ExchangedSteps found(*compressor, workers, size);
    std::vector<Exact> e(workers, Exact(size));
    std::vector<Exact> factor(r);  // of all workers' sum
    for (int t = 0; t < steps; ++t) {
      const auto g = normal_gradients(workers, size, t);
      const Vector sum = found.step(t, g);
      for (std::size_t w = 0; w < e.size(); ++w)
        for (std::size_t i = 0; i < size; ++i) e[w][i] += g[w][i];
      if (t == 0) {  // that the first step projects on some Q is told by its residual; what it sent is what it is
        for (std::size_t c = 0; c < r; ++c) {
          factor[c].resize(n);
          for (std::size_t i = 0; i < n; ++i) factor[c][i] = found.common[i * r + c];
        }
        for (std::size_t w = 0; w < e.size(); ++w) e[w].assign(found.memory[w].begin(), found.memory[w].end());
        continue;
      }
      const bool sends_left = t % 2 == 0;
      const auto place = [&](std::size_t i, std::size_t j) { return sends_left ? i * m + j : j * m + i; };
      const std::vector<Exact> other = orthonormal(factor);
      const std::size_t rows = sends_left ? n : m, columns = sends_left ? m : n;
      Exact all(size);
      factor.assign(r, Exact(rows));
      for (Exact& own : e) {
        Exact product(n * m);
        for (std::size_t c = 0; c < r; ++c)
          for (std::size_t i = 0; i < rows; ++i) {
            double value = 0;
            for (std::size_t j = 0; j < columns; ++j) value += own[place(i, j)] * other[c][j];
            factor[c][i] += value;
            for (std::size_t j = 0; j < columns; ++j) product[place(i, j)] += value * other[c][j];
          }
        for (std::size_t i = 0; i < n * m; ++i) {
          all[i] += product[i];
          if (removed == Removed::own) own[i] -= product[i];
        }
        for (std::size_t i = n * m; i < size; ++i) all[i] += own[i], own[i] = 0;
      }
      if (removed == Removed::shared)
        for (Exact& own : e)
          for (std::size_t i = 0; i < n * m; ++i) own[i] -= all[i] / workers;
      expect_near(sum, all, 1e-4, "step " + std::to_string(t));
      for (std::size_t w = 0; w < e.size(); ++w) expect_near(found.memory[w], e[w], 1e-4, "residual");
    }
  }
}

// A square matrix of full rank is exact from the first step on; one of rank 1 that stays is so from the second.
TEST(PowerSgd, InTurnIsExactWhereFactorsHoldTheMatrix) {
  const auto square = make_compressor(in_turn(6), std::vector<Part>{{0, 36, 6, 6}}, 5, 2);
  ExchangedSteps full(*square, 2, 36);
  for (int t = 0; t < steps; ++t) {
    const auto g = normal_gradients(2, 36, t);
    Exact sum(36);
    for (std::size_t i = 0; i < 36; ++i) sum[i] = static_cast<double>(g[0][i]) + g[1][i];
    expect_near(full.step(t, g), sum, 1e-4);
  }
  Vector matrix(20);
  for (std::size_t i = 0; i < 20; ++i) matrix[i] = static_cast<float>(1 + i / 5) * (0.5f - static_cast<float>(i % 5));
  CompressionOptions options = in_turn(1);
  options.error_feedback = false;
  const auto flat = make_compressor(options, std::vector<Part>{{0, 20, 4, 5}}, 5, 1);
  ExchangedSteps found(*flat, 1, 20);
  for (int t = 0; t < 4; ++t) {
    const Vector sum = found.step(t, {matrix}, 0);
    if (t > 0) expect_near(sum, Exact(matrix.begin(), matrix.end()), 1e-4);
  }
}

TEST(PowerSgd, InTurnGoesOnAfterGradientsOfZeros) {
  const auto compressor = make_compressor(in_turn(2), std::vector<Part>{{0, 20, 4, 5}}, 5, 1);
  ExchangedSteps found(*compressor, 1, 20);
  for (int t = 0; t < 3; ++t) EXPECT_EQ(found.step(t, {Vector(20)}), Vector(20));
  EXPECT_NE(found.step(3, normal_gradients(1, 20, 1)), Vector(20));
}

// Matrices of 20 x 30 in rank 2, and 9 values that are sent whole; predictions count even and odd steps.
TEST(PowerSgd, InTurnSendsHalfOfTheFactorsOnAverage) {
  const std::vector<ParameterTensor> tensors = {{"m", 0, 600, 0, 20}, {"b", 600, 9, 1}};
  CompressionOptions options = in_turn(2);
  options.least_rate = 2;
  const auto list = exchanges_of(options, tensors, Bytes{4 * 609}, 3);
  const std::vector<Exchange> even = {{Operation::all_reduce, Bytes{4 * (40 + 9)}}};
  const std::vector<Exchange> odd = {{Operation::all_reduce, Bytes{4 * (60 + 9)}}};
  for (const std::int64_t count : {1, 2, 7, 12}) {
    std::int64_t evens = 0, odds = 0;
    for (const auto& [many, exchanges] : shared_out(list, count)) (*exchanges == even ? evens : odds) += many;
    EXPECT_EQ(evens, (count + 1) / 2);
    EXPECT_EQ(odds, count / 2);
  }
  EXPECT_EQ(list.back().exchanges, even);
  EXPECT_EQ(list.back().of_odd_steps, odd);
}

}  // namespace
}  // namespace syncopate
