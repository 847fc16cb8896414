#include "algorithms/gossip/decentralized_sgd.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <numeric>

#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/kicked_workers.hpp"

namespace syncopate {
namespace {

std::vector<std::shared_ptr<const DelayProcess>> delays(std::vector<double> delay_s) {
  return {std::make_shared<DelayOfWorker>(std::move(delay_s))};
}

TEST(DecentralizedSgd, OneWorkerEqualsSgdBitForBit) {
  const SimulatedRun setup{.workers = 1, .micro_batches = 2, .momentum = 0.9, .budget = {.steps = 20}};
  EXPECT_EQ(setup.run(DecentralizedSgd()).parameters, setup.run(SyncSgd()).parameters);
}

// The ring's mixing preserves the mean of the models, and this objective's gradients are linear. So the mean moves as
// if all models were equal to it.
TEST(DecentralizedSgd, WithLinearGradientsTheMeanOfTheModelsIsThatOfSynchronousSgd) {
  for (const int workers : {2, 3, 5, 8}) {
    const SimulatedRun setup{.workers = workers, .micro_batches = 2, .momentum = 0.9, .budget = {.steps = 20}};
    const auto outcome = setup.run(DecentralizedSgd());
    const auto expected = setup.run(SyncSgd());
    for (std::size_t i = 0; i < expected.parameters.size(); ++i)
      EXPECT_NEAR(outcome.parameters[i], expected.parameters[i], 1e-5 * std::abs(expected.parameters[i]));
    EXPECT_EQ(outcome.samples, expected.samples);
    EXPECT_EQ(outcome.published, Step{20});
  }
}

// Without gradients, the workers' models after t steps are the rows of W^t, which is circulant. W has eigenvalues 1/3
// + 2/3 cos(2 pi k / N).
TEST(DecentralizedSgd, TheRingsModesDecayByTheirEigenvalues) {
  constexpr int steps = 12;
  for (const int workers : {3, 4, 7, 10}) {
    const auto run = run_kicked({.workers = workers, .budget = {.steps = steps + 1}}, DecentralizedSgd());
    for (int i = 0; i < workers; ++i)
      for (int j = 0; j < workers; ++j) {
        double expected = 0;
        for (int k = 0; k < workers; ++k) {
          const double angle = 2 * std::numbers::pi * k / workers;
          expected += std::pow((1 + 2 * std::cos(angle)) / 3, steps) * std::cos(angle * (i - j)) / workers;
        }
        EXPECT_NEAR(run.models[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)], expected, 1e-6);
      }
    for (const float value : run.outcome.parameters) EXPECT_NEAR(value, 1.0 / workers, 1e-6);
  }
}

TEST(DecentralizedSgd, TwoWorkersMixTheirHalves) {
  const auto run = run_kicked({.workers = 2, .budget = {.steps = 2}}, DecentralizedSgd());
  for (const auto& model : run.models) EXPECT_EQ(model, (std::vector<float>{0.5f, 0.5f}));
}

// The gradient is taken at a worker's own model, and weights decay at the mixed model.
TEST(DecentralizedSgd, WeightsDecayAtTheMixedModelThatIsSteppedFrom) {
  constexpr double rate = 0.1, decay = 2;
  SimulatedRun setup{.workers = 2, .rate = rate, .budget = {.steps = 2}};
  setup.optimizer = make_sgd({.weight_decay = {.rate = decay}});
  const auto outcome = setup.run(DecentralizedSgd());
  for (std::size_t i = 0; i < 4; ++i) {
    const auto target = [&](int worker, int step) { return PullObjective::target({Rank{worker}, step, 0}, i); };
    double first[2], mean = 0;
    for (int worker = 0; worker < 2; ++worker) {
      first[worker] = 1 - rate * ((1.0 - target(worker, 0)) + decay);
      mean += first[worker] / 2;
    }
    double expected = 0;
    for (int worker = 0; worker < 2; ++worker)
      expected += (mean - rate * ((first[worker] - target(worker, 1)) + decay * mean)) / 2;
    EXPECT_NEAR(outcome.parameters[i], expected, 1e-5);
  }
}

TEST(DecentralizedSgd, ModelsTravelWhileGradientsAreComputed) {
  // Worker 2 takes 2 s per step, the others 1 s; messages take 0.5 s. Worker 2 never waits. It sends its models at 2
  // and 4 s, so workers 0 and 1 have its models of steps 1 and 2 at 2.5 and 4.5 s. Worker 0 has worker 2's last model
  // at 6.5 s.
  const SimulatedRun setup{.workers = 3, .budget = {.steps = 3}, .delays = delays({0, 0, 1})};
  const auto outcome = setup.run(DecentralizedSgd());
  EXPECT_EQ(outcome.log, (std::vector<std::string>{
                             "step 1 at 2.000 s: kept 3, dropped 0",
                             "step 2 at 4.000 s: kept 3, dropped 0",
                             "step 3 at 6.000 s: kept 3, dropped 0",
                         }));
  EXPECT_EQ(to_seconds(outcome.totals.end), 6.5);
  EXPECT_EQ(to_seconds(start_time + outcome.totals.accounts[2][Activity::compute]), 6.0);
  EXPECT_EQ(to_seconds(start_time + outcome.totals.accounts[1][Activity::compute]), 3.0);
  expect_exact_accounts(outcome);
}

// If data end with the budget, no worker leaves early: the mean is over all models.
TEST(DecentralizedSgd, WorkersWhoseDataEndWithTheBudgetAreInTheMean) {
  SimulatedRun setup{.workers = 3, .budget = {.steps = 3}, .delays = delays({0, 0, 1})};
  const auto expected = setup.run(DecentralizedSgd());
  for (const std::vector<std::optional<Step>>& data_of :
       {std::vector<std::optional<Step>>{3, 3, 3}, {3, std::nullopt, std::nullopt}, {std::nullopt, 3, std::nullopt}}) {
    setup.data_of = data_of;
    const auto outcome = setup.run(DecentralizedSgd());
    EXPECT_EQ(outcome.parameters, expected.parameters);
    EXPECT_EQ(outcome.totals.messages, expected.totals.messages);
  }
}

// Each worker sends two models of 16 bytes per step, and at the end one with its weight, 8 bytes, to worker 0.
TEST(DecentralizedSgd, BytesAndMessagesAreTheFormulas) {
  const SimulatedRun setup{.workers = 6, .budget = {.steps = 7}, .objective = nullptr};
  const auto outcome = setup.run(DecentralizedSgd());
  EXPECT_EQ(outcome.totals.messages, 7 * 6 * 2 + 5);
  EXPECT_EQ(outcome.totals.bytes, Bytes{7 * 6 * 2 * 16 + 5 * (16 + 8)});
  EXPECT_EQ(outcome.totals.collectives, 0);
  EXPECT_EQ(outcome.totals.kept, (std::vector<std::int64_t>(6, 7)));
}

// After worker 3 has left, its neighbours give its part of their mixtures to their own models. The rows still sum to 1,
// and the models become equal in the end.
TEST(DecentralizedSgd, TheOthersGoOnWithoutAWorkerThatHasLeft) {
  std::vector<std::optional<Step>> data_of(6);
  data_of[3] = Step{4};
  const auto run = run_kicked({.workers = 6, .budget = {.steps = 200}, .data_of = data_of}, DecentralizedSgd());
  EXPECT_EQ(run.outcome.totals.kept, (std::vector<std::int64_t>{200, 200, 200, 4, 200, 200}));
  for (const std::size_t worker : {0u, 1u, 2u, 4u, 5u}) {
    EXPECT_NEAR(std::accumulate(run.models[worker].begin(), run.models[worker].end(), 0.0), 1, 1e-5);
    for (std::size_t i = 0; i < 6; ++i) EXPECT_NEAR(run.models[worker][i], run.outcome.parameters[i], 1e-5);
  }
  EXPECT_EQ(run.outcome.published, Step{200});
  expect_exact_accounts(run.outcome);
}

// Worker 2 leaves a ring of four after its third step. Its neighbours give its third of the mixture to their own
// models. So they keep two thirds of their own model and still take one third of the remaining neighbour's.
TEST(DecentralizedSgd, ThePartOfANeighbourThatHasLeftFallsToTheWorkerItself) {
  constexpr int workers = 4, steps = 6, left = 2, steps_of_left = 3;
  std::vector<std::vector<double>> models(workers, std::vector<double>(workers));  // [worker][whose part]
  for (std::size_t i = 0; i < workers; ++i) models[i][i] = 1;                      // the models after step 0
  for (int step = 1; step < steps; ++step) {
    const auto before = models;
    const bool is_there = step < steps_of_left;
    for (int i = 0; i < workers; ++i) {
      if (i == left && !is_there) continue;
      auto& own = models[static_cast<std::size_t>(i)];
      for (const int neighbour : {(i + 1) % workers, (i + workers - 1) % workers}) {
        if (neighbour == left && !is_there) continue;
        for (std::size_t whose = 0; whose < workers; ++whose)
          own[whose] +=
              (before[static_cast<std::size_t>(neighbour)][whose] - before[static_cast<std::size_t>(i)][whose]) / 3;
      }
    }
  }
  const auto run =
      run_kicked({.workers = workers, .budget = {.steps = steps}, .data_of = {{}, {}, Step{steps_of_left}, {}}},
                 DecentralizedSgd());
  for (std::size_t i = 0; i < workers; ++i)
    for (std::size_t whose = 0; whose < workers; ++whose)
      EXPECT_NEAR(run.models[i][whose], models[i][whose], 1e-6) << i << " has of " << whose;
}

TEST(DecentralizedSgd, DataForExactlyTheBudgetAreEnough) {
  SimulatedRun setup{.workers = 4, .budget = {.steps = 5}};
  const auto expected = setup.run(DecentralizedSgd());
  setup.data_of = {Step{5}, {}, Step{5}, Step{6}};
  const auto outcome = setup.run(DecentralizedSgd());
  EXPECT_EQ(outcome.parameters, expected.parameters);
  EXPECT_EQ(outcome.totals.bytes, expected.totals.bytes);
}

TEST(DecentralizedSgd, WhenWorkerZeroLeavesItsLastModelStaysPublished) {
  const SimulatedRun setup{.workers = 4, .budget = {.steps = 10}, .data_of = {Step{3}, {}, {}, {}}};
  const auto outcome = setup.run(DecentralizedSgd());
  EXPECT_EQ(outcome.totals.kept, (std::vector<std::int64_t>{3, 10, 10, 10}));
  EXPECT_EQ(outcome.published, Step{3});
  expect_exact_accounts(outcome);
}

// With a budget of 5 s worker 2, at 2 s per step, ends after its third step, at 6 s. Its neighbours wait for it in each
// step: they start their fourth step at 4.5 s and end at 6.5 s, when worker 2's last model has arrived.
TEST(DecentralizedSgd, ABudgetOfSecondsEndsWorkersAtDifferentSteps) {
  for (const int slow : {0, 2}) {
    std::vector<double> delay_s(3);
    delay_s[static_cast<std::size_t>(slow)] = 1;
    const SimulatedRun setup{.workers = 3, .budget = {.seconds = 5}, .delays = delays(delay_s)};
    const auto outcome = setup.run(DecentralizedSgd());
    for (std::size_t worker = 0; worker < 3; ++worker)
      EXPECT_EQ(outcome.totals.kept[worker], static_cast<int>(worker) == slow ? 3 : 4) << "slow " << slow;
    expect_exact_accounts(outcome);
  }
}

}  // namespace
}  // namespace syncopate
