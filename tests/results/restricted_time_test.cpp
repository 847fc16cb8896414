#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <stdexcept>

#include "results/statistics.hpp"

namespace syncopate {
namespace {

using testing::ElementsAre;

constexpr std::array runs = {TimeToReach{10, true}, TimeToReach{40, true}, TimeToReach{30, false},
                             TimeToReach{50, false}};

TEST(RestrictedTime, IsKnownUpToTheFirstEndWithoutTheTarget) {
  EXPECT_EQ(common_horizon_s(runs), 30);
  EXPECT_EQ(common_horizon_s(std::span(runs).first(2)), 40);  // all reached it
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
