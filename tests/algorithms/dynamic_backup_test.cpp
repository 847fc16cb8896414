#include "algorithms/quorum/dynamic_backup.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <vector>

#include "algorithms/quorum/backup_workers.hpp"
#include "tests/algorithms/duration_laws.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/three_workers.hpp"
#include "workers/models/quadratic.hpp"

namespace syncopate {
namespace {

using testing::Each;
using testing::HasSubstr;

std::int64_t total(const Counts& counts) { return std::accumulate(counts.begin(), counts.end(), std::int64_t{0}); }

// To rounding: gradients whose norms are taken are summed one by one.
TEST(DynamicBackup, ThatMayNotChangeEqualsBackupWorkers) {
  for (const int gradients : {1, 2, 3}) {
    SimulatedRun setup = three_workers(10);
    setup.micro_batches = 2;
    setup.momentum = 0.9;
    const auto fixed = setup.run(BackupWorkers(gradients));
    const auto dynamic = setup.run(DynamicBackup({.fewest = gradients, .most = gradients}));
    for (std::size_t i = 0; i < fixed.parameters.size(); ++i)
      EXPECT_NEAR(dynamic.parameters[i], fixed.parameters[i], 1e-5 * std::abs(fixed.parameters[i]));
    EXPECT_EQ(dynamic.log, fixed.log);
    EXPECT_EQ(dynamic.totals.bytes, fixed.totals.bytes);
  }
}

// How many gradients each step was made of.
std::vector<std::int64_t> taken(const SimulatedRun::Outcome& outcome) {
  std::vector<std::int64_t> counts;
  for (const StepRow& row : outcome.rounds) counts.push_back(row.kept);
  return counts;
}

// Without noise one gradient is as good as all. The second step waits for the first to come alone.
TEST(DynamicBackup, WithoutNoiseWaitsForTheFirstAlone) {
  SimulatedRun setup{.workers = 8,
                     .network_s = 0.05,
                     .budget = {.steps = 30},
                     .delays = {exponential_law()},
                     .objective = std::make_shared<Quadratic>(QuadraticOptions{.dimension = 10, .noise = 0}, 1)};
  setup.rate = 0.005;
  auto counts = taken(setup.run(DynamicBackup({})));
  ASSERT_EQ(counts.size(), 30u);
  EXPECT_EQ(counts.front(), 8) << "the first step waits for all";
  counts.erase(counts.begin());
  EXPECT_THAT(counts, Each(1));
}

// Equal times: the later the gradient, the same the time, so that every step takes all.
TEST(DynamicBackup, WhereAllComeAtOnceTakesAll) {
  SimulatedRun setup{.workers = 8, .budget = {.steps = 20}};
  setup.objective = std::make_shared<Quadratic>(QuadraticOptions{.dimension = 10, .noise = 1}, 1);
  setup.rate = 0.005;
  EXPECT_THAT(taken(setup.run(DynamicBackup({}))), Each(8));
}

TEST(DynamicBackup, WaitsForMoreTheLargerTheNoise) {
  double before = 1;
  for (const double noise : {0.3, 1.0, 2.0}) {
    SimulatedRun setup{.workers = 16,
                       .network_s = 0.05,
                       .budget = {.steps = 60},
                       .delays = {exponential_law()},
                       .objective = std::make_shared<Quadratic>(QuadraticOptions{.dimension = 50, .noise = noise}, 1)};
    setup.rate = 1e-6;  // the model, and so the gradient, hardly changes
    const auto counts = taken(setup.run(DynamicBackup({})));
    const double mean = static_cast<double>(total(counts)) / static_cast<double>(counts.size());
    EXPECT_GT(mean, before + 0.5) << noise;
    before = mean;
  }
}

// A quadratic of curvature 1 and a rate of 0.03: first the gradient is much larger than its noise, at last it is of the
// size that the noise makes it. Between them are steps of one gradient, which has no spread.
TEST(DynamicBackup, WaitsForMoreAgainWhenTheGradientHasFallenDuringStepsOfOne) {
  SimulatedRun setup{
      .workers = 16,
      .network_s = 0.05,
      .budget = {.steps = 400},
      .delays = {exponential_law()},
      .objective = std::make_shared<Quadratic>(QuadraticOptions{.dimension = 50, .condition = 1, .noise = 1}, 1)};
  setup.rate = 0.03;
  const auto counts = taken(setup.run(DynamicBackup({.rate_times_smoothness = 0.03})));
  ASSERT_EQ(counts.size(), 400u);
  EXPECT_THAT(std::vector(counts.begin() + 10, counts.begin() + 40), Each(1));
  EXPECT_GT(std::accumulate(counts.end() - 100, counts.end(), 0.0) / 100, 2);
}

// As above; a worker that is 20 times slower than the other is the only one that tells of the noise.
TEST(DynamicBackup, LearnsOfTheNoiseFromAWorkerThatIsManyVersionsLate) {
  SimulatedRun setup{
      .workers = 2,
      .network_s = 0.05,
      .budget = {.steps = 200},
      .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 19.0})},
      .objective = std::make_shared<Quadratic>(QuadraticOptions{.dimension = 50, .condition = 1, .noise = 1}, 1)};
  setup.rate = 0.03;
  const auto counts = taken(setup.run(DynamicBackup({.rate_times_smoothness = 0.67, .memory = 0.5})));
  EXPECT_THAT(std::vector(counts.begin() + 1, counts.begin() + 20), Each(1));
  EXPECT_GT(std::count(counts.end() - 100, counts.end(), 2), 50);
}

TEST(DynamicBackup, KeepsWithinItsBounds) {
  SimulatedRun setup{.workers = 8,
                     .network_s = 0.05,
                     .budget = {.steps = 40},
                     .delays = {exponential_law()},
                     .objective = std::make_shared<Quadratic>(QuadraticOptions{.dimension = 10, .noise = 1}, 1)};
  for (const auto count : taken(setup.run(DynamicBackup({.fewest = 3, .most = 5})))) {
    EXPECT_GE(count, 3);
    EXPECT_LE(count, 5);
  }
}

TEST(DynamicBackup, DoesNotWaitForWhoHasLeft) {
  SimulatedRun setup = three_workers(10);
  setup.data_of = {10, 10, 2};
  const auto outcome = setup.run(DynamicBackup({.fewest = 3}));
  EXPECT_GE(total(outcome.totals.kept), 18);
  expect_accounts_sum_to_the_time(outcome.totals);
  setup.data_of = {3, 2, 2};
  expect_accounts_sum_to_the_time(setup.run(DynamicBackup({})).totals);
}

TEST(DynamicBackup, GoesOnWithAWorkerThatHasLostItsState) {
  SimulatedRun setup = three_workers(10);
  setup.outages = std::make_shared<OutagePlan>(
      1, std::vector<OutageEntry>{
             {.workers = {Rank{0}}, .when = ScheduledOutage{from_seconds(2), from_seconds(1)}, .loses_state = true}});
  const auto outcome = setup.run(DynamicBackup({.fewest = 2}));
  EXPECT_EQ(outcome.published, Step{10});
  expect_accounts_sum_to_the_time(outcome.totals);
}

TEST(DynamicBackup, RefusesBoundsThatCannotBeMetAndTimeOnlyRuns) {
  const std::string name = "algorithm = \"dynamic-backup\"\n";
  EXPECT_EQ(read_method(name).faults, "");
  EXPECT_THAT(read_method(name + "fewest = 3\nmost = 2").faults, HasSubstr("most = 2; must be at least `fewest`"));
  EXPECT_NE(read_method(name + "fewest = 5").faults, "") << "of four workers";
  EXPECT_NE(read_method(name + "rate_times_smoothness = 2").faults, "");
  EXPECT_NE(read_method(name + "memory = 1").faults, "");
  EXPECT_THAT(read_method(name, {.workers = 4, .time_only = true}).faults, HasSubstr("needs a model"));
}

}  // namespace
}  // namespace syncopate
