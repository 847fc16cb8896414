// How stale a server's gradients are, by formula and simulated: E[staleness] = (N - 1) / c, or N / K - 1 where an update
// takes one of each of K workers and starts these, whatever workers' times are.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "algorithms/asynchronous/async_sgd.hpp"
#include "algorithms/asynchronous/k_async.hpp"
#include "algorithms/asynchronous/softsync.hpp"
#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/predicted_run.hpp"
#include "workers/time/distributions.hpp"

namespace syncopate {
namespace {

double mean_of(const std::vector<std::int64_t>& counts) {
  double sum = 0, gradients = 0;
  for (std::size_t staleness = 0; staleness < counts.size(); ++staleness) {
    sum += static_cast<double>(staleness) * static_cast<double>(counts[staleness]);
    gradients += static_cast<double>(counts[staleness]);
  }
  return sum / gradients;
}

TEST(PredictedStaleness, IsThatOfOtherWorkersGradientsPerUpdate) {
  constexpr int workers = 12, steps = 500;
  const std::vector<std::pair<std::shared_ptr<const Algorithm>, double>> methods = {
      {std::make_shared<AsyncSgd>(AsyncSgd::Options{}), 11},
      {std::make_shared<Softsync>(12), 11},
      {std::make_shared<Softsync>(4), 11.0 / 3},
      {std::make_shared<Softsync>(5), 11.0 / 2},  // floor(12 / 5) gradients make an update
      {std::make_shared<Softsync>(1), 11.0 / 12},
      {std::make_shared<KAsync>(1), 11},
      {std::make_shared<KAsync>(5), 7.0 / 5},
      {std::make_shared<KAsync>(12), 0}};
  for (const auto& [method, expected] : methods) {
    const PredictedRun setting{.workers = workers, .delays = {exponential_delay(2)}, .steps = steps};
    const auto predictions = setting.predict(*method);
    ASSERT_FALSE(predictions.empty());
    EXPECT_DOUBLE_EQ(predictions[0].mean_staleness.value_or(NAN), expected);
    const SimulatedRun simulated{.workers = workers,
                                 .micro_batches = 4,
                                 .budget = {.steps = steps},
                                 .delays = {exponential_delay(2)},
                                 .objective = nullptr};
    // Waits telescope: of each worker the first and the last gradient alone are off, by the largest staleness at most.
    const auto counts = simulated.run(*method).totals.staleness;
    EXPECT_NEAR(mean_of(counts), expected, static_cast<double>(counts.size()) / steps);
  }
}

TEST(PredictedStaleness, IsNotSaidWhereGradientsAreDroppedOrNoServerTakesThem) {
  const PredictedRun setting{.workers = 4, .steps = 100};
  EXPECT_TRUE(setting.predict(AsyncSgd({.maximum_staleness = Step{2}})).empty());
  EXPECT_FALSE(setting.predict(SyncSgd()).at(0).mean_staleness);
}

}  // namespace
}  // namespace syncopate
