// Formulas above the number of workers that are drawn one by one: workers that differ count all the same, few or many.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "algorithms/synchronous/drop_compute.hpp"
#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/predicted_run.hpp"
#include "workers/time/delays.hpp"
#include "workers/time/distributions.hpp"

namespace syncopate {
namespace {

constexpr int many = 20'000;  // of 4,096 each one is drawn

// Micro-batches of 1 s.
using Delays = std::vector<std::shared_ptr<const DelayProcess>>;

Delays only_worker_3_is_slower_by(double value_s) {
  return {exponential_delay(0.001), scoped_delay(constant_delay(value_s), {.workers = {3}})};
}

std::vector<double> slow_ones(int count) {
  std::vector<double> factors(many, 1.0);
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) factors[factors.size() - 1 - i] = 2;
  return factors;
}

// What they all wait for: the one slow worker's 4 x (1 + 1 + 0.001) s, which another one's 4 x (1 + 0.001) s, with a
// deviation of 0.002 s, never exceed.
TEST(ManyWorkers, WaitForTheOneThatADelayConcerns) {
  const PredictedRun setting{.workers = many, .delays = only_worker_3_is_slower_by(1)};
  const auto predictions = setting.predict(SyncSgd());
  ASSERT_EQ(predictions.size(), 1u);
  EXPECT_EQ(predictions[0].formula, "normal workers, unlike");
  EXPECT_NEAR(predictions[0].step_time_s, 4 * 2.001 + 0.5, 1e-6);
}

TEST(ManyWorkers, WaitForTheOneWithAFactor) {
  const PredictedRun setting{.workers = many, .factors = slow_ones(1), .delays = {exponential_delay(0.001)}};
  EXPECT_NEAR(setting.predict(SyncSgd()).at(0).step_time_s, 4 * 2.001 + 0.5, 1e-6);
  const auto read = read_method("algorithm = \"local-sgd\"\nperiod = { rule = \"constant\", steps = 5 }\n");
  EXPECT_NEAR(setting.predict(*read.algorithm).at(0).step_time_s, 4 * 2.001 + 0.5 / 5, 1e-6);
}

// By 4.5 s a worker of 1 s has done 4 of 4 micro-batches, one of 2 s has done 2: one such worker hardly counts in what
// is kept, a quarter of them counts as a quarter; the step lasts until the threshold for either.
TEST(ManyWorkers, CountInWhatAThresholdKeepsByTheirNumber) {
  for (const int slow : {1, many / 4}) {
    const PredictedRun setting{.workers = many, .factors = slow_ones(slow), .delays = {}};
    const auto predictions = setting.predict(DropCompute(from_seconds(4.5), Preempt::discard, 1.0 / 3));
    ASSERT_EQ(predictions.size(), 1u);
    EXPECT_NEAR(predictions[0].step_time_s, 4.5 + 0.5, 1e-9) << slow;
    EXPECT_NEAR(predictions[0].kept, 1 - 0.5 * slow / many, 1e-9) << slow;
    EXPECT_NEAR(predictions[0].sync_step_time_s, 8 + 0.5, 1e-6) << slow;
  }
}

TEST(ManyWorkers, WhoDifferGetNoThresholdThatOneLawWouldFind) {
  const PredictedRun setting{.workers = many, .factors = slow_ones(1), .delays = {exponential_delay(0.001)}};
  const auto read = read_method("algorithm = \"dropcompute\"\nthreshold = { rule = \"automatic\" }\n");
  EXPECT_TRUE(setting.predict(*read.algorithm).empty());
  EXPECT_EQ(setting.why_not_predicted(*read.algorithm), "its workers differ, and are too many to draw them all");
}

// A drift is not what its delay declares, so that the sample counts: it rises from 0 to 0.2 s over the run, 0.1 s on
// average. The one worker that takes 3 s longer is the slowest in each step.
TEST(ManyWorkers, CountWhereTheSampleDoesTooNotTheDeclaredLaw) {
  const PredictedRun setting{
      .workers = many,
      .micro_batches = 1,
      .delays = {drift_delay(0.0001, 5), scoped_delay(constant_delay(3), {.workers = {many - 1}})}};
  const auto law = setting.with_input([](const PredictionInput& input) { return input.times.law; });
  EXPECT_NEAR(law.mean, 1 + 0.1 + 3.0 / many, 0.001);
  EXPECT_NEAR(setting.predict(SyncSgd()).at(0).step_time_s, 1 + 0.1 + 3 + 0.5, 0.001);
}

// As many laws as workers: the maximum over all of them, one by one, is the expected value.
TEST(ManyWorkers, MayAllDiffer) {
  std::vector<double> factors;
  std::vector<NormalTime> each;
  for (int n = 0; n < many; ++n) {
    factors.push_back(1 + 0.1 * ((n * 7919LL) % many) / many);
    each.push_back({.mean = 4 * (factors.back() + 0.5), .deviation = 2 * 0.2});
  }
  const PredictedRun setting{.workers = many, .factors = factors};
  const double expected_s = expected_maximum(each);
  EXPECT_NEAR(setting.predict(SyncSgd()).at(0).step_time_s, expected_s + 0.5, 1e-4 * expected_s);
  const auto law = setting.with_input([](const PredictionInput& input) { return input.times.law; });
  EXPECT_NEAR(law.mean, 1.5 + 0.1 * (many - 1) / 2 / many, 1e-9);
}

TEST(ManyWorkers, OfWhomOneHasNoVarianceHaveNoneEither) {
  const PredictedRun setting{.workers = many, .delays = {noise, scoped_delay(pareto_delay(1.5, 1), {.workers = {3}})}};
  EXPECT_TRUE(setting.predict(SyncSgd()).empty());
  EXPECT_EQ(setting.why_not_predicted(SyncSgd()), has_no_variance);
}

}  // namespace
}  // namespace syncopate
