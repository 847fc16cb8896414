#include "algorithms/local_sgd/elastic_averaging.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "tests/algorithms/simulated_run.hpp"

namespace syncopate {
namespace {

using Exchange = ElasticOptions::Exchange;

// The first coordinate of the synchronous iteration in double precision; every update uses the values before the step.
double jacobi_centre(int workers, int steps, int period, double alpha, double rate, double momentum) {
  std::vector<double> x(static_cast<std::size_t>(workers), 1.0), v(x.size(), 0.0);
  double centre = 1;
  for (int t = 0; t < steps; ++t) {
    const std::vector<double> before = x;
    double pull = 0;
    for (int w = 0; w < workers; ++w) {
      const auto i = static_cast<std::size_t>(w);
      const double ahead = before[i] + momentum * v[i];
      v[i] = momentum * v[i] - rate * (ahead - PullObjective::target({Rank{w}, t, 0}, 0));
      x[i] = before[i] + v[i];
      if (t % period != 0) continue;
      x[i] -= alpha * (before[i] - centre);
      pull += alpha * (before[i] - centre);
    }
    centre += pull;
  }
  return centre;
}

TEST(ElasticAveraging, SynchronousFormIsTheJacobiIteration) {
  for (const double momentum : {0.0, 0.6}) {
    const SimulatedRun setup{.workers = 3, .rate = 0.1, .budget = {.steps = 9}};
    const auto outcome =
        setup.run(ElasticAveraging({.alpha = 0.25, .period = 2, .momentum = momentum}));  // exchanges at 0, 2, ... 8
    EXPECT_NEAR(outcome.parameters[0], jacobi_centre(3, 9, 2, 0.25, 0.1, momentum), 1e-5) << momentum;
    EXPECT_EQ(outcome.rounds.size(), 6u);  // five exchanges, and the step after the last
    EXPECT_EQ(outcome.published, Step{9});
    EXPECT_EQ(outcome.samples, 3 * 9);
  }
}

TEST(ElasticAveraging, OneWorkerWithBetaOneFollowsItsCentreOneStepLater) {
  // alpha = 1: the centre takes the worker's value, and the worker takes the old centre plus its step.
  const SimulatedRun setup{.workers = 1, .rate = 0.5, .budget = {.steps = 2}};
  const auto outcome = setup.run(ElasticAveraging({.alpha = 1}));
  // In step 0 the centre stays 1, and x = 1 - 0.5 (1 - target). In step 1 the centre becomes this x.
  EXPECT_NEAR(outcome.parameters[0], 1 - 0.5 * (1 - PullObjective::target({Rank{0}, 0, 0}, 0)), 1e-6);
}

// The gradient of worker w is w + 1 everywhere, so only elastic moves exchange parameters.
class Slope : public PullObjective {
 public:
  PartialGradient gradient(const float*, const float*, std::span<const MicroBatch> micro_batches) const override {
    float sum = 0;
    for (const MicroBatch& micro_batch : micro_batches) sum += static_cast<float>(micro_batch.worker.value + 1);
    auto values = std::make_shared<std::vector<float>>(parameters(), sum);
    PartialGradient result;
    result.segments.push_back({.offset = 0, .size = parameters(), .data = values->data(), .owner = values});
    return result;
  }
};

// Keeps each worker's last model.
class Watched : public ElasticAveraging {
 public:
  using ElasticAveraging::ElasticAveraging;
  void run(Worker& worker) const override {
    ElasticAveraging::run(worker);
    last.push_back(worker.model());
  }
  mutable std::vector<ModelStatePtr> last;
};

TEST(ElasticAveraging, WhatLeavesTheWorkersArrivesAtTheCentre) {
  const SimulatedRun setup{.workers = 4,
                           .threads = 0,  // all arithmetic is done when the run ends
                           .rate = 0.05,
                           .budget = {.steps = 30},
                           .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.31, 0.74, 1.9})},
                           .objective = std::make_shared<Slope>()};
  for (const Exchange exchange : {Exchange::synchronous, Exchange::asynchronous}) {
    const Watched algorithm({.exchange = exchange, .alpha = 0.2, .period = 3});
    const auto outcome = setup.run(algorithm);
    double sum = outcome.parameters[0];
    for (const auto& model : algorithm.last) sum += model->parameters->value.data()[0];
    // The sum of five ones, minus 30 steps of 0.05 along slopes of 1, 2, 3 and 4. Exchanges do not change the sum.
    EXPECT_NEAR(sum, 5 - 30 * 0.05 * (1 + 2 + 3 + 4), 1e-3);
    for (const Account& account : outcome.totals.accounts)
      EXPECT_EQ(account.total(), outcome.totals.end.time_since_epoch());
  }
}

TEST(ElasticAveraging, AsynchronousExchangesDoNotWaitForSlowWorkers) {
  // A request and the centre take 0.1 s each. Then follows a step, while the difference is under way.
  const SimulatedRun setup{.workers = 2,
                           .network_s = 0.1,
                           .budget = {.steps = 2},
                           .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 3.0})}};
  const auto outcome = setup.run(ElasticAveraging({.exchange = Exchange::asynchronous, .alpha = 0.2}));
  EXPECT_EQ(outcome.log, (std::vector<std::string>{
                             "step 1 at 4.200 s: kept 2, dropped 0",  // worker 1; worker 0 at 1.2 s
                             "step 2 at 8.400 s: kept 2, dropped 0",
                         }));
  EXPECT_EQ(outcome.totals.accounts[0][Activity::compute], from_seconds(2.0));
  EXPECT_EQ(outcome.totals.kept, (std::vector<std::int64_t>{2, 2}));
  // Four exchanges of a centre and a difference; requests carry no values.
  EXPECT_EQ(outcome.totals.bytes, Bytes{4 * 2 * 16});
  EXPECT_EQ(outcome.totals.messages, 4 * 3);
}

// An exchange takes 0.5 s, a step 1 s. The budget is used up in the middle of a period, at 3.5 s. At their next
// exchange, from 3.5 to 4 s, the workers agree to end. After this exchange's step and the barrier the run ends at 5.5
// s.
TEST(ElasticAveraging, ABudgetOfSecondsEndsBetweenExchangesWithEveryStepCounted) {
  const SimulatedRun setup{.workers = 2, .budget = {.seconds = 3}};
  const auto outcome = setup.run(ElasticAveraging({.alpha = 0.2, .period = 10}));
  EXPECT_EQ(outcome.log, (std::vector<std::string>{
                             "step 0 at 0.500 s: kept 0, dropped 0",
                             "step 3 at 4.000 s: kept 6, dropped 0",
                             "step 4 at 5.500 s: kept 2, dropped 0",
                         }));
  EXPECT_EQ(outcome.totals.kept, (std::vector<std::int64_t>{4, 4}));
}

TEST(ElasticAveraging, AWorkerThatLeavesDoesNotHoldTheOthers) {
  const SimulatedRun setup{.workers = 3, .budget = {.steps = 6}, .data_of = {Step{2}, std::nullopt, std::nullopt}};
  const auto outcome = setup.run(ElasticAveraging({.exchange = Exchange::asynchronous, .alpha = 0.2, .period = 2}));
  EXPECT_EQ(outcome.totals.kept, (std::vector<std::int64_t>{2, 6, 6}));
}

}  // namespace
}  // namespace syncopate
