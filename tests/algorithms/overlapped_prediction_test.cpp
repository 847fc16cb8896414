// What is said of the times of averages one round late, against closed forms and whole simulations; and that they hide
// what they should: with an average of 0.8 of a round a round takes no more than its computing.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "algorithms/local_sgd/outer_local_sgd.hpp"
#include "algorithms/local_sgd/round_prediction.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/predicted_run.hpp"
#include "workers/time/distributions.hpp"

namespace syncopate {
namespace {

const std::vector<std::string> methods = {
    "\"cocod-sgd\"", "\"overlap-local-sgd\"\nmixing = 0.5", "\"co2\"",
    "\"overlapped-diloco\"\nouter = { name = \"diloco\", rate = 0.7, momentum = 0.5 }",
    "\"overlapped-diloco\"\nupdate = \"delayed\"\nouter = { name = \"plain\" }"};

std::unique_ptr<Algorithm> read(const std::string& keys, int period) {
  auto reading =
      read_method("algorithm = " + keys + "\nperiod = { rule = \"constant\", steps = " + std::to_string(period) + " }");
  EXPECT_EQ(reading.faults, "") << keys;
  return std::move(reading.algorithm);
}

constexpr int period = 8;
constexpr double step_s = 2;  // of two micro-batches
PredictedRun setting(double average_s, std::vector<std::shared_ptr<const DelayProcess>> delays) {
  return {.workers = 6, .micro_batches = 2, .delays = std::move(delays), .steps = 400, .network_s = average_s};
}

TEST(OverlappedTimes, AnAverageOfFourFifthsOfARoundIsHidden) {
  for (const double share : {0.3, 0.8, 1.0, 1.7}) {
    PredictedRun run = setting(share * period * step_s, {});
    run.steps = 4000;  // the first round has nothing to wait for, and the last average is waited for
    const double expected_s = step_s * std::max(1.0, share);
    for (const std::string& keys : methods)
      EXPECT_NEAR(run.simulate(*read(keys, period)).step_s, expected_s, 0.01 * expected_s) << keys << ", " << share;
    const OuterLocalSgd waits(make_constant_period(period), make_plain_outer(1), {});
    EXPECT_NEAR(run.simulate(waits).step_s, step_s * (1 + share), 1e-9);
  }
}

// Of 50 rounds: 50 in which all compute, and the last average; or the first, and 50 averages.
TEST(OverlappedTimes, WithoutSpreadHaveAClosedForm) {
  for (const double share : {0.3, 0.8, 1.0, 1.7}) {
    const PredictedRun run = setting(share * period * step_s, {});
    const double round_s = period * step_s, average_s = share * round_s;
    const double total_s = share > 1 ? round_s + 50 * average_s : 50 * round_s + average_s;
    const double communication_s = share > 1 ? 49 * (average_s - round_s) + average_s : average_s;
    for (const std::string& keys : methods) {
      const auto predictions = run.predict(*read(keys, period));
      ASSERT_EQ(predictions.size(), 1u);
      EXPECT_NEAR(predictions[0].step_time_s, total_s / 400, 1e-9);
      EXPECT_NEAR(predictions[0].communication_s, communication_s / 400, 1e-9);
      EXPECT_NEAR(predictions[0].step_error_s, 0, 1e-9);
      EXPECT_EQ(predictions[0].kept, 1);
    }
  }
}

// All steps of the run are drawn, so that the recursion is the run's own.
TEST(OverlappedTimes, OfDrawnStepsAreThoseOfTheSimulation) {
  for (const auto& delay : {noise, exponential_delay(1), pareto_delay(1.5, 0.5)})
    for (const double average_s : {1.0, 30.0, 45.0}) {
      PredictedRun run = setting(average_s, {delay});
      run.factors = {1, 1.2, 1, 1.1, 1, 1};
      for (const std::string& keys : {methods[0], methods[3]}) {
        const auto method = read(keys, 7);  // whose last round is shorter
        const auto predictions = run.predict(*method);
        ASSERT_EQ(predictions.size(), 1u);
        const auto simulated = run.simulate(*method);
        EXPECT_NEAR(predictions[0].step_time_s, simulated.step_s, 1e-6);
        EXPECT_NEAR(predictions[0].communication_s, simulated.communication_s, 0.02 * simulated.communication_s);
      }
    }
}

TEST(OverlappedTimes, OfMoreStepsThanAreDrawnAreCloseToTheSimulation) {
  PredictedRun run = setting(20, {exponential_delay(1)});
  run.steps = 4000;
  const auto method = read(methods[0], period);
  const Prediction predicted = run.predict(*method).at(0);
  const double simulated_s = run.simulate(*method).step_s;
  EXPECT_NEAR(predicted.step_time_s, simulated_s, std::max(4 * predicted.step_error_s, 0.005 * simulated_s));
  EXPECT_GT(predicted.step_error_s, 0);
  EXPECT_LT(predicted.step_error_s, 0.03 * simulated_s);
}

// A round is no shorter than the slowest worker's on average, nor than the average of models; and no longer than if all
// waited for the slowest, or for that.
TEST(OverlappedTimes, LieBetweenTheTwoBounds) {
  for (const double average_s : {5.0, 20.0, 30.0}) {
    PredictedRun run = setting(average_s, {exponential_delay(1)});
    run.factors = {1, 1, 1, 1, 1, 1.5};
    const double late_s = run.predict(*read(methods[0], period)).at(0).step_time_s;
    run.network_s = 0;
    const double waiting_s = run.predict(LocalSgd(make_constant_period(period), {})).at(0).step_time_s;
    const double slowest_s = 2 * (1.5 + 1);  // on average: the delay is added to 1.5 s
    EXPECT_GE(late_s, 0.97 * std::max(slowest_s, average_s / period)) << average_s;
    EXPECT_LE(late_s, waiting_s + average_s / period) << average_s;
  }
}

TEST(OverlappedTimes, OfTooManyWorkersToDrawHaveAReason) {
  PredictedRun run = setting(1, {noise});
  run.workers = 5000;
  EXPECT_NE(run.why_not_predicted(*read(methods[0], period)).find("too many workers"), std::string::npos);
}

}  // namespace
}  // namespace syncopate
