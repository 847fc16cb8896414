#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "algorithms/quorum/dynamic_backup.hpp"

namespace syncopate {
namespace {

// Of gradients (3, 0), (1, 0), (2, 3): the mean is (2, 1), squared norm 5; the squared norms are 9, 1 and 13. The
// sample variance is (1 + 1 + 0 + 1 + 1 + 4) / 2 = 4.
TEST(GradientMoments, AreTheSampleVarianceAndWhatItLeavesOfTheMean) {
  const auto moments = gradient_moments(23.0 / 3, 5, 3);
  ASSERT_TRUE(moments);
  EXPECT_NEAR(moments->variance, 4, 1e-12);
  EXPECT_NEAR(moments->squared_norm, 5 - 4.0 / 3, 1e-12);
}

TEST(GradientMoments, OfOneGradientSayNothing) { EXPECT_FALSE(gradient_moments(4, 4, 1)); }

TEST(GradientMoments, AreNeverNegative) {
  const auto moments = gradient_moments(10, 0.1, 4);
  ASSERT_TRUE(moments);
  EXPECT_EQ(moments->squared_norm, 0);
  EXPECT_EQ(gradient_moments(1, 1 + 1e-12, 4)->variance, 0) << "rounding";
}

// Expectation (3, 4), 2 coordinates of variance 0.25 each.
TEST(GradientMoments, AreUnbiased) {
  std::mt19937 engine(5);
  std::normal_distribution<double> noise(0, 0.5);
  constexpr int rounds = 20'000, k = 5;
  double squared_norm = 0, variance = 0;
  for (int round = 0; round < rounds; ++round) {
    double squares = 0, sum_x = 0, sum_y = 0;
    for (int i = 0; i < k; ++i) {
      const double x = 3 + noise(engine), y = 4 + noise(engine);
      squares += x * x + y * y;
      sum_x += x;
      sum_y += y;
    }
    const auto moments = gradient_moments(squares / k, (sum_x * sum_x + sum_y * sum_y) / (k * k), k);
    squared_norm += moments->squared_norm / rounds;
    variance += moments->variance / rounds;
  }
  EXPECT_NEAR(variance, 0.5, 0.01);
  EXPECT_NEAR(squared_norm, 25, 0.1);
}

TEST(BestGradients, IsOneWithoutNoiseAndAllWhereTheyComeAtOnce) {
  const std::vector<double> growing = {1, 1.1, 1.3, 2}, equal = {1, 1, 1, 1};
  EXPECT_EQ(best_gradients({.squared_norm = 1, .variance = 0}, 1, growing), 1);
  EXPECT_EQ(best_gradients({.squared_norm = 1, .variance = 0.5}, 1, equal), 4);
}

TEST(BestGradients, AreAllWhereNoNumberGains) {
  const std::vector<double> arrival_s = {1, 2, 3};
  EXPECT_EQ(best_gradients({.squared_norm = 1, .variance = 4}, 1, arrival_s), 3);
}

// G(k) / T(k) = (a - b / k) / (c k) has its continuous maximum at k = 2 b / a.
TEST(BestGradients, WhereTimesGrowLinearlyAreTwiceTheRatioOfNoiseToSignal) {
  std::vector<double> arrival_s;
  for (int k = 1; k <= 40; ++k) arrival_s.push_back(0.1 * k);
  for (const double ratio : {2.0, 4.0, 9.0})
    EXPECT_EQ(best_gradients({.squared_norm = 1, .variance = ratio}, 1, arrival_s), std::lround(2 * ratio));
}

// eta L = s weighs the variance by s / (2 - s): 0.5 by a third, 1.5 by three.
TEST(BestGradients, TheLargerTheStepTheMoreNoiseCosts) {
  std::vector<double> arrival_s;
  for (int k = 1; k <= 40; ++k) arrival_s.push_back(0.1 * k);
  const GradientMoments moments{.squared_norm = 1, .variance = 3};
  EXPECT_EQ(best_gradients(moments, 0.5, arrival_s), 2);
  EXPECT_EQ(best_gradients(moments, 1.0, arrival_s), 6);
  EXPECT_EQ(best_gradients(moments, 1.5, arrival_s), 18);
}

// Of n exponential times of mean 1 the k-th is 1/n + ... + 1/(n - k + 1) on average. Seen are these means, and moments
// that do not change; a product of rate and smoothness of 1 weighs the variance by 1.
TEST(ObservedGradients, OfAConstantSettingWantTheNumberThatGainsMostPerTime) {
  constexpr int n = 16;
  int before = 0;
  for (const double variance : {0.0, 1.0, 2.0, 4.0}) {
    ObservedGradients observed({.rate_times_smoothness = 1});
    EXPECT_EQ(observed.wanted(n), n) << "nothing is known";
    double mean_s = 0, best_gain_per_s = 0;
    int best = n;
    observed.begin_version(start_time);
    for (int k = 1; k <= n; ++k) {
      mean_s += 1.0 / (n - k + 1);
      observed.take_arrival(Step{0}, start_time + from_seconds(mean_s));
      const double gain_per_s = (1 - variance / k) / mean_s;
      if (gain_per_s > best_gain_per_s) best = k;
      best_gain_per_s = std::max(best_gain_per_s, gain_per_s);
    }
    for (int step = 0; step < 3; ++step)
      observed.take_moments(GradientMoments{.squared_norm = 1, .variance = variance});
    EXPECT_EQ(observed.wanted(n), best) << variance;
    EXPECT_GT(best, before);
    before = best;
  }
}

}  // namespace
}  // namespace syncopate
