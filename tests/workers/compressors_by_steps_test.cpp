// Compressors over several steps, against recursions in double precision that share nothing with them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/workers/exact_recursions.hpp"
#include "tests/workers/exchanged_steps.hpp"
#include "workers/base/process.hpp"
#include "workers/time/network.hpp"

namespace syncopate {
namespace {

using Kind = CompressionOptions::Kind;
using Scope = CompressionOptions::Scope;
using Pattern = CompressionOptions::Pattern;
using Vector = std::vector<float>;
using Exact = std::vector<double>;

std::shared_ptr<const Compressor> whole(const CompressionOptions& options, std::size_t size, int workers) {
  return make_compressor(options, std::vector<Part>{{.offset = 0, .size = size}}, 5, workers);
}

constexpr int steps = 12;

TEST(ScaleCom, FollowsTheLeadersPlacesAndFiltersResiduals) {
  constexpr int workers = 3;
  constexpr std::size_t size = 40, kept = 6;
  for (const double beta : {1.0, 0.3}) {
    CompressionOptions options{.kind = Kind::scalecom, .ratio = 0.15};
    options.filter = beta;
    const auto compressor = whole(options, size, workers);
    ExchangedSteps found(*compressor, workers, size);
    std::vector<Exact> e(workers, Exact(size));
    Exact sent(size), given(size);
    for (int t = 0; t < steps; ++t) {
      const auto g = normal_gradients(workers, size, t);
      std::vector<Exact> p = e;
      for (std::size_t w = 0; w < p.size(); ++w)
        for (std::size_t i = 0; i < size; ++i) p[w][i] += g[w][i], given[i] += g[w][i];
      std::vector<bool> is_sent(size);
      for (const std::size_t place : largest(p[static_cast<std::size_t>(t % workers)], kept)) is_sent[place] = true;
      Exact sum(size);
      for (std::size_t w = 0; w < p.size(); ++w)
        for (std::size_t i = 0; i < size; ++i) {
          const double left = is_sent[i] ? 0 : p[w][i];
          sum[i] += p[w][i] - left;
          e[w][i] = (1 - beta) * e[w][i] + beta * left;
        }
      expect_near(found.step(t, g), sum, 1e-5, "step " + std::to_string(t));
      for (std::size_t i = 0; i < size; ++i) sent[i] += sum[i];
    }
    // Telescoping, of what is really kept: e stands first in the memory.
    for (std::size_t i = 0; i < size; ++i) {
      double left = 0;
      for (const Vector& own : found.memory) left += own[i];
      EXPECT_NEAR(sent[i], given[i] - left / beta, 1e-4) << beta;
    }
  }
}

TEST(ScaleCom, OfEachTensorSendsOfEach) {
  CompressionOptions options{.kind = Kind::scalecom, .ratio = 0.5, .scope = Scope::tensor};
  const auto compressor = make_compressor(options, std::vector<Part>{{0, 2}, {2, 3}}, 5, 2);
  ExchangedSteps found(*compressor, 2, 5);
  // Worker 1 leads at step 1.
  EXPECT_EQ(found.step(1, {{9, 1, 9, 1, 1}, {1, 2, 30, 50, 40}}), (Vector{0, 3, 0, 51, 0}));
  EXPECT_EQ(found.memory[0], (Vector{9, 0, 9, 0, 1}));
}

// Means of both groups of each column, as its definition has them.
Exact one_bit_of(const Exact& values, std::size_t columns) {
  Exact result(values.size());
  for (std::size_t column = 0; column < columns; ++column) {
    double sum[2] = {}, count[2] = {};
    for (std::size_t i = column; i < values.size(); i += columns)
      sum[values[i] < 0] += values[i], ++count[values[i] < 0];
    for (std::size_t i = column; i < values.size(); i += columns)
      result[i] = sum[values[i] < 0] / std::max(1.0, count[values[i] < 0]);
  }
  return result;
}

CompressionOptions one_bit(Scope scope, Pattern pattern = Pattern::gather) {
  CompressionOptions options{.kind = Kind::one_bit, .scope = scope};
  options.pattern = pattern;
  return options;
}

TEST(OneBit, HasTheGoldenMeans) {
  const auto compressor = whole(one_bit(Scope::model), 4, 1);
  ExchangedSteps found(*compressor, 1, 4);
  expect_near(found.step(0, {{0.5f, -1.5f, 0, 2}}), {0.833333, -1.5, 0.833333, 0.833333}, 1e-6);
  // The same column as the second of a matrix, between one that is exact and one of zeros.
  const auto of_matrix = make_compressor(one_bit(Scope::column), std::vector<Part>{{0, 12, 4, 3}}, 5, 1);
  ExchangedSteps columns(*of_matrix, 1, 12);
  expect_near(columns.step(0, {{-1, 0.5f, 0, -1, -1.5f, 0, 7, 0, 0, 7, 2, 0}}),
              {-1, 0.833333, 0, -1, -1.5, 0, 7, 0.833333, 0, 7, 0.833333, 0}, 1e-6);
}

TEST(OneBit, IsWhatItsDefinitionSaysOfEachColumn) {
  for (const auto& [rows, columns] :
       {std::pair<std::size_t, std::size_t>(37, 21), {3, 2500}, {2500, 3}, {1, 70}, {64, 64}}) {
    const std::size_t size = rows * columns;
    const auto g = normal_gradients(2, size, 1);
    const auto compressor = make_compressor(one_bit(Scope::column), std::vector<Part>{{0, size, rows, columns}}, 5, 2);
    ExchangedSteps found(*compressor, 2, size);
    const Vector sum = found.step(0, g);
    Exact expected(size);
    for (const Vector& own : g) {
      const Exact one = one_bit_of(Exact(own.begin(), own.end()), columns);
      for (std::size_t i = 0; i < size; ++i) expected[i] += one[i];
    }
    expect_near(sum, expected, 1e-5, std::to_string(rows) + " x " + std::to_string(columns));
    for (std::size_t i = 0; i < size; ++i)  // which keeps the mean of each column, and what is left of all
      EXPECT_NEAR(sum[i] + found.memory[0][i] + found.memory[1][i], g[0][i] + g[1][i], 1e-5);
  }
}

TEST(OneBit, OfEachTensorHasTwoMeansOfEach) {
  const std::vector<Part> parts = {{0, 4, 2, 2}, {4, 3}};
  const auto compressor = make_compressor(one_bit(Scope::tensor), parts, 5, 1);
  ExchangedSteps found(*compressor, 1, 7);
  expect_near(found.step(0, {{1, 2, -3, 6, -1, -2, 5}}), {3, 3, -3, 3, -1.5, -1.5, 5}, 1e-6);
}

TEST(OneBit, ANotANumberSpoilsItsColumn) {
  const auto compressor = make_compressor(one_bit(Scope::column), std::vector<Part>{{0, 6, 3, 2}}, 5, 1);
  ExchangedSteps found(*compressor, 1, 6);
  const Vector sum = found.step(0, {{1, 1, std::numeric_limits<float>::quiet_NaN(), 1, -1, -1}});
  EXPECT_TRUE(std::isnan(sum[0]) && std::isnan(sum[2]));
  EXPECT_EQ(sum[1], 1);
}

// Signs in chunks of ceil(d / N), each with the mean magnitude of its own; the owner's residual beside the workers'.
TEST(TwoPhase, IsTheRecursionWithBothResiduals) {
  constexpr int workers = 3;
  for (const std::size_t size : {50u, 51u, 4u, 2u, 4000u}) {
    for (const bool feedback : {true, false}) {
      CompressionOptions options{.kind = Kind::sign, .error_feedback = feedback};
      options.pattern = Pattern::two_phase;
      const auto compressor = whole(options, size, workers);
      ExchangedSteps found(*compressor, workers, size);
      const std::size_t chunk = (size + workers - 1) / workers;
      const auto signs_of = [&](const Exact& p) {  // of every chunk by itself
        Exact result(size);
        for (std::size_t begin = 0; begin < size; begin += chunk) {
          const std::size_t end = std::min(size, begin + chunk);
          double scale = 0;
          for (std::size_t i = begin; i < end; ++i) scale += std::fabs(p[i]) / static_cast<double>(end - begin);
          for (std::size_t i = begin; i < end; ++i) result[i] = p[i] < 0 ? -scale : scale;
        }
        return result;
      };
      std::vector<Exact> e(workers, Exact(size));
      Exact r(size), sent(size), given(size);
      for (int t = 0; t < 4; ++t) {
        const auto g = normal_gradients(workers, size, t);
        Exact sum(size);
        for (std::size_t w = 0; w < e.size(); ++w) {
          for (std::size_t i = 0; i < size; ++i) e[w][i] = (feedback ? e[w][i] : 0) + g[w][i], given[i] += g[w][i];
          const Exact own = signs_of(e[w]);
          for (std::size_t i = 0; i < size; ++i) e[w][i] -= own[i], sum[i] += own[i];
        }
        for (std::size_t i = 0; i < size; ++i) r[i] = (feedback ? r[i] : 0) + sum[i];
        const Exact all = signs_of(r);
        for (std::size_t i = 0; i < size; ++i) r[i] -= all[i], sent[i] += all[i];
        const Vector out = found.step(t, g, feedback ? 1 : 0);
        if (!feedback)
          for (Vector& own : found.owned) std::ranges::fill(own, 0.0f);  // as CompressedSum does
        expect_near(out, all, 1e-4, std::to_string(size) + " values, step " + std::to_string(t));
      }
      if (!feedback) continue;
      for (std::size_t i = 0; i < size; ++i) {
        double left = found.owned[i / chunk][i % chunk];
        for (const Vector& own : found.memory) left += own[i];
        EXPECT_NEAR(sent[i] + left, given[i], 1e-4);
      }
    }
  }
}

// Values of one bucket each are exact, also when their sum is rounded again.
TEST(TwoPhase, OfExactPacketsIsTheSum) {
  CompressionOptions options{.kind = Kind::qsgd, .error_feedback = false, .levels = 127, .bucket = 1};
  options.pattern = Pattern::two_phase;
  const auto compressor = whole(options, 100, 3);
  ExchangedSteps found(*compressor, 3, 100);
  const auto g = normal_gradients(3, 100, 2);
  const Vector sum = found.step(0, g, 0);
  for (std::size_t i = 0; i < 100; ++i) EXPECT_NEAR(sum[i], g[0][i] + g[1][i] + g[2][i], 1e-5);
}

// The rounding of each worker and the owner's: variances of at most (norm / s)^2 / 4 each.
TEST(TwoPhase, OfRoundedLevelsIsRightOnAverage) {
  constexpr std::size_t size = 64;
  constexpr int draws = 4000;
  CompressionOptions options{.kind = Kind::qsgd, .error_feedback = false, .levels = 7, .bucket = 64};
  options.pattern = Pattern::two_phase;
  const auto compressor = whole(options, size, 2);
  ExchangedSteps found(*compressor, 2, size);
  const auto g = normal_gradients(2, size, 4);
  Exact mean(size);
  int alike = 0;
  for (int t = 0; t < draws; ++t) {
    for (Vector& own : found.owned) std::ranges::fill(own, 0.0f);
    const Vector sum = found.step(t, g, 0);
    for (std::size_t i = 0; i < size; ++i) mean[i] += sum[i] / draws;
    alike += sum[0] == sum[32];
  }
  const double norm = 2 * std::sqrt(32.0 * 2), deviation = norm / 7 / 2 * std::sqrt(3.0);
  for (std::size_t i = 0; i < size; ++i) EXPECT_NEAR(mean[i], g[0][i] + g[1][i], 5 * deviation / std::sqrt(draws)) << i;
  EXPECT_LT(alike, draws / 2);  // chunks have draws of their own
}

// A matrix that chunks cut within a row keeps its columns: two values in each are exact in every piece.
TEST(TwoPhase, PiecesOfAMatrixHaveItsColumns) {
  constexpr std::size_t rows = 5, columns = 7, size = rows * columns + 3;
  Vector p(size);
  for (std::size_t i = 0; i < size; ++i) {
    const auto column = static_cast<float>(i % columns);
    p[i] = (i * 5 + 1) % 3 == 0 ? -1 - column : 2 + column;
    if (i >= rows * columns) p[i] = 4;
  }
  const std::vector<Part> parts = {{0, rows * columns, rows, columns, 0}, {rows * columns, 3, 0, 0, rows * columns}};
  for (const int workers : {1, 2, 3, 5}) {
    const auto compressor = make_compressor(one_bit(Scope::column, Pattern::two_phase), parts, 5, workers);
    ExchangedSteps found(*compressor, workers, size);
    const Vector sum = found.step(0, std::vector<Vector>(static_cast<std::size_t>(workers), p));
    for (std::size_t i = 0; i < size; ++i) EXPECT_NEAR(sum[i], static_cast<float>(workers) * p[i], 1e-5) << workers;
  }
}

// A matrix of 4 x 3 and a vector of 5, of which u = m u + g is sent whole.
TEST(DeepGradientCompression, SendsVectorsWholeWithTheirMomentum) {
  constexpr int workers = 3;
  constexpr std::size_t matrix = 12, size = 17, kept = 3;
  for (const bool masking : {true, false}) {
    CompressionOptions options{.kind = Kind::dgc, .ratio = 0.25, .momentum = 0.9, .masking = masking};
    options.dense_vectors = true;
    const auto compressor =
        make_compressor(options, std::vector<Part>{{0, 8, 4, 2}, {8, 4, 2, 2}, {12, 5}}, 5, workers);
    ExchangedSteps found(*compressor, workers, size);
    std::vector<Exact> u(workers, Exact(size)), v(workers, Exact(size));
    for (int t = 0; t < steps; ++t) {
      const auto g = normal_gradients(workers, size, t);
      Exact sum(size);
      for (std::size_t w = 0; w < u.size(); ++w) {
        for (std::size_t i = 0; i < size; ++i) u[w][i] = 0.9 * u[w][i] + g[w][i], v[w][i] += u[w][i];
        for (const std::size_t i : largest(Exact(v[w].begin(), v[w].begin() + matrix), kept)) {
          sum[i] += v[w][i];
          v[w][i] = 0;
          if (masking) u[w][i] = 0;
        }
        for (std::size_t i = matrix; i < size; ++i) sum[i] += v[w][i], v[w][i] = 0;
      }
      expect_near(found.step(t, g), sum, 1e-5, "step " + std::to_string(t));
    }
    EXPECT_EQ(compressor->exchanges({}),
              (std::vector<Exchange>{{Operation::all_reduce, Bytes{4 * 5}}, {Operation::all_gather, Bytes{8 * kept}}}));
  }
  CompressionOptions options{.kind = Kind::dgc};
  options.dense_vectors = true;
  options.written = "e.toml:3:4: compression.dense_vectors = true";
  try {
    make_compressor(options, std::vector<Part>{{0, 8}}, 5, 1);
    FAIL();
  } catch (const RunFailure& failure) {
    EXPECT_STREQ(failure.what(),
                 "e.toml:3:4: compression.dense_vectors = true; must be false: the model has no matrix, so "
                 "that nothing is compressed");
  }
}

TEST(Sparsifiers, WarmTheirRatioUpByAList) {
  for (const Kind kind : {Kind::top_k, Kind::dgc, Kind::random_k, Kind::scalecom})
    for (const int warmup : {1, 3, 4, 10, 23}) {
      CompressionOptions options{.kind = kind, .ratio = 0.01};
      options.warmup_ratios = {0.25, 0.06, 0.04, 0.02};
      options.warmup_steps = warmup;
      const auto list = exchanges_of(options, {}, Bytes{400}, 3);
      const auto compressor = whole(options, 100, 3);
      const std::int64_t kept[] = {25, 6, 4, 2};
      Bytes::Rep sum = 0;
      for (int t = 0; t < 30; ++t) {
        const std::int64_t k = t < warmup ? kept[4 * t / warmup] : 1;
        const auto exchanges = compressor->exchanges(t);
        EXPECT_EQ(exchanges.back().packet, Bytes{(kind == Kind::top_k || kind == Kind::dgc ? 8 : 4) * k});
        for (const Exchange& exchange : exchanges) sum += exchange.packet.value();
      }
      std::int64_t counted = 0;
      for (const auto& [count, exchanges] : shared_out(list, 30)) {
        counted += count;
        for (const Exchange& exchange : *exchanges) sum -= count * exchange.packet.value();
      }
      EXPECT_EQ(counted, 30);
      EXPECT_EQ(sum, 0) << static_cast<int>(kind) << " " << warmup;
    }
}

// In each step one of four workers leaves its gradient out. Sums, what is left at the end, what was counted and what
// was folded in are in balance; what was neither is missing in it.
TEST(ErrorFeedback, TelescopesWithFoldedGradients) {
  constexpr int workers = 4;
  constexpr std::size_t size = 48;
  std::vector<CompressionOptions> all = {{.kind = Kind::top_k, .ratio = 0.1},
                                         {.kind = Kind::random_k, .ratio = 0.1},
                                         {.kind = Kind::scalecom, .ratio = 0.1},
                                         {.kind = Kind::scalecom, .ratio = 0.1},
                                         {.kind = Kind::sign},
                                         {.kind = Kind::sign},
                                         one_bit(Scope::column),
                                         {.kind = Kind::power, .rank = 1}};
  all[3].filter = 0.25;
  all[5].pattern = Pattern::two_phase;
  for (const CompressionOptions& options : all)
    for (const bool folds : {true, false}) {
      const auto compressor = make_compressor(options, std::vector<Part>{{0, size, 6, 8}}, 5, workers);
      ExchangedSteps found(*compressor, workers, size);
      Exact balance(size), missing(size);
      for (int t = 0; t < steps; ++t) {
        auto g = normal_gradients(workers, size, t);
        Vector& left_out = g[static_cast<std::size_t>(t % workers)];
        const Vector dropped = left_out;
        std::ranges::fill(left_out, 0.0f);
        const Vector sum = found.step(t, g);
        if (folds) compressor->fold(dropped, 0, found.memory[static_cast<std::size_t>(t % workers)]);
        for (std::size_t i = 0; i < size; ++i) {
          for (const Vector& own : g) balance[i] += own[i];
          balance[i] += dropped[i] - sum[i];
          if (!folds) missing[i] += dropped[i];
        }
      }
      for (std::size_t i = 0; i < size; ++i) {
        for (const Vector& own : found.memory) balance[i] -= own[i] / options.filter;
        if (!found.owned.front().empty()) balance[i] -= found.owned[i / 12][i % 12];
        EXPECT_NEAR(balance[i], missing[i], 1e-4) << static_cast<int>(options.kind) << " " << folds;
      }
    }
}

// With momentum inside, folding runs u = m u + g too.
TEST(ErrorFeedback, FoldsIntoTheMomentumOfDeepGradientCompression) {
  constexpr std::size_t size = 10;
  const auto compressor = whole({.kind = Kind::dgc, .ratio = 0.2, .momentum = 0.8}, size, 1);
  ExchangedSteps found(*compressor, 1, size);
  Exact u(size), v(size);
  for (int t = 0; t < steps; ++t) {
    const bool drops = t % 3 == 1;
    auto g = normal_gradients(1, size, t);
    const Vector dropped = g.front();
    if (drops) std::ranges::fill(g.front(), 0.0f);
    for (std::size_t i = 0; i < size; ++i) u[i] = 0.8 * u[i] + g[0][i], v[i] += u[i];
    Exact sum(size);
    for (const std::size_t i : largest(v, 2)) sum[i] = v[i], v[i] = u[i] = 0;
    expect_near(found.step(t, g), sum, 1e-5, "step " + std::to_string(t));
    if (!drops) continue;
    compressor->fold(dropped, 0, found.memory.front());
    for (std::size_t i = 0; i < size; ++i) u[i] += dropped[i], v[i] += dropped[i];
  }
}

// N = 16 workers, a matrix of 1000 x 1000: bytes that each sends on average. Chunks have 62,500 values, whose signs are
// 1,954 words; an eighth of a byte each would be 234,375 in both phases.
TEST(CompressorsByStep, SendAsMuchAsClosedFormsSay) {
  const auto sent = [](CompressionOptions options, Pattern pattern = Pattern::gather) {
    options.pattern = pattern;
    const auto compressor = make_compressor(options, std::vector<Part>{{0, 1'000'000, 1000, 1000}}, 1, 16);
    Bytes::Rep bytes = 0;
    for (const Exchange& exchange : compressor->exchanges({}))
      bytes +=
          collective_bytes({.operation = exchange.operation, .members = 16, .payload = exchange.payload(16)}).value();
    return static_cast<double>(bytes) / 16;
  };
  EXPECT_EQ(sent({.kind = Kind::sign}, Pattern::two_phase), 2 * 15 * 4 * (1954 + 1));
  EXPECT_EQ(sent({.kind = Kind::qsgd, .levels = 127, .bucket = 62'500}, Pattern::two_phase), 1'875'000 + 2 * 15 * 4);
  EXPECT_EQ(sent({.kind = Kind::qsgd, .levels = 127, .bucket = 128}, Pattern::two_phase), 2 * 15 * (62'500 + 4 * 489));
  EXPECT_EQ(sent(one_bit(Scope::column)), 15 * (125'000 + 8 * 1000));
  EXPECT_EQ(sent(one_bit(Scope::model)), 15 * (125'000 + 8));
  EXPECT_EQ(sent(one_bit(Scope::column), Pattern::two_phase), 2 * 15 * (4 * 1954 + 8 * 1000));
  EXPECT_EQ(sent({.kind = Kind::scalecom, .ratio = 0.01}), 75'000 + 40'000 * 15 / 16.0);
}

// Bits of all are shorter than a dense ring's vector for fewer than 64 workers, and in two phases always.
TEST(CompressorsByStep, GatheredBitsPayForFewerThan64Workers) {
  const auto bytes = [](const std::vector<Exchange>& exchanges, int workers) {
    Bytes::Rep sum = 0;
    for (const Exchange& exchange : exchanges)
      sum +=
          collective_bytes({.operation = exchange.operation, .members = workers, .payload = exchange.payload(workers)})
              .value();
    return sum;
  };
  constexpr std::size_t size = 64 * 32 * 1000;
  CompressionOptions options{.kind = Kind::sign};
  for (const int workers : {2, 63, 64, 65, 128}) {
    options.pattern = Pattern::gather;
    const auto gathered = bytes(whole(options, size, workers)->exchanges({}), workers);
    options.pattern = Pattern::two_phase;
    const auto in_phases = bytes(whole(options, size, workers)->exchanges({}), workers);
    const auto dense = all_reduce_bytes(workers, Bytes{4 * size}).value();
    EXPECT_EQ(gathered < dense, workers < 64) << workers;
    EXPECT_NEAR(static_cast<double>(in_phases) / static_cast<double>(dense), 1.0 / 32, 0.002) << workers;
  }
}

}  // namespace
}  // namespace syncopate
