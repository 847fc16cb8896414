#include "algorithms/synchronous/sync_sgd.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/algorithms/simulated_run.hpp"

namespace syncopate {
namespace {

// The textbook recursion in double: theta -= lr x mean over workers and micro-batches of (theta - target).
std::vector<double> big_batch_sgd(int workers, int micro_batches, int steps, double rate, double momentum) {
  std::vector<double> theta(4, 1.0), velocity(4, 0.0);
  for (int step = 0; step < steps; ++step)
    for (std::size_t i = 0; i < theta.size(); ++i) {
      double mean_target = 0;
      for (int worker = 0; worker < workers; ++worker)
        for (int m = 0; m < micro_batches; ++m) mean_target += PullObjective::target({Rank{worker}, step, m}, i);
      velocity[i] = momentum * velocity[i] + theta[i] - mean_target / (workers * micro_batches);
      theta[i] -= rate * velocity[i];
    }
  return theta;
}

TEST(SyncSgd, EqualsSgdOnTheWholeBatch) {
  for (const double momentum : {0.0, 0.9}) {
    SimulatedRun setup{.workers = 5, .micro_batches = 3, .momentum = momentum, .rate = 0.07, .budget = {.steps = 20}};
    const auto outcome = setup.run(SyncSgd());
    const auto expected = big_batch_sgd(5, 3, 20, 0.07, momentum);
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(outcome.parameters[i], expected[i], 1e-5 * std::abs(expected[i]));
    EXPECT_EQ(outcome.published, Step{20});
    EXPECT_EQ(outcome.samples, 20 * 5 * 3);
  }
}

TEST(SyncSgd, WorkersInConsensusShareOneOptimizerStep) {
  auto objective = std::make_shared<PullObjective>();
  SimulatedRun setup{.workers = 50, .budget = {.steps = 10}, .objective = objective};
  setup.run(SyncSgd());
  EXPECT_EQ(objective->evaluations, 500);
  EXPECT_EQ(objective->calls, 10 * 2);  // per step 50 micro-batches of one sample, in two chunks of at most 64
}

TEST(SyncSgd, TheSlowestWorkerSetsThePace) {
  SimulatedRun setup{.micro_batches = 2, .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.25, 1.0})}};
  const auto outcome = setup.run(SyncSgd());
  EXPECT_EQ(outcome.log, (std::vector<std::string>{
                             "step 1 at 4.500 s: kept 6, dropped 0",  // 2 x (1 + 1) + 0.5 for the all-reduce
                             "step 2 at 9.000 s: kept 6, dropped 0",
                         }));
  const Account& fastest = outcome.totals.accounts[0];
  EXPECT_EQ(fastest[Activity::compute], from_seconds(4));
  EXPECT_EQ(fastest[Activity::wait], from_seconds(4));
  EXPECT_EQ(fastest[Activity::communicate], from_seconds(1));
  EXPECT_EQ(outcome.totals.bytes, Bytes{2 * 2 * 2 * 16});  // 2 steps, each 2 (N - 1) x 16 bytes
}

TEST(SyncSgd, EveryBudgetEndsTheRun) {
  const SimulatedRun setup{};
  const auto steps_with = [&](const Budget& budget) {
    SimulatedRun run = setup;
    run.budget = budget;
    return run.run(SyncSgd()).rounds.size();
  };
  EXPECT_EQ(steps_with({.steps = 7}), 7u);
  EXPECT_EQ(steps_with({.seconds = 4.4}), 3u);  // a step takes 1.5 s; the one that begins at 3.0 s is the last
  EXPECT_EQ(steps_with({.samples = 12}), 4u);
  EXPECT_EQ(steps_with({.bytes = Bytes{129}}), 3u);  // 64 bytes per step
  EXPECT_EQ(steps_with({.steps = 7, .seconds = 4.4}), 3u);
}

TEST(SyncSgd, AnInfiniteDelayIsExplained) {
  SimulatedRun setup{.delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, HUGE_VAL, 0.0})}};
  try {
    setup.run(SyncSgd());
    FAIL() << "a worker that never arrives must be noticed";
  } catch (const RunFailure& failure) {
    EXPECT_THAT(failure.what(),
                testing::HasSubstr("workers 0, 2: waiting in all_reduce_sum (algorithms/synchronous/sync_sgd.hpp:"));
    EXPECT_THAT(failure.what(), testing::HasSubstr("worker 1: waiting in a micro-batch that never ends"));
  }
}

}  // namespace
}  // namespace syncopate
