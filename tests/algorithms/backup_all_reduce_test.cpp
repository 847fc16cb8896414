#include "algorithms/quorum/backup_all_reduce.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "algorithms/quorum/backup_workers.hpp"
#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/step_times.hpp"

namespace syncopate {
namespace {

TEST(BackupAllReduce, WithoutBackupsEqualsSynchronousSgdBitForBit) {
  const SimulatedRun setup{.workers = 4,
                           .micro_batches = 2,
                           .momentum = 0.9,
                           .budget = {.steps = 20},
                           .delays = {std::make_shared<DelayOfWorker>(std::vector{0.3, 0.0, 0.2, 0.1})}};
  const auto outcome = setup.run(BackupAllReduce(4));
  const auto expected = setup.run(SyncSgd());
  EXPECT_EQ(outcome.parameters, expected.parameters);
  EXPECT_EQ(outcome.log, expected.log);
  EXPECT_EQ(outcome.totals.bytes, expected.totals.bytes);
  expect_exact_accounts(outcome);
}

TEST(BackupAllReduce, LateWorkersStepAlongAllTheyHaveMissedAndJoinTheOpenRound) {
  const SimulatedRun setup{.network_s = 0.5,
                           .budget = {.steps = 4},
                           .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.1, 2.6})}};
  const auto outcome = setup.run(BackupAllReduce(2));
  // Workers 0 and 1 arrive 1.1 s after each step, and the all-reduce takes 0.5 s. Worker 2 arrives at 3.6 s, too late
  // for the first two rounds, and then at 7.2 s, after the last round.
  EXPECT_EQ(outcome.log, (std::vector<std::string>{
                             "step 1 at 1.600 s: kept 2, dropped 0",
                             "step 2 at 3.200 s: kept 2, dropped 0",
                             "step 3 at 4.800 s: kept 2, dropped 1",
                             "step 4 at 6.400 s: kept 2, dropped 0",
                         }));
  EXPECT_EQ(outcome.totals.end, start_time + from_seconds(6.4));
  EXPECT_EQ(outcome.totals.kept, (std::vector<std::int64_t>{4, 4, 0}));
  expect_exact_accounts(outcome);
}

TEST(BackupAllReduce, AWorkerThatHasMissedRoundsHasTheSameModelAsTheOthers) {
  // Worker 2 is late once and catches up. The last round has all three workers, at one model.
  class LateOnce : public DelayProcess {
   public:
    void add(const RandomStream& stream, std::uint32_t, std::span<double> added_s) const override {
      if (stream.worker == Rank{2} && stream.step == Step{0}) added_s[0] += 2.6;
    }
    double mean_s() const override { return 0; }
  };
  class Watched : public BackupAllReduce {
   public:
    using BackupAllReduce::BackupAllReduce;
    void run(Worker& worker) const override {
      BackupAllReduce::run(worker);
      last.push_back(worker.model());
    }
    mutable std::vector<ModelStatePtr> last;
  };
  const SimulatedRun setup{.threads = 0,
                           .network_s = 0.25,
                           .momentum = 0.9,
                           .budget = {.steps = 5},
                           .delays = {std::make_shared<LateOnce>()}};
  const Watched algorithm(2);
  const auto outcome = setup.run(algorithm);
  EXPECT_GT(outcome.totals.dropped[2], 0);
  ASSERT_EQ(algorithm.last.size(), 3u);
  for (const ModelStatePtr& model : algorithm.last) EXPECT_EQ(model->parameters, algorithm.last.front()->parameters);
  expect_exact_accounts(outcome);
}

TEST(BackupAllReduce, KeepsWhomTheServerWouldKeepWhereTheNetworkCostsNothing) {
  for (const int quorum : {2, 5, 7}) {
    const SimulatedRun setup{
        .workers = 8, .network_s = 0, .momentum = 0.9, .budget = {.steps = 60}, .delays = {exponential_delay(0.5)}};
    const auto masked = setup.run(BackupAllReduce(quorum));
    const auto served = setup.run(BackupWorkers(quorum));
    EXPECT_EQ(masked.totals.kept, served.totals.kept);
    EXPECT_EQ(masked.totals.end, served.totals.end);
    ASSERT_EQ(masked.rounds.size(), served.rounds.size());
    for (std::size_t i = 0; i < masked.rounds.size(); ++i) EXPECT_EQ(masked.rounds[i].end, served.rounds[i].end);
    EXPECT_GT(sum(masked.totals.dropped), 0);
    // If worker 0 was late at the end, the model that it published last is older than the server's.
    if (masked.published == served.published) {
      EXPECT_EQ(masked.parameters, served.parameters);
    }
    expect_exact_accounts(masked);
  }
}

TEST(BackupAllReduce, TheStepIsTheMeanOverTheQuorum) {
  const SimulatedRun setup{
      .rate = 0.5, .budget = {.steps = 1}, .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 9.0, 0.1})}};
  const auto outcome = setup.run(BackupAllReduce(2));
  for (std::size_t i = 0; i < 4; ++i) {
    const double mean = (PullObjective::target({Rank{0}, 0, 0}, i) + PullObjective::target({Rank{2}, 0, 0}, i)) / 2;
    EXPECT_NEAR(outcome.parameters[i], 1 - 0.5 * (1 - mean), 1e-6);
  }
  expect_exact_accounts(outcome);
}

TEST(BackupAllReduce, AsManyLostWorkersAsBackupsDoNotBlock) {
  const SimulatedRun setup{.workers = 5,
                           .budget = {.steps = 3},
                           .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, HUGE_VAL, 0.0, HUGE_VAL, 0.0})}};
  const auto outcome = setup.run(BackupAllReduce(3));
  EXPECT_EQ(outcome.totals.kept, (std::vector<std::int64_t>{3, 0, 3, 0, 3}));
  expect_exact_accounts(outcome);
  try {
    setup.run(BackupAllReduce(4));
    FAIL() << "one lost worker more than there are backups must block";
  } catch (const RunFailure& failure) {
    EXPECT_THAT(failure.what(), testing::HasSubstr("workers 1, 3: waiting in a micro-batch that never ends"));
    EXPECT_THAT(failure.what(), testing::HasSubstr("workers 0, 2, 4: waiting in partial_all_reduce_sum"));
  }
}

TEST(BackupAllReduce, WorkersWithUnequalDataEndCleanlyAndWithoutBackupsNothingIsDropped) {
  const SimulatedRun setup{.budget = {.steps = 100},
                           .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.3, 0.1})},
                           .data_of = {Step{8}, Step{5}, Step{3}}};
  const auto outcome = setup.run(BackupAllReduce(3));
  EXPECT_EQ(outcome.totals.kept, (std::vector<std::int64_t>{8, 5, 3}));
  EXPECT_EQ(outcome.totals.dropped, (std::vector<std::int64_t>{0, 0, 0}));
  EXPECT_EQ(outcome.rounds.size(), 8u);
  EXPECT_EQ(outcome.parameters, setup.run(BackupWorkers(3)).parameters);
  expect_exact_accounts(outcome);
}

TEST(BackupAllReduce, DroppedGradientsAreNeverComputed) {
  auto objective = std::make_shared<PullObjective>();
  const SimulatedRun setup{.budget = {.steps = 10},
                           .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.1, 1.6})},
                           .objective = objective};
  const auto outcome = setup.run(BackupAllReduce(2));
  EXPECT_EQ(objective->evaluations, 20);
  EXPECT_GT(outcome.totals.dropped[2], 0);
  expect_exact_accounts(outcome);
}

// The rule and the expected times are those of backup workers with a server (backup_workers_test.cpp).
TEST(BackupAllReduceStepTimes, MatchASeparateSimulation) {
  for (const StepTimeCase& c : {StepTimeCase{100, 96, 2000, 2.6143, 0.0049}, StepTimeCase{8, 6, 20000, 1.7911, 0.0020},
                                StepTimeCase{4, 2, 20000, 1.5094, 0.0021}})
    expect_mean_step_with_exponential_delays(c, BackupAllReduce(c.quorum));
}

}  // namespace
}  // namespace syncopate
