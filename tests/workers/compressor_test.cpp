// Compressors over several steps, compared with independent recursions in double precision.
#include "workers/compression/compressor.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "tests/workers/compressions.hpp"
#include "workers/base/process.hpp"
#include "workers/compression/kernels.hpp"
#include "workers/time/network.hpp"

namespace syncopate {
namespace {

// Workers that exchange packets, without a cluster, to test compressors step by step.

class ExchangedSteps {
 public:
  using Vector = std::vector<float>;

  std::shared_ptr<const Compressor> compressor;

  ExchangedSteps(std::shared_ptr<const Compressor> compressor, int workers, std::size_t size)
      : compressor(std::move(compressor)),
        size_(size),
        memory(static_cast<std::size_t>(workers), Vector(this->compressor->vectors() * size)),
        owned(static_cast<std::size_t>(workers)) {
    for (std::size_t i = 0; i < owned.size(); ++i) owned[i].resize(this->compressor->owned(rank(i)));
  }

  // Takes a step with one gradient per worker, after multiplying residuals by `of_memory`. Returns the sum of the sent
  // packets.
  Vector step(Step step, const std::vector<Vector>& gradients, float of_memory = 1) {
    for (std::size_t i = 0; i < memory.size(); ++i) compressor->accumulate(gradients[i], 0, of_memory, memory[i]);
    return exchange(step);
  }
  // Like step(), but the gradients are already in the memories.
  Vector exchange(Step step) {
    const std::vector<Exchange> exchanges = compressor->exchanges(step);
    const std::size_t workers = memory.size(), words = words_of(exchanges.front());
    std::vector<Vector> packets;
    for (std::size_t i = 0; i < workers; ++i) {
      packets.emplace_back(words);
      const bool sends = exchanges.front().operation != Operation::broadcast || compressor->root(step) == rank(i);
      if (sends)
        compressor->encode(rank(i), step, common.empty() ? nullptr : common.data(), memory[i], packets.back().data());
    }
    Vector between;
    if (exchanges.size() > 1) {
      const std::size_t words_of_last = words_of(exchanges.back());
      std::vector<Vector> last(workers, Vector(words_of_last));
      if (exchanges.front().operation == Operation::all_to_all) {
        for (std::size_t i = 0; i < workers; ++i) {
          std::vector<const float*> chunks;
          for (const Vector& packet : packets) chunks.push_back(packet.data() + i * words_of_last);
          compressor->reduce(rank(i), step, chunks, owned[i], last[i].data());
        }
      } else {
        const bool is_sum = exchanges.front().operation == Operation::all_reduce;
        between = is_sum ? sum_of(packets) : packets[static_cast<std::size_t>(compressor->root(step).value)];
        compressor->prepare(between.data());
        for (std::size_t i = 0; i < workers; ++i)
          compressor->encode_second(step, between.data(), memory[i], last[i].data());
      }
      packets = std::move(last);
    }
    if (exchanges.back().operation == Operation::all_reduce) packets = {sum_of(packets)};
    std::vector<const float*> all;
    for (const Vector& packet : packets) all.push_back(packet.data());
    const Received received{.packets = all,
                            .between = between.data(),
                            .common = common.empty() ? nullptr : common.data(),
                            .workers = static_cast<int>(workers),
                            .micro_batches = static_cast<std::int64_t>(workers),
                            .step = step};
    Vector sum(size_);
    compressor->decode(received, sum);
    if (compressor->corrects_residual())
      for (Vector& own : memory) compressor->correct(received, own);
    if (compressor->follows_common()) common = packets.front();
    return sum;
  }

 private:
  static Rank rank(std::size_t i) { return Rank{static_cast<int>(i)}; }
  static std::size_t words_of(const Exchange& exchange) {
    return static_cast<std::size_t>(exchange.packet.value()) / sizeof(float);
  }
  static Vector sum_of(const std::vector<Vector>& packets) {
    Vector sum(packets.front().size());
    for (const Vector& packet : packets)
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += packet[i];
    return sum;
  }

  std::size_t size_;

 public:
  std::vector<Vector> memory;  // by worker
  std::vector<Vector> owned;   // by worker: residuals of its own chunk
  Vector common;               // sum at the end of the previous step
};

// One gradient per worker, different in each step.
std::vector<std::vector<float>> normal_gradients(int workers, std::size_t size, int step) {
  std::mt19937 engine(static_cast<unsigned>(7 * step + 1));
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> all(static_cast<std::size_t>(workers), std::vector<float>(size));
  for (auto& own : all)
    for (float& value : own) value = normal(engine);
  return all;
}

void expect_near(const std::vector<float>& found, const std::vector<double>& expected, double tolerance,
                 const std::string& where = "") {
  ASSERT_EQ(found.size(), expected.size()) << where;
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], tolerance) << where << " at " << i;
}

// The indices of the k largest magnitudes, the largest first.
std::vector<std::size_t> largest(const std::vector<double>& values, std::size_t k) {
  std::vector<std::size_t> places(values.size());
  std::iota(places.begin(), places.end(), 0u);
  std::stable_sort(places.begin(), places.end(),
                   [&](auto a, auto b) { return std::fabs(values[a]) > std::fabs(values[b]); });
  places.resize(k);
  return places;
}

using Pattern = CompressionOptions::Pattern;
using Vector = std::vector<float>;
using Exact = std::vector<double>;

std::shared_ptr<const Compressor> of_parts(const CompressionOptions& options, std::vector<Part> parts,
                                           int workers = 1) {
  return make_compressor(options, std::move(parts), 5, workers);
}
std::shared_ptr<const Compressor> whole(const CompressionOptions& options, std::size_t size, int workers = 1) {
  return of_parts(options, {{.offset = 0, .size = size}}, workers);
}

constexpr int steps = 12;

TEST(ScaleCom, FollowsTheLeadersPlacesAndFiltersResiduals) {
  constexpr int workers = 3;
  constexpr std::size_t size = 40, kept = 6;
  for (const double beta : {1.0, 0.3}) {
    ExchangedSteps found(whole(compression("scalecom", fmt::format("ratio = 0.15, filter = {}", beta)), size, workers),
                         workers, size);
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
    // The sent sums add up to all gradients minus the last residuals / beta, because the filter multiplies residuals by
    // beta.
    for (std::size_t i = 0; i < size; ++i) {
      double left = 0;
      for (const Vector& own : found.memory) left += own[i];
      EXPECT_NEAR(sent[i], given[i] - left / beta, 1e-4) << beta;
    }
  }
}

TEST(ScaleCom, OfEachTensorSendsOfEach) {
  const CompressionOptions options = compression("scalecom", R"(ratio = 0.5, scope = "tensor")");
  ExchangedSteps found(of_parts(options, {{0, 2}, {2, 3}}, 2), 2, 5);
  // In step 1 worker 1 leads: its largest values decide which places all workers send.
  EXPECT_EQ(found.step(1, {{9, 1, 9, 1, 1}, {1, 2, 30, 50, 40}}), (Vector{0, 3, 0, 51, 0}));
  EXPECT_EQ(found.memory[0], (Vector{9, 0, 9, 0, 1}));
}

// 1-bit compression by its definition: in each column, negative values become their mean, and so do the other values.
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

CompressionOptions one_bit(const char* scope, Pattern pattern = Pattern::gather) {
  CompressionOptions options = compression("one-bit", fmt::format("scope = \"{}\"", scope));
  options.pattern = pattern;
  return options;
}

TEST(OneBit, HasTheGoldenMeans) {
  ExchangedSteps found(whole(one_bit("model"), 4, 1), 1, 4);
  expect_near(found.step(0, {{0.5f, -1.5f, 0, 2}}), {0.833333, -1.5, 0.833333, 0.833333}, 1e-6);
  // The same values are now the second column of a matrix. The first column is exact, because it has one negative and
  // one positive value. The last column is zero.
  ExchangedSteps columns(of_parts(one_bit("column"), {{0, 12, 4, 3}}), 1, 12);
  expect_near(columns.step(0, {{-1, 0.5f, 0, -1, -1.5f, 0, 7, 0, 0, 7, 2, 0}}),
              {-1, 0.833333, 0, -1, -1.5, 0, 7, 0.833333, 0, 7, 0.833333, 0}, 1e-6);
}

TEST(OneBit, IsWhatItsDefinitionSaysOfEachColumn) {
  for (const auto& [rows, columns] :
       {std::pair<std::size_t, std::size_t>(37, 21), {3, 2500}, {2500, 3}, {1, 70}, {64, 64}}) {
    const std::size_t size = rows * columns;
    const auto g = normal_gradients(2, size, 1);
    ExchangedSteps found(of_parts(one_bit("column"), {{0, size, rows, columns}}, 2), 2, size);
    const Vector sum = found.step(0, g);
    Exact expected(size);
    for (const Vector& own : g) {
      const Exact one = one_bit_of(Exact(own.begin(), own.end()), columns);
      for (std::size_t i = 0; i < size; ++i) expected[i] += one[i];
    }
    expect_near(sum, expected, 1e-5, std::to_string(rows) + " x " + std::to_string(columns));
    for (std::size_t i = 0; i < size; ++i)  // sent values and residuals add up to the gradients
      EXPECT_NEAR(sum[i] + found.memory[0][i] + found.memory[1][i], g[0][i] + g[1][i], 1e-5);
  }
}

TEST(OneBit, OfEachTensorHasTwoMeansOfEach) {
  const std::vector<Part> parts = {{0, 4, 2, 2}, {4, 3}};
  ExchangedSteps found(of_parts(one_bit("tensor"), parts), 1, 7);
  expect_near(found.step(0, {{1, 2, -3, 6, -1, -2, 5}}), {3, 3, -3, 3, -1.5, -1.5, 5}, 1e-6);
}

TEST(OneBit, ANotANumberSpoilsItsColumn) {
  ExchangedSteps found(of_parts(one_bit("column"), {{0, 6, 3, 2}}), 1, 6);
  const Vector sum = found.step(0, {{1, 1, std::numeric_limits<float>::quiet_NaN(), 1, -1, -1}});
  EXPECT_TRUE(std::isnan(sum[0]) && std::isnan(sum[2]));
  EXPECT_EQ(sum[1], 1);
}

// Signs in chunks of ceil(d / N) values with their own mean magnitudes. Workers and owners of chunks keep residuals.
TEST(TwoPhase, IsTheRecursionWithBothResiduals) {
  constexpr int workers = 3;
  for (const std::size_t size : {50u, 51u, 4u, 2u, 4000u}) {
    for (const bool feedback : {true, false}) {
      ExchangedSteps found(whole(compression("sign", R"(exchange = "two-phase")"), size, workers), workers, size);
      const std::size_t chunk = (size + workers - 1) / workers;
      const auto signs_of = [&](const Exact& p) {  // signs times mean magnitude, for each chunk
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
          for (Vector& own : found.owned) std::ranges::fill(own, 0.0f);  // CompressedSum clears them too
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

// If each value has a bucket of its own, packets are exact, and so is the sum that is compressed again.
TEST(TwoPhase, OfExactPacketsIsTheSum) {
  ExchangedSteps found(whole(compression("qsgd", R"(bucket = 1, exchange = "two-phase")"), 100, 3), 3, 100);
  const auto g = normal_gradients(3, 100, 2);
  const Vector sum = found.step(0, g, 0);
  for (std::size_t i = 0; i < 100; ++i) EXPECT_NEAR(sum[i], g[0][i] + g[1][i] + g[2][i], 1e-5);
}

// With s levels, the rounding of each worker and of the chunk's owner has a variance of at most (norm / s)^2 / 4.
TEST(TwoPhase, OfRoundedLevelsIsRightOnAverage) {
  constexpr std::size_t size = 64;
  constexpr int draws = 4000;
  ExchangedSteps found(whole(compression("qsgd", R"(levels = 7, bucket = 64, exchange = "two-phase")"), size, 2), 2,
                       size);
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
  EXPECT_LT(alike, draws / 2);  // each chunk has its own draws
}

// Even if a chunk begins within a row of a matrix, the compressor still groups its values by the matrix's columns.
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
    ExchangedSteps found(of_parts(one_bit("column", Pattern::two_phase), parts, workers), workers, size);
    const Vector sum = found.step(0, std::vector<Vector>(static_cast<std::size_t>(workers), p));
    for (std::size_t i = 0; i < size; ++i) EXPECT_NEAR(sum[i], static_cast<float>(workers) * p[i], 1e-5) << workers;
  }
}

// Matrices of 4 x 2 and 2 x 2, and a vector of 5. The vector's u = m u + g is sent whole (m: momentum, g: gradient).
TEST(DeepGradientCompression, SendsVectorsWholeWithTheirMomentum) {
  constexpr int workers = 3;
  constexpr std::size_t matrix = 12, size = 17, kept = 3;
  for (const bool masking : {true, false}) {
    const std::string keys = fmt::format("ratio = 0.25, momentum = 0.9, masking = {}, dense_vectors = true", masking);
    ExchangedSteps found(of_parts(compression("dgc", keys), {{0, 8, 4, 2}, {8, 4, 2, 2}, {12, 5}}, workers), workers,
                         size);
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
    EXPECT_EQ(found.compressor->exchanges({}),
              (std::vector<Exchange>{{Operation::all_reduce, Bytes{4 * 5}}, {Operation::all_gather, Bytes{8 * kept}}}));
  }
  try {
    of_parts(compression("dgc", "dense_vectors = true"), {{0, 8}});
    FAIL();
  } catch (const RunFailure& failure) {
    EXPECT_STREQ(failure.what(),
                 "e.toml:1:61: compression.dense_vectors = true; must be false: the model has no matrix, so "
                 "nothing would be compressed");
  }
}

TEST(Sparsifiers, WarmTheirRatioUpByAList) {
  for (const std::string_view kind : {"top-k", "dgc", "random-k", "scalecom"})
    for (const int warmup : {1, 3, 4, 10, 23}) {
      const CompressionOptions options = compression(
          kind, fmt::format("ratio = 0.01, warmup_ratios = [0.25, 0.06, 0.04, 0.02], warmup_steps = {}", warmup));
      const auto list = exchanges_of(options, {}, Bytes{400}, 3);
      const auto compressor = whole(options, 100, 3);
      const std::int64_t kept[] = {25, 6, 4, 2};
      Bytes::Rep sum = 0;
      for (int t = 0; t < 30; ++t) {
        const std::int64_t k = t < warmup ? kept[4 * t / warmup] : 1;
        const auto exchanges = compressor->exchanges(t);
        EXPECT_EQ(exchanges.back().packet, Bytes{(kind == "top-k" || kind == "dgc" ? 8 : 4) * k});
        for (const Exchange& exchange : exchanges) sum += exchange.packet.value();
      }
      std::int64_t counted = 0;
      for (const auto& [count, exchanges] : shared_out(list, 30)) {
        counted += count;
        for (const Exchange& exchange : *exchanges) sum -= count * exchange.packet.value();
      }
      EXPECT_EQ(counted, 30);
      EXPECT_EQ(sum, 0) << kind << " " << warmup;
    }
}

// In each step one of four workers leaves out its gradient. The sent sums plus the final residuals equal the gradients
// that were sent or folded in. If left-out gradients are not folded in, they are missing.
TEST(ErrorFeedback, TelescopesWithFoldedGradients) {
  constexpr int workers = 4;
  constexpr std::size_t size = 48;
  const std::pair<CompressionOptions, double> all[] = {// with the filter of residuals
                                                       {compression("top-k", "ratio = 0.1"), 1},
                                                       {compression("random-k", "ratio = 0.1"), 1},
                                                       {compression("scalecom", "ratio = 0.1"), 1},
                                                       {compression("scalecom", "ratio = 0.1, filter = 0.25"), 0.25},
                                                       {compression("sign"), 1},
                                                       {compression("sign", R"(exchange = "two-phase")"), 1},
                                                       {one_bit("column"), 1},
                                                       {compression("powersgd", "rank = 1"), 1}};
  for (const auto& [options, filter] : all)
    for (const bool folds : {true, false}) {
      ExchangedSteps found(of_parts(options, {{0, size, 6, 8}}, workers), workers, size);
      Exact balance(size), missing(size);
      for (int t = 0; t < steps; ++t) {
        auto g = normal_gradients(workers, size, t);
        Vector& left_out = g[static_cast<std::size_t>(t % workers)];
        const Vector dropped = left_out;
        std::ranges::fill(left_out, 0.0f);
        const Vector sum = found.step(t, g);
        if (folds) found.compressor->fold(dropped, 0, found.memory[static_cast<std::size_t>(t % workers)]);
        for (std::size_t i = 0; i < size; ++i) {
          for (const Vector& own : g) balance[i] += own[i];
          balance[i] += dropped[i] - sum[i];
          if (!folds) missing[i] += dropped[i];
        }
      }
      for (std::size_t i = 0; i < size; ++i) {
        for (const Vector& own : found.memory) balance[i] -= own[i] / filter;
        if (!found.owned.front().empty()) balance[i] -= found.owned[i / 12][i % 12];
        EXPECT_NEAR(balance[i], missing[i], 1e-4) << options.kind << " " << folds;
      }
    }
}

// The compressor has its own momentum m, so folding a gradient g in also updates u = m u + g.
TEST(ErrorFeedback, FoldsIntoTheMomentumOfDeepGradientCompression) {
  constexpr std::size_t size = 10;
  ExchangedSteps found(whole(compression("dgc", "ratio = 0.2, momentum = 0.8"), size, 1), 1, size);
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
    found.compressor->fold(dropped, 0, found.memory.front());
    for (std::size_t i = 0; i < size; ++i) u[i] += dropped[i], v[i] += dropped[i];
  }
}

// Bytes that all workers together send in one step.
Bytes::Rep bytes_of(const Compressor& compressor, int workers) {
  Bytes::Rep bytes = 0;
  for (const Exchange& exchange : compressor.exchanges({}))
    bytes +=
        collective_bytes({.operation = exchange.operation, .members = workers, .payload = exchange.payload(workers)})
            .value();
  return bytes;
}

// Mean bytes per worker for N = 16 workers and a matrix of 1000 x 1000. A chunk has 62,500 values, whose signs need
// 1,954 whole words. At exactly one bit per value both phases together would need 234,375 bytes.
TEST(Compressors, SendAsMuchAsClosedFormsSay) {
  const auto sent = [](CompressionOptions options, Pattern pattern = Pattern::gather) {
    options.pattern = pattern;
    const auto compressor = make_compressor(options, std::vector<Part>{{0, 1'000'000, 1000, 1000}}, 1, 16);
    return static_cast<double>(bytes_of(*compressor, 16)) / 16;
  };
  EXPECT_EQ(sent(compression("sign"), Pattern::two_phase), 2 * 15 * 4 * (1954 + 1));
  EXPECT_EQ(sent(compression("qsgd", "bucket = 62500"), Pattern::two_phase), 1'875'000 + 2 * 15 * 4);
  EXPECT_EQ(sent(compression("qsgd"), Pattern::two_phase), 2 * 15 * (62'500 + 4 * 489));
  EXPECT_EQ(sent(one_bit("column")), 15 * (125'000 + 8 * 1000));
  EXPECT_EQ(sent(one_bit("model")), 15 * (125'000 + 8));
  EXPECT_EQ(sent(one_bit("column"), Pattern::two_phase), 2 * 15 * (4 * 1954 + 8 * 1000));
  EXPECT_EQ(sent(compression("scalecom")), 75'000 + 40'000 * 15 / 16.0);
  EXPECT_EQ(sent(compression("top-k", "ratio = 0.01")), 1'200'000);
  EXPECT_EQ(sent(compression("top-k", "ratio = 0.001")), 120'000);
  EXPECT_EQ(sent(compression("random-k", "ratio = 0.01")), 75'000);
  EXPECT_EQ(sent(compression("sign")), 1'875'000 + 15 * 4);
  EXPECT_EQ(sent(compression("majority")), 1'875'000 + 15 * 4);
  EXPECT_EQ(sent(compression("majority", R"(zeros = "abstain")")), 2 * (1'875'000 + 15 * 4));
  EXPECT_EQ(sent(compression("qsgd", "levels = 127, bucket = 128")), 15 * (1'000'000 + 4 * 7813));
  EXPECT_EQ(sent(compression("qsgd", "levels = 7, bucket = 100")), 15 * (500'000 + 4 * 10'000));
  EXPECT_EQ(sent(compression("powersgd", "rank = 2")), 30'000);
}

// Gathering bits costs less than a dense ring all-reduce for fewer than 64 workers, and two phases always cost less.
TEST(Compressors, GatheredBitsPayForFewerThan64Workers) {
  constexpr std::size_t size = 64 * 32 * 1000;
  CompressionOptions options = compression("sign");
  for (const int workers : {2, 63, 64, 65, 128}) {
    options.pattern = Pattern::gather;
    const auto gathered = bytes_of(*whole(options, size, workers), workers);
    options.pattern = Pattern::two_phase;
    const auto in_phases = bytes_of(*whole(options, size, workers), workers);
    const auto dense = all_reduce_bytes(workers, Bytes{4 * size}).value();
    EXPECT_EQ(gathered < dense, workers < 64) << workers;
    EXPECT_NEAR(static_cast<double>(in_phases) / static_cast<double>(dense), 1.0 / 32, 0.002) << workers;
  }
}

// Single packets, compared with golden values, independent selections and closed forms.

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

std::vector<float> normal_numbers(std::size_t size, unsigned seed, float mean = 0, float deviation = 1) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(mean, deviation);
  std::vector<float> values(size);
  for (float& value : values) value = normal(engine);
  return values;
}

// One step of workers without residuals: the sum of their packets, and each worker's residual.
struct Step1 {
  std::vector<float> sum;
  std::vector<std::vector<float>> left;
};
Step1 step_of(std::shared_ptr<const Compressor> compressor, std::vector<std::vector<float>> p,
              std::vector<float> common = {}, Step step = 3) {
  ExchangedSteps steps(std::move(compressor), static_cast<int>(p.size()), p.front().size());
  steps.memory = std::move(p);
  steps.common = std::move(common);
  Step1 result;
  result.sum = steps.exchange(step);
  result.left = std::move(steps.memory);
  return result;
}

// In doubles 0.29 x 100 is below 29. The 29 values are sent with 4 bytes of index each.
TEST(TopK, KeepsTheWholeNumberThatRoundingMisses) {
  const auto compressor = of_parts(compression("top-k", "ratio = 0.29"), {{0, 100, 10}});
  EXPECT_EQ(compressor->exchanges({}).front().packet, Bytes{29 * (4 + 4)});
}

TEST(TopK, IsThatOfASortWithTiesByPlace) {
  for (const std::size_t size : {1u, 7u, 64u, 1000u, 100'000u})
    for (const double ratio : {0.001, 0.01, 0.3, 1.0})
      for (const bool rounded : {false, true}) {
        std::vector<float> values = normal_numbers(size, 3);
        if (rounded)  // makes many ties
          for (float& value : values) value = std::round(value);
        const std::size_t k = std::max<std::size_t>(1, static_cast<std::size_t>(ratio * static_cast<double>(size)));
        std::vector<std::uint32_t> expected(size);
        std::iota(expected.begin(), expected.end(), 0u);
        std::stable_sort(expected.begin(), expected.end(),
                         [&](auto a, auto b) { return std::fabs(values[a]) > std::fabs(values[b]); });
        expected.resize(k);
        std::sort(expected.begin(), expected.end());
        EXPECT_EQ(largest_magnitudes(values, k), expected) << size << " " << ratio << " " << rounded;
      }
}

// Top-k estimates its bound from a sample of every eighth value. Here the sample has only large values, or only zeros.
TEST(TopK, IsRightWhereEverySoManyValuesMislead) {
  for (const float drawn : {1000.0f, 0.0f}) {
    std::vector<float> values = normal_numbers(1 << 16, 4);
    for (std::size_t i = 4; i < values.size(); i += 8) values[i] = drawn;
    std::vector<float> sorted = values;
    for (float& value : sorted) value = std::fabs(value);
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    const std::size_t k = 20'000;
    std::vector<float> found;
    for (const std::uint32_t place : largest_magnitudes(values, k)) found.push_back(std::fabs(values[place]));
    std::sort(found.begin(), found.end(), std::greater<>());
    EXPECT_TRUE(std::equal(found.begin(), found.end(), sorted.begin()));
    EXPECT_EQ(found.size(), k);
  }
}

TEST(TopK, SendsWhatIsNotANumberFirst) {
  std::vector<float> values = {1, -5, not_a_number, std::numeric_limits<float>::infinity(), 2};
  EXPECT_EQ(largest_magnitudes(values, 1), (std::vector<std::uint32_t>{2}));
  const auto step = step_of(whole(compression("top-k", "ratio = 0.2"), 5), {values, {0, 0, 0, 0, 7}});
  EXPECT_TRUE(std::isnan(step.sum[2]));
}

TEST(TopK, LeavesWhatItDoesNotSend) {
  const auto step = step_of(whole(compression("top-k", "ratio = 0.5"), 4), {{0.5f, -1.5f, 0, 2}, {3, 0, -3, 3}});
  EXPECT_EQ(step.sum, (std::vector<float>{3, -1.5f, -3, 2}));
  EXPECT_EQ(step.left[0], (std::vector<float>{0.5f, 0, 0, 0}));
  EXPECT_EQ(step.left[1], (std::vector<float>{0, 0, 0, 3}));
}

TEST(TopK, OfEachTensorSendsOfEach) {
  const auto compressor = of_parts(compression("top-k", R"(ratio = 0.5, scope = "tensor")"), {{0, 2, 0}, {2, 3, 0}});
  EXPECT_EQ(step_of(compressor, {{1, 2, 30, 50, 40}}).sum, (std::vector<float>{0, 2, 0, 50, 0}));
  EXPECT_EQ(compressor->exchanges({}).front().packet, Bytes{2 * 8});
}

TEST(RandomK, SendsTheSamePlacesOfAllAndOthersAtEachStep) {
  const std::vector<float> ones(1000, 1.0f);
  const auto compressor = whole(compression("random-k", "ratio = 0.1"), 1000);
  std::vector<float> times_sent(1000);
  for (int t = 0; t < 400; ++t) {
    const auto step = step_of(compressor, {ones, ones, ones}, {}, t);
    for (std::size_t i = 0; i < 1000; ++i) {
      EXPECT_TRUE(step.sum[i] == 0 || step.sum[i] == 3);
      EXPECT_EQ(step.left[0][i], step.sum[i] == 3 ? 0 : 1);
      times_sent[i] += step.sum[i] / 3;
    }
    EXPECT_EQ(std::accumulate(step.sum.begin(), step.sum.end(), 0.0f), 300);  // without replacement
  }
  // Counts are binomial (400 draws of probability 0.1): mean 40, deviation 6. Each of 1,000 is within 5.5 deviations.
  for (const float count : times_sent) EXPECT_NEAR(count, 40, 33);
}

TEST(RandomK, WithoutErrorFeedbackIsRightOnAverage) {
  const auto compressor = whole(compression("random-k", "ratio = 0.25, error_feedback = false"), 8);
  for (const float value : step_of(compressor, {std::vector<float>(8, 3.0f)}).sum)
    EXPECT_TRUE(value == 0 || value == 12);
}

TEST(Signs, AreThoseOfTheGoldenVector) {
  const std::vector<float> p = {0.5f, -1.5f, 0, 2};
  const auto step = step_of(whole(compression("sign"), 4), {p});
  EXPECT_EQ(step.sum, (std::vector<float>{1, -1, 1, 1}));
  double error = 0;
  for (const float left : step.left[0]) error += left * left;
  EXPECT_DOUBLE_EQ(error, 2.5);
}

// Signs p lose |C(p) - p|^2 = (1 - delta) |p|^2 with delta = |p|_1^2 / (d |p|_2^2).
TEST(Signs, ContractByTheClosedForm) {
  for (const std::size_t size : {5u, 32u, 33u, 1000u, 4099u}) {
    const std::vector<float> p = normal_numbers(size, 7);
    double one = 0, two = 0, error = 0;
    for (const float value : p) one += std::fabs(value), two += static_cast<double>(value) * value;
    const auto step = step_of(whole(compression("sign"), size), {p});
    for (const float left : step.left[0]) error += static_cast<double>(left) * left;
    EXPECT_NEAR(error, two - one * one / static_cast<double>(size), 1e-5 * two);
    for (std::size_t i = 0; i < size; ++i) EXPECT_NEAR(step.sum[i] + step.left[0][i], p[i], 1e-6);
  }
}

TEST(MajorityVote, IsTheSignOfTheSumOfSigns) {
  const auto compressor = whole(compression("majority"), 3);
  // Signs are multiplied by the number of micro-batches, three, because methods divide by it.
  EXPECT_EQ(step_of(compressor, {{5, -1, 0.1f}, {-0.1f, -1, 0.2f}, {-0.2f, 3, -9}}).sum,
            (std::vector<float>{-3, -3, 3}));
  EXPECT_EQ(step_of(compressor, {{5, 1, -1}, {-1, 1, -1}}).sum, (std::vector<float>{0, 2, -2}));  // a tie
  for (const float value : step_of(compressor, {{5, -1, not_a_number}, {1, 1, 1}}).sum) EXPECT_TRUE(std::isnan(value));
}

TEST(MajorityVote, WhoHasNothingDoesNotVote) {
  const auto compressor = whole(compression("majority"), 3);
  EXPECT_EQ(step_of(compressor, {{1, -2, 3}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}}).sum, (std::vector<float>{4, -4, 4}));
  EXPECT_EQ(step_of(compressor, {{0, 0, 0}, {0, 0, 0}}).sum, (std::vector<float>{0, 0, 0}));
}

// 33 values, so that the last word is not full.
TEST(MajorityVote, ZerosVotePlusOrNothing) {
  std::vector<float> one(33), other(33);
  one[0] = 2, one[1] = -1, one[32] = -3;
  other[1] = 1, other[2] = -0.0F, other[31] = -4;
  std::vector<float> plus(33, 2), abstain(33);
  // The sum is 0 where one worker votes minus and the other votes plus. Zeros vote plus, but -0.0 votes minus.
  plus[1] = plus[2] = plus[31] = plus[32] = 0;
  abstain[0] = 2, abstain[31] = abstain[32] = -2;
  EXPECT_EQ(step_of(whole(compression("majority"), 33), {one, other}).sum, plus);
  const CompressionOptions options = compression("majority", R"(zeros = "abstain")");
  EXPECT_EQ(step_of(whole(options, 33), {one, other}).sum, abstain);
  const auto not_finite = step_of(whole(options, 3), {{5, -1, not_a_number}, {1, 1, 1}});
  for (const float value : not_finite.sum) EXPECT_TRUE(std::isnan(value));
}

TEST(Qsgd, IsExactForOneValueAndZeros) {
  const auto compressor = whole(compression("qsgd", "levels = 3, bucket = 4"), 10);
  EXPECT_EQ(step_of(compressor, {{0, -3, 0, 0, 0, 0, 0, 0, 0, 5}}).sum,
            (std::vector<float>{0, -3, 0, 0, 0, 0, 0, 0, 0, 5}));
  EXPECT_TRUE(std::isnan(step_of(compressor, {{0, not_a_number, 0, 0, 0, 0, 0, 0, 0, 5}}).sum[1]));
}

// The mean of many draws, for all bit widths. With s levels, a rounding's variance is at most (norm / s)^2 / 4.
TEST(Qsgd, IsRightOnAverage) {
  const std::vector<float> v = normal_numbers(64, 9);
  double norm = 0;
  for (const float value : v) norm += static_cast<double>(value) * value;
  norm = std::sqrt(norm);
  for (const int levels : {1, 7, 127}) {
    const auto compressor = whole(compression("qsgd", fmt::format("levels = {}, bucket = 64", levels)), 64);
    const int draws = 4000;
    std::vector<double> mean(64);
    for (int t = 0; t < draws; ++t) {
      const auto sum = step_of(compressor, {v}, {}, t).sum;
      for (std::size_t i = 0; i < 64; ++i) mean[i] += sum[i] / draws;
    }
    for (std::size_t i = 0; i < 64; ++i) EXPECT_NEAR(mean[i], v[i], 5 * norm / levels / 2 / std::sqrt(draws)) << levels;
  }
}

TEST(Qsgd, RoundsDifferentlyOnEachWorker) {
  const std::vector<float> v = normal_numbers(64, 9);
  const auto compressor = whole(compression("qsgd", "levels = 7, bucket = 64"), 64);
  const auto both = step_of(compressor, {v, v}).sum, one = step_of(compressor, {v}).sum;
  int equal = 0;
  for (std::size_t i = 0; i < 64; ++i) equal += both[i] == 2 * one[i];
  EXPECT_LT(equal, 60);
}

CompressionOptions power(int rank, double least_rate, const std::string& keys = "") {
  return compression("powersgd", fmt::format("rank = {}, least_rate = {}{}", rank, least_rate, keys));
}
constexpr const char* removes_mean = ", removed = \"mean\"";

TEST(PowerSgd, HasTheGoldenFactorsAndResiduals) {
  const std::vector<float> q = {1, 0};
  const std::vector<std::vector<double>> expected_left = {{0.235294118, 0.941176471, -0.058823529, -0.235294118},
                                                          {0.5, 1.441176471, 1, 1.764705882}};
  for (const bool of_mean : {false, true}) {
    const auto compressor = of_parts(power(1, 0, of_mean ? removes_mean : ""), {{0, 4, 2}});
    const auto step = step_of(compressor, {{1, 2, 3, 4}, {0, 1, 1, 0}}, q);
    const double mean[] = {0.5, 0.558823529, 2, 2.235294118};
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(step.sum[i] / 2, mean[i], 1e-6);
      EXPECT_NEAR(step.left[0][i], expected_left[of_mean ? 1 : 0][i], 1e-6);
    }
  }
}

TEST(PowerSgd, IsExactForAMatrixOfItsRankAndForFullRank) {
  for (const auto& [rank, of_matrix] : {std::pair(1, 1), std::pair(3, 3), std::pair(5, 2), std::pair(6, 6)}) {
    const std::size_t n = 6, m = 9;
    std::vector<float> matrix(n * m);
    const auto left = normal_numbers(n * 6, 1), right = normal_numbers(m * 6, 2);
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < m; ++j)
        for (std::size_t c = 0; c < static_cast<std::size_t>(of_matrix); ++c)
          matrix[i * m + j] += left[i * 6 + c] * right[j * 6 + c];
    const auto compressor = of_parts(power(rank, 0), {{0, n * m, n}});
    const auto step = step_of(compressor, {matrix, matrix});
    for (std::size_t i = 0; i < n * m; ++i) EXPECT_NEAR(step.sum[i], 2 * matrix[i], 1e-4) << rank;
  }
}

TEST(PowerSgd, OfZerosIsZerosAndOfNotANumberIsNone) {
  const auto compressor = of_parts(power(2, 0), {{0, 20, 4}});
  EXPECT_EQ(step_of(compressor, {std::vector<float>(20)}).sum, std::vector<float>(20));
  std::vector<float> values(20, 1.0f);
  values[7] = not_a_number;
  const auto sum = step_of(compressor, {values}).sum;
  EXPECT_TRUE(std::any_of(sum.begin(), sum.end(), [](float value) { return std::isnan(value); }));
}

TEST(PowerSgd, GoesOnAfterAGradientOfZeros) {
  const auto compressor = of_parts(power(2, 0), {{0, 20, 4}});
  const std::vector<float> last(10), p = normal_numbers(20, 3);
  const auto step = step_of(compressor, {p}, last);
  EXPECT_TRUE(std::any_of(step.sum.begin(), step.sum.end(), [](float value) { return value != 0; }));
}

TEST(PowerSgd, SendsVectorsAndSmallMatricesWhole) {
  const std::vector<Part> parts = {{0, 20 * 30, 20}, {600, 4, 2}, {604, 5, 0}};
  const auto compressor = of_parts(power(2, 2), parts);
  EXPECT_EQ(compressor->exchanges({}).front().packet, Bytes{4 * (2 * 20 + 4 + 5)});
  EXPECT_EQ(compressor->exchanges({}).back().packet, Bytes{4 * 2 * 30});
  const std::vector<float> p = normal_numbers(609, 3);
  const auto step = step_of(compressor, {p, p, p});
  for (std::size_t i = 600; i < 609; ++i) {
    EXPECT_FLOAT_EQ(step.sum[i], 3 * p[i]);
    EXPECT_EQ(step.left[1][i], 0);
  }
  EXPECT_THROW(of_parts(power(16, 2), parts), RunFailure);
}

// Factors of rank 2 of an 8 x 8 matrix have 32 values, exactly half of its 64: not fewer by more than a factor of 2.
TEST(PowerSgd, SendsAMatrixWholeThatShrinksByExactlyTheLeastRate) {
  const auto compressor = of_parts(power(2, 2), {{0, 20 * 30, 20}, {600, 64, 8}});
  EXPECT_EQ(compressor->exchanges({}).front().packet, Bytes{4 * (2 * 20 + 64)});
}

// Variants of compressors in which papers and published code differ, compared with independent recursions in double
// precision.

// Nesterov's momentum m: u = m (u + g), v += u + g. Every third step leaves out its gradient g and then folds it in,
// which must have the same effect as including it.
TEST(DeepGradientCompression, WithNesterovFollowsTheRecursion) {
  constexpr std::size_t size = 10;
  ExchangedSteps found(whole(compression("dgc", "ratio = 0.2, momentum = 0.8, nesterov = true"), size), 1, size);
  Exact u(size), v(size);
  for (int t = 0; t < steps; ++t) {
    auto g = normal_gradients(1, size, t);
    const Vector dropped = g.front();
    const bool drops = t % 3 == 1;
    if (drops) std::ranges::fill(g.front(), 0.0f);
    for (std::size_t i = 0; i < size; ++i) u[i] = 0.8 * (u[i] + g[0][i]), v[i] += u[i] + g[0][i];
    Exact sum(size);
    for (const std::size_t i : largest(v, 2)) sum[i] = v[i], v[i] = u[i] = 0;
    expect_near(found.step(t, g), sum, 1e-5, "step " + std::to_string(t));
    if (!drops) continue;
    found.compressor->fold(dropped, 0, found.memory.front());
    for (std::size_t i = 0; i < size; ++i) u[i] += 0.8 * dropped[i], v[i] += 1.8 * dropped[i];
  }
}

// The gradient is a sum of two micro-batches. Its tensors are (3, 4) and (0, -12), with norms 5 and 12, together 13.
// The mean gradient has half of these norms.
TEST(DeepGradientCompression, ClipsAWorkersMeanGradient) {
  const std::vector<Part> parts = {{0, 2, 1, 2}, {2, 2}};
  const auto clipped = [&](const char* by, double clip, const char* scaling = "none") {
    const std::string keys = fmt::format("clip = {}, clip_by = \"{}\", clip_scaling = \"{}\"", clip, by, scaling);
    const auto compressor = of_parts(compression("dgc", keys), parts, 4);
    EXPECT_TRUE(compressor->clips());
    Vector gradient{3, 4, 0, -12};
    compressor->clip(gradient, 2);
    return gradient;
  };
  expect_near(clipped("norm", 6.5), {3, 4, 0, -12}, 0);
  expect_near(clipped("norm", 3.25), {1.5, 2, 0, -6}, 1e-6);
  expect_near(clipped("norm", 6.5, "1/sqrt(N)"), {1.5, 2, 0, -6}, 1e-6);  // 6.5 / sqrt(4), with 4 workers
  expect_near(clipped("tensor-norm", 3), {3, 4, 0, -6}, 1e-6);
  expect_near(clipped("tensor-norm", 0.5), {0.6, 0.8, 0, -1}, 1e-6);
  expect_near(clipped("value", 1.5), {3, 3, 0, -3}, 0);
  EXPECT_FALSE(of_parts(compression("dgc"), parts, 4)->clips());
  const auto compressor = of_parts(compression("dgc", "clip = 1"), parts, 4);
  Vector gradient{3, std::numeric_limits<float>::quiet_NaN(), 0, 1};
  compressor->clip(gradient, 1);
  EXPECT_TRUE(std::isnan(gradient[1]));
}

// A value below its column's mean becomes mean - d, else mean + d, where d is the column's mean distance from its mean.
TEST(OneBit, WithAThresholdAtTheMeanIsWhatItsDefinitionSays) {
  for (const auto& [rows, columns] : {std::pair<std::size_t, std::size_t>(37, 21), {2500, 3}, {1, 70}, {70, 1}}) {
    const std::size_t size = rows * columns;
    ExchangedSteps found(of_parts(compression("one-bit", R"(threshold = "mean")"), {{0, size, rows, columns}}), 1,
                         size);
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
  ExchangedSteps found(whole(compression("one-bit", R"(scope = "model", threshold = "mean")"), 4), 1, 4);
  expect_near(found.step(0, {{5, 3, 3, 5}}), {5, 3, 3, 5}, 1e-6);  // with a threshold of 0 all would be 4
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

CompressionOptions in_turn(int rank, double least_rate = 0, const std::string& keys = "") {
  return power(rank, least_rate, ", factors = \"in-turn\"" + keys);
}

// The recursion of the published package, started from the random factor that the library draws. In each step: make the
// previous step's factor orthogonal, compute the other factor from it, and subtract their product from the residual.
// Vectors are sent whole.
TEST(PowerSgd, InTurnFollowsTheRecursion) {
  constexpr std::size_t n = 5, m = 7, r = 2, size = n * m + 3;
  constexpr int workers = 3;
  for (const bool of_mean : {false, true}) {
    ExchangedSteps found(of_parts(in_turn(r, 0, of_mean ? removes_mean : ""), {{0, n * m, n, m}, {n * m, 3}}, workers),
                         workers, size);
    std::vector<Exact> e(workers, Exact(size));
    std::vector<Exact> factor(r);  // factor of all workers' sum
    for (int t = 0; t < steps; ++t) {
      const auto g = normal_gradients(workers, size, t);
      const Vector sum = found.step(t, g);
      for (std::size_t w = 0; w < e.size(); ++w)
        for (std::size_t i = 0; i < size; ++i) e[w][i] += g[w][i];
      if (t == 0) {  // the first step's projection follows from its residual
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
          if (!of_mean) own[i] -= product[i];
        }
        for (std::size_t i = n * m; i < size; ++i) all[i] += own[i], own[i] = 0;
      }
      if (of_mean)
        for (Exact& own : e)
          for (std::size_t i = 0; i < n * m; ++i) own[i] -= all[i] / workers;
      expect_near(sum, all, 1e-4, "step " + std::to_string(t));
      for (std::size_t w = 0; w < e.size(); ++w) expect_near(found.memory[w], e[w], 1e-4, "residual");
    }
  }
}

// A square matrix of full rank is exact from the first step on; a constant matrix of rank 1 from the second.
TEST(PowerSgd, InTurnIsExactWhereFactorsHoldTheMatrix) {
  ExchangedSteps full(of_parts(in_turn(6), {{0, 36, 6, 6}}, 2), 2, 36);
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
  ExchangedSteps found(of_parts(options, {{0, 20, 4, 5}}), 1, 20);
  for (int t = 0; t < 4; ++t) {
    const Vector sum = found.step(t, {matrix}, 0);
    if (t > 0) expect_near(sum, Exact(matrix.begin(), matrix.end()), 1e-4);
  }
}

TEST(PowerSgd, InTurnGoesOnAfterGradientsOfZeros) {
  ExchangedSteps found(of_parts(in_turn(2), {{0, 20, 4, 5}}), 1, 20);
  for (int t = 0; t < 3; ++t) EXPECT_EQ(found.step(t, {Vector(20)}), Vector(20));
  EXPECT_NE(found.step(3, normal_gradients(1, 20, 1)), Vector(20));
}

// A matrix of 20 x 30 in rank 2, and 9 values sent whole. Predicted exchanges differ between even and odd steps.
TEST(PowerSgd, InTurnSendsHalfOfTheFactorsOnAverage) {
  const std::vector<ParameterTensor> tensors = {{"m", 0, 600, 0, 20}, {"b", 600, 9, 1}};
  const auto list = exchanges_of(in_turn(2, 2), tensors, Bytes{4 * 609}, 3);
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

// Packets of eight and four bits per value, compared with independent roundings and closed forms.

// One step of a single worker.
Step1 sent(const CompressionOptions& options, const std::vector<float>& values, std::vector<Part> parts = {},
           Step step = 3) {
  if (parts.empty()) parts = {{0, values.size(), 0}};
  return step_of(of_parts(options, parts), {values}, {}, step);
}

// An independent implementation in double precision: bins within mean +- range x deviation, each value replaced by the
// mean of its bin.
std::vector<double> in_bins(const std::vector<float>& values, double range_std) {
  const auto size = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / size;
  double square = 0;
  for (const double value : values) square += (value - mean) * (value - mean) / size;
  const double range = range_std * std::sqrt(square);
  std::map<int, std::pair<double, int>> bins;
  std::vector<int> bin_of;
  for (const double value : values) {
    bin_of.push_back(static_cast<int>(std::clamp(std::floor((value - mean + range) * 128 / range), 0.0, 255.0)));
    bins[bin_of.back()].first += value;
    ++bins[bin_of.back()].second;
  }
  std::vector<double> result;
  for (const int bin : bin_of) result.push_back(bins[bin].first / bins[bin].second);
  return result;
}

TEST(UniformBins, StandForTheMeanOfTheirValues) {
  for (const double range_std : {3.0, 6.0, 1.5}) {
    const auto values = normal_numbers(5001, 4, 0.3f, 2);
    const auto expected = in_bins(values, range_std);
    const Step1 found = sent(compression("int8", fmt::format("range_std = {}", range_std)), values);
    int other_bins = 0;  // values that rounding has moved across an edge
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (std::abs(found.sum[i] - expected[i]) > 1e-4) ++other_bins;
      EXPECT_EQ(found.left[0][i], values[i] - found.sum[i]);
    }
    EXPECT_LE(other_bins, 5) << range_std;
  }
}

// The errors of all bins sum to zero. The error of a value inside the range is less than a bin; a value outside is in
// the outermost bin, whatever its size.
TEST(UniformBins, KeepTheSum) {
  const auto values = normal_numbers(4096, 7);
  const Step1 found = sent(compression("int8"), values);
  double left = 0, largest = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    left += static_cast<double>(found.left[0][i]);
    if (std::abs(values[i]) < 2.8f) largest = std::max(largest, std::abs(static_cast<double>(found.left[0][i])));
  }
  EXPECT_NEAR(left, 0, 1e-3);
  EXPECT_LT(largest, 1.05 * 6 / 256);
  EXPECT_GT(largest, 0.5 * 6 / 256);
}

TEST(UniformBins, OfFewValuesApartAreExact) {
  EXPECT_EQ(sent(compression("int8"), {-2, 1, 1, 0.5f, 7}).sum, (std::vector<float>{-2, 1, 1, 0.5f, 7}));
  EXPECT_EQ(sent(compression("int8"), std::vector<float>(9, 0.1f)).sum, std::vector<float>(9, 0.1f));
  EXPECT_EQ(sent(compression("int8"), std::vector<float>(3, 0)).sum, std::vector<float>(3, 0));
  EXPECT_EQ(sent(compression("int8"), {5}).sum, std::vector<float>{5});
}

TEST(UniformBins, OfTensorsHaveRangesOfTheirOwn) {
  auto values = normal_numbers(600, 9);
  for (std::size_t i = 0; i < 300; ++i) values[i] *= 1e-3f;
  const auto error = [&](const Step1& found) {
    double largest = 0;
    for (std::size_t i = 0; i < 300; ++i) largest = std::max(largest, std::abs(static_cast<double>(found.left[0][i])));
    return largest;
  };
  EXPECT_GT(error(sent(compression("int8"), values)), 1e-3);
  const CompressionOptions options = compression("int8", R"(scope = "tensor")");
  const Step1 found = sent(options, values, {{0, 300, 0}, {300, 300, 0}});
  EXPECT_LT(error(found), 1e-3);
  EXPECT_EQ(of_parts(options, {{0, 301, 0}, {301, 299, 0}})->exchanges({}).front().packet, Bytes{2 * 1024 + 304 + 300});
}

// The scale is 4, the largest value. 4, -2 and 1 are exact. 3 becomes 4 (a tie goes to the larger value), 2.9 becomes
// 2, 4 / 128 becomes 4 / 64, and smaller values become 0.
TEST(FourBitFloats, AreTheNearestPowersOfTwoOfTheLargest) {
  EXPECT_EQ(sent(compression("fp4"), {4, -2, 1, 3, 2.9f, -0.09375f, 0.03125f, 0.03f, 0}).sum,
            (std::vector<float>{4, -2, 1, 4, 2, -0.125f, 0.0625f, 0, 0}));
  EXPECT_EQ(sent(compression("fp4"), std::vector<float>(5, 0)).sum, std::vector<float>(5, 0));
  const std::vector<float> powers = {1, -0.5f, 0.25f, -0.125f, 0.0625f, 0.03125f, -0.015625f, 0};
  EXPECT_EQ(sent(compression("fp4"), powers).sum, powers);
}

// Compared with a search over all 15 values. Each bucket has its own scale.
TEST(FourBitFloats, AreTheNearestOfAll) {
  const auto values = normal_numbers(331, 3);
  const Step1 found = sent(compression("fp4", "bucket = 50"), values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(i / 50 * 50);
    const auto end =
        values.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(values.size(), i / 50 * 50 + 50));
    float scale = 0, best = std::fabs(values[i]);
    std::for_each(begin, end, [&](float value) { scale = std::max(scale, std::fabs(value)); });
    for (int k = 0; k < 7; ++k) best = std::min(best, std::fabs(std::fabs(values[i]) - std::ldexp(scale, -k)));
    EXPECT_NEAR(std::fabs(found.left[0][i]), best, 1e-6f);
    EXPECT_EQ(found.left[0][i], values[i] - found.sum[i]);
  }
}

TEST(FourBitFloats, AtRandomAreRightOnAverage) {
  const CompressionOptions options = compression("fp4", R"(rounding = "random")");
  const std::vector<float> values = {1, 0.7f, -0.3f, 0.01f, -0.002f, 0};
  std::vector<double> sums(values.size());
  constexpr int draws = 20'000;
  for (int draw = 0; draw < draws; ++draw) {
    const Step1 found = sent(options, values, {}, Step{draw});
    for (std::size_t i = 0; i < values.size(); ++i) sums[i] += static_cast<double>(found.sum[i]) / draws;
  }
  // The tolerance is five standard errors. A value is rounded to one of two values that are at most 0.5 apart, so its
  // variance is at most 0.25^2.
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(sums[i], values[i], 5 * 0.25 / std::sqrt(draws)) << i;
  EXPECT_NEAR(sums[3], 0.01, 5 * 0.008 / std::sqrt(draws));
  EXPECT_NEAR(sums[4], -0.002, 5 * 0.008 / std::sqrt(draws));
  EXPECT_EQ(sums[5], 0);
}

TEST(LowBits, HaveTheBytesOfTheirClosedForms) {
  const auto exchange = [](const char* kind) { return whole(compression(kind), 1'000'000)->exchanges({}).front(); };
  EXPECT_EQ(exchange("int8"), (Exchange{Operation::all_gather, Bytes{1'000'000 + 1024}}));
  EXPECT_EQ(exchange("fp4"), (Exchange{Operation::all_gather, Bytes{500'000 + 4 * 7813}}));
}

TEST(LowBits, ANotANumberIsSent) {
  for (const std::string_view kind : {"int8", "fp4"})
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      const Step1 found = sent(compression(kind), {1, bad, 0, 2});
      EXPECT_TRUE(std::isnan(found.sum[1])) << kind;
    }
}

}  // namespace
}  // namespace syncopate
