// Learning-rate schedules of published recipes, compared with formulas and with golden values, which were computed for
// this project from the definitions in the reference codes.
#include "workers/training/learning_rate.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <stdexcept>
#include <utility>
#include <vector>

namespace syncopate {
namespace {

using Shape = LearningRate::Shape;
using Counter = LearningRate::Counter;

constexpr double seven_digits = 1e-6;  // the golden values have seven digits

void expect_near_share(double found, double golden) { EXPECT_NEAR(found, golden, seven_digits * golden); }

// BERT-Large, phase 1: 7038 steps, of which 28.43 % are warm-up, and the power 1/2.
TEST(RecipeSchedules, TheRootDecayOfBertMeetsTheGoldenValues) {
  const LearningRate rate({.shape = Shape::polynomial,
                           .peak = 0.006,
                           .final = 0,
                           .warmup_share = 0.2843,
                           .total_steps = 7038,
                           .power = 0.5,
                           .counter = Counter::optimizer});
  expect_near_share(rate.at(1000), 2.998646e-3);
  expect_near_share(rate.at(2001), 5.999942e-3);
  expect_near_share(rate.at(4000), 4.659668e-3);
  expect_near_share(rate.at(7037), 8.453978e-5);
  EXPECT_EQ(rate.at(0), rate.at(1));  // the optimizer's counter is 1 in steps 0 and 1, then 2, 3
  EXPECT_LT(rate.at(1), rate.at(2));
  EXPECT_EQ(rate.at(7038), 0);
}

// DropCompute's model with 1.5B parameters: 155,000 steps, 5 % warm-up, 25 % hold.
TEST(RecipeSchedules, WarmUpHoldAndLinearDecayMeetTheGoldenValues) {
  LearningRate::Options options{.shape = Shape::linear, .peak = 0.0015, .final = 0, .total_steps = 155000};
  options.warmup_share = 0.05;
  options.hold_share = 0.25;
  const LearningRate in_shares(options);
  options.warmup_share = options.hold_share = 0;
  options.warmup_steps = 7750;
  options.hold_steps = 38750;
  for (const LearningRate& rate : {in_shares, LearningRate(options)}) {
    expect_near_share(rate.at(7749), 1.499806e-3);
    for (const int step : {7750, 20000, 46499, 46500}) EXPECT_NEAR(rate.at(step), 1.5e-3, 1e-12);
    expect_near_share(rate.at(100000), 7.603687e-4);
    expect_near_share(rate.at(154999), 1.382488e-8);
  }
}

// LARS with batches of 8 x 256. An epoch has 626 steps, but the schedule assumes 625. The schedule is stepped first, so
// it counts from 1.
TEST(RecipeSchedules, ThePolynomialOfLarsMeetsTheGoldenValues) {
  const int warmup = 3 * 625, total = 36 * 625 + 1;
  const LearningRate rate({.shape = Shape::polynomial,
                           .peak = 9,
                           .final = 1e-4,
                           .warmup_start = 0,
                           .warmup_steps = warmup,
                           .total_steps = total,
                           .power = 2,
                           .counter = Counter::next});
  const std::vector<std::pair<int, double>> golden = {
      {1, 0.0048}, {1875, 9.0}, {1876, 8.999127346}, {10000, 3.306056749}, {20000, 0.132422909}};
  for (const auto& [s, value] : golden) expect_near_share(rate.at(s - 1), value);
  EXPECT_NEAR(rate.at(21910 - 1), 0.0075, 5e-5);  // the last step of 35 epochs of 626 steps
  EXPECT_EQ(rate.at(total + 1000), 1e-4);
}

// The vision transformer of Gu et al. 2024: rates are powers of two. At the golden steps their code halves the rate.
TEST(RecipeSchedules, CosineStepOfTheVisionTransformerFallsAtTheGoldenSteps) {
  const LearningRate rate(
      {.shape = Shape::cosine_step, .peak = 0.008, .final = 1e-6, .warmup_steps = 10000, .total_steps = 93600});
  EXPECT_NEAR(rate.at(9999), 0.008, 1e-6);  // the warm-up ends at the unrounded rate, above the first power
  double power = std::ldexp(1.0, -7);
  EXPECT_EQ(rate.at(10000), power);
  for (const int step : {41399, 60178, 70803, 77741, 82479, 85776, 88094, 89733, 90900, 91738, 92353, 92825, 93249}) {
    EXPECT_EQ(rate.at(step - 1), power) << step;
    power /= 2;
    EXPECT_EQ(rate.at(step), power) << step;
  }
}

// The power of `base` that is nearest to the peak may be above the peak.
TEST(RecipeSchedules, CosineStepRoundsAPeakOfFourFifthsToOne) {
  EXPECT_EQ(LearningRate({.shape = Shape::cosine_step, .peak = 0.8, .total_steps = 100}).at(0), 1.0);
  EXPECT_EQ(LearningRate({.shape = Shape::cosine_step, .peak = 0.8, .total_steps = 100, .base = 10}).at(0), 1.0);
  EXPECT_EQ(LearningRate({.shape = Shape::cosine_step, .peak = 20, .total_steps = 100, .base = 10}).at(0), 10.0);
}

// As in Chen et al. 2016: a factor of 0.94 every two epochs, which are `decay_every` steps here.
TEST(RecipeSchedules, ExponentialDecayMultipliesByItsFactorEverySoManySteps) {
  LearningRate::Options options{.shape = Shape::exponential, .peak = 0.045, .decay_factor = 0.94, .decay_every = 500};
  const LearningRate smooth(options);
  options.staircase = true;
  const LearningRate stairs(options);
  double expected = 0.045;
  for (int t = 0; t < 5000; ++t) {
    if (t > 0 && t % 500 == 0) expected *= 0.94;
    EXPECT_NEAR(stairs.at(t), expected, 1e-15);
    EXPECT_NEAR(smooth.at(t), 0.045 * std::exp(t / 500.0 * std::log(0.94)), 1e-15);
  }
  EXPECT_EQ(smooth.at(0), 0.045);
}

TEST(RecipeSchedules, ExponentialDecayBeginsAfterWarmUpAndHold) {
  const LearningRate rate({.shape = Shape::exponential,
                           .peak = 1,
                           .warmup_start = 0.5,
                           .warmup_steps = 10,
                           .hold_steps = 5,
                           .decay_factor = 0.5,
                           .decay_every = 4});
  EXPECT_EQ(rate.at(0), 0.5);
  EXPECT_EQ(rate.at(5), 0.75);
  for (const int t : {10, 12, 15}) EXPECT_EQ(rate.at(t), 1);
  EXPECT_EQ(rate.at(19), 0.5);
  EXPECT_EQ(rate.at(23), 0.25);
}

TEST(RecipeSchedules, ModifiedCosineStaysWhereTheCosineIsAtItsStep) {
  LearningRate::Options options{
      .shape = Shape::cosine, .peak = 0.4, .final = 0.01, .warmup_steps = 10, .total_steps = 100};
  const LearningRate cosine(options);
  options.shape = Shape::modified_cosine;
  options.constant_from = 60;
  const LearningRate modified(options);
  for (int t = 0; t < 150; ++t) EXPECT_EQ(modified.at(t), cosine.at(std::min(t, 60))) << t;
}

TEST(RecipeSchedules, APolynomialOfPowerOneIsAStraightLine) {
  LearningRate::Options options{
      .shape = Shape::linear, .peak = 0.4, .final = 0.01, .warmup_steps = 10, .hold_steps = 20, .total_steps = 100};
  const LearningRate linear(options);
  options.shape = Shape::polynomial;
  const LearningRate polynomial(options);
  for (int t = 0; t < 120; ++t) EXPECT_NEAR(polynomial.at(t), linear.at(t), 1e-15);
}

// As in resnet_sgd, reference code of Giladi et al. 2023: a warm-up from a factor of 0.1 / eta to 1, where eta is the
// peak, and a factor of a tenth at each decay point.
TEST(RecipeSchedules, AWarmUpMayHaveAStartOfItsOwn) {
  const LearningRate rate({.shape = Shape::step,
                           .peak = 3.2,
                           .warmup_start = 0.1,
                           .warmup_steps = 50,
                           .decay_steps = {300, 600, 800},
                           .decay_factor = 0.1});
  for (int t = 0; t < 50; ++t) EXPECT_NEAR(rate.at(t), 3.2 * (0.1 / 3.2 + t / 50.0 * (1 - 0.1 / 3.2)), 1e-14);
  EXPECT_EQ(rate.at(50), 3.2);
  EXPECT_NEAR(rate.at(800), 0.0032, 1e-15);
}

// For a warm-up from 0 to a constant rate, the warm-up's length is the number of steps whose rate is below the peak.
TEST(RecipeSchedules, TheWarmUpIsAsLongAsItsRatesAreUnderEveryCounter) {
  for (const Counter counter : {Counter::done, Counter::next, Counter::optimizer})
    for (const int steps : {0, 1, 2, 7})
      for (const double share : {0.0, 0.013}) {
        const LearningRate rate({.peak = 1,
                                 .final = 0,
                                 .warmup_steps = steps,
                                 .warmup_share = share,
                                 .total_steps = 100,
                                 .counter = counter});
        int below = 0;
        while (rate.at(below) < 1) ++below;
        EXPECT_EQ(rate.warmup(), Step{below}) << static_cast<int>(counter) << ", " << steps << ", " << share;
      }
}

// Learning-rate schedules, compared with the formulas in learning_rate.hpp.

// Warm-up of 100 steps, then 900 decaying steps from 0.4 to 0.01.
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
  EXPECT_EQ(rate.at(100000), 0.1);  // neither `final` nor a total of steps limits it
}

TEST(LearningRate, StepCountsDecayPointsThatTheWarmUpHasPassed) {
  const LearningRate rate(
      {.shape = Shape::step, .peak = 0.8, .warmup_steps = 10, .decay_steps = {5, 20}, .decay_factor = 0.25});
  EXPECT_EQ(rate.at(9), 0.72);
  EXPECT_EQ(rate.at(10), 0.2);
  EXPECT_EQ(rate.at(20), 0.05);
}

// The recipe of ResNet-152 in Gu et al. 2024: 62,400 steps, 1,560 of them warm-up, then a cosine to 1e-6.
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
    EXPECT_THROW(LearningRate({.warmup_start = bad}), std::invalid_argument);
  }
}

}  // namespace
}  // namespace syncopate
