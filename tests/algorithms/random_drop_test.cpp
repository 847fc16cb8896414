#include "algorithms/synchronous/random_drop.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "tests/workers/engine.hpp"

namespace syncopate {
namespace {

TEST(RandomDrop, WithProbabilityZeroEqualsSynchronousSgdBitForBit) {
  const SimulatedRun setup{.workers = 4, .micro_batches = 2, .momentum = 0.9, .budget = {.steps = 20}};
  EXPECT_EQ(setup.run(RandomDrop(0, 0)).parameters, setup.run(SyncSgd()).parameters);
}

TEST(RandomDrop, DropsThatShareOfLocalBatchesAndSavesNoTime) {
  const SimulatedRun setup{.workers = 50, .micro_batches = 2, .budget = {.steps = 400}, .objective = nullptr};
  const auto outcome = setup.run(RandomDrop(0.1, 0));
  const double batches = 50 * 400;
  const double dropped = std::accumulate(outcome.totals.dropped.begin(), outcome.totals.dropped.end(), 0.0) / 2;
  EXPECT_NEAR(dropped, 0.1 * batches, 4 * std::sqrt(0.1 * 0.9 * batches));  // four standard deviations
  EXPECT_EQ(outcome.totals.end, setup.run(SyncSgd()).totals.end);
  Duration discarded{};
  for (const Account& account : outcome.totals.accounts) discarded += account[Activity::discarded];
  EXPECT_NEAR(to_seconds(discarded), 2 * dropped, 1e-6);  // 1 s per micro-batch
}

TEST(RandomDrop, NothingIsDroppedBeforeItsFirstStepAndWhatIsDroppedIsNeverComputed) {
  auto objective = std::make_shared<PullObjective>();
  const SimulatedRun setup{.workers = 4, .budget = {.steps = 40}, .objective = objective};
  const auto outcome = setup.run(RandomDrop(0.5, 10));
  std::int64_t kept = 0;
  for (std::size_t i = 0; i < outcome.rounds.size(); ++i) {
    if (i < 10) {
      EXPECT_EQ(outcome.rounds[i].dropped, 0);
    }
    EXPECT_EQ(outcome.rounds[i].kept + outcome.rounds[i].dropped, 4);
    kept += outcome.rounds[i].kept;
  }
  EXPECT_LT(kept, 4 * 40);
  EXPECT_EQ(objective->evaluations, kept);
}

// 100 workers that each toss a coin drop 50 batches per step, with a variance of 25. With one coin for all workers the
// variance would be 2,500.
TEST(RandomDrop, EveryWorkerDrawsForItselfInEveryStep) {
  constexpr int workers = 100, steps = 400;
  const SimulatedRun setup{.workers = workers, .budget = {.steps = steps}, .objective = nullptr};
  const auto outcome = setup.run(RandomDrop(0.5, 0));
  double variance = 0;
  for (const StepRow& round : outcome.rounds) variance += std::pow(static_cast<double>(round.dropped) - 50, 2) / steps;
  EXPECT_NEAR(variance, 25, 4 * 25 * std::sqrt(2.0 / steps));  // four standard deviations
  // A worker also draws in each step, so the number of batches that it drops is binomial, too.
  double variance_of_workers = 0;
  for (const std::int64_t dropped : outcome.totals.dropped)
    variance_of_workers += std::pow(static_cast<double>(dropped) - steps / 2, 2) / workers;
  EXPECT_NEAR(variance_of_workers, steps / 4, 4 * (steps / 4) * std::sqrt(2.0 / workers));
}

// The probability that none of 100 workers drops anything in a step is 2^-100.
TEST(RandomDrop, ItsFirstStepIsTheOneGiven) {
  for (const int from : {0, 1, 7}) {
    const SimulatedRun setup{.workers = 100, .budget = {.steps = 10}, .objective = nullptr};
    const auto outcome = setup.run(RandomDrop(0.5, from));
    ASSERT_EQ(outcome.rounds.size(), 10u);
    for (int step = 0; step < 10; ++step)
      EXPECT_EQ(outcome.rounds[static_cast<std::size_t>(step)].dropped > 0, step >= from) << "step " << step;
  }
}

// Epochs count from 0, so that epoch 2 begins after 2 x 15 steps.
TEST(RandomDropSettings, AnEpochIsItsFirstStep) {
  const auto first_dropping_step = [](const std::string& key) {
    const auto method = read_method("algorithm = \"random-drop\"\ndrop_rate = 0.5\n" + key, {.steps_per_epoch = 15});
    EXPECT_EQ(method.faults, "");
    const SimulatedRun setup{.workers = 100, .budget = {.steps = 40}, .objective = nullptr};
    const auto rounds = setup.run(*method.algorithm).rounds;
    return std::find_if(rounds.begin(), rounds.end(), [](const StepRow& round) { return round.dropped > 0; }) -
           rounds.begin();
  };
  EXPECT_EQ(first_dropping_step("from_epoch = 2"), 30);
  EXPECT_EQ(first_dropping_step("from_step = 4"), 4);
  EXPECT_EQ(first_dropping_step(""), 30);  // as in the reference code
}

TEST(RandomDropSettings, WithoutADataSetItDropsFromTheFirstStep) {
  const auto method = read_method("algorithm = \"random-drop\"\ndrop_rate = 0.5");
  EXPECT_EQ(method.faults, "");
  const SimulatedRun setup{.workers = 100, .budget = {.steps = 2}, .objective = nullptr};
  EXPECT_GT(setup.run(*method.algorithm).rounds.front().dropped, 0);
}

// The statistics after micro-batch m of worker w in step s are (w, 8 s + m), with the mean (2.5, 8 s + 0.5) over all 6
// workers and both micro-batches. Kept batches may have this mean by chance, so several numbers of steps are tried.
TEST(RandomDrop, DroppedBatchesMayCountForBatchNormStatisticsAlone) {
  int steps_with_other_statistics = 0;
  for (const int steps : {1, 2, 3, 4, 5, 6}) {
    const SimulatedRun setup{.workers = 6,
                             .micro_batches = 2,
                             .momentum = 0.9,
                             .budget = {.steps = steps},
                             .objective = std::make_shared<PullWithStatistics>()};
    const auto of_all = setup.run(RandomDrop(0.5, 0, RandomDrop::Statistics::of_all));
    const auto of_kept = setup.run(RandomDrop(0.5, 0));
    EXPECT_EQ(of_all.buffers, (std::vector<float>{2.5f, 8.0f * static_cast<float>(steps - 1) + 0.5f}));
    EXPECT_EQ(of_all.parameters, of_kept.parameters);  // bit for bit
    EXPECT_EQ(of_all.totals.dropped, of_kept.totals.dropped);
    EXPECT_EQ(of_all.totals.bytes, of_kept.totals.bytes + Bytes{steps * 2 * 5 * 4});  // a count of 4 bytes
    steps_with_other_statistics += of_kept.buffers != of_all.buffers;
  }
  EXPECT_GT(steps_with_other_statistics, 0);
}

TEST(RandomDropSettings, WhatStatisticsSeeIsRead) {
  const auto method = read_method("algorithm = \"random-drop\"\ndrop_rate = 0.5\nstatistics = \"all\"");
  EXPECT_EQ(method.faults, "");
  const SimulatedRun setup{.workers = 6, .budget = {.steps = 5}, .objective = std::make_shared<PullWithStatistics>()};
  EXPECT_EQ(setup.run(*method.algorithm).buffers, (std::vector<float>{2.5f, 32.0f}));
}

TEST(RandomDrop, TheDivisorIsThatOfAllWorkers) {
  auto objective = std::make_shared<PullObjective>();
  const SimulatedRun setup{.workers = 4, .rate = 1.0, .budget = {.steps = 1}, .objective = objective};
  const auto outcome = setup.run(RandomDrop(0.5, 0));
  double sum = 0;
  for (const MicroBatch& micro_batch : objective->evaluated) sum += 1 - PullObjective::target(micro_batch, 0);
  EXPECT_NEAR(outcome.parameters[0], 1 - sum / 4, 1e-6);
}

}  // namespace
}  // namespace syncopate
