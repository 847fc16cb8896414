// Steps to a target at another batch, against the closed form.
#include <gtest/gtest.h>

#include <vector>

#include "results/statistics.hpp"

namespace syncopate {
namespace {

TEST(StepsByBatch, IsTheClosedFormWhereTheNoiseStaysTheSame) {
  const std::vector<MeasuredNoise> measured = {{Step{0}, 300}, {Step{40}, 300}};
  const auto found = steps_by_batch(measured, Step{100}, 100);
  ASSERT_TRUE(found);
  EXPECT_DOUBLE_EQ(found->least, 25);  // 100 / (1 + 300 / 100)
  for (const double batch : {1.0, 50.0, 100.0, 300.0, 1e6})
    EXPECT_DOUBLE_EQ(found->steps(batch), 25 * (1 + 300 / batch));
  EXPECT_DOUBLE_EQ(found->mean_noise_scale, 300);
}

TEST(StepsByBatch, AtTheRunsOwnBatchAreTheRunsOwnSteps) {
  const std::vector<MeasuredNoise> measured = {{Step{0}, 10}, {Step{30}, 200}, {Step{60}, 5000}, {Step{200}, 1}};
  const auto found = steps_by_batch(measured, Step{90}, 64);
  ASSERT_TRUE(found);
  EXPECT_NEAR(found->steps(64), 90, 1e-9);
  EXPECT_NEAR(found->mean_noise_scale, (10 + 200 + 5000) / 3.0, 1e-9);
  // Phase by phase: 30 steps each, of which whole ones.
  EXPECT_NEAR(found->least, 30 / (1 + 10 / 64.0) + 30 / (1 + 200 / 64.0) + 30 / (1 + 5000 / 64.0), 1e-9);
  EXPECT_GT(found->steps(32), 90);
  EXPECT_GT(found->steps(128), 45);  // less than half the steps is impossible
}

TEST(StepsByBatch, NeedsAMeasurementBeforeTheTarget) {
  EXPECT_FALSE(steps_by_batch({}, Step{10}, 8));
  const std::vector<MeasuredNoise> late = {{Step{10}, 4}};
  EXPECT_FALSE(steps_by_batch(late, Step{10}, 8));
  EXPECT_NEAR(steps_by_batch(late, Step{11}, 8)->steps(8), 11, 1e-9);
}

}  // namespace
}  // namespace syncopate
