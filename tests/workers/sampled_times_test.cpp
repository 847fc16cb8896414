#include "workers/theory/sampled_times.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "workers/time/delays.hpp"
#include "workers/time/distributions.hpp"

namespace syncopate {
namespace {

using Delays = std::vector<std::shared_ptr<const DelayProcess>>;

SampledTimes sample(const Delays& delays, int workers, int micro_batches, std::vector<double> factors = {}) {
  return sample_times(ComputeTime(7, 1.0, std::move(factors), delays), workers, micro_batches, Step{2000});
}

TEST(SampledTimes, LawsAreThoseThatTheDelaysDeclare) {
  // 1 s + Exp of mean 0.5 s per micro-batch, and one of mean 0.3 s per step, which counts as a third on each of three.
  const auto times =
      sample({exponential_delay(0.5), scoped_delay(exponential_delay(0.3), {.scope = DelayScope::step})}, 8, 3);
  ASSERT_TRUE(times.alike());
  EXPECT_NEAR(times.law.mean, 1.6, 1e-12);
  EXPECT_NEAR(times.law.deviation, std::sqrt((3 * 0.25 + 0.09) / 3), 1e-12);
  ASSERT_EQ(times.step_times.size(), times.steps.size());

  const auto unlike = sample({exponential_delay(0.1)}, 3, 2, {1, 1, 2});
  ASSERT_EQ(unlike.laws.size(), 3u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_NEAR(unlike.laws[static_cast<std::size_t>(i)].law.mean, (i < 2 ? 1 : 2) + 0.1, 1e-12);
    EXPECT_NEAR(unlike.laws[static_cast<std::size_t>(i)].law.deviation, 0.1, 1e-12);
  }
}

// A drift's declared mean is that of a run without end; here it rises from 0 to 0.19 s over the run, and would to 5 s.
// A Pareto law of shape 1.8 has no variance, and shows one all the same.
TEST(SampledTimes, WhereTheDelaysDeclareWhatTheRunIsNotTheSampleCounts) {
  const auto drifting = sample({drift_delay(0.0001, 5)}, 4, 1);
  EXPECT_NEAR(drifting.law.mean, 1 + 0.0001 * 2000 / 2, 0.001);
  const auto heavy = sample({pareto_delay(1.8, 0.1)}, 4, 1);
  EXPECT_TRUE(std::isfinite(heavy.law.deviation));
  EXPECT_NEAR(heavy.law.mean, 1 + 0.1 * 1.8 / 0.8, 0.1);
}

// The same of one worker of four: the sample then counts for all.
TEST(SampledTimes, WhereOneWorkersDelaysDeclareWhatTheRunIsNotTheSampleCounts) {
  for (int worker = 0; worker < 4; ++worker)
    EXPECT_NEAR(sample({scoped_delay(drift_delay(0.0001, 5), {.workers = {worker}})}, 4, 1).law.mean,
                1 + 0.0001 * 2000 / 2 / 4, 0.001)
        << worker;
}

// 64 workers, half of them slower; a mean of 512 steps of deviation 0.5 s has a standard error of 0.022 s. The variance
// of the means over that of one alone is 1 + (difference / 2 / 0.022)^2, and by chance hardly ever above 2.07.
TEST(SampledTimes, WorkersAreUnlikeWhereTheirMeansDifferByMoreThanChance) {
  for (const auto& [slower_s, alike] : {std::pair{0.0, true}, {0.02, true}, {0.08, false}, {0.5, false}}) {
    std::vector<double> factors(64, 1.0);
    std::fill(factors.begin(), factors.begin() + 32, 1 + slower_s);
    const auto times = sample({exponential_delay(0.5)}, 64, 1, factors);
    ASSERT_EQ(times.drawn_steps(), 512u);
    EXPECT_EQ(times.alike(), alike) << slower_s;
    EXPECT_NEAR(times.law.mean, 1.5 + slower_s / 2, 1e-12);
    EXPECT_NEAR(times.law.deviation, std::hypot(0.5, slower_s / 2), 1e-12);
  }
}

// Bursts of four steps: the means of 512 steps differ by more than those of as many independent ones would.
TEST(SampledTimes, WorkersOfOneDeclaredLawAreAlikeWhateverTheirSampleShows) {
  const auto bursty = scoped_delay(constant_delay(1), {.bursts = BurstLengths{4, 4}, .cluster_size = 64});
  const auto times = sample_times(ComputeTime(7, 1.0, {}, {bursty}), 64, 1, Step{512});
  ASSERT_EQ(times.drawn_steps(), 512u);
  double variance = 0;  // of the workers' means, over that of means of independent steps
  for (std::size_t worker = 0; worker < 64; ++worker) {
    double mean = 0;
    for (std::size_t step = 0; step < 512; ++step) mean += times.step_times[worker * 512 + step] / 512;
    variance += (mean - 1.5) * (mean - 1.5) / 64;
  }
  ASSERT_GT(variance / (0.25 / 512), 2.2);  // 3 but for the sample; 1 + 6 sqrt(2 / 63) are beyond chance
  EXPECT_TRUE(times.alike());
  EXPECT_DOUBLE_EQ(times.law.mean, 1.5);
  EXPECT_DOUBLE_EQ(times.law.deviation, 0.5);
}

double drawn_s(const ComputeTime& compute_time, Step step) {
  Duration duration{};
  compute_time.durations(Rank{0}, step, 0, {&duration, 1});
  return to_seconds(duration);
}

// Of two values a and b: the sample's deviation is |a - b| / sqrt(2), a mean's standard error |a - b| / 2.
TEST(SampledTimes, DeviationsAndErrorsAreThoseOfASample) {
  const ComputeTime compute_time(7, 1.0, {}, {pareto_delay(1.8, 0.1)});
  const double a = drawn_s(compute_time, 0), b = drawn_s(compute_time, 1);
  const auto two = sample_times(compute_time, 1, 1, Step{2});
  EXPECT_FALSE(two.has_variance);
  EXPECT_NEAR(two.law.mean, (a + b) / 2, 1e-12);
  EXPECT_NEAR(two.law.deviation, std::abs(a - b) / std::sqrt(2), 1e-12);
  ASSERT_TRUE(two.slowest_s);
  EXPECT_NEAR(*two.slowest_s, (a + b) / 2, 1e-12);
  EXPECT_NEAR(two.slowest_error_s, std::abs(a - b) / 2, 1e-12);
}

TEST(SampledTimes, OfOneStepHaveNoDeviation) {
  for (const auto& delay : {exponential_delay(0.5), pareto_delay(1.8, 0.1)}) {
    const auto one = sample_times(ComputeTime(7, 1.0, {}, {delay}), 3, 2, Step{1});
    EXPECT_EQ(one.steps.size(), 3u);
    EXPECT_EQ(one.slowest_error_s, 0);
    EXPECT_TRUE(std::isfinite(one.law.mean));
    EXPECT_TRUE(std::isfinite(one.law.deviation));
  }
}

// Between 16 and 512 steps, of all workers together a million micro-batches; of four million each one is kept.
TEST(SampledTimes, AreAboutAMillionDraws) {
  struct Row {
    int workers, micro_batches;
    std::size_t steps;
  };
  for (const Row& row :
       {Row{8, 1, 512}, Row{64, 100, 156}, Row{1000, 2, 500}, Row{1000, 200, 16}, Row{1000, 300, 16}}) {
    const auto times = sample({}, row.workers, row.micro_batches);
    EXPECT_EQ(times.drawn_steps(), row.steps) << row.workers << " x " << row.micro_batches;
    const std::size_t draws =
        row.steps * static_cast<std::size_t>(row.workers) * static_cast<std::size_t>(row.micro_batches);
    EXPECT_EQ(times.micro_batch_times.size(), draws <= 4'000'000 ? draws : 0);
  }
}

// The slowest of 8 steps of 1 s + Exp of mean 0.5 s deviates by 0.5 sqrt(1 + 1/4 + ... + 1/64): over 512 steps.
TEST(SampledTimes, TheErrorOfTheSlowestFallsWithTheRootOfTheSteps) {
  const auto times = sample({exponential_delay(0.5)}, 8, 1);
  ASSERT_EQ(times.drawn_steps(), 512u);
  const double deviation = std::sqrt(variance_exponential(8, 8, 1 / 0.5));
  EXPECT_NEAR(times.slowest_error_s, deviation / std::sqrt(512), 0.2 * deviation / std::sqrt(512));
  EXPECT_NEAR(*times.slowest_s, 1 + expected_exponential(8, 8, 1 / 0.5), 4 * times.slowest_error_s);
  EXPECT_TRUE(times.has_variance);
  EXPECT_DOUBLE_EQ(times.shortest_s, 1);
}

// Whichever worker it is that has the shortest, or no variance.
TEST(SampledTimes, OneWorkerDecidesWhatIsShortestAndWhetherThereIsAVariance) {
  for (int worker = 0; worker < 3; ++worker) {
    std::vector<double> factors(3, 2.0);
    factors[static_cast<std::size_t>(worker)] = 1.5;
    EXPECT_DOUBLE_EQ(sample({constant_delay(0.25)}, 3, 2, factors).shortest_s, 1.75);
    const auto heavy = scoped_delay(pareto_delay(1.5, 0.1), {.workers = {worker}});
    EXPECT_FALSE(sample({exponential_delay(0.5), heavy}, 3, 2).has_variance) << worker;
  }
}

// By hand: three workers, whose steps take 1 s, 1.5 s and 3 s.
TEST(SampledTimes, TheOrderStatisticOfUnlikeWorkers) {
  const auto times = sample(
      {scoped_delay(constant_delay(0.5), {.workers = {1}}), scoped_delay(constant_delay(2), {.workers = {2}})}, 3, 1);
  EXPECT_NEAR(sampled_order_statistic(times, 1).mean, 1, 1e-9);
  EXPECT_NEAR(sampled_order_statistic(times, 2).mean, 1.5, 1e-9);
  EXPECT_NEAR(sampled_order_statistic(times, 3).mean, 3, 1e-9);
  EXPECT_NEAR(expected_slowest_sum(times, 4), 12, 1e-9);
  // By 3.2 s a micro-batch of 1 s is done three times of four, one of 1.5 s twice, one of 3 s once.
  EXPECT_NEAR(expected_share_done(times, 4, 3.2), (3 + 2 + 1) / 12.0, 1e-9);
}

}  // namespace
}  // namespace syncopate
