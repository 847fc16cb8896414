#include "algorithms/synchronous/random_drop.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/simulated_run.hpp"

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
