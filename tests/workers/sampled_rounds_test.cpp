// Rounds of drawn steps against times by hand and closed forms.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "workers/theory/sampled_times.hpp"
#include "workers/time/delays.hpp"
#include "workers/time/distributions.hpp"

namespace syncopate {
namespace {

using Delays = std::vector<std::shared_ptr<const DelayProcess>>;

SampledTimes sample(const Delays& delays, int workers, int micro_batches, Step planned = 2000) {
  return sample_times(ComputeTime(7, 1.0, {}, delays), workers, micro_batches, planned);
}

// Micro-batches of 1 s, 1.5 s and 3 s on three workers, two in a step.
SampledTimes three_workers(Step planned = 2000) {
  return sample(
      {scoped_delay(constant_delay(0.5), {.workers = {1}}), scoped_delay(constant_delay(2), {.workers = {2}})}, 3, 2,
      planned);
}

void expect_round(const SampledTimes& times, int period, const Limits& limits, double time_s, double kept) {
  SCOPED_TRACE(testing::Message() << period << " steps, limits " << limits.step_s << ", " << limits.round_s);
  const auto rounds = sample_rounds(times, period, limits);
  ASSERT_TRUE(rounds);
  EXPECT_NEAR(rounds->time_s.mean, time_s, 1e-9);
  EXPECT_NEAR(rounds->kept.mean, kept, 1e-12);
  EXPECT_NEAR(rounds->time_s.error, 0, 1e-9);
}

TEST(SampledRounds, ThreeWorkersByHand) {
  const SampledTimes times = three_workers();
  expect_round(times, 1, {}, 6, 1);
  expect_round(times, 4, {}, 24, 1);
  // Ends within a step: 1, 2 | 1.5, 3 | 3, 6.
  expect_round(times, 1, {.step_s = 3.2}, 3.2, 5.0 / 6);
  expect_round(times, 1, {.step_s = 3}, 3, 3.0 / 6);  // what ends at the threshold is late
  expect_round(times, 1, {.step_s = 7}, 6, 1);
  expect_round(times, 5, {.step_s = 3.2}, 16, 5.0 / 6);
  // Within a round of two steps: 1, 2, 3, 4 | 1.5, 3, 4.5, 6 | 3, 6, 9, 12.
  expect_round(times, 2, {.round_s = 5.5}, 5.5, 8.0 / 12);
  expect_round(times, 2, {.round_s = 20}, 12, 1);
  // Of two steps, each cut at 3.2 s and together at 4.5 s: worker 1 ends its third one at 4.5 s, which is late; worker
  // 2 goes on at 3.2 s and would end its next one at 6.2 s.
  expect_round(times, 2, {.step_s = 3.2, .round_s = 4.5}, 4.5, (4 + 2 + 1) / 12.0);
  expect_round(times, 2, {.step_s = 3.2, .round_s = 7}, 6.4, (4 + 4 + 2) / 12.0);
  expect_round(times, 2, {.step_s = 3.2, .round_s = 6.3}, 6.3, (4 + 4 + 2) / 12.0);
  EXPECT_NEAR(slowest_sum(times, 0, 2, 3, 2), 6, 1e-9);
  const SampledTimes descending = sample({scoped_delay(constant_delay(2), {.workers = {0}})}, 3, 1);
  EXPECT_NEAR(slowest_sum(descending, 0, 3, 0, 4), 12, 1e-9);
  EXPECT_NEAR(slowest_sum(descending, 1, 3, 0, 4), 4, 1e-9);
}

TEST(SampledRounds, TooFewRoundsSayNothing) {
  EXPECT_TRUE(sample_rounds(three_workers(40), 5));  // of the 40 steps that are drawn
  EXPECT_FALSE(sample_rounds(three_workers(40), 6));
  EXPECT_FALSE(sample_rounds(three_workers(40), 6, {.round_s = 5}));
  EXPECT_FALSE(sample_rounds(sample({}, 5000, 1), 1));  // not all workers were drawn
}

TEST(SampledRounds, AMeansStandardErrorIsThatOfASample) {
  const std::vector<double> values{1, 2, 3, 4, 5};
  EXPECT_DOUBLE_EQ(mean_of(values).mean, 3);
  EXPECT_DOUBLE_EQ(mean_of(values).error, std::sqrt(2.5 / 5));
  EXPECT_EQ(mean_of(std::vector{3.0}).mean, 3);
  EXPECT_EQ(mean_of(std::vector{3.0}).error, 0);  // of which one value says nothing
}

// 1 s + Exp(1) on 16 workers, cut t after the first second: E[min(t, max)] is the sum of (1 - e^-t)^k / k, a share
// 1 - e^-t is done.
TEST(SampledRounds, CutMaximaOfExponentialTimes) {
  const SampledTimes times = sample({exponential_delay(1)}, 16, 1);
  for (const double t : {0.5, 2.0, 3.5}) {
    SCOPED_TRACE(t);
    double expected = 1;
    for (int k = 1; k <= 16; ++k) expected += std::pow(1 - std::exp(-t), k) / k;
    const auto cut = sample_rounds(times, 1, {.step_s = 1 + t});
    ASSERT_TRUE(cut);
    EXPECT_NEAR(cut->time_s.mean, expected, 3.5 * cut->time_s.error + 1e-6);
    EXPECT_NEAR(cut->kept.mean, 1 - std::exp(-t), 3.5 * cut->kept.error);
    // 512 steps of 16: the share's error is that of as many independent ones.
    EXPECT_NEAR(cut->kept.error, std::sqrt(std::exp(-t) * (1 - std::exp(-t)) / (512 * 16)), 0.2 * cut->kept.error);
  }
}

// Where nothing of n micro-batches is lost, one in n might have been.
TEST(SampledRounds, ASampleWithoutALossDoesNotExcludeOne) {
  const auto cut = sample_rounds(three_workers(), 1, {.step_s = 10});
  ASSERT_TRUE(cut);
  EXPECT_EQ(cut->kept.mean, 1);
  EXPECT_DOUBLE_EQ(cut->kept.error, 1.0 / (512 * 6));
}

}  // namespace
}  // namespace syncopate
