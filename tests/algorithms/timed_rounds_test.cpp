// What rounds that end by time take: closed forms of constant steps, and the simulated cluster.
#include <gtest/gtest.h>

#include "algorithms/local_sgd/edit.hpp"
#include "tests/algorithms/predicted_run.hpp"
#include "workers/time/distributions.hpp"
#include "workers/time/network.hpp"

namespace syncopate {
namespace {

using From = TimedRounds::CountedFrom;

Edit timed(const TimedRounds& rounds) {
  return Edit({.scope = EditOptions::Scope::model, .timed = rounds, .outer = make_diloco(0.7, 0.8), .tensors = 1});
}

Prediction only(const PredictedRun& setting, const Algorithm& method) {
  const auto predictions = setting.predict(method);
  EXPECT_EQ(predictions.size(), 1u) << setting.why_not_predicted(method);
  return predictions.at(0);
}

// Steps of 2, 2.8 and 4 s; after 7 s the workers end their 4th, 3rd and 2nd, the last of them at 8.4 s.
TEST(TimedRounds, OfConstantStepsTakeTheTimeAndTheLongestRest) {
  const PredictedRun setting{.workers = 3, .micro_batches = 2, .factors = {1, 1.4, 2}, .delays = {}};
  const Prediction prediction = only(setting, timed({.length = from_seconds(7)}));
  EXPECT_NEAR(prediction.step_time_s, (8.4 + 2 * 0.5) / 4, 1e-12);
  EXPECT_NEAR(prediction.communication_s, 2 * 0.5 / 4, 1e-12);
  EXPECT_NEAR(prediction.kept, (4 + 3 + 2) / 12.0, 1e-12);
  EXPECT_NEAR(*prediction.drop_rate, 3 / 12.0, 1e-12);
  EXPECT_NEAR(prediction.sync_step_time_s, 4.5, 1e-12);
  EXPECT_NEAR(prediction.step_error_s, 0, 1e-12);
  // 18 steps by the second meeting, of which the first took 0.5 s.
  const Prediction put_off = only(setting, timed({.length = from_seconds(7), .minimum_steps = 10}));
  EXPECT_NEAR(put_off.step_time_s, (2 * 8.4 + 3 * 0.5) / 8, 1e-12);
  // 250 of 2,000 steps together.
  const Prediction warmed = only(setting, timed({.length = from_seconds(7), .warmup_steps = 250}));
  EXPECT_NEAR(warmed.step_time_s, 0.125 * 4.5 + 0.875 * prediction.step_time_s, 1e-12);
  EXPECT_NEAR(warmed.kept, 0.125 + 0.875 * prediction.kept, 1e-12);
}

// A round of EDiT that costs as much.
TEST(TimedRounds, OfEqualWorkersAreThoseOfSoManySteps) {
  const PredictedRun setting{.workers = 4, .micro_batches = 2, .delays = {}};
  const Prediction prediction = only(setting, timed({.length = from_seconds(10)}));
  EXPECT_NEAR(prediction.step_time_s, (10 + 1) / 5.0, 1e-12);
  EXPECT_EQ(prediction.kept, 1);
}

TEST(TimedRounds, AreThoseOfTheSimulatedCluster) {
  PredictedRun setting{.workers = 8, .micro_batches = 2, .factors = {1, 1.1, 1.2, 1.5, 1, 1, 1, 1.7}};
  setting.network = make_ring_network(0.1, 1e3);
  setting.delays = {exponential_delay(0.5)};
  for (const std::int64_t minimum_steps : {1, 60}) {
    const Edit method = timed({.length = from_seconds(20), .minimum_steps = minimum_steps});
    const Prediction prediction = only(setting, method);
    const auto simulated = setting.simulate(method);
    EXPECT_NEAR(prediction.step_time_s, simulated.step_s, 0.01 * simulated.step_s);
    EXPECT_NEAR(*prediction.drop_rate, simulated.drop_rate, 0.01);
    EXPECT_NEAR(prediction.communication_s, simulated.communication_s, 0.01 * simulated.step_s);
    EXPECT_LT(prediction.step_error_s, 0.01 * simulated.step_s);
  }
}

TEST(TimedRounds, HaveAReasonWhereTheyAreNotPredicted) {
  const PredictedRun setting{};
  EXPECT_NE(setting.why_not_predicted(timed({.length = from_seconds(1e6)})), "") << "too long for what is drawn";
  EXPECT_NE(setting.why_not_predicted(timed({.length = from_seconds(20), .counted_from = From::arrival})), "");
}

// EDiT by steps: as DiLoCo, with an all-gather of 8 bytes of each worker before the average.
TEST(TimedRounds, OfEditByStepsAreThoseOfTheSimulatedCluster) {
  PredictedRun setting{.workers = 16, .steps = 64 * 64};
  setting.network = make_ring_network(0.1, 1e3);
  const Edit method(
      {.scope = EditOptions::Scope::model, .period = make_constant_period(64), .outer = make_diloco(0.7, 0.8)});
  const auto predictions = setting.predict(method);
  ASSERT_FALSE(predictions.empty());
  const auto simulated = setting.simulate(method);
  EXPECT_NEAR(predictions[0].step_time_s, simulated.step_s, 0.01 * simulated.step_s);
  // Ring: 2 (N - 1) (L + P / (N B)) and (N - 1) (L + p / B).
  const double round_s = 2 * 15 * (0.1 + 16 / (16 * 1e3)) + 15 * (0.1 + 8 / 1e3);
  EXPECT_NEAR(predictions[0].communication_s, round_s / 64, 1e-9);
}

}  // namespace
}  // namespace syncopate
