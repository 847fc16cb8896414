// Packets of eight and four bits per value, against independent roundings and closed forms.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <vector>

#include "workers/compression/compressor.hpp"

namespace syncopate {
namespace {

using Kind = CompressionOptions::Kind;

std::vector<float> normal_numbers(std::size_t size, unsigned seed, float mean = 0, float deviation = 1) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(mean, deviation);
  std::vector<float> values(size);
  for (float& value : values) value = normal(engine);
  return values;
}

CompressionOptions of(Kind kind) { return {.kind = kind, .error_feedback = false}; }

// What one worker's packet says, and what it leaves.
struct Sent {
  std::vector<float> decoded;
  std::vector<float> left;
};
Sent sent(const CompressionOptions& options, std::vector<float> values, std::vector<Part> parts = {}, Step step = 3) {
  if (parts.empty()) parts = {{0, values.size(), 0}};
  const auto compressor = make_compressor(options, parts, 5, 1);
  std::vector<float> packet(static_cast<std::size_t>(compressor->exchanges({}).front().packet.value()) / 4);
  Sent result{.decoded = std::vector<float>(values.size()), .left = std::move(values)};
  compressor->encode(Rank{2}, step, nullptr, result.left, packet.data());
  const float* const packets[] = {packet.data()};
  compressor->decode({.packets = packets, .workers = 1, .micro_batches = 1, .step = step}, result.decoded);
  return result;
}

// In double precision: each value's bin of mean +- range x deviation, and the means of bins.
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
    CompressionOptions options = of(Kind::int8);
    options.range_std = range_std;
    const auto values = normal_numbers(5001, 4, 0.3f, 2);
    const auto expected = in_bins(values, range_std);
    const Sent found = sent(options, values);
    int other_bins = 0;  // values that rounding has put across an edge
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (std::abs(found.decoded[i] - expected[i]) > 1e-4) ++other_bins;
      EXPECT_EQ(found.left[i], values[i] - found.decoded[i]);
    }
    EXPECT_LE(other_bins, 5) << range_std;
  }
}

// Of a sum: what all bins have lost adds up to nothing. A value inside is less than a bin off, one outside is in the
// outermost bin, whatever its size.
TEST(UniformBins, KeepTheSum) {
  const auto values = normal_numbers(4096, 7);
  const Sent found = sent(of(Kind::int8), values);
  double left = 0, largest = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    left += static_cast<double>(found.left[i]);
    if (std::abs(values[i]) < 2.8f) largest = std::max(largest, std::abs(static_cast<double>(found.left[i])));
  }
  EXPECT_NEAR(left, 0, 1e-3);
  EXPECT_LT(largest, 1.05 * 6 / 256);
  EXPECT_GT(largest, 0.5 * 6 / 256);
}

TEST(UniformBins, OfFewValuesApartAreExact) {
  EXPECT_EQ(sent(of(Kind::int8), {-2, 1, 1, 0.5f, 7}).decoded, (std::vector<float>{-2, 1, 1, 0.5f, 7}));
  EXPECT_EQ(sent(of(Kind::int8), std::vector<float>(9, 0.1f)).decoded, std::vector<float>(9, 0.1f));
  EXPECT_EQ(sent(of(Kind::int8), std::vector<float>(3, 0)).decoded, std::vector<float>(3, 0));
  EXPECT_EQ(sent(of(Kind::int8), {5}).decoded, std::vector<float>{5});
}

TEST(UniformBins, OfTensorsHaveRangesOfTheirOwn) {
  auto values = normal_numbers(600, 9);
  for (std::size_t i = 0; i < 300; ++i) values[i] *= 1e-3f;
  CompressionOptions options = of(Kind::int8);
  const auto error = [&](const Sent& found) {
    double largest = 0;
    for (std::size_t i = 0; i < 300; ++i) largest = std::max(largest, std::abs(static_cast<double>(found.left[i])));
    return largest;
  };
  EXPECT_GT(error(sent(options, values)), 1e-3);
  options.scope = CompressionOptions::Scope::tensor;
  const Sent found = sent(options, values, {{0, 300, 0}, {300, 300, 0}});
  EXPECT_LT(error(found), 1e-3);
  EXPECT_EQ(make_compressor(options, std::vector<Part>{{0, 301, 0}, {301, 299, 0}}, 5, 1)->exchanges({}).front().packet,
            Bytes{2 * 1024 + 304 + 300});
}

// With the scale 4: 4, -2, 1, 3 -> 4 (a tie goes to the larger one), 2.9 -> 2, 4 / 128 -> 4 / 64, less -> 0.
TEST(FourBitFloats, AreTheNearestPowersOfTwoOfTheLargest) {
  EXPECT_EQ(sent(of(Kind::fp4), {4, -2, 1, 3, 2.9f, -0.09375f, 0.03125f, 0.03f, 0}).decoded,
            (std::vector<float>{4, -2, 1, 4, 2, -0.125f, 0.0625f, 0, 0}));
  EXPECT_EQ(sent(of(Kind::fp4), std::vector<float>(5, 0)).decoded, std::vector<float>(5, 0));
  const std::vector<float> powers = {1, -0.5f, 0.25f, -0.125f, 0.0625f, 0.03125f, -0.015625f, 0};
  EXPECT_EQ(sent(of(Kind::fp4), powers).decoded, powers);
}

// By a search over all 15 values, in buckets with a largest of their own.
TEST(FourBitFloats, AreTheNearestOfAll) {
  CompressionOptions options = of(Kind::fp4);
  options.bucket = 50;
  const auto values = normal_numbers(331, 3);
  const Sent found = sent(options, values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(i / 50 * 50);
    const auto end =
        values.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(values.size(), i / 50 * 50 + 50));
    float scale = 0, best = std::fabs(values[i]);
    std::for_each(begin, end, [&](float value) { scale = std::max(scale, std::fabs(value)); });
    for (int k = 0; k < 7; ++k) best = std::min(best, std::fabs(std::fabs(values[i]) - std::ldexp(scale, -k)));
    EXPECT_NEAR(std::fabs(found.left[i]), best, 1e-6f);
    EXPECT_EQ(found.left[i], values[i] - found.decoded[i]);
  }
}

TEST(FourBitFloats, AtRandomAreRightOnAverage) {
  CompressionOptions options = of(Kind::fp4);
  options.rounds_at_random = true;
  const std::vector<float> values = {1, 0.7f, -0.3f, 0.01f, -0.002f, 0};
  std::vector<double> sums(values.size());
  constexpr int draws = 20'000;
  for (int draw = 0; draw < draws; ++draw) {
    const Sent found = sent(options, values, {}, Step{draw});
    for (std::size_t i = 0; i < values.size(); ++i) sums[i] += static_cast<double>(found.decoded[i]) / draws;
  }
  // Five standard errors of a rounding between two values that are 0.5 apart at the most, 0.25 x 0.25 of variance.
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(sums[i], values[i], 5 * 0.25 / std::sqrt(draws)) << i;
  EXPECT_NEAR(sums[3], 0.01, 5 * 0.008 / std::sqrt(draws));
  EXPECT_NEAR(sums[4], -0.002, 5 * 0.008 / std::sqrt(draws));
  EXPECT_EQ(sums[5], 0);
}

TEST(LowBits, HaveTheBytesOfTheirClosedForms) {
  const auto bytes = [](const CompressionOptions& options, std::size_t size) {
    return make_compressor(options, std::vector<Part>{{0, size, 0}}, 1, 1)->exchanges({}).front();
  };
  EXPECT_EQ(bytes(of(Kind::int8), 1'000'000).packet, Bytes{1'000'000 + 1024});
  EXPECT_EQ(bytes(of(Kind::fp4), 1'000'000).packet, Bytes{500'000 + 4 * 7813});
  for (const Kind kind : {Kind::int8, Kind::fp4}) EXPECT_EQ(bytes(of(kind), 10).operation, Operation::all_gather);
}

TEST(LowBits, ANotANumberIsSent) {
  for (const Kind kind : {Kind::int8, Kind::fp4})
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      const Sent found = sent(of(kind), {1, bad, 0, 2});
      EXPECT_TRUE(std::isnan(found.decoded[1])) << static_cast<int>(kind);
    }
}

}  // namespace
}  // namespace syncopate
