#include "algorithms/quorum/dynamic_backup.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "algorithms/quorum/backup_workers.hpp"
#include "tests/algorithms/duration_laws.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/three_workers.hpp"
#include "workers/models/formulas.hpp"

namespace syncopate {
namespace {

using testing::Each;
using testing::HasSubstr;

std::int64_t total(const Counts& counts) { return std::accumulate(counts.begin(), counts.end(), std::int64_t{0}); }

// Equal up to rounding, because gradients whose norms are needed are summed one by one.
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

std::vector<std::int64_t> taken(const SimulatedRun::Outcome& outcome) {
  std::vector<std::int64_t> counts;
  for (const StepRow& row : outcome.rounds) counts.push_back(row.kept);
  return counts;
}

// Without noise one gradient is as good as all. The second step waits only for the first gradient.
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

// With equal times later gradients take no more time, so every step takes all.
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

// A quadratic of curvature 1, at a rate of 0.03. At first the gradient is much larger than its noise; at the end it is
// as large as the noise. Between lie steps of one gradient, from which no spread can be measured.
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

// The objective is the one above. Only a worker that is 20 times slower than the other one shows the noise.
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

// Gradients are (3, 0), (1, 0) and (2, 3), with squared norms 9, 1 and 13. Their mean is (2, 1), with squared norm 5.
// The sample variance is (1 + 1 + 0 + 1 + 1 + 4) / 2 = 4.
TEST(GradientMoments, AreTheSampleVarianceAndWhatItLeavesOfTheMean) {
  const auto moments = gradient_moments(23.0 / 3, 5, 3);
  ASSERT_TRUE(moments);
  EXPECT_NEAR(moments->variance, 4, 1e-12);
  EXPECT_NEAR(moments->squared_norm, 5 - 4.0 / 3, 1e-12);
}

TEST(GradientMoments, OfOneGradientSayNothing) { EXPECT_FALSE(gradient_moments(4, 4, 1)); }

TEST(GradientMoments, AreNeverNegative) {
  const auto moments = gradient_moments(10, 0.1, 4);
  ASSERT_TRUE(moments);
  EXPECT_EQ(moments->squared_norm, 0);
  EXPECT_EQ(gradient_moments(1, 1 + 1e-12, 4)->variance, 0) << "rounding";
}

// Gradients have the expectation (3, 4), and 2 coordinates with variance 0.25 each.
TEST(GradientMoments, AreUnbiased) {
  std::mt19937 engine(5);
  std::normal_distribution<double> noise(0, 0.5);
  constexpr int rounds = 20'000, k = 5;
  double squared_norm = 0, variance = 0;
  for (int round = 0; round < rounds; ++round) {
    double squares = 0, sum_x = 0, sum_y = 0;
    for (int i = 0; i < k; ++i) {
      const double x = 3 + noise(engine), y = 4 + noise(engine);
      squares += x * x + y * y;
      sum_x += x;
      sum_y += y;
    }
    const auto moments = gradient_moments(squares / k, (sum_x * sum_x + sum_y * sum_y) / (k * k), k);
    squared_norm += moments->squared_norm / rounds;
    variance += moments->variance / rounds;
  }
  EXPECT_NEAR(variance, 0.5, 0.01);
  EXPECT_NEAR(squared_norm, 25, 0.1);
}

TEST(BestGradients, IsOneWithoutNoiseAndAllWhereTheyComeAtOnce) {
  const std::vector<double> growing = {1, 1.1, 1.3, 2}, equal = {1, 1, 1, 1};
  EXPECT_EQ(best_gradients({.squared_norm = 1, .variance = 0}, 1, growing), 1);
  EXPECT_EQ(best_gradients({.squared_norm = 1, .variance = 0.5}, 1, equal), 4);
}

TEST(BestGradients, AreAllWhereNoNumberGains) {
  const std::vector<double> arrival_s = {1, 2, 3};
  EXPECT_EQ(best_gradients({.squared_norm = 1, .variance = 4}, 1, arrival_s), 3);
}

// G(k) / T(k) = (a - b / k) / (c k) has its continuous maximum at k = 2 b / a.
TEST(BestGradients, WhereTimesGrowLinearlyAreTwiceTheRatioOfNoiseToSignal) {
  std::vector<double> arrival_s;
  for (int k = 1; k <= 40; ++k) arrival_s.push_back(0.1 * k);
  for (const double ratio : {2.0, 4.0, 9.0})
    EXPECT_EQ(best_gradients({.squared_norm = 1, .variance = ratio}, 1, arrival_s), std::lround(2 * ratio));
}

// For a rate times smoothness of s, the variance has the weight s / (2 - s): a third for 0.5, three for 1.5.
TEST(BestGradients, TheLargerTheStepTheMoreNoiseCosts) {
  std::vector<double> arrival_s;
  for (int k = 1; k <= 40; ++k) arrival_s.push_back(0.1 * k);
  const GradientMoments moments{.squared_norm = 1, .variance = 3};
  EXPECT_EQ(best_gradients(moments, 0.5, arrival_s), 2);
  EXPECT_EQ(best_gradients(moments, 1.0, arrival_s), 6);
  EXPECT_EQ(best_gradients(moments, 1.5, arrival_s), 18);
}

// The k-th smallest of n exponential times of mean 1 is 1/n + ... + 1/(n - k + 1) on average. The rule observes these
// means, and constant moments of the gradients. With a rate times smoothness of 1 the variance has the weight 1.
TEST(ObservedGradients, OfAConstantSettingWantTheNumberThatGainsMostPerTime) {
  constexpr int n = 16;
  int before = 0;
  for (const double variance : {0.0, 1.0, 2.0, 4.0}) {
    ObservedGradients observed({.rate_times_smoothness = 1});
    EXPECT_EQ(observed.wanted(n), n) << "nothing is known";
    double mean_s = 0, best_gain_per_s = 0;
    int best = n;
    observed.begin_version(start_time);
    for (int k = 1; k <= n; ++k) {
      mean_s += 1.0 / (n - k + 1);
      observed.take_arrival(Step{0}, start_time + from_seconds(mean_s));
      const double gain_per_s = (1 - variance / k) / mean_s;
      if (gain_per_s > best_gain_per_s) best = k;
      best_gain_per_s = std::max(best_gain_per_s, gain_per_s);
    }
    for (int step = 0; step < 3; ++step)
      observed.take_moments(GradientMoments{.squared_norm = 1, .variance = variance});
    EXPECT_EQ(observed.wanted(n), best) << variance;
    EXPECT_GT(best, before);
    before = best;
  }
}

}  // namespace
}  // namespace syncopate
