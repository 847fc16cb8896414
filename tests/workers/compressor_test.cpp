// What is sent instead of a vector, against golden values, independent selections and closed forms.
#include "workers/compression/compressor.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "tests/workers/exchanged_steps.hpp"
#include "workers/base/process.hpp"
#include "workers/compression/kernels.hpp"
#include "workers/time/network.hpp"

namespace syncopate {
namespace {

using Kind = CompressionOptions::Kind;

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

std::vector<float> normal_numbers(std::size_t size, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(size);
  for (float& value : values) value = normal(engine);
  return values;
}

// One step of workers without residuals: the sum of what they send, and what each has left.
struct Step1 {
  std::vector<float> sum;
  std::vector<std::vector<float>> left;
};
Step1 step_of(const Compressor& compressor, std::vector<std::vector<float>> p, std::vector<float> common = {},
              Step step = 3) {
  ExchangedSteps steps(compressor, static_cast<int>(p.size()), p.front().size());
  steps.memory = std::move(p);
  steps.common = std::move(common);
  Step1 result;
  result.sum = steps.exchange(step);
  result.left = std::move(steps.memory);
  return result;
}

std::shared_ptr<const Compressor> whole(const CompressionOptions& options, std::size_t size) {
  return make_compressor(options, std::vector<Part>{{0, size, 0}}, 5, 1);
}

TEST(TopK, IsThatOfASortWithTiesByPlace) {
  for (const std::size_t size : {1u, 7u, 64u, 1000u, 100'000u})
    for (const double ratio : {0.001, 0.01, 0.3, 1.0})
      for (const bool rounded : {false, true}) {
        std::vector<float> values = normal_numbers(size, 3);
        if (rounded)  // many ties
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

// The draw from which the bound comes sees large values alone, or none of them.
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
  const auto step = step_of(*whole({.kind = Kind::top_k, .ratio = 0.2}, 5), {values, {0, 0, 0, 0, 7}});
  EXPECT_TRUE(std::isnan(step.sum[2]));
}

TEST(TopK, LeavesWhatItDoesNotSend) {
  const auto step = step_of(*whole({.kind = Kind::top_k, .ratio = 0.5}, 4), {{0.5f, -1.5f, 0, 2}, {3, 0, -3, 3}});
  EXPECT_EQ(step.sum, (std::vector<float>{3, -1.5f, -3, 2}));
  EXPECT_EQ(step.left[0], (std::vector<float>{0.5f, 0, 0, 0}));
  EXPECT_EQ(step.left[1], (std::vector<float>{0, 0, 0, 3}));
}

TEST(TopK, OfEachTensorSendsOfEach) {
  const auto compressor =
      make_compressor({.kind = Kind::top_k, .ratio = 0.5, .scope = CompressionOptions::Scope::tensor},
                      std::vector<Part>{{0, 2, 0}, {2, 3, 0}}, 5, 1);
  EXPECT_EQ(step_of(*compressor, {{1, 2, 30, 50, 40}}).sum, (std::vector<float>{0, 2, 0, 50, 0}));
  EXPECT_EQ(compressor->exchanges({}).front().packet, Bytes{2 * 8});
}

TEST(RandomK, SendsTheSamePlacesOfAllAndOthersAtEachStep) {
  const std::vector<float> ones(1000, 1.0f);
  const auto compressor = whole({.kind = Kind::random_k, .ratio = 0.1}, 1000);
  std::vector<float> times_sent(1000);
  for (int t = 0; t < 400; ++t) {
    const auto step = step_of(*compressor, {ones, ones, ones}, {}, t);
    for (std::size_t i = 0; i < 1000; ++i) {
      EXPECT_TRUE(step.sum[i] == 0 || step.sum[i] == 3);
      EXPECT_EQ(step.left[0][i], step.sum[i] == 3 ? 0 : 1);
      times_sent[i] += step.sum[i] / 3;
    }
    EXPECT_EQ(std::accumulate(step.sum.begin(), step.sum.end(), 0.0f), 300);  // without replacement
  }
  // Binomial, 400 draws of probability 0.1: mean 40, standard deviation 6; of 1,000 none is 5.5 of these away.
  for (const float count : times_sent) EXPECT_NEAR(count, 40, 33);
}

TEST(RandomK, WithoutErrorFeedbackIsRightOnAverage) {
  const auto compressor = whole({.kind = Kind::random_k, .ratio = 0.25, .error_feedback = false}, 8);
  for (const float value : step_of(*compressor, {std::vector<float>(8, 3.0f)}).sum)
    EXPECT_TRUE(value == 0 || value == 12);
}

TEST(Signs, AreThoseOfTheGoldenVector) {
  const std::vector<float> p = {0.5f, -1.5f, 0, 2};
  const auto step = step_of(*whole({.kind = Kind::sign}, 4), {p});
  EXPECT_EQ(step.sum, (std::vector<float>{1, -1, 1, 1}));
  double error = 0;
  for (const float left : step.left[0]) error += left * left;
  EXPECT_DOUBLE_EQ(error, 2.5);
}

// |C(p) - p|^2 = (1 - delta) |p|^2 with delta = |p|_1^2 / (d |p|_2^2).
TEST(Signs, ContractByTheClosedForm) {
  for (const std::size_t size : {5u, 32u, 33u, 1000u, 4099u}) {
    const std::vector<float> p = normal_numbers(size, 7);
    double one = 0, two = 0, error = 0;
    for (const float value : p) one += std::fabs(value), two += static_cast<double>(value) * value;
    const auto step = step_of(*whole({.kind = Kind::sign}, size), {p});
    for (const float left : step.left[0]) error += static_cast<double>(left) * left;
    EXPECT_NEAR(error, two - one * one / static_cast<double>(size), 1e-5 * two);
    for (std::size_t i = 0; i < size; ++i) EXPECT_NEAR(step.sum[i] + step.left[0][i], p[i], 1e-6);
  }
}

TEST(MajorityVote, IsTheSignOfTheSumOfSigns) {
  const auto compressor = whole({.kind = Kind::majority, .error_feedback = false}, 3);
  // Times the three micro-batches by which a method divides.
  EXPECT_EQ(step_of(*compressor, {{5, -1, 0.1f}, {-0.1f, -1, 0.2f}, {-0.2f, 3, -9}}).sum,
            (std::vector<float>{-3, -3, 3}));
  EXPECT_EQ(step_of(*compressor, {{5, 1, -1}, {-1, 1, -1}}).sum, (std::vector<float>{0, 2, -2}));  // a tie
  for (const float value : step_of(*compressor, {{5, -1, not_a_number}, {1, 1, 1}}).sum) EXPECT_TRUE(std::isnan(value));
}

TEST(MajorityVote, WhoHasNothingDoesNotVote) {
  const auto compressor = whole({.kind = Kind::majority, .error_feedback = false}, 3);
  EXPECT_EQ(step_of(*compressor, {{1, -2, 3}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}}).sum, (std::vector<float>{4, -4, 4}));
  EXPECT_EQ(step_of(*compressor, {{0, 0, 0}, {0, 0, 0}}).sum, (std::vector<float>{0, 0, 0}));
}

// Of 33 values, so that words are not full.
TEST(MajorityVote, ZerosVotePlusOrNothing) {
  std::vector<float> one(33), other(33);
  one[0] = 2, one[1] = -1, one[32] = -3;
  other[1] = 1, other[2] = -0.0F, other[31] = -4;
  std::vector<float> plus(33, 2), abstain(33);
  plus[1] = plus[2] = plus[31] = plus[32] = 0;  // of one minus, and one plus or zero; a negative zero is minus
  abstain[0] = 2, abstain[31] = abstain[32] = -2;
  CompressionOptions options{.kind = Kind::majority, .error_feedback = false};
  EXPECT_EQ(step_of(*whole(options, 33), {one, other}).sum, plus);
  options.zeros_abstain = true;
  EXPECT_EQ(step_of(*whole(options, 33), {one, other}).sum, abstain);
  const auto not_finite = step_of(*whole(options, 3), {{5, -1, not_a_number}, {1, 1, 1}});
  for (const float value : not_finite.sum) EXPECT_TRUE(std::isnan(value));
}

TEST(Qsgd, IsExactForOneValueAndZeros) {
  const auto compressor = whole({.kind = Kind::qsgd, .error_feedback = false, .levels = 3, .bucket = 4}, 10);
  EXPECT_EQ(step_of(*compressor, {{0, -3, 0, 0, 0, 0, 0, 0, 0, 5}}).sum,
            (std::vector<float>{0, -3, 0, 0, 0, 0, 0, 0, 0, 5}));
  EXPECT_TRUE(std::isnan(step_of(*compressor, {{0, not_a_number, 0, 0, 0, 0, 0, 0, 0, 5}}).sum[1]));
}

// The mean of many draws, of all bit widths; a rounding's variance is at most (norm / s)^2 / 4.
TEST(Qsgd, IsRightOnAverage) {
  const std::vector<float> v = normal_numbers(64, 9);
  double norm = 0;
  for (const float value : v) norm += static_cast<double>(value) * value;
  norm = std::sqrt(norm);
  for (const int levels : {1, 7, 127}) {
    const auto compressor = whole({.kind = Kind::qsgd, .error_feedback = false, .levels = levels, .bucket = 64}, 64);
    const int draws = 4000;
    std::vector<double> mean(64);
    for (int t = 0; t < draws; ++t) {
      const auto sum = step_of(*compressor, {v}, {}, t).sum;
      for (std::size_t i = 0; i < 64; ++i) mean[i] += sum[i] / draws;
    }
    for (std::size_t i = 0; i < 64; ++i) EXPECT_NEAR(mean[i], v[i], 5 * norm / levels / 2 / std::sqrt(draws)) << levels;
  }
}

TEST(Qsgd, RoundsDifferentlyOnEachWorker) {
  const std::vector<float> v = normal_numbers(64, 9);
  const auto compressor = whole({.kind = Kind::qsgd, .error_feedback = false, .levels = 7, .bucket = 64}, 64);
  const auto both = step_of(*compressor, {v, v}).sum, one = step_of(*compressor, {v}).sum;
  int equal = 0;
  for (std::size_t i = 0; i < 64; ++i) equal += both[i] == 2 * one[i];
  EXPECT_LT(equal, 60);
}

CompressionOptions power(int rank, double least_rate, CompressionOptions::Removed removed) {
  return {.kind = Kind::power, .rank = rank, .least_rate = least_rate, .removed = removed};
}

TEST(PowerSgd, HasTheGoldenFactorsAndResiduals) {
  using Removed = CompressionOptions::Removed;
  const std::vector<float> q = {1, 0};
  const std::vector<std::vector<double>> expected_left = {{0.235294118, 0.941176471, -0.058823529, -0.235294118},
                                                          {0.5, 1.441176471, 1, 1.764705882}};
  for (const Removed removed : {Removed::own, Removed::shared}) {
    const auto compressor = make_compressor(power(1, 0, removed), std::vector<Part>{{0, 4, 2}}, 5, 1);
    const auto step = step_of(*compressor, {{1, 2, 3, 4}, {0, 1, 1, 0}}, q);
    const double mean[] = {0.5, 0.558823529, 2, 2.235294118};
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(step.sum[i] / 2, mean[i], 1e-6);
      EXPECT_NEAR(step.left[0][i], expected_left[removed == Removed::own ? 0 : 1][i], 1e-6);
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
    const auto compressor =
        make_compressor(power(rank, 0, CompressionOptions::Removed::own), std::vector<Part>{{0, n * m, n}}, 5, 1);
    const auto step = step_of(*compressor, {matrix, matrix});
    for (std::size_t i = 0; i < n * m; ++i) EXPECT_NEAR(step.sum[i], 2 * matrix[i], 1e-4) << rank;
  }
}

TEST(PowerSgd, OfZerosIsZerosAndOfNotANumberIsNone) {
  const auto compressor =
      make_compressor(power(2, 0, CompressionOptions::Removed::own), std::vector<Part>{{0, 20, 4}}, 5, 1);
  EXPECT_EQ(step_of(*compressor, {std::vector<float>(20)}).sum, std::vector<float>(20));
  std::vector<float> values(20, 1.0f);
  values[7] = not_a_number;
  const auto sum = step_of(*compressor, {values}).sum;
  EXPECT_TRUE(std::any_of(sum.begin(), sum.end(), [](float value) { return std::isnan(value); }));
}

TEST(PowerSgd, GoesOnAfterAGradientOfZeros) {
  const auto compressor =
      make_compressor(power(2, 0, CompressionOptions::Removed::own), std::vector<Part>{{0, 20, 4}}, 5, 1);
  const std::vector<float> last(10), p = normal_numbers(20, 3);
  const auto step = step_of(*compressor, {p}, last);
  EXPECT_TRUE(std::any_of(step.sum.begin(), step.sum.end(), [](float value) { return value != 0; }));
}

TEST(PowerSgd, SendsVectorsAndSmallMatricesWhole) {
  const std::vector<Part> parts = {{0, 20 * 30, 20}, {600, 4, 2}, {604, 5, 0}};
  const auto compressor = make_compressor(power(2, 2, CompressionOptions::Removed::own), parts, 5, 1);
  EXPECT_EQ(compressor->exchanges({}).front().packet, Bytes{4 * (2 * 20 + 4 + 5)});
  EXPECT_EQ(compressor->exchanges({}).back().packet, Bytes{4 * 2 * 30});
  const std::vector<float> p = normal_numbers(609, 3);
  const auto step = step_of(*compressor, {p, p, p});
  for (std::size_t i = 600; i < 609; ++i) {
    EXPECT_FLOAT_EQ(step.sum[i], 3 * p[i]);
    EXPECT_EQ(step.left[1][i], 0);
  }
  EXPECT_THROW(make_compressor(power(16, 2, CompressionOptions::Removed::own), parts, 5, 1), RunFailure);
}

// N = 16 workers, a matrix of 1000 x 1000: bytes that each sends.
TEST(Compressors, SendAsMuchAsClosedFormsSay) {
  const auto sent = [](const CompressionOptions& options) {
    const auto compressor = make_compressor(options, std::vector<Part>{{0, 1'000'000, 1000}}, 1, 1);
    Bytes::Rep bytes = 0;
    for (const Exchange& exchange : compressor->exchanges({}))
      bytes +=
          collective_bytes({.operation = exchange.operation, .members = 16, .payload = exchange.payload(16)}).value();
    return static_cast<double>(bytes) / 16;
  };
  EXPECT_EQ(sent({.kind = Kind::top_k, .ratio = 0.01}), 1'200'000);
  EXPECT_EQ(sent({.kind = Kind::top_k, .ratio = 0.001}), 120'000);
  EXPECT_EQ(sent({.kind = Kind::random_k, .ratio = 0.01}), 75'000);
  EXPECT_EQ(sent({.kind = Kind::sign}), 1'875'000 + 15 * 4);
  EXPECT_EQ(sent({.kind = Kind::majority}), 1'875'000 + 15 * 4);
  EXPECT_EQ(sent({.kind = Kind::majority, .zeros_abstain = true}), 2 * (1'875'000 + 15 * 4));
  EXPECT_EQ(sent({.kind = Kind::qsgd, .levels = 127, .bucket = 128}), 15 * (1'000'000 + 4 * 7813));
  EXPECT_EQ(sent({.kind = Kind::qsgd, .levels = 7, .bucket = 100}), 15 * (500'000 + 4 * 10'000));
  EXPECT_EQ(sent({.kind = Kind::power, .rank = 2}), 30'000);
}

}  // namespace
}  // namespace syncopate
