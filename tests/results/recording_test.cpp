#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "results/recorder.hpp"

namespace syncopate {
namespace {

using std::chrono::milliseconds;

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr float nan_float = std::numeric_limits<float>::quiet_NaN();

MetricsRow row(std::int64_t step, Time time, std::optional<Evaluation> evaluation) {
  MetricsRow row;
  row.step = step;
  row.epoch = static_cast<double>(step) / 8;
  row.samples = step * 32;
  row.time = time;
  row.evaluation = evaluation;
  row.learning_rate = 0.1;
  row.bytes = step * 1000;
  return row;
}

StepRow round_at(std::int64_t step, Time end) {
  return {.step = step, .end = end, .duration = milliseconds(70), .kept = 15, .dropped = 1, .period = 4, .bytes = 6000};
}

TEST(Recording, MetricsHaveUnitsInTheirNamesAndTheShortestExactNumbers) {
  const MetricsRow rows[] = {row(0, start_time, Evaluation{2.5, 0.1, 2.25, true}),
                             row(4, Time{milliseconds(70)}, Evaluation{1.0 / 3, 0.875, 1e-7, true})};
  EXPECT_EQ(metrics_csv(rows),
            "step,epoch,samples,time_s,test_loss,test_accuracy,train_loss,learning_rate,communicated_bytes\n"
            "0,0,0,0,2.5,0.1,2.25,0.1,0\n"
            "4,0.5,128,0.07,0.3333333333333333,0.875,1e-07,0.1,4000\n");
}

TEST(Recording, WhatDoesNotExistIsAnEmptyCell) {
  MetricsRow time_only = row(8, Time{milliseconds(1)}, {});
  time_only.epoch.reset();
  const MetricsRow rows[] = {row(8, Time{milliseconds(1)}, Evaluation{0.5, nan, 0.25, true}), time_only};
  const std::string csv = metrics_csv(rows);
  EXPECT_THAT(csv, testing::HasSubstr("\n8,1,256,0.001,0.5,,0.25,0.1,8000\n"));
  EXPECT_THAT(csv, testing::HasSubstr("\n8,,256,0.001,,,,0.1,8000\n"));
}

TEST(Recording, OfAValidatedRunHasTwoColumnsMore) {
  const MetricsRow rows[] = {row(0, start_time, Evaluation{2.5, nan, 2.25, true, 0.75, nan}),
                             row(4, Time{milliseconds(70)}, Evaluation{0.5, 0.875, 0.25, true, 0.625, 0.5}),
                             row(8, Time{milliseconds(90)}, {})};
  EXPECT_EQ(metrics_csv(rows),
            "step,epoch,samples,time_s,test_loss,test_accuracy,train_loss,learning_rate,communicated_bytes,"
            "validation_loss,validation_accuracy\n"
            "0,0,0,0,2.5,,2.25,0.1,0,0.75,\n"
            "4,0.5,128,0.07,0.5,0.875,0.25,0.1,4000,0.625,0.5\n"
            "8,1,256,0.09,,,,0.1,8000,,\n");
}

TEST(Recording, StepsHaveOneRowPerRound) {
  const StepRow rounds[] = {round_at(4, Time{milliseconds(70)}), round_at(8, Time{milliseconds(140)})};
  EXPECT_EQ(steps_csv(rounds),
            "step,time_s,duration_s,kept_micro_batches,dropped_micro_batches,period_steps,bytes\n"
            "4,0.07,0.07,15,1,4,6000\n"
            "8,0.14,0.07,15,1,4,6000\n");
}

TEST(Recording, NanosecondsPrintExactly) {
  const StepRow rounds[] = {round_at(1, Time{Duration{123'456'789'012}})};
  EXPECT_THAT(steps_csv(rounds), testing::HasSubstr("1,123.456789012,"));
}

TEST(Recording, EndsAtTheFirstModelThatIsNotFinite) {
  Recording recording;
  for (int step = 0; step < 4; ++step) {
    const bool finite = step < 2;
    recording.metrics.push_back(row(step, Time{milliseconds(step)}, Evaluation{finite ? 1 : nan, 0.1, 1, finite}));
    recording.rows.push_back(round_at(step, Time{milliseconds(step)}));
  }
  cut_after_divergence(recording);
  EXPECT_TRUE(recording.diverged);
  EXPECT_EQ(recording.metrics.size(), 3u);
  EXPECT_EQ(recording.rows.size(), 3u);
  EXPECT_THAT(metrics_csv(recording.metrics), testing::HasSubstr("\n2,0.25,64,0.002,nan,"));
}

TEST(Recording, WhatIsNotANumberHasNoSign) {
  const MetricsRow rows[] = {row(8, start_time, Evaluation{-nan, 0.5, -nan, false})};
  EXPECT_THAT(metrics_csv(rows), testing::HasSubstr("\n8,1,256,0,nan,0.5,nan,0.1,8000\n"));
}

TEST(Recording, OfFiniteModelsStaysWhole) {
  Recording recording;
  recording.metrics = {row(0, start_time, Evaluation{1, 0.1, 1, true}), row(1, start_time, {})};
  recording.rows = {round_at(1, Time{milliseconds(9)})};
  cut_after_divergence(recording);
  EXPECT_FALSE(recording.diverged);
  EXPECT_EQ(recording.metrics.size(), 2u);
  EXPECT_EQ(recording.rows.size(), 1u);
}

TEST(Recording, SurvivesTheWayThroughBytes) {
  Recording recording;
  recording.metrics = {row(0, start_time, Evaluation{1.0 / 3, nan, 0.1, true, 0.7, 0.3}), row(9, Time{Duration{7}}, {}),
                       row(10, Time{Duration{8}}, Evaluation{nan, 0.5, 1, false})};
  recording.metrics[1].epoch.reset();
  recording.rows = {round_at(10, Time{Duration{5'000'000'001}})};
  recording.diverged = true;
  recording.parameters = {{1.5F, -2.5F}, {3.5F, nan_float}, {}};
  const Recording copy = recording_from_bytes(to_bytes(recording));
  EXPECT_EQ(metrics_csv(copy.metrics), metrics_csv(recording.metrics));
  EXPECT_EQ(steps_csv(copy.rows), steps_csv(recording.rows));
  EXPECT_TRUE(copy.diverged);
  EXPECT_TRUE(copy.metrics[0].evaluation->finite);
  EXPECT_FALSE(copy.metrics[2].evaluation->finite);
  ASSERT_EQ(copy.parameters.size(), 3u);
  EXPECT_EQ(copy.parameters[0], recording.parameters[0]);
  EXPECT_EQ(copy.parameters[1][0], 3.5F);
  EXPECT_TRUE(std::isnan(copy.parameters[1][1]));
  EXPECT_TRUE(copy.parameters[2].empty());
  recording.diverged = false;
  EXPECT_FALSE(recording_from_bytes(to_bytes(recording)).diverged);
}

TEST(Recording, TruncatedBytesAreAnError) {
  auto bytes = to_bytes(Recording{});
  bytes.pop_back();
  EXPECT_THROW(recording_from_bytes(bytes), std::runtime_error);
}

}  // namespace
}  // namespace syncopate
