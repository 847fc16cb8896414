#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "algorithms/local_sgd/sync_period.hpp"

namespace syncopate {
namespace {

using Form = LossPeriod::Form;
using NotBelow = LossPeriod::NotBelow;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double no_number = std::numeric_limits<double>::quiet_NaN();

TEST(LossPeriod, IsTheRootOfTheLossTimesTheFirstPeriodRoundedUp) {
  const LossPeriod rule({.initial = 10});
  EXPECT_EQ(rule.first(), Step{10});
  EXPECT_EQ(rule.next(0.25, 1, 10), Step{5});
  EXPECT_EQ(rule.next(0.26, 1, 10), Step{6});   // 5.099
  EXPECT_EQ(rule.next(0.009, 1, 10), Step{1});  // 0.949
  EXPECT_EQ(rule.next(0, 1, 10), Step{1});
  EXPECT_EQ(rule.next(4, 1, 10), Step{20});
  EXPECT_EQ(rule.next(0.25, 16, 10), Step{5});  // not by rates unless told
}

TEST(LossPeriod, RisesAsTheRateFalls) {
  const LossPeriod rule({.initial = 10, .follows_rate = true});
  EXPECT_EQ(rule.next(1, 4, 10), Step{20});
  EXPECT_EQ(rule.next(0.25, 4, 10), Step{10});
  EXPECT_EQ(rule.next(0.25, 2, 10), Step{8});  // 7.07
}

TEST(LossPeriod, HasTheFirstPeriodInsideTheRootInPaddlesForm) {
  const LossPeriod rule({.initial = 9, .form = Form::paddle, .follows_rate = true, .maximum = Step{16}});
  EXPECT_EQ(rule.first(), Step{3});
  EXPECT_EQ(rule.next(0.25, 1, 3), Step{2});  // 1.5
  EXPECT_EQ(rule.next(0.25, 4, 3), Step{3});
  EXPECT_EQ(rule.next(1, 1000, 3), Step{16});
  EXPECT_EQ(rule.next(1e-9, 1, 3), Step{1});
}

TEST(LossPeriod, WhatIsNotBelowTheLastIsTakenOrNot) {
  const LossPeriod take({.initial = 10}), keep({.initial = 10, .not_below = NotBelow::keep}),
      shrink({.initial = 10, .not_below = NotBelow::shrink}),
      third({.initial = 10, .not_below = NotBelow::shrink, .shrinkage = 1.0 / 3});
  EXPECT_EQ(take.next(0.81, 1, 5), Step{9});
  EXPECT_EQ(keep.next(0.81, 1, 5), Step{5});
  EXPECT_EQ(shrink.next(0.81, 1, 5), Step{3});  // 2.5
  EXPECT_EQ(shrink.next(0.25, 1, 5), Step{3});  // 5 is not below 5
  EXPECT_EQ(shrink.next(0.16, 1, 5), Step{4});  // below
  EXPECT_EQ(third.next(0.81, 1, 6), Step{2});
  EXPECT_EQ(shrink.next(0.81, 1, 1), Step{1});
}

TEST(LossPeriod, StaysWithinItsBounds) {
  const LossPeriod rule({.initial = 10, .minimum = 4, .maximum = Step{12}});
  EXPECT_EQ(rule.next(0.01, 1, 10), Step{4});
  EXPECT_EQ(rule.next(100, 1, 10), Step{12});
  EXPECT_EQ(LossPeriod({.initial = 10, .maximum = Step{8}}).first(), Step{8});
  EXPECT_GT(LossPeriod({.initial = 10}).next(1e300, 1, 10), Step{1'000'000});
}

TEST(LossPeriod, StaysWhereTheLossIsNoNumber) {
  const LossPeriod rule({.initial = 10, .follows_rate = true});
  EXPECT_EQ(rule.next(no_number, 1, 7), Step{7});
  EXPECT_EQ(rule.next(infinity, 1, 7), Step{7});
  EXPECT_EQ(rule.next(-1, 1, 7), Step{7});
  EXPECT_EQ(rule.next(1, infinity, 7), Step{7});
}

// A ratio of losses that is 1 but for rounding, as of sums in another order.
TEST(LossPeriod, DoesNotRoundUpWhatIsWholeButForRounding) {
  const LossPeriod rule({.initial = 10});
  for (const double one : {1 + 1e-15, 1.0, 1 - 1e-15, 1 + 4e-16}) EXPECT_EQ(rule.next(one, 1, 10), Step{10});
  EXPECT_EQ(rule.next(1 + 1e-9, 1, 10), Step{11});
}

TEST(LossPeriod, RefusesWhatIsNoRule) {
  EXPECT_THROW(LossPeriod({.initial = 0}), std::invalid_argument);
  EXPECT_THROW(LossPeriod({.initial = 1, .minimum = 5, .maximum = Step{4}}), std::invalid_argument);
  EXPECT_THROW(LossPeriod({.initial = 1, .shrinkage = 1}), std::invalid_argument);
}

}  // namespace
}  // namespace syncopate
