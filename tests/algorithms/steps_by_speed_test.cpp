#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "algorithms/asynchronous/delta_exchange.hpp"

namespace syncopate {
namespace {

using Rounding = DynamicSteps::Rounding;
using testing::ElementsAre;
using testing::IsEmpty;

TEST(DynamicSteps, AreAShareOfTheMostRounded) {
  const DynamicSteps up{.rounding = Rounding::up}, down{.rounding = Rounding::down};
  EXPECT_EQ(up.at(1, 8), Step{8});
  EXPECT_EQ(down.at(1, 8), Step{8});
  EXPECT_EQ(up.at(0.5, 8), Step{4});
  EXPECT_EQ(up.at(0.51, 8), Step{5});
  EXPECT_EQ(down.at(0.51, 8), Step{4});
  EXPECT_EQ(down.at(0.74, 8), Step{5});
}

TEST(DynamicSteps, OfASumOfTimesThatIsAlmostWholeAreWhole) {
  const double almost_half = 0.5 + 1e-12;
  EXPECT_EQ((DynamicSteps{.rounding = Rounding::up}.at(almost_half, 8)), Step{4});
  EXPECT_EQ((DynamicSteps{.rounding = Rounding::down}.at(1 - almost_half, 8)), Step{4});
}

TEST(DynamicSteps, AreNeverLessThanTheMinimum) {
  EXPECT_EQ((DynamicSteps{.rounding = Rounding::up}.at(1e-6, 8)), Step{1});
  EXPECT_EQ((DynamicSteps{.rounding = Rounding::down}.at(1e-6, 8)), Step{1});
  EXPECT_EQ((DynamicSteps{.rounding = Rounding::down, .minimum = 3}.at(0.2, 8)), Step{3});
}

TEST(StepsBySpeed, AreTheMostUntilSomethingIsMeasured) {
  StepsBySpeed steps(DynamicSteps{}, 8, 3);
  for (const Rank worker : Ranks(3)) EXPECT_EQ(steps.of(worker), Step{8});
  steps.measure(Rank{1}, 8, 4.0);
  EXPECT_EQ(steps.of(Rank{1}), Step{8}) << "the only one that is known is the fastest";
  EXPECT_EQ(steps.of(Rank{0}), Step{8});
}

TEST(StepsBySpeed, GoByStepsOverSecondsOfAllThatWasDelivered) {
  StepsBySpeed steps(DynamicSteps{}, 8, 2);
  steps.measure(Rank{0}, 8, 4.0);   // 2 steps/s
  steps.measure(Rank{1}, 8, 16.0);  // 0.5 steps/s
  EXPECT_EQ(steps.of(Rank{1}), Step{2});
  steps.measure(Rank{1}, 8, 4.0);  // 16 in 20 s: 0.8 steps/s, 3.2 of 8
  EXPECT_EQ(steps.of(Rank{1}), Step{4});
  EXPECT_THAT(steps.to_tell(Rank{1}), ElementsAre(4.0));
}

// The fastest becomes slower than another one, whose speed was known before.
TEST(StepsBySpeed, FollowWhoIsTheFastestNow) {
  StepsBySpeed steps(DynamicSteps{}, 12, 3);
  steps.measure(Rank{0}, 12, 3.0);   // 4 steps/s
  steps.measure(Rank{1}, 12, 6.0);   // 2
  steps.measure(Rank{2}, 12, 12.0);  // 1
  EXPECT_EQ(steps.of(Rank{1}), Step{6});
  EXPECT_EQ(steps.of(Rank{2}), Step{3});
  steps.measure(Rank{0}, 12, 21.0);  // 24 in 24 s: 1 step/s, so that worker 1 is the fastest
  EXPECT_EQ(steps.of(Rank{0}), Step{6});
  EXPECT_EQ(steps.of(Rank{1}), Step{12});
  EXPECT_EQ(steps.of(Rank{2}), Step{6});
}

TEST(StepsBySpeed, WithoutARuleAreTheMostAndNothingIsTold) {
  StepsBySpeed steps(std::nullopt, 8, 2);
  steps.measure(Rank{0}, 8, 1.0);
  steps.measure(Rank{1}, 8, 9.0);
  EXPECT_EQ(steps.of(Rank{1}), Step{8});
  EXPECT_THAT(steps.to_tell(Rank{1}), IsEmpty());
}

}  // namespace
}  // namespace syncopate
