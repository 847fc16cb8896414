#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "workers/theory/sampled_times.hpp"

namespace syncopate {
namespace {

// Micro-batches of 8 sequences of up to 1 to 40 tokens, the others being shorter by turns.
std::vector<TimedLengths> timed(double base_s, double per_token_s, double per_square_s, double per_padded_s = 0) {
  std::vector<TimedLengths> all;
  for (int length = 1; length <= 40; ++length) {
    const double share = 1 - 0.2 * (length * 7 % 5) / 5;
    const double padded = 8.0 * length, tokens = share * padded, squares = share * 8.0 * length * length;
    all.push_back(
        {tokens, padded, squares, base_s + per_token_s * tokens + per_square_s * squares + per_padded_s * padded});
  }
  return all;
}

TEST(LengthFit, FindsTheCostsThatTimesWereMadeOf) {
  const LengthFit fit = fit_lengths(timed(0.003, 2e-5, 4e-8));
  EXPECT_NEAR(fit.cost.base_s, 0.003, 1e-12);
  EXPECT_NEAR(fit.cost.per_token_s, 2e-5, 1e-14);
  EXPECT_EQ(fit.cost.per_padded_token_s, 0);
  EXPECT_NEAR(fit.cost.per_squared_length_s, 4e-8, 1e-16);
  EXPECT_NEAR(fit.r_squared, 1, 1e-12);
  EXPECT_NEAR(fit.largest_residual_s, 0, 1e-12);
  EXPECT_EQ(fit.points, 40);
}

TEST(LengthFit, TellsPaddedTokensFromTokens) {
  const LengthFit fit = fit_lengths(timed(0.003, 0, 4e-8, 2e-5));
  EXPECT_EQ(fit.cost.per_token_s, 0);
  EXPECT_NEAR(fit.cost.per_padded_token_s, 2e-5, 1e-14);
  EXPECT_NEAR(fit.cost.per_squared_length_s, 4e-8, 1e-16);
}

TEST(LengthFit, LeavesOutWhatWouldBeNegative) {
  // Concave in the length: the square's cost would be negative, and the line is that of linear regression.
  std::vector<TimedLengths> concave;
  for (int length = 1; length <= 40; ++length)
    concave.push_back(
        {8.0 * length, 8.0 * length, 8.0 * length * length, 0.003 + 1.6e-4 * length - 8e-8 * length * length});
  const LengthFit fit = fit_lengths(concave);
  EXPECT_EQ(fit.cost.per_squared_length_s, 0);
  double x = 0, y = 0, xx = 0, xy = 0;
  for (const TimedLengths& one : concave) {
    x += one.tokens / 40;
    y += one.seconds / 40;
    xx += one.tokens * one.tokens / 40;
    xy += one.tokens * one.seconds / 40;
  }
  const double slope = (xy - x * y) / (xx - x * x);
  EXPECT_NEAR(fit.cost.per_token_s, slope, 1e-12);
  EXPECT_NEAR(fit.cost.base_s, y - slope * x, 1e-12);
  EXPECT_LT(fit.r_squared, 1);
  EXPECT_GT(fit.r_squared, 0.99);
}

TEST(LengthFit, SaysHowFarTheTimesAreFromTheLine) {
  // Two lengths, each measured twice, 1 ms above and below: half of 0.01 s lies between the means.
  const std::vector<TimedLengths> four = {
      {10, 10, 100, 0.011}, {10, 10, 100, 0.009}, {20, 20, 400, 0.021}, {20, 20, 400, 0.019}};
  const LengthFit fit = fit_lengths(four);
  EXPECT_NEAR(fit.largest_residual_s, 0.001, 1e-12);
  EXPECT_NEAR(fit.typical_residual_s, 0.001, 1e-12);
  EXPECT_NEAR(fit.r_squared, 1 - 1e-6 / (0.005 * 0.005 + 1e-6), 1e-9);
}

TEST(LengthFit, OfEqualLengthsIsTheMeanTime) {
  const LengthFit fit = fit_lengths(std::vector<TimedLengths>{{70, 80, 800, 0.004}, {70, 80, 800, 0.006}});
  const double at_length = fit.cost.base_s + 70 * fit.cost.per_token_s + 80 * fit.cost.per_padded_token_s +
                           800 * fit.cost.per_squared_length_s;
  EXPECT_NEAR(at_length, 0.005, 1e-12);
  EXPECT_NEAR(fit_lengths(std::vector<TimedLengths>{{70, 80, 800, 0.004}}).cost.base_s, 0.004, 1e-12);
  for (const int length : {1, 7, 12, 33, 80}) {  // none of which may be told from the base by a rounding
    const double square = 8.0 * length * length;
    const LengthFit of_many = fit_lengths(std::vector<TimedLengths>(24, {8.0 * length, 8.0 * length, square, 0.0041}));
    EXPECT_NEAR(of_many.cost.base_s, 0.0041, 1e-12) << length;
    EXPECT_EQ(of_many.cost.per_token_s, 0) << length;
    EXPECT_EQ(of_many.cost.per_padded_token_s, 0) << length;
    EXPECT_EQ(of_many.cost.per_squared_length_s, 0) << length;
  }
}

}  // namespace
}  // namespace syncopate
