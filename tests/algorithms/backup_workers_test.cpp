#include "algorithms/backup_workers.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "algorithms/sync_sgd.hpp"
#include "tests/algorithms/simulated_run.hpp"

namespace syncopate {
namespace {

TEST(BackupWorkers, WithoutBackupsEqualsSynchronousSgdBitForBit) {
  SimulatedRun setup{.workers = 4,
                     .micro_batches = 2,
                     .momentum = 0.9,
                     .budget = {.steps = 20},
                     .delays = {std::make_shared<DelayOfWorker>(std::vector{0.3, 0.0, 0.2, 0.1})}};
  EXPECT_EQ(setup.run(BackupWorkers(4)).parameters, setup.run(SyncSgd()).parameters);
}

TEST(BackupWorkers, GradientsAtOneVersionAreFusedAsInSynchronousSgd) {
  std::vector<std::int64_t> calls;
  for (const bool with_server : {false, true}) {
    auto objective = std::make_shared<PullObjective>();
    SimulatedRun setup{.workers = 40, .momentum = 0.9, .budget = {.steps = 5}, .objective = objective};
    with_server ? setup.run(BackupWorkers(40)) : setup.run(SyncSgd());
    calls.push_back(objective->calls);
  }
  EXPECT_EQ(calls[0], 5 * 2);  // 40 samples are two chunks
  EXPECT_EQ(calls[1], calls[0]);
}

TEST(BackupWorkers, ALateGradientsBytesCountWhenItArrives) {
  SimulatedRun setup{.network_s = 0.25,
                     .budget = {.steps = 2},
                     .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.1, 1.6})}};
  const auto outcome = setup.run(BackupWorkers(2));
  EXPECT_EQ(outcome.rounds[0].bytes, Bytes{(3 + 2) * 16});  // three models, two gradients of 16 bytes
  EXPECT_EQ(outcome.rounds[1].bytes,
            Bytes{(2 + 1 + 1 + 2) * 16});  // two models, the late gradient and its model, two more
}

TEST(BackupWorkers, LateGradientsAreDroppedOnArrivalAndTheirWorkerAdoptsTheNewestModel) {
  // Model down 0.25 s, gradient up 0.25 s; the third worker needs 2.6 s, the others 1 s and 1.1 s.
  SimulatedRun setup{.network_s = 0.25,
                     .budget = {.steps = 4},
                     .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.1, 1.6})}};
  const auto outcome = setup.run(BackupWorkers(2));
  // A step takes 0.25 + 1.1 + 0.25 s. The late gradient, of step 0, arrives at 0.25 + 2.6 + 0.25 = 3.1 s,
  // in the second step (1.6 to 3.2 s). Its worker then computes at the model of step 1 until 5.95 s: again late.
  EXPECT_EQ(outcome.log, (std::vector<std::string>{
                             "step 1 at 1.600 s: kept 2, dropped 0",
                             "step 2 at 3.200 s: kept 2, dropped 1",
                             "step 3 at 4.800 s: kept 2, dropped 0",
                             "step 4 at 6.400 s: kept 2, dropped 1",
                         }));
  EXPECT_EQ(outcome.totals.kept, (std::vector<std::int64_t>{4, 4, 0}));
  EXPECT_EQ(outcome.totals.accounts[2][Activity::compute], Duration{});
}

TEST(BackupWorkers, TheStepIsTheMeanOverTheQuorum) {
  SimulatedRun setup{.network_s = 0.25,
                     .rate = 0.5,
                     .budget = {.steps = 1},
                     .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 9.0, 0.1})}};
  const auto outcome = setup.run(BackupWorkers(2));
  for (std::size_t i = 0; i < 4; ++i) {
    const double mean = (PullObjective::target({Rank{0}, 0, 0}, i) + PullObjective::target({Rank{2}, 0, 0}, i)) / 2;
    EXPECT_NEAR(outcome.parameters[i], 1 - 0.5 * (1 - mean), 1e-6);
  }
}

TEST(BackupWorkers, DroppedGradientsAreNeverComputed) {
  auto objective = std::make_shared<PullObjective>();
  SimulatedRun setup{.network_s = 0.25,
                     .budget = {.steps = 10},
                     .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.1, 1.6})},
                     .objective = objective};
  setup.run(BackupWorkers(2));
  EXPECT_EQ(objective->evaluations, 20);
}

TEST(BackupWorkers, AsManyLostWorkersAsBackupsDoNotBlock) {
  SimulatedRun setup{.workers = 5,
                     .budget = {.steps = 3},
                     .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, HUGE_VAL, 0.0, HUGE_VAL, 0.0})}};
  const auto outcome = setup.run(BackupWorkers(3));
  EXPECT_EQ(outcome.rounds.size(), 3u);
  for (const Account& account : outcome.totals.accounts)
    EXPECT_EQ(account.total(), outcome.totals.end.time_since_epoch());
  EXPECT_THROW(setup.run(BackupWorkers(4)), RunFailure);  // one more blocks, and is explained
}

// Mean step times of 1 s + exponential(2) without communication: an independent
// simulation of the same rule; the figures have four digits.
TEST(BackupWorkers, StepTimesMatchAnIndependentSimulation) {
  class Exponential : public DelayProcess {
   public:
    void add(const RandomStream& stream, std::uint32_t first, std::span<double> added_s) const override {
      for (std::size_t i = 0; i < added_s.size(); ++i)
        added_s[i] -= 0.5 * std::log(stream.uniform(first + static_cast<std::uint32_t>(i)));
    }
    double mean_s() const override { return 0.5; }
  };
  struct Case {
    int workers, quorum, steps;
    double step_s;
  };
  for (const Case& c : {Case{100, 96, 4000, 2.614}, Case{8, 6, 20000, 1.793}, Case{4, 2, 20000, 1.505}}) {
    SimulatedRun setup{.workers = c.workers,
                       .network_s = 0,
                       .budget = {.steps = c.steps},
                       .delays = {std::make_shared<Exponential>()},
                       .objective = nullptr};
    const auto outcome = setup.run(BackupWorkers(c.quorum));
    // Steps are weakly dependent; 1 % is more than four standard errors of these runs and of the table.
    EXPECT_NEAR(to_seconds(outcome.rounds.back().end) / c.steps, c.step_s, 0.01 * c.step_s) << c.workers;
  }
}

}  // namespace
}  // namespace syncopate
