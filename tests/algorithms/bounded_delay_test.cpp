#include "algorithms/asynchronous/bounded_delay.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/three_workers.hpp"
#include "workers/time/distributions.hpp"

namespace syncopate {
namespace {

constexpr std::int64_t unlimited = std::numeric_limits<std::int64_t>::max();

TEST(BoundedDelay, WithoutDelayEqualsSynchronousSgdBitForBit) {
  SimulatedRun setup{.workers = 4,
                     .micro_batches = 2,
                     .network_s = 0,
                     .momentum = 0.9,
                     .budget = {.steps = 10},
                     .delays = {exponential_delay(1)}};
  const auto sync = setup.run(SyncSgd()), bounded = setup.run(BoundedDelay(0));
  EXPECT_EQ(bounded.parameters, sync.parameters);
  EXPECT_EQ(bounded.totals.end, sync.totals.end);
  EXPECT_EQ(bounded.totals.kept, sync.totals.kept);
  EXPECT_EQ(bounded.totals.staleness, Counts{4 * 10});
}

TEST(BoundedDelay, AnIterationStartsOnceAllButTheLastFewTasksBeforeItAreFinished) {
  const auto outcome = three_workers(3).run(BoundedDelay(1));
  // Iteration 1 starts at once: workers 0 and 1 deliver it at 3.0 and 3.2 s. Iteration 2 waits for the end of task 0,
  // at 3.1 s: worker 0 starts it then and worker 1 at 3.2 s. Worker 2 ends task 1 at 6.2 s. Workers 0 and 1 deliver
  // task 2 at 4.6 and 4.8 s, so worker 2 ends it at 9.3 s. There is no iteration 3.
  EXPECT_EQ(outcome.log, (Log{
                             "step 1 at 3.100 s: kept 3, dropped 0",
                             "step 2 at 6.200 s: kept 3, dropped 0",
                             "step 3 at 9.300 s: kept 3, dropped 0",
                         }));
  EXPECT_EQ(outcome.totals.kept, (Counts{3, 3, 3}));
  EXPECT_EQ(outcome.totals.dropped, (Counts{0, 0, 0}));
  // In tasks 1 and 2 workers 0 and 1 use the initial model and that of step 1. Worker 2 always uses the newest.
  EXPECT_EQ(outcome.totals.staleness, (Counts{5, 4}));
  expect_accounts_sum_to_the_time(outcome.totals);
}

// Computed by hand: all workers compute task 0 at the initial model, and workers 0 and 1 also compute task 1 there.
TEST(BoundedDelay, TheServerStepsAlongTheMeanOfATask) {
  const SimulatedRun setup = three_workers(2);
  const auto outcome = setup.run(BoundedDelay(1));
  Executor executor(0);
  Training training(setup.objective, make_sgd({}), {}, executor);
  const ModelStatePtr first = training.initial_state();
  const auto task = [](int number, const std::vector<ModelStatePtr>& models) {
    Gradient sum;
    for (int worker = 0; worker < 3; ++worker)
      sum += Gradient(models[static_cast<std::size_t>(worker)], {Rank{worker}, number, 0}, {});
    return sum / 3;
  };
  const ModelStatePtr second = training.descend(first, task(0, {first, first, first}), setup.rate);
  const ModelStatePtr third = training.descend(second, task(1, {first, first, second}), setup.rate);
  EXPECT_EQ(outcome.parameters, training.values(third));
}

// In stale synchronous parallel a step may have gradients of some workers only. Here each step has one of each worker.
TEST(BoundedDelay, TakesPartOfEveryWorkerInEachStepWhateverTheDelay) {
  for (const std::int64_t delay : {std::int64_t{0}, std::int64_t{1}, std::int64_t{4}, unlimited}) {
    SimulatedRun setup{.workers = 5, .budget = {.steps = 12}, .delays = {exponential_delay(2)}};
    const auto outcome = setup.run(BoundedDelay(delay));
    EXPECT_EQ(outcome.rounds.size(), 12u);
    for (const StepRow& row : outcome.rounds) EXPECT_EQ(row.kept, 5);
    EXPECT_EQ(outcome.totals.messages, 2 * 5 * 12) << "nobody starts an iteration that has no task";
    EXPECT_LE(outcome.totals.staleness.size(), static_cast<std::size_t>(std::min<std::int64_t>(delay, 11) + 1));
    expect_accounts_sum_to_the_time(outcome.totals);
  }
}

// Without a limit nobody waits: task n ends when the slowest worker, alone, has done n iterations.
TEST(BoundedDelay, WithoutALimitGoesAtTheSlowestWorkersOwnPace) {
  EXPECT_DOUBLE_EQ(to_seconds(three_workers(5).run(BoundedDelay(unlimited)).totals.end), 5 * 3.1);
}

TEST(BoundedDelay, WorkersThatHaveLeftHoldNobodyBack) {
  SimulatedRun setup = three_workers(4);
  setup.data_of = {std::nullopt, 1, 2};
  const auto outcome = setup.run(BoundedDelay(1));
  EXPECT_EQ(outcome.totals.kept, (Counts{4, 1, 2}));
  EXPECT_EQ(outcome.published, Step{4});
  expect_accounts_sum_to_the_time(outcome.totals);
}

TEST(BoundedDelay, WhoseWorkersHaveAllLeftStepsAlongWhatTheyHaveSent) {
  SimulatedRun setup{.workers = 3, .budget = {.steps = 9}, .data_of = {2, 2, 2}};
  const auto outcome = setup.run(BoundedDelay(0));
  EXPECT_EQ(outcome.totals.kept, (Counts{2, 2, 2}));
  EXPECT_EQ(outcome.published, Step{2});
}

TEST(BoundedDelay, DropsPartsOfTasksThatTheTimeDoesNotSufficeFor) {
  SimulatedRun setup = three_workers(3);
  setup.budget = {.seconds = 5.0};
  const auto outcome = setup.run(BoundedDelay(1));
  // The times are those of the timeline above. The first step that ends after 5 s is at 6.2 s; workers 0 and 1 have
  // then sent their parts of task 2.
  EXPECT_EQ(outcome.totals.kept, (Counts{2, 2, 2}));
  EXPECT_EQ(outcome.totals.dropped, (Counts{1, 1, 0}));
  EXPECT_DOUBLE_EQ(to_seconds(outcome.totals.end), 6.2);
  expect_accounts_sum_to_the_time(outcome.totals);
}

}  // namespace
}  // namespace syncopate
