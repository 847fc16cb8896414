#include "results/statistics.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <stdexcept>
#include <vector>

namespace syncopate {
namespace {

TEST(Statistics, OneToFiveHaveMeanThreeAndSampleVarianceFiveHalves) {
  const std::vector<double> values{1, 2, 3, 4, 5};
  const Statistics result = statistics(values);
  EXPECT_EQ(result.n, 5u);
  EXPECT_DOUBLE_EQ(result.mean, 3);
  EXPECT_DOUBLE_EQ(result.std, std::sqrt(2.5));
}

TEST(Statistics, TwoValuesDeviateByTheirDistanceOverTheRootOfTwo) {
  const std::vector<double> values{0.25, 1.5};
  EXPECT_DOUBLE_EQ(statistics(values).std, 1.25 / std::sqrt(2.0));
}

TEST(Statistics, ACommonOffsetDoesNotCostDigits) {
  // The naive formula, the mean of squares minus the square of the mean, gives 0 or NaN for these values.
  const std::vector<double> values{1e9 + 4, 1e9 + 7, 1e9 + 13, 1e9 + 16};
  const Statistics result = statistics(values);
  EXPECT_DOUBLE_EQ(result.mean, 1e9 + 10);
  EXPECT_DOUBLE_EQ(result.std, std::sqrt(30.0));
}

TEST(Statistics, ASingleValueHasNoDeviation) {
  const std::vector<double> values{7};
  EXPECT_EQ(statistics(values).mean, 7);
  EXPECT_EQ(statistics(values).std, 0);
}

TEST(Statistics, NoValuesHaveNoMean) {
  const Statistics result = statistics({});
  EXPECT_EQ(result.n, 0u);
  EXPECT_TRUE(std::isnan(result.mean));
  EXPECT_TRUE(std::isnan(result.std));
}

using testing::ElementsAre;

constexpr std::array runs = {TimeToReach{10, true}, TimeToReach{40, true}, TimeToReach{30, false},
                             TimeToReach{50, false}};

TEST(RestrictedTime, IsKnownUpToTheFirstEndWithoutTheTarget) {
  EXPECT_EQ(common_horizon_s(runs), 30);
  EXPECT_EQ(common_horizon_s(std::span(runs).first(2)), 40);  // both runs reached the target
  EXPECT_FALSE(common_horizon_s({}));
}

TEST(RestrictedTime, CountsLaterOnesAsTheHorizon) {
  const RestrictedTimes found = restricted_times(runs, 30);
  EXPECT_THAT(found.times_s, ElementsAre(10, 30, 30, 30));
  EXPECT_EQ(found.reached, 1u);
  EXPECT_THAT(restricted_times(std::span(runs).first(2), 40).times_s, ElementsAre(10, 40));
  EXPECT_EQ(restricted_times(std::span(runs).first(2), 40).reached, 2u);
}

TEST(RestrictedTime, DoesNotGuessBeyondARunsEnd) { EXPECT_THROW(restricted_times(runs, 31), std::invalid_argument); }

}  // namespace
}  // namespace syncopate
