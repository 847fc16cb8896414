#include "algorithms/local_sgd/branch_train_merge.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/named_rounds.hpp"
#include "tests/algorithms/simulated_run.hpp"

namespace syncopate {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

BranchTrainMerge seeded(int steps, Merge merge) { return BranchTrainMerge(steps, merge, {}); }

TEST(BranchTrainMerge, LoFiEqualsLocalSgdWithOneRoundBitForBit) {
  const SimulatedRun setup{.workers = 4, .micro_batches = 2, .momentum = 0.9, .rate = 0.05, .budget = {.steps = 20}};
  const auto lofi = setup.run(seeded(0, Merge::average));
  const auto local = setup.run(LocalSgd(make_swap_period(0), {}));
  EXPECT_EQ(lofi.parameters, local.parameters);
  EXPECT_EQ(lofi.log, local.log);
  EXPECT_EQ(lofi.rounds.size(), 1u);
}

TEST(BranchTrainMerge, SeedStepsToTheEndEqualSynchronousSgdBitForBit) {
  const SimulatedRun setup{.workers = 4, .momentum = 0.9, .rate = 0.05, .budget = {.steps = 10}};
  for (const Merge merge : {Merge::average, Merge::ensemble}) {
    const auto outcome = setup.run(seeded(10, merge));
    EXPECT_EQ(outcome.parameters, setup.run(SyncSgd()).parameters);
    EXPECT_EQ(outcome.log, setup.run(SyncSgd()).log);
    EXPECT_TRUE(outcome.members.empty());
  }
}

// A worker's parameters in double precision: first `seed_steps` steps with all workers, then steps alone.
std::vector<double> alone(int worker, int seed_steps, int steps, int workers, double rate) {
  std::vector<double> result(4, 1.0);
  for (std::size_t i = 0; i < 4; ++i) {
    for (int step = 0; step < seed_steps; ++step) {
      double gradient = 0;
      for (int k = 0; k < workers; ++k) gradient += result[i] - PullObjective::target({Rank{k}, step, 0}, i);
      result[i] -= rate * gradient / workers;
    }
    for (int step = seed_steps; step < steps; ++step)
      result[i] -= rate * (result[i] - PullObjective::target({Rank{worker}, step, 0}, i));
  }
  return result;
}

TEST(BranchTrainMerge, TheEnsembleHoldsEveryWorkersOwnModelAndTheAverageIsTheirMean) {
  const SimulatedRun setup{.workers = 3, .rate = 0.1, .budget = {.steps = 9}};
  for (const int seed_steps : {0, 4}) {
    const auto ensemble = setup.run(seeded(seed_steps, Merge::ensemble));
    const auto average = setup.run(seeded(seed_steps, Merge::average)).parameters;
    ASSERT_EQ(ensemble.members.size(), 3u);
    std::vector<double> mean(4);
    for (int k = 0; k < 3; ++k) {
      const auto expected = alone(k, seed_steps, 9, 3, 0.1);
      for (std::size_t i = 0; i < 4; ++i) {
        EXPECT_NEAR(ensemble.members[static_cast<std::size_t>(k)][i], expected[i], 1e-5 * std::abs(expected[i]));
        mean[i] += expected[i] / 3;
      }
    }
    for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(average[i], mean[i], 1e-5 * std::abs(mean[i]));
  }
}

TEST(BranchTrainMerge, WorkersThatDoNotMoveMakeAnEnsembleOfOneModel) {
  const SimulatedRun setup{.rate = 0, .budget = {.steps = 3}};
  const std::vector<float> initial(4, 1.0f);
  EXPECT_THAT(setup.run(seeded(0, Merge::ensemble)).members, ElementsAre(initial, initial, initial));
  const SimulatedRun lonely{.workers = 1, .budget = {.steps = 3}};
  const auto outcome = lonely.run(seeded(0, Merge::ensemble));
  EXPECT_THAT(outcome.members, ElementsAre(outcome.parameters));
}

// Steps take 1 s, 1.25 s and 2 s; collectives and messages take 0.5 s.
const SimulatedRun uneven{.budget = {.steps = 4},
                          .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.25, 1.0})}};

TEST(BranchTrainMerge, WorkersWaitForEachOtherDuringTheSeedStepsAndAtTheEndOnly) {
  EXPECT_EQ(uneven.run(seeded(2, Merge::average)).log, (std::vector<std::string>{
                                                           "step 1 at 2.500 s: kept 3, dropped 0",
                                                           "step 2 at 5.000 s: kept 3, dropped 0",
                                                           "step 4 at 9.500 s: kept 6, dropped 0",
                                                       }));
  const auto ensemble = uneven.run(seeded(2, Merge::ensemble));
  // The slowest worker's last step ends at 9 s. Its message to worker 0 and the barrier follow, 0.5 s each.
  EXPECT_EQ(ensemble.log.back(), "step 4 at 10.000 s: kept 6, dropped 0");
  EXPECT_EQ(to_seconds(ensemble.publications.back().time), 10.0);
  EXPECT_EQ(ensemble.totals.end, from_seconds(10) + start_time);
}

TEST(BranchTrainMerge, ReportsWhatWentIntoTheMergedModelAndWhatWasSent) {
  // Over 3 workers an all-reduce of 16 bytes sends 2 x 2 x 16 bytes. The ensemble's two models send 2 x 16 bytes.
  const auto average = uneven.run(seeded(2, Merge::average));
  EXPECT_EQ(average.samples, 12);
  EXPECT_EQ(average.totals.bytes, Bytes{3 * 2 * 2 * 16});
  const auto ensemble = uneven.run(seeded(2, Merge::ensemble));
  EXPECT_EQ(ensemble.samples, 12);
  EXPECT_EQ(ensemble.publications.back().bytes, Bytes{2 * 2 * 2 * 16 + 2 * 16});
  EXPECT_EQ(ensemble.totals.bytes, Bytes{2 * 2 * 2 * 16 + 2 * 16});
  EXPECT_THAT(ensemble.totals.kept, ElementsAre(4, 4, 4));
}

TEST(BranchTrainMerge, WithABudgetOfSecondsEachWorkerTakesItsOwnNumberOfSteps) {
  SimulatedRun setup = uneven;
  setup.budget = {.seconds = 10};
  for (const Merge merge : {Merge::average, Merge::ensemble}) {
    const auto outcome = setup.run(seeded(0, merge));
    EXPECT_THAT(outcome.totals.kept, ElementsAre(10, 8, 5));
    EXPECT_EQ(outcome.samples, 23);
    EXPECT_EQ(outcome.rounds.size(), 1u);
  }
}

TEST(BranchTrainMerge, NeedsNoModelForTheTimesAlone) {
  SimulatedRun setup = uneven;
  setup.objective = nullptr;
  for (const Merge merge : {Merge::average, Merge::ensemble}) {
    EXPECT_EQ(setup.run(seeded(2, merge)).log, uneven.run(seeded(2, merge)).log);
    EXPECT_EQ(setup.run(seeded(2, merge)).totals.bytes, uneven.run(seeded(2, merge)).totals.bytes);
  }
}

TEST(BranchTrainMerge, ReadsItsKeys) {
  const SimulatedRun setup{.budget = {.steps = 6}};
  const auto lofi = read_method("algorithm = \"branch-train-merge\"");
  EXPECT_EQ(lofi.faults, "");
  EXPECT_EQ(setup.run(*lofi.algorithm).parameters, setup.run(seeded(0, Merge::average)).parameters);
  const auto ensemble = read_method("algorithm = \"branch-train-merge\"\nseed_steps = 2\nmerge = \"ensemble\"");
  EXPECT_EQ(ensemble.faults, "");
  EXPECT_EQ(setup.run(*ensemble.algorithm).members, setup.run(seeded(2, Merge::ensemble)).members);
  const auto recalibrated =
      read_method("algorithm = \"branch-train-merge\"\nbuffers = \"recalibrate\"\nrecalibration_micro_batches = 5");
  EXPECT_EQ(recalibrated.faults, "");
  EXPECT_EQ(setup.run(*recalibrated.algorithm).publications.back().recalibration.size(), 5u);
}

TEST(BranchTrainMerge, FaultsNameTheKey) {
  EXPECT_THAT(read_method("algorithm = \"branch-train-merge\"\nseed_steps = -1").faults, HasSubstr("seed_steps = -1"));
  EXPECT_THAT(read_method("algorithm = \"branch-train-merge\"\nmerge = \"mean\"").faults, HasSubstr("ensemble"));
  EXPECT_THAT(read_method("algorithm = \"branch-train-merge\"\nmerge = \"ensemble\"\nbuffers = \"keep\"").faults,
              HasSubstr("buffers"));
  EXPECT_THAT(read_method("algorithm = \"branch-train-merge\"", {.budget_ends_alone = false}).faults,
              HasSubstr("bytes"));
}

}  // namespace
}  // namespace syncopate
