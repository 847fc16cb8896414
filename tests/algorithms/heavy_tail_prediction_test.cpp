// Formulas where steps have no variance or their sums are far from normal, against the simulated cluster and closed
// forms. A sample of 512 steps is the whole of a run of 512, so that what it shows is what the run takes.
#include <gtest/gtest.h>

#include <boost/math/distributions/gamma.hpp>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "algorithms/local_sgd/drop_local_sgd.hpp"
#include "algorithms/local_sgd/hierarchical_sgd.hpp"
#include "algorithms/local_sgd/local_sgd.hpp"
#include "algorithms/synchronous/drop_compute.hpp"
#include "algorithms/synchronous/drop_threshold.hpp"
#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/predicted_run.hpp"
#include "workers/time/delays.hpp"
#include "workers/time/distributions.hpp"

namespace syncopate {
namespace {

// 1 s and a Pareto delay of 0.5 s at least, 1.5 s on average, without a variance.
const PredictedRun heavy{.delays = {pareto_delay(1.5, 0.5)}, .steps = 512};

std::shared_ptr<const SyncPeriod> every(int steps) { return make_constant_period(steps); }

DropCompute automatic(const AutomaticThresholdOptions& options = {}) {
  return DropCompute(DropComputeOptions{.threshold = make_automatic_threshold(options)});
}

struct Named {
  const char* formula;
  std::shared_ptr<const Algorithm> method;
};

TEST(HeavyTails, WithoutAVarianceTheSampledLawAloneIsUsedAndNamed) {
  using Clock = DropLocalOptions::Clock;
  const Named methods[] = {
      {"sampled E[T]", std::make_shared<SyncSgd>()},
      {"Eq. 6, sampled law", std::make_shared<DropCompute>(from_seconds(16), Preempt::discard, 1.0 / 3)},
      {"rounds of sampled sums", std::make_shared<LocalSgd>(every(8), StatePolicies{})},
      {"rounds of sampled sums until the threshold",
       std::make_shared<DropLocalSgd>(every(4), DropLocalOptions{.threshold = from_seconds(40)})},
      {"rounds of sampled sums until the threshold",
       std::make_shared<DropLocalSgd>(every(4), DropLocalOptions{.threshold = from_seconds(9), .clock = Clock::step})},
      {"rounds of groups' sampled sums",
       std::make_shared<HierarchicalSgd>(HierarchicalOptions{.group_size = 4, .group_period = 3, .period = every(8)})},
  };
  for (const auto& [formula, method] : methods) {
    SCOPED_TRACE(formula);
    const auto predictions = heavy.predict(*method);
    ASSERT_EQ(predictions.size(), 1u);
    const Prediction& prediction = predictions[0];
    EXPECT_EQ(prediction.formula, formula);
    const auto simulated = heavy.simulate(*method);
    EXPECT_NEAR(prediction.step_time_s, simulated.step_s, 1e-6);
    EXPECT_NEAR(*prediction.drop_rate, simulated.drop_rate, 1e-9);
    EXPECT_GT(prediction.step_error_s, 0);
    EXPECT_NEAR(prediction.sync_step_time_s, heavy.simulate(SyncSgd()).step_s, 1e-6);
  }
}

// By normal sums the best threshold lay before the first micro-batch can end, for a gain of several times.
TEST(HeavyTails, TheAutomaticThresholdGainsWhatTheSimulationGains) {
  PredictedRun setting = heavy;
  setting.micro_batches = 12;
  setting.steps = 2000;
  for (const auto& cap : {std::optional<double>{}, std::optional(0.02)}) {
    const DropCompute method = automatic({.calibration_steps = 400, .maximum_drop_rate = cap});
    const auto predictions = setting.predict(method);
    ASSERT_EQ(predictions.size(), 1u);
    EXPECT_EQ(predictions[0].formula, "Eq. 6, sampled law");
    const auto simulated = setting.simulate(method);
    // Its own search sees other steps, and finds a threshold beside this one.
    EXPECT_NEAR(predictions[0].step_time_s / simulated.step_s, 1, 0.05);
    EXPECT_NEAR(*predictions[0].drop_rate, simulated.drop_rate, 0.02);
    const double simulated_gain = (1 - simulated.drop_rate) * setting.simulate(SyncSgd()).step_s / simulated.step_s;
    EXPECT_NEAR(predictions[0].effective_speedup() / simulated_gain, 1, 0.1);
    EXPECT_GT(simulated_gain, 1.2);
  }
}

// Normal sums put many ends of micro-batches before the shortest of 1.5 s; a threshold is never set there.
TEST(HeavyTails, ByNormalSumsTooNoThresholdIsShorterThanAMicroBatch) {
  const PredictedRun setting{.workers = 64, .delays = {pareto_delay(2.05, 0.5)}, .steps = 100'000};
  const auto predictions = setting.predict(automatic());
  ASSERT_EQ(predictions.size(), 3u);
  for (const Prediction& prediction : predictions) EXPECT_GE(prediction.step_time_s, 1.5 + 0.5) << prediction.formula;
  EXPECT_EQ(predictions[2].formula, "Eq. 6, sampled law");
}

// With a variance the paper's formulas are there too; where they miss what is drawn, what is drawn comes last.
TEST(HeavyTails, FarFromNormalTheSampledLawComesLast) {
  const PredictedRun setting{.micro_batches = 1, .delays = {exponential_delay(1)}};
  const DropCompute method(from_seconds(3), Preempt::discard, 1.0 / 3);
  const auto predictions = setting.predict(method);
  ASSERT_EQ(predictions.size(), 3u);
  EXPECT_EQ(predictions[0].formula, "Eqs. 4 to 6");
  EXPECT_EQ(predictions[1].formula, "Eqs. 5 and 6, sampled E[T]");
  EXPECT_EQ(predictions[2].formula, "Eq. 6, sampled law");
  // E[min(t, max of 16)] of exponential times: the sum of (1 - e^-t)^k / k.
  double expected = 1 + 0.5;
  for (int k = 1; k <= 16; ++k) expected += std::pow(1 - std::exp(-2.0), k) / k;
  const double kept = 1 - std::exp(-2.0);
  EXPECT_NEAR(predictions[2].step_time_s, expected, 3.5 * predictions[2].step_error_s);
  EXPECT_NEAR(predictions[2].kept, kept, 3.5 * predictions[2].kept_error);
  EXPECT_GT(std::abs(predictions[0].kept - kept), 0.02);
}

// The slowest of 16 sums of two exponential times, by quadrature.
TEST(HeavyTails, ShortRoundsAreSampledAsWell) {
  const PredictedRun setting{.micro_batches = 1, .delays = {exponential_delay(1)}};
  const auto predictions = setting.predict(LocalSgd(every(2), {}));
  ASSERT_EQ(predictions.size(), 2u);
  EXPECT_EQ(predictions[0].formula, "rounds of normal sums");
  EXPECT_EQ(predictions[1].formula, "rounds of sampled sums");
  const boost::math::gamma_distribution<double> sum_of_two(2);
  const double expected = 1 + (expected_maximum([&](double p) { return quantile(sum_of_two, p); }, 16) + 0.5) / 2;
  EXPECT_NEAR(predictions[1].step_time_s, expected, 3.5 * predictions[1].step_error_s);
  EXPECT_GT(std::abs(predictions[0].step_time_s - expected), 0.1);
}

// Eq. 5 goes by one law; of workers that differ for good the sample knows all that there is.
TEST(HeavyTails, AnAutomaticThresholdOfUnlikeWorkersIsFoundInTheSample) {
  const PredictedRun setting{.micro_batches = 12,
                             .delays = {noise, scoped_delay(constant_delay(1), {.workers = {15}})}};
  const DropCompute method = automatic({.calibration_steps = 400});
  const auto predictions = setting.predict(method);
  ASSERT_EQ(predictions.size(), 1u);
  EXPECT_EQ(predictions[0].formula, "Eq. 6, sampled law");
  const auto simulated = setting.simulate(method);
  EXPECT_NEAR(predictions[0].step_time_s / simulated.step_s, 1, 0.02);
  EXPECT_NEAR(*predictions[0].drop_rate, simulated.drop_rate, 0.01);
}

// Without either law there is no formula: 100 steps make no 8 rounds of 20.
TEST(HeavyTails, RoundsThatAreTooLongForTheSampleHaveNoFormulaWithoutAVariance) {
  PredictedRun setting = heavy;
  setting.steps = 100;
  EXPECT_EQ(setting.predict(LocalSgd(every(12), {})).size(), 1u);
  EXPECT_TRUE(setting.predict(LocalSgd(every(20), {})).empty());
}

// Of 5,000 workers not all are drawn, and no law says what the slowest of them take.
TEST(HeavyTails, WhereOnlyASampleCouldTellTheReasonIsTheVariance) {
  const PredictedRun many{.workers = 5000, .delays = {pareto_delay(1.5, 0.5)}, .steps = 100};
  PredictedRun milder = many, long_rounds = heavy;
  milder.delays = {noise};
  long_rounds.steps = 100;
  const auto reason = [](const PredictedRun& setting, const Algorithm& method) {
    EXPECT_TRUE(setting.predict(method).empty());
    return setting.why_not_predicted(method);
  };
  const DropCompute fixed(from_seconds(16), Preempt::discard, 1.0 / 3);
  EXPECT_EQ(reason(many, SyncSgd()), has_no_variance);
  EXPECT_EQ(reason(many, fixed), has_no_variance);
  EXPECT_EQ(reason(many, LocalSgd(every(4), {})), has_no_variance);
  EXPECT_FALSE(milder.predict(SyncSgd()).empty());
  EXPECT_FALSE(milder.predict(fixed).empty());
  EXPECT_NE(reason(long_rounds, LocalSgd(every(20), {})).find("no variance"), std::string::npos);
  // What no formula follows is none of the variance's.
  const DropCompute finishes(from_seconds(16), Preempt::microbatch, 1.0 / 3);
  EXPECT_EQ(reason(many, finishes), "none for these settings");
  EXPECT_EQ(reason(milder, finishes), "none for these settings");
}

TEST(HeavyTails, AFormulaMissesWhatLiesBeyondThreeStandardErrors) {
  const auto of = [](double step_s, double kept, double step_error_s = 0, double kept_error = 0) {
    Prediction prediction;
    prediction.step_time_s = step_s;
    prediction.kept = kept;
    prediction.step_error_s = step_error_s;
    prediction.kept_error = kept_error;
    return prediction;
  };
  const Prediction sampled = of(10, 0.9, 0.1, 0.01);
  EXPECT_FALSE(misses(of(10.29, 0.871), sampled));
  EXPECT_FALSE(misses(of(9.71, 0.929), sampled));
  EXPECT_TRUE(misses(of(10.31, 0.9), sampled));
  EXPECT_TRUE(misses(of(9.69, 0.9), sampled));
  EXPECT_TRUE(misses(of(10, 0.931), sampled));
  EXPECT_TRUE(misses(of(10, 0.869), sampled));
  // What four digits do not show is no difference.
  EXPECT_FALSE(misses(of(10 * (1 + 4e-5), 1), of(10, 1)));
  EXPECT_TRUE(misses(of(10 * (1 + 6e-5), 1), of(10, 1)));
}

}  // namespace
}  // namespace syncopate
