// What is said of the times of averages of fragments, against closed forms and whole simulations; and that they hide
// what they should: where the averages of all fragments take 0.8 of a round, a round takes no more than its computing.
#include <gtest/gtest.h>

#include <algorithm>

#include "algorithms/local_sgd/outer_local_sgd.hpp"
#include "algorithms/local_sgd/round_prediction.hpp"
#include "algorithms/local_sgd/streaming_diloco.hpp"
#include "tests/algorithms/predicted_run.hpp"
#include "workers/time/distributions.hpp"
#include "workers/time/network.hpp"

namespace syncopate {
namespace {

constexpr int period = 8;
constexpr double step_s = 2;  // of two micro-batches
constexpr double round_s = period * step_s;

StreamingDiloco streaming(int fragments, int delay, int steps = period) {
  return {make_constant_period(steps), make_diloco(0.7, 0.9), {Fragments(fragments), delay, 0}, {}};
}

// On a ring, where the average of a whole model, which is all bandwidth, takes this share of a round; of a quarter of
// it a quarter of the time. (The model has 16 bytes.)
PredictedRun on_ring(double share, std::vector<std::shared_ptr<const DelayProcess>> delays) {
  constexpr int workers = 6;
  PredictedRun run{.workers = workers, .micro_batches = 2, .delays = std::move(delays), .steps = 400};
  run.network = make_ring_network(0, 2.0 * (workers - 1) / workers * 16 / (share * round_s));
  return run;
}

TEST(StreamingTimes, AveragesOfFourFifthsOfARoundAreHidden) {
  for (const double share : {0.3, 0.8, 1.0, 1.7})
    for (const auto& [fragments, delay] : {std::pair{1, 8}, std::pair{2, 4}, std::pair{4, 2}, std::pair{4, 5}}) {
      PredictedRun run = on_ring(share, {});
      run.steps = 4000;  // the first averages have nothing to wait for, and the last ones are waited for
      const double expected_s = step_s * std::max(1.0, share);
      EXPECT_NEAR(run.simulate(streaming(fragments, delay)).step_s, expected_s, 0.01 * expected_s)
          << share << " of a round, " << fragments << " fragments, delay " << delay;
      const OuterLocalSgd waits(make_constant_period(period), make_plain_outer(1), {});
      EXPECT_NEAR(run.simulate(waits).step_s, step_s * (1 + share), 1e-6);
    }
}

// H c + P max(0, A - tau c) per round, for tau <= H / P. The first average is taken in within the first round, and so
// are all but the last ones; these are waited for, A, after the stall that their round does not have.
TEST(StreamingTimes, WithoutSpreadHaveAClosedForm) {
  for (const double share : {0.3, 0.8, 1.7})
    for (const int fragments : {1, 2, 4})
      for (int delay = 0; delay < period / fragments; ++delay) {
        SCOPED_TRACE(testing::Message() << share << ", " << fragments << ", " << delay);
        const PredictedRun run = on_ring(share, {});
        const double average_s = share * round_s / fragments, stall_s = std::max(0.0, average_s - delay * step_s);
        const double total_s = 50 * (round_s + fragments * stall_s) - stall_s + average_s;
        const auto predictions = run.predict(streaming(fragments, delay));
        ASSERT_EQ(predictions.size(), 1u);
        EXPECT_NEAR(predictions[0].step_time_s, total_s / 400, 1e-6);
        EXPECT_NEAR(predictions[0].communication_s, (total_s - 400 * step_s) / 400, 1e-6);
        EXPECT_EQ(predictions[0].kept, 1);
        const auto simulated = run.simulate(streaming(fragments, delay));
        EXPECT_NEAR(simulated.step_s, total_s / 400, 1e-6);
        EXPECT_NEAR(simulated.communication_s, (total_s - 400 * step_s) / 400, 1e-6);
      }
}

// All steps of the run are drawn, so that the recursion is the run's own.
TEST(StreamingTimes, OfDrawnStepsAreThoseOfTheSimulation) {
  for (const auto& delay : {noise, exponential_delay(1), pareto_delay(1.5, 0.5)})
    for (const double share : {0.1, 0.9, 1.5})
      for (const auto& [fragments, late] : {std::pair{1, 0}, std::pair{3, 2}, std::pair{4, 7}}) {
        PredictedRun run = on_ring(share, {delay});
        run.factors = {1, 1.2, 1, 1.1, 1, 1};
        const StreamingDiloco method = streaming(fragments, late, 7);  // whose last round is shorter
        const auto predictions = run.predict(method);
        ASSERT_EQ(predictions.size(), 1u);
        const auto simulated = run.simulate(method);
        EXPECT_NEAR(predictions[0].step_time_s, simulated.step_s, 1e-6);
        EXPECT_NEAR(predictions[0].communication_s, simulated.communication_s, 0.02 * simulated.communication_s);
      }
}

TEST(StreamingTimes, OfMoreStepsThanAreDrawnAreCloseToTheSimulation) {
  PredictedRun run = on_ring(0.8, {exponential_delay(1)});
  run.steps = 4000;
  const StreamingDiloco method = streaming(4, 2);
  const Prediction predicted = run.predict(method).at(0);
  const double simulated_s = run.simulate(method).step_s;
  EXPECT_NEAR(predicted.step_time_s, simulated_s, std::max(4 * predicted.step_error_s, 0.005 * simulated_s));
  EXPECT_GT(predicted.step_error_s, 0);
  EXPECT_LT(predicted.step_error_s, 0.03 * simulated_s);
}

TEST(StreamingTimes, OfTooManyWorkersToDrawHaveAReason) {
  PredictedRun run = on_ring(0.8, {noise});
  run.workers = 5000;
  EXPECT_NE(run.why_not_predicted(streaming(4, 2)).find("too many workers"), std::string::npos);
}

}  // namespace
}  // namespace syncopate
