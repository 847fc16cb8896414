#include "algorithms/local_sgd/post_local_sgd.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/named_rounds.hpp"
#include "tests/algorithms/simulated_run.hpp"

namespace syncopate {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Level = PostLocalOptions::Level;

PostLocalSgd groups_of(int size, int start, int period, std::vector<Level> levels = {}) {
  return PostLocalSgd({.start = start, .warmup = start, .period = period, .group_size = size, .levels = levels});
}

TEST(PostLocalSgd, WithOneGroupOfAllIsSynchronousSgdWhateverThePeriod) {
  const SimulatedRun setup{.workers = 4, .micro_batches = 2, .momentum = 0.9, .rate = 0.05, .budget = {.steps = 11}};
  const auto expected = setup.run(SyncSgd()).parameters;
  for (const int period : {1, 3, 20})
    for (const int start : {0, 4}) EXPECT_EQ(setup.run(groups_of(4, start, period)).parameters, expected) << period;
  EXPECT_EQ(setup.run(groups_of(4, 2, 6, {{2, 3}})).parameters, expected);
}

TEST(PostLocalSgd, ThatNeverStartsIsSynchronousSgd) {
  const SimulatedRun setup{.workers = 4, .micro_batches = 2, .momentum = 0.9, .rate = 0.05, .budget = {.steps = 11}};
  const auto synchronous = setup.run(SyncSgd()), never = setup.run(groups_of(2, 1000, 3));
  EXPECT_EQ(never.parameters, synchronous.parameters);
  EXPECT_EQ(never.log, synchronous.log);
  EXPECT_EQ(never.totals.bytes, synchronous.totals.bytes);
  // The averager's own warm-up has ended, so it averages models, which are equal.
  EXPECT_EQ(setup.run(PostLocalSgd({.start = 1000, .warmup = 2, .period = 3, .group_size = 2})).parameters,
            synchronous.parameters);
}

// The first average follows one step.
class FirstAfterOne final : public SyncPeriod {
 public:
  explicit FirstAfterOne(Step period) : period_(period) {}
  Step at(Step done, double, Step left) const override { return std::min(done == Step{0} ? Step{1} : period_, left); }

 private:
  Step period_;
};

TEST(PostLocalSgd, WithGroupsOfOneIsLocalSgdWhoseFirstAverageFollowsOneStep) {
  const SimulatedRun setup{.workers = 4, .micro_batches = 2, .momentum = 0.9, .rate = 0.05, .budget = {.steps = 12}};
  const auto local = setup.run(LocalSgd(std::make_shared<FirstAfterOne>(Step{4}), {}));
  const auto alone = setup.run(groups_of(1, 0, 4));
  EXPECT_EQ(alone.parameters, local.parameters);
  EXPECT_EQ(alone.log, local.log);
  EXPECT_EQ(alone.totals.bytes, local.totals.bytes);
}

TEST(PostLocalSgd, WithPlainSgdAndPeriodOneIsSynchronousSgdUpToRounding) {
  const SimulatedRun setup{.workers = 4, .budget = {.steps = 9}};
  const auto grouped = setup.run(groups_of(2, 2, 1)).parameters, synchronous = setup.run(SyncSgd()).parameters;
  for (std::size_t i = 0; i < grouped.size(); ++i) EXPECT_NEAR(grouped[i], synchronous[i], 1e-5);
}

// Steps take 1 s, 1.25 s, 2 s and 1 s, a collective 0.5 s. The groups are {0, 1} and {2, 3}. All average gradients in
// step 0, and models after steps 1 (at once) and 4.
TEST(PostLocalSgd, AGroupWaitsForItsOwnSlowestOnly) {
  const SimulatedRun setup{.workers = 4,
                           .budget = {.steps = 5},
                           .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.25, 1.0, 0.0})}};
  const auto outcome = setup.run(groups_of(2, 1, 3));
  EXPECT_EQ(outcome.log, (std::vector<std::string>{
                             "step 1 at 2.500 s: kept 4, dropped 0",
                             // Group {2, 3} has its sum 2.5 s later.
                             "step 2 at 5.500 s: kept 4, dropped 0",
                             "step 5 at 13.500 s: kept 12, dropped 0",
                         }));
  // Worker 0 waits for worker 1 in each of four steps of its group, and for worker 2 in step 0 and at both averages.
  EXPECT_EQ(outcome.totals.accounts[0][Activity::wait], from_seconds(4 * 0.25 + 1 + 0.75 + 3 * 0.75));
  EXPECT_EQ(outcome.totals.accounts[0][Activity::communicate], from_seconds(7 * 0.5));
  EXPECT_EQ(outcome.totals.collectives, 1 + 4 * 2 + 2);
  // An all-reduce over n workers sends 2 (n - 1) x 16 bytes.
  EXPECT_EQ(outcome.totals.bytes, Bytes{3 * 6 * 16 + 4 * 2 * 2 * 16});
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(outcome.totals.kept[i], 5);
    EXPECT_EQ(outcome.totals.dropped[i], 0);
    EXPECT_EQ(outcome.totals.accounts[i].total(), outcome.totals.end.time_since_epoch());
  }
}

// Groups of two sum gradients; groups of four average models after every second step. The groups take 1.5 s, 1.75 s,
// 2.5 s and 1.5 s per step. The budget ends group {4, 5} after four steps and others later. All workers take part in
// one last average.
TEST(PostLocalSgd, EndsWithABudgetOfSecondsAtEveryLevel) {
  const std::vector<double> delays{0.0, 0.0, 0.25, 0.0, 1.0, 0.0, 0.0, 0.0};
  for (const double seconds : {0.5, 3.0, 8.0, 9.0, 12.3, 20.0})
    for (const int period : {4, 30}) {
      const SimulatedRun setup{
          .workers = 8, .budget = {.seconds = seconds}, .delays = {std::make_shared<DelayOfWorker>(delays)}};
      const auto outcome = setup.run(groups_of(2, 1, period, {{4, Step{2}}}));
      EXPECT_GE(to_seconds(outcome.totals.end), seconds);
      std::int64_t kept = 0;
      for (std::size_t i = 0; i < 8; ++i) {
        kept += outcome.totals.kept[i];
        EXPECT_EQ(outcome.totals.accounts[i].total(), outcome.totals.end.time_since_epoch());
      }
      EXPECT_EQ(outcome.samples, kept);
    }
}

TEST(PostLocalSgd, EndsWithABudgetOfSamples) {
  const SimulatedRun setup{.workers = 4, .micro_batches = 2, .budget = {.samples = 60}};
  const auto outcome = setup.run(groups_of(2, 1, 5));
  EXPECT_EQ(outcome.samples, 64);  // eight steps; those up to step 6 end at an average
}

TEST(PostLocalSgd, NeedsNoModelForTheTimesAlone) {
  const SimulatedRun setup{.workers = 4, .budget = {.steps = 4}, .objective = nullptr};
  EXPECT_EQ(setup.run(groups_of(2, 1, 2)).log,
            (std::vector<std::string>{"step 1 at 1.500 s: kept 4, dropped 0", "step 2 at 3.500 s: kept 4, dropped 0",
                                      "step 4 at 7.000 s: kept 8, dropped 0"}));
}

TEST(PostLocalSgd, TakesTheNodeOfTheNetworkAsItsGroup) {
  const std::string toml = "algorithm = \"post-local-sgd\"\nstart = 2\nperiod = 3\n";
  EXPECT_THAT(read_method(toml).faults, HasSubstr("group_size"));
  const auto reading = read_method(toml, {.workers = 4, .node_size = 2});
  EXPECT_EQ(reading.faults, "");
  const SimulatedRun setup{.workers = 4, .momentum = 0.9, .budget = {.steps = 9}};
  EXPECT_EQ(setup.run(*reading.algorithm).parameters, setup.run(groups_of(2, 2, 3)).parameters);
  EXPECT_NE(setup.run(*reading.algorithm).parameters, setup.run(groups_of(1, 2, 3)).parameters);
  const auto alone = read_method(toml + "post_local_gradient_allreduce = false", {.workers = 4, .node_size = 2});
  EXPECT_EQ(setup.run(*alone.algorithm).parameters, setup.run(groups_of(1, 2, 3)).parameters);
}

TEST(PostLocalSgd, RefusesLevelsThatAreNotNested) {
  const auto faults = [](const std::string& levels) {
    return read_method("algorithm = \"post-local-sgd\"\nstart = 2\nperiod = 8\ngroup_size = 2\nlevels = " + levels,
                       {.workers = 16})
        .faults;
  };
  EXPECT_EQ(faults("[{ group_size = 4, period = 2 }, { group_size = 8, period = 4 }]"), "");
  EXPECT_EQ(faults("[{ group_size = 2, period = 2 }]"), "");
  EXPECT_THAT(faults("[{ group_size = 3, period = 2 }]"), HasSubstr("must be a multiple of 2"));
  EXPECT_THAT(faults("[{ group_size = 4, period = 2 }, { group_size = 6, period = 4 }]"),
              HasSubstr("must be a multiple of 4"));
  EXPECT_THAT(faults("[{ group_size = 4, period = 4 }, { group_size = 8, period = 2 }]"), HasSubstr("must be longer"));
  EXPECT_THAT(faults("[{ group_size = 4, period = 8 }]"), HasSubstr("shorter than that of all workers"));
}

}  // namespace
}  // namespace syncopate
