// Learning-rate schedules against the formulas in learning_rate.hpp.
#include "workers/training/learning_rate.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <stdexcept>

namespace syncopate {
namespace {

using Shape = LearningRate::Shape;

// W = 100, T = 1000: 900 decaying steps, from 0.4 to 0.01.
LearningRate::Options warm(Shape shape) {
  return {.shape = shape, .peak = 0.4, .final = 0.01, .warmup_steps = 100, .total_steps = 1000};
}

constexpr double rounding = 1e-15;  // a few units in the last place of 0.4

TEST(LearningRate, WarmUpStartsAtFinalAndClimbsInEqualSteps) {
  for (const Shape shape : {Shape::constant, Shape::step, Shape::linear, Shape::cosine}) {
    const LearningRate rate(warm(shape));
    EXPECT_EQ(rate.at(0), 0.01);
    for (int t = 1; t < 100; ++t) EXPECT_NEAR(rate.at(t), 0.01 + 0.0039 * t, rounding);
    EXPECT_NEAR(rate.at(100), 0.4, rounding);
  }
}

TEST(LearningRate, WithoutWarmUpTheFirstStepRunsAtThePeak) {
  for (const Shape shape : {Shape::constant, Shape::step, Shape::linear, Shape::cosine}) {
    EXPECT_EQ(LearningRate({.shape = shape, .peak = 0.3, .final = 0, .total_steps = 10}).at(0), 0.3);
  }
}

TEST(LearningRate, ConstantStaysAtThePeak) {
  const LearningRate rate({.peak = 0.25});
  for (const int t : {0, 1, 1000, 1000000}) EXPECT_EQ(rate.at(t), 0.25);
}

// The half-angle identity (1 + cos x) / 2 = cos^2 (x / 2) is a second implementation.
TEST(LearningRate, CosineFollowsTheSquaredCosineOfHalfTheAngle) {
  const LearningRate rate(warm(Shape::cosine));
  for (int t = 100; t <= 1000; ++t) {
    const double half_angle = std::numbers::pi / 2 * (t - 100) / 900;
    EXPECT_NEAR(rate.at(t), 0.01 + 0.39 * std::cos(half_angle) * std::cos(half_angle), rounding);
  }
  EXPECT_NEAR(rate.at(100 + 300), 0.01 + 0.39 * 0.75, rounding);  // cos(60 degrees) = 1/2
  EXPECT_NEAR(rate.at(100 + 450), 0.205, rounding);               // half way: the mean of peak and final
}

TEST(LearningRate, LinearFallsByTheSameAmountEachStep) {
  const LearningRate rate(warm(Shape::linear));
  for (int t = 100; t <= 1000; ++t) EXPECT_NEAR(rate.at(t), 0.4 - (t - 100) * 0.39 / 900, rounding);
}

TEST(LearningRate, LinearAndCosineEndExactlyAtFinalAndStayThere) {
  for (const Shape shape : {Shape::linear, Shape::cosine}) {
    for (const double final : {0.0, 1e-6, 0.01}) {
      auto options = warm(shape);
      options.final = final;
      const LearningRate rate(options);
      EXPECT_GT(rate.at(999), final);
      for (const int t : {1000, 1001, 123456789}) EXPECT_EQ(rate.at(t), final);
    }
  }
}

TEST(LearningRate, StepFallsFromTheDecayPointOn) {
  const LearningRate rate(
      {.shape = Shape::step, .peak = 0.8, .warmup_steps = 5, .decay_steps = {30, 60, 90}, .decay_factor = 0.5});
  EXPECT_EQ(rate.at(5), 0.8);
  EXPECT_EQ(rate.at(29), 0.8);
  EXPECT_EQ(rate.at(30), 0.4);
  EXPECT_EQ(rate.at(59), 0.4);
  EXPECT_EQ(rate.at(60), 0.2);
  EXPECT_EQ(rate.at(90), 0.1);
  EXPECT_EQ(rate.at(100000), 0.1);  // no floor at `final`, no end
}

TEST(LearningRate, StepCountsDecayPointsThatTheWarmUpHasPassed) {
  const LearningRate rate(
      {.shape = Shape::step, .peak = 0.8, .warmup_steps = 10, .decay_steps = {5, 20}, .decay_factor = 0.25});
  EXPECT_EQ(rate.at(9), 0.72);
  EXPECT_EQ(rate.at(10), 0.2);
  EXPECT_EQ(rate.at(20), 0.05);
}

// The reference recipe of ResNet-152 (Gu et al. 2024): 62,400 steps, 1,560 of warm-up, cosine to 1e-6.
TEST(LearningRate, TheRecipeOfResNetRunsFromTheFloorToThePeakAndBack) {
  const LearningRate rate(
      {.shape = Shape::cosine, .peak = 0.8, .final = 1e-6, .warmup_steps = 1560, .total_steps = 62400});
  EXPECT_EQ(rate.at(0), 1e-6);
  EXPECT_NEAR(rate.at(780), (0.8 + 1e-6) / 2, rounding);
  EXPECT_NEAR(rate.at(1560), 0.8, rounding);
  EXPECT_NEAR(rate.at(1560 + 30420), (0.8 + 1e-6) / 2, rounding);
  EXPECT_EQ(rate.at(62400), 1e-6);
}

TEST(LearningRate, RejectsRatesThatAreNegativeOrNotFinite) {
  for (const double bad : {-1e-9, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THROW(LearningRate({.peak = bad}), std::invalid_argument);
    EXPECT_THROW(LearningRate({.peak = 0.1, .final = bad}), std::invalid_argument);
  }
}

TEST(LearningRate, RejectsLengthsThatLeaveNoStepToDecayIn) {
  for (const Shape shape : {Shape::linear, Shape::cosine}) {
    EXPECT_THROW(LearningRate({.shape = shape}), std::invalid_argument);  // no total
    EXPECT_THROW(LearningRate({.shape = shape, .warmup_steps = 10, .total_steps = 10}), std::invalid_argument);
    EXPECT_NO_THROW(LearningRate({.shape = shape, .warmup_steps = 10, .total_steps = 11}));
  }
  EXPECT_NO_THROW(LearningRate({.shape = Shape::constant, .warmup_steps = 10}));  // needs no total
  EXPECT_THROW(LearningRate({.warmup_steps = -1}), std::invalid_argument);
  EXPECT_THROW(LearningRate({.total_steps = -1}), std::invalid_argument);
}

TEST(LearningRate, RejectsDecaysOutOfOrderAndFactorsThatAreNotPositive) {
  const auto step = [](std::vector<Step> steps, double factor) {
    return LearningRate({.shape = Shape::step, .decay_steps = std::move(steps), .decay_factor = factor});
  };
  EXPECT_NO_THROW(step({}, 0.1));
  EXPECT_NO_THROW(step({0, 1, 5}, 0.1));
  EXPECT_THROW(step({5, 1}, 0.1), std::invalid_argument);
  EXPECT_THROW(step({5, 5}, 0.1), std::invalid_argument);
  EXPECT_THROW(step({-1, 5}, 0.1), std::invalid_argument);
  for (const double factor : {0.0, -0.1, std::numeric_limits<double>::infinity()}) {
    EXPECT_THROW(step({5}, factor), std::invalid_argument);
  }
}

}  // namespace
}  // namespace syncopate
