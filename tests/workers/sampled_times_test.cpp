#include "workers/theory/sampled_times.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "tests/workers/closed_forms.hpp"
#include "workers/time/delays.hpp"
#include "workers/time/distributions.hpp"

namespace syncopate {
namespace {

using Delays = std::vector<std::shared_ptr<const DelayProcess>>;

SampledTimes sample(const Delays& delays, int workers, int micro_batches, std::vector<double> factors = {}) {
  return sample_times(ComputeTime(7, 1.0, std::move(factors), delays), workers, micro_batches, Step{2000});
}

TEST(SampledTimes, LawsAreThoseThatTheDelaysDeclare) {
  // A micro-batch takes 1 s + Exp of mean 0.5 s. A step's delay, Exp of mean 0.3 s, adds a third to each of three
  // micro-batches.
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

// The mean that a drift declares is that of an endless run, 5 s. In this run the drift rises from 0 to 0.2 s. A Pareto
// law of shape 1.8 has no variance, but its sample has one.
TEST(SampledTimes, WhereTheDelaysDeclareWhatTheRunIsNotTheSampleCounts) {
  const auto drifting = sample({drift_delay(0.0001, 5)}, 4, 1);
  EXPECT_NEAR(drifting.law.mean, 1 + 0.0001 * 2000 / 2, 0.001);
  const auto heavy = sample({pareto_delay(1.8, 0.1)}, 4, 1);
  EXPECT_TRUE(std::isfinite(heavy.law.deviation));
  EXPECT_NEAR(heavy.law.mean, 1 + 0.1 * 1.8 / 0.8, 0.1);
}

// Only one of four workers has a drifting delay. The mean of all four is still that of the sample.
TEST(SampledTimes, WhereOneWorkersDelaysDeclareWhatTheRunIsNotTheSampleCounts) {
  for (int worker = 0; worker < 4; ++worker)
    EXPECT_NEAR(sample({scoped_delay(drift_delay(0.0001, 5), {.workers = {worker}})}, 4, 1).law.mean,
                1 + 0.0001 * 2000 / 2 / 4, 0.001)
        << worker;
}

// 64 workers, half of them slower. A mean over 512 steps of deviation 0.5 s has the standard error 0.5 / sqrt(512) =
// 0.022 s. The test for unlike workers divides the variance of their means by 0.022^2. This ratio is 1 + (difference /
// 2 / 0.022)^2 on average; with equal workers it is hardly ever above 2.07.
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

// In bursts of four steps, the means of 512 steps differ more than those of 512 independent steps.
TEST(SampledTimes, WorkersOfOneDeclaredLawAreAlikeWhateverTheirSampleShows) {
  const auto bursty = scoped_delay(constant_delay(1), {.bursts = BurstLengths{4, 4}, .cluster_size = 64});
  const auto times = sample_times(ComputeTime(7, 1.0, {}, {bursty}), 64, 1, Step{512});
  ASSERT_EQ(times.drawn_steps(), 512u);
  double variance = 0;  // of the workers' means; divided below by that of independent steps
  for (std::size_t worker = 0; worker < 64; ++worker) {
    double mean = 0;
    for (std::size_t step = 0; step < 512; ++step) mean += times.step_times[worker * 512 + step] / 512;
    variance += (mean - 1.5) * (mean - 1.5) / 64;
  }
  ASSERT_GT(variance / (0.25 / 512), 2.2);  // about 3; by chance at most 1 + 6 sqrt(2 / 63)
  EXPECT_TRUE(times.alike());
  EXPECT_DOUBLE_EQ(times.law.mean, 1.5);
  EXPECT_DOUBLE_EQ(times.law.deviation, 0.5);
}

double drawn_s(const ComputeTime& compute_time, Step step) {
  Duration duration{};
  compute_time.durations(Rank{0}, step, 0, {&duration, 1});
  return to_seconds(duration);
}

// Two values a and b have the deviation |a - b| / sqrt(2), and their mean has the standard error |a - b| / 2.
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

// 16 to 512 steps are drawn, with about a million micro-batches. Up to four million micro-batches' times are kept.
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

// The slowest of 8 workers, 1 s + Exp of mean 0.5 s, has the deviation 0.5 sqrt(1 + 1/4 + ... + 1/64).
TEST(SampledTimes, TheErrorOfTheSlowestFallsWithTheRootOfTheSteps) {
  const auto times = sample({exponential_delay(0.5)}, 8, 1);
  ASSERT_EQ(times.drawn_steps(), 512u);
  const double deviation = std::sqrt(variance_exponential(8, 8, 1 / 0.5));
  EXPECT_NEAR(times.slowest_error_s, deviation / std::sqrt(512), 0.2 * deviation / std::sqrt(512));
  EXPECT_NEAR(*times.slowest_s, 1 + expected_exponential(8, 8, 1 / 0.5), 4 * times.slowest_error_s);
  EXPECT_TRUE(times.has_variance);
  EXPECT_DOUBLE_EQ(times.shortest_s, 1);
}

// Any one worker may have the shortest time, or no variance.
TEST(SampledTimes, OneWorkerDecidesWhatIsShortestAndWhetherThereIsAVariance) {
  for (int worker = 0; worker < 3; ++worker) {
    std::vector<double> factors(3, 2.0);
    factors[static_cast<std::size_t>(worker)] = 1.5;
    EXPECT_DOUBLE_EQ(sample({constant_delay(0.25)}, 3, 2, factors).shortest_s, 1.75);
    const auto heavy = scoped_delay(pareto_delay(1.5, 0.1), {.workers = {worker}});
    EXPECT_FALSE(sample({exponential_delay(0.5), heavy}, 3, 2).has_variance) << worker;
  }
}

// Three workers whose steps take 1 s, 1.5 s and 3 s.
TEST(SampledTimes, TheOrderStatisticOfUnlikeWorkers) {
  const auto times = sample(
      {scoped_delay(constant_delay(0.5), {.workers = {1}}), scoped_delay(constant_delay(2), {.workers = {2}})}, 3, 1);
  EXPECT_NEAR(sampled_order_statistic(times, 1).mean, 1, 1e-9);
  EXPECT_NEAR(sampled_order_statistic(times, 2).mean, 1.5, 1e-9);
  EXPECT_NEAR(sampled_order_statistic(times, 3).mean, 3, 1e-9);
  EXPECT_NEAR(expected_slowest_sum(times, 4), 12, 1e-9);
}

// Properties of drawn steps, whole or cut by a threshold, compared with hand-made times and closed forms.

SampledTimes planned_sample(const Delays& delays, int workers, int micro_batches, Step planned = 2000) {
  return sample_times(ComputeTime(7, 1.0, {}, delays), workers, micro_batches, planned);
}

// Three workers with two micro-batches in a step: 1 s, 1.5 s and 3 s each.
SampledTimes three_workers(Step planned = 2000) {
  return planned_sample(
      {scoped_delay(constant_delay(0.5), {.workers = {1}}), scoped_delay(constant_delay(2), {.workers = {2}})}, 3, 2,
      planned);
}

void expect_cut(double threshold_s, double time_s, double kept) {
  SCOPED_TRACE(threshold_s);
  const auto cut = sample_cut_steps(three_workers(), threshold_s);
  ASSERT_TRUE(cut);
  EXPECT_NEAR(cut->time_s.mean, time_s, 1e-9);
  EXPECT_NEAR(cut->kept.mean, kept, 1e-12);
  EXPECT_NEAR(cut->time_s.error, 0, 1e-9);
}

// The micro-batches of the three workers end after 1 and 2 s, 1.5 and 3 s, and 3 and 6 s.
TEST(CutSteps, OfThreeWorkersByHand) {
  expect_cut(std::numeric_limits<double>::infinity(), 6, 1);
  expect_cut(3.2, 3.2, 5.0 / 6);
  expect_cut(3, 3, 3.0 / 6);  // a micro-batch that ends at the threshold is late
  expect_cut(7, 6, 1);
}

TEST(SlowestSum, OfThreeWorkersByHand) {
  EXPECT_NEAR(sampled_slowest_sum(three_workers(), Step{1})->mean, 6, 1e-9);
  EXPECT_NEAR(sampled_slowest_sum(three_workers(), Step{4})->mean, 24, 1e-9);
  // The slowest worker may also be the first one.
  const SampledTimes descending = planned_sample({scoped_delay(constant_delay(2), {.workers = {0}})}, 3, 1);
  EXPECT_NEAR(sampled_slowest_sum(descending, Step{4})->mean, 12, 1e-9);
}

// The slowest of 8 workers, each with one exponential time, and the standard error of its mean.
TEST(SlowestSum, IsAMeanWithItsError) {
  const auto slowest = sampled_slowest_sum(planned_sample({exponential_delay(1)}, 8, 1), Step{1});
  ASSERT_TRUE(slowest);
  EXPECT_NEAR(slowest->mean, 1 + expected_exponential(8, 8, 1), 3.5 * slowest->error);
  EXPECT_NEAR(slowest->error, std::sqrt(variance_exponential(8, 8, 1) / 512), 0.2 * slowest->error);
}

TEST(SlowestSum, OfTooFewRoundsSaysNothing) {
  EXPECT_TRUE(sampled_slowest_sum(three_workers(40), Step{5}));  // the 40 drawn steps are 8 rounds of 5
  EXPECT_FALSE(sampled_slowest_sum(three_workers(40), Step{6}));
  EXPECT_FALSE(sampled_slowest_sum(planned_sample({}, 5000, 1), Step{1}));  // not all workers were drawn
  EXPECT_TRUE(sample_cut_steps(three_workers(8), 5));
  EXPECT_FALSE(sample_cut_steps(three_workers(7), 5));
  EXPECT_FALSE(sample_cut_steps(planned_sample({}, 5000, 1), 5));
}

TEST(SampledMean, HasTheStandardErrorOfASample) {
  const std::vector<double> values{1, 2, 3, 4, 5};
  EXPECT_DOUBLE_EQ(mean_of(values).mean, 3);
  EXPECT_DOUBLE_EQ(mean_of(values).error, std::sqrt(2.5 / 5));
  EXPECT_EQ(mean_of(std::vector{3.0}).mean, 3);
  EXPECT_EQ(mean_of(std::vector{3.0}).error, 0);  // one value does not show an error
}

// 16 workers take 1 s + Exp(1) s, and are cut t seconds after the first second. E[min(t, max)] is the sum of (1 -
// e^-t)^k / k over k = 1 .. 16, and a share 1 - e^-t of the micro-batches is done.
TEST(CutSteps, AreCutMaximaOfExponentialTimes) {
  const SampledTimes times = planned_sample({exponential_delay(1)}, 16, 1);
  for (const double t : {0.5, 2.0, 3.5}) {
    SCOPED_TRACE(t);
    double expected = 1;
    for (int k = 1; k <= 16; ++k) expected += std::pow(1 - std::exp(-t), k) / k;
    const auto cut = sample_cut_steps(times, 1 + t);
    ASSERT_TRUE(cut);
    EXPECT_NEAR(cut->time_s.mean, expected, 3.5 * cut->time_s.error + 1e-6);
    EXPECT_NEAR(cut->kept.mean, 1 - std::exp(-t), 3.5 * cut->kept.error);
    // The error of the share is that of 512 x 16 independent micro-batches.
    EXPECT_NEAR(cut->kept.error, std::sqrt(std::exp(-t) * (1 - std::exp(-t)) / (512 * 16)), 0.2 * cut->kept.error);
  }
}

// If none of n drawn micro-batches is lost, one in n might be.
TEST(CutSteps, WithoutALossDoNotExcludeOne) {
  const auto cut = sample_cut_steps(three_workers(), 10);
  ASSERT_TRUE(cut);
  EXPECT_EQ(cut->kept.mean, 1);
  EXPECT_DOUBLE_EQ(cut->kept.error, 1.0 / (512 * 6));
}

// Times of micro-batches of 8 sequences. The longest sequence has 1 to 40 tokens. `share` of the padded places are
// tokens.
std::vector<TimedLengths> timed(double base_s, double per_token_s, double per_square_s, double per_padded_s = 0) {
  std::vector<TimedLengths> all;
  for (int length = 1; length <= 40; ++length) {
    const double share = 1 - 0.2 * (length * 7 % 5) / 5;
    const double padded = 8.0 * length, tokens = share * padded, squares = share * 8.0 * length * length;
    all.push_back(
        {tokens, padded, squares, base_s + per_token_s * tokens + per_square_s * squares + per_padded_s * padded});
  }
  return all;
}

TEST(LengthFit, FindsTheCostsThatTimesWereMadeOf) {
  const LengthFit fit = fit_lengths(timed(0.003, 2e-5, 4e-8));
  EXPECT_NEAR(fit.cost.base_s, 0.003, 1e-12);
  EXPECT_NEAR(fit.cost.per_token_s, 2e-5, 1e-14);
  EXPECT_EQ(fit.cost.per_padded_token_s, 0);
  EXPECT_NEAR(fit.cost.per_squared_length_s, 4e-8, 1e-16);
  EXPECT_NEAR(fit.r_squared, 1, 1e-12);
  EXPECT_NEAR(fit.largest_residual_s, 0, 1e-12);
  EXPECT_EQ(fit.points, 40);
}

TEST(LengthFit, TellsPaddedTokensFromTokens) {
  const LengthFit fit = fit_lengths(timed(0.003, 0, 4e-8, 2e-5));
  EXPECT_EQ(fit.cost.per_token_s, 0);
  EXPECT_NEAR(fit.cost.per_padded_token_s, 2e-5, 1e-14);
  EXPECT_NEAR(fit.cost.per_squared_length_s, 4e-8, 1e-16);
}

TEST(LengthFit, LeavesOutWhatWouldBeNegative) {
  // Times are concave in the length, so the square would have a negative cost. The fit is a linear regression instead.
  std::vector<TimedLengths> concave;
  for (int length = 1; length <= 40; ++length)
    concave.push_back(
        {8.0 * length, 8.0 * length, 8.0 * length * length, 0.003 + 1.6e-4 * length - 8e-8 * length * length});
  const LengthFit fit = fit_lengths(concave);
  EXPECT_EQ(fit.cost.per_squared_length_s, 0);
  double x = 0, y = 0, xx = 0, xy = 0;
  for (const TimedLengths& one : concave) {
    x += one.tokens / 40;
    y += one.seconds / 40;
    xx += one.tokens * one.tokens / 40;
    xy += one.tokens * one.seconds / 40;
  }
  const double slope = (xy - x * y) / (xx - x * x);
  EXPECT_NEAR(fit.cost.per_token_s, slope, 1e-12);
  EXPECT_NEAR(fit.cost.base_s, y - slope * x, 1e-12);
  EXPECT_LT(fit.r_squared, 1);
  EXPECT_GT(fit.r_squared, 0.99);
}

TEST(LengthFit, SaysHowFarTheTimesAreFromTheLine) {
  // Two lengths, each measured twice: 1 ms above and below means of 10 and 20 ms, which are 5 ms from their common
  // mean.
  const std::vector<TimedLengths> four = {
      {10, 10, 100, 0.011}, {10, 10, 100, 0.009}, {20, 20, 400, 0.021}, {20, 20, 400, 0.019}};
  const LengthFit fit = fit_lengths(four);
  EXPECT_NEAR(fit.largest_residual_s, 0.001, 1e-12);
  EXPECT_NEAR(fit.typical_residual_s, 0.001, 1e-12);
  EXPECT_NEAR(fit.r_squared, 1 - 1e-6 / (0.005 * 0.005 + 1e-6), 1e-9);
}

TEST(LengthFit, OfEqualLengthsIsTheMeanTime) {
  const LengthFit fit = fit_lengths(std::vector<TimedLengths>{{70, 80, 800, 0.004}, {70, 80, 800, 0.006}});
  const double at_length = fit.cost.base_s + 70 * fit.cost.per_token_s + 80 * fit.cost.per_padded_token_s +
                           800 * fit.cost.per_squared_length_s;
  EXPECT_NEAR(at_length, 0.005, 1e-12);
  EXPECT_NEAR(fit_lengths(std::vector<TimedLengths>{{70, 80, 800, 0.004}}).cost.base_s, 0.004, 1e-12);
  for (const int length : {1, 7, 12, 33, 80}) {  // whatever the length is, rounding must not give it a cost of its own
    const double square = 8.0 * length * length;
    const LengthFit of_many = fit_lengths(std::vector<TimedLengths>(24, {8.0 * length, 8.0 * length, square, 0.0041}));
    EXPECT_NEAR(of_many.cost.base_s, 0.0041, 1e-12) << length;
    EXPECT_EQ(of_many.cost.per_token_s, 0) << length;
    EXPECT_EQ(of_many.cost.per_padded_token_s, 0) << length;
    EXPECT_EQ(of_many.cost.per_squared_length_s, 0) << length;
  }
}

}  // namespace
}  // namespace syncopate
