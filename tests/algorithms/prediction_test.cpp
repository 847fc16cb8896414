// Formulas compared with the simulated cluster. If durations have exactly the distribution that the formula assumes,
// the two agree within the simulation's standard error. Otherwise the test states the difference.
#include "algorithms/method/prediction.hpp"

#include <gtest/gtest.h>

#include <boost/math/distributions/gamma.hpp>
#include <cmath>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "algorithms/quorum/backup_workers.hpp"
#include "algorithms/synchronous/drop_compensation.hpp"
#include "algorithms/synchronous/drop_compute.hpp"
#include "algorithms/synchronous/drop_threshold.hpp"
#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/named_rounds.hpp"
#include "tests/algorithms/predicted_run.hpp"
#include "tests/workers/closed_forms.hpp"
#include "workers/time/delays.hpp"
#include "workers/time/distributions.hpp"
#include "workers/time/network.hpp"

namespace syncopate {
namespace {

using Setting = PredictedRun;

// The expected maximum of 16 standard normal numbers is 1.765991393; Eq. 4 has 1.800454239. A step's sum is 6 +- 0.4 s.
TEST(Prediction, SynchronousSgdByEquation4AndBySampledMaxima) {
  const Setting setting;
  const auto predictions = setting.predict(SyncSgd());
  ASSERT_EQ(predictions.size(), 2u);
  EXPECT_EQ(predictions[0].formula, "Eq. 4");
  // The sampled mean and deviation are those of 15,625 steps, with standard errors of 0.0032 and 0.0023 x 1.8.
  EXPECT_NEAR(predictions[0].step_time_s, 6 + 0.4 * 1.800454239 + 0.5, 0.02);
  EXPECT_EQ(predictions[1].formula, "sampled E[T]");
  const double exact = 6 + 0.4 * 1.765991393 + 0.5;  // a maximum deviates by about 0.2: 0.009 over 500 steps
  EXPECT_NEAR(predictions[1].step_time_s, exact, 0.03);
  EXPECT_NEAR(setting.simulate(SyncSgd()).step_s, exact, 0.02);
  for (const Prediction& prediction : predictions) {
    EXPECT_DOUBLE_EQ(prediction.effective_speedup(), 1);
    EXPECT_EQ(prediction.drop_rate, 0);
    EXPECT_DOUBLE_EQ(prediction.communication_share().value(), 0.5 / prediction.step_time_s);
  }
}

TEST(Prediction, DropComputeWithAFixedThreshold) {
  const Setting setting;
  const DropCompute method(from_seconds(6.1), Preempt::discard, 1.0 / 3);
  const auto predictions = setting.predict(method);
  ASSERT_EQ(predictions.size(), 2u);
  const double kept = expected_micro_batches(4, 6.1, {1.5, 0.2}) / 4;
  for (const Prediction& prediction : predictions) {
    EXPECT_NEAR(prediction.kept, kept, 0.004);
    EXPECT_NEAR(prediction.step_time_s, 6.1 + 0.5, 1e-12);
    EXPECT_NEAR(prediction.effective_speedup(), prediction.kept * prediction.sync_step_time_s / 6.6, 1e-12);
  }
  const auto simulated = setting.simulate(method);
  EXPECT_NEAR(simulated.step_s, 6.6, 0.005);  // hardly any step ends before the threshold
  EXPECT_NEAR(simulated.drop_rate, 1 - kept, 0.004);
}

// If all times are equal, there is no threshold to find. If they differ, steps take as long as those of synchronous SGD
// until the threshold is set.
TEST(Prediction, DropComputeWithAnAutomaticThreshold) {
  const Setting setting{.micro_batches = 12, .steps = 400};
  const AutomaticThresholdOptions options{.warmup_steps = 10, .calibration_steps = 90};
  const DropCompute method(DropComputeOptions{.threshold = make_automatic_threshold(options)});
  EXPECT_EQ(method.traits().settles_after, Step{100});
  const auto predictions = setting.predict(method);
  ASSERT_EQ(predictions.size(), 2u);
  const auto simulated = setting.simulate(method);
  const Prediction& sampled = predictions[1];
  EXPECT_NEAR(sampled.step_time_s / simulated.step_s, 1, 0.01);
  EXPECT_NEAR(*sampled.drop_rate, simulated.drop_rate, 0.01);
  EXPECT_LT(sampled.step_time_s, sampled.sync_step_time_s);
  EXPECT_GT(sampled.effective_speedup(), 1);

  const Setting even{.delays = {}, .steps = 400};
  for (const Prediction& prediction : even.predict(method)) {
    EXPECT_EQ(prediction.drop_rate, 0);
    EXPECT_DOUBLE_EQ(prediction.step_time_s, 4.5);
  }
}

// The sixth of eight times of 1 s + Exp(2) is X_(6:8) = 1 + (1/8 + 1/7 + ... + 1/3) / 2 on average.
TEST(Prediction, BackupWorkersByTheOrderStatistic) {
  const Setting setting{
      .workers = 8, .micro_batches = 1, .delays = {exponential_delay(0.5)}, .steps = 4000, .network_s = 0.1};
  double expected = 1;
  for (int i = 3; i <= 8; ++i) expected += 0.5 / i;
  const BackupWorkers cancels(6, {.late = LateWork::cancel}), finishes(6);
  const auto exact = setting.predict(cancels), bound = setting.predict(finishes);
  ASSERT_EQ(exact.size(), 1u);
  // From 4,096 sampled times the quantile has a standard error of about 0.5 sqrt(3 / 4096) = 0.014.
  EXPECT_NEAR(exact[0].step_time_s, expected + 0.2, 0.04);
  EXPECT_DOUBLE_EQ(exact[0].kept, 6.0 / 8);
  EXPECT_FALSE(exact[0].communication_share()) << "an order statistic does not say who awaits the next model";
  EXPECT_NEAR(setting.simulate(cancels).step_s, expected + 0.2, 0.03);
  ASSERT_EQ(bound.size(), 1u);
  EXPECT_EQ(bound[0].step_time_s, exact[0].step_time_s);
  EXPECT_NE(bound[0].formula.find("lower bound"), std::string::npos);
  // If late work continues, a step takes longer: 1.793 s instead of 1.608 s, without communication.
  EXPECT_GT(setting.simulate(finishes).step_s, expected + 0.2);
}

// The slowest sum of a round of 8 steps of 4 micro-batches is 48 + 0.2 sqrt(32) x 1.765991393, followed by an average.
TEST(Prediction, LocalSgdByTheSlowestSumOfARound) {
  const Setting setting;
  const LocalSgd method(make_constant_period(8), {});
  const auto predictions = setting.predict(method);
  ASSERT_EQ(predictions.size(), 1u);
  const double expected = (48 + 0.2 * std::sqrt(32.0) * 1.765991393 + 0.5) / 8;
  EXPECT_NEAR(predictions[0].step_time_s, expected, 0.02);
  EXPECT_DOUBLE_EQ(predictions[0].communication_s.value(), 0.5 / 8);
  EXPECT_NEAR(setting.simulate(method).step_s, expected, 0.02);
}

// The rule has 100 rounds of one step, then 190 of 10.
TEST(Prediction, RoundsFollowTheRuleOfThePeriod) {
  const Setting setting{.delays = {}};
  const auto predictions = setting.predict(LocalSgd(make_post_local_period(100, 10), {}));
  ASSERT_EQ(predictions.size(), 1u);
  EXPECT_NEAR(predictions[0].step_time_s, (2000 * 4 + 290 * 0.5) / 2000, 1e-9);
}

// One of four workers has half the speed, so it is always the slowest.
TEST(Prediction, WorkersThatDifferAreToldApart) {
  const Setting setting{.workers = 4, .factors = {1, 1, 1, 2}};
  const auto predictions = setting.predict(SyncSgd());
  ASSERT_EQ(predictions.size(), 2u);
  EXPECT_EQ(predictions[0].formula, "normal workers, unlike");
  EXPECT_NEAR(predictions[0].step_time_s, 4 * 2.5 + 0.5, 0.06);  // three times 0.4 / sqrt(512)
  EXPECT_NEAR(predictions[1].step_time_s, 4 * 2.5 + 0.5, 0.06);
  // In 5.01 s the slow worker ends 2 of its 4 micro-batches, and the others 3.3 on average: Eq. 5 for each.
  const auto drop = setting.predict(DropCompute(from_seconds(5.01), Preempt::discard, 1.0 / 3));
  const double fast = expected_micro_batches(4, 5.01, {1.5, 0.2}), slow = expected_micro_batches(4, 5.01, {2.5, 0.2});
  EXPECT_NEAR(drop.at(0).kept, (3 * fast + slow) / 16, 0.01);
}

TEST(Prediction, TheTimeOfABudgetIsThatOfItsFirstLimit) {
  const Setting setting;
  const ComputeTime compute_time(1, 1.0, {}, {});
  const SampledTimes times = sample_times(compute_time, 4, 2, Step{10});
  const auto network = make_fixed_network(0);
  const LearningRate rate(LearningRate::Options{.peak = 0.1});
  PredictionInput input{.workers = 4, .micro_batches = 2, .times = times, .network = *network, .learning_rate = rate};
  input.samples_per_micro_batch = 8;
  const Prediction half{.formula = "f", .step_time_s = 3, .kept = 0.5};
  input.budget = {.steps = 100};
  EXPECT_EQ(time_of_budget(input, half), 300);
  input.budget.samples = 640;  // 32 samples per step: 20 steps
  EXPECT_EQ(time_of_budget(input, half), 60);
  input.budget.seconds = 50;
  EXPECT_EQ(time_of_budget(input, half), 50);
  input.budget = {.steps = 100, .seconds = 1000};
  EXPECT_EQ(time_of_budget(input, half), 300);
  input.budget = {.samples = 640};
  EXPECT_EQ(time_of_budget(input, half), 60);
  input.budget.seconds = 61;
  EXPECT_EQ(time_of_budget(input, half), 60);
  input.budget = {.seconds = 50};
  EXPECT_EQ(time_of_budget(input, half), 50);
  input.budget = {.bytes = Bytes{1000}};
  EXPECT_EQ(time_of_budget(input, half), std::nullopt);
}

constexpr int workers = 5, micro_batches = 4;
constexpr double latency_s = 0.1, bytes_per_s = 40, parameter_bytes = 16;
constexpr double all_reduce_of(int members) {
  return 2 * (members - 1) * (latency_s + parameter_bytes / members / bytes_per_s);
}

std::shared_ptr<const SyncPeriod> every(int steps) { return make_constant_period(steps); }

PredictedRun on_a_ring(int steps, std::vector<std::shared_ptr<const DelayProcess>> delays) {
  return {.workers = workers,
          .micro_batches = micro_batches,
          .delays = std::move(delays),
          .steps = steps,
          .network = make_ring_network(latency_s, bytes_per_s, {.contention = false})};
}

struct Method {
  const char* name;
  std::shared_ptr<const Algorithm> algorithm;
  std::optional<double> communication_s;  // per step; none if the formula does not give it
};

std::vector<Method> methods() {
  const double all_s = all_reduce_of(workers);
  return {
      {"sync", std::make_shared<SyncSgd>(), all_s},
      {"drop", std::make_shared<DropCompute>(from_seconds(1e3), Preempt::discard, 0.5), all_s},
      {"backup workers", std::make_shared<BackupWorkers>(workers), {}},
      {"three servers", std::make_shared<BackupWorkers>(workers, BackupOptions{.servers = 3}), {}},
      {"local", std::make_shared<LocalSgd>(every(8), StatePolicies{}), all_s / 8},
  };
}

// Every worker's step takes the same time, so every formula is exact.
TEST(PredictionParts, WithoutSpreadTimeAndCommunicationAreThoseOfTheAccounts) {
  const PredictedRun setting = on_a_ring(480, {});
  for (const auto& [name, algorithm, communication_s] : methods()) {
    SCOPED_TRACE(name);
    const auto predictions = setting.predict(*algorithm);
    ASSERT_FALSE(predictions.empty());
    const auto simulated = setting.simulate(*algorithm);
    for (const Prediction& prediction : predictions) {
      EXPECT_NEAR(prediction.step_time_s, simulated.step_s, 0.005 * simulated.step_s) << prediction.formula;
      EXPECT_EQ(prediction.kept, 1);
      ASSERT_EQ(prediction.communication_s.has_value(), communication_s.has_value());
      if (!communication_s) continue;
      EXPECT_NEAR(*prediction.communication_s, *communication_s, 1e-8);
      // The tolerance is for the barrier with which runs end.
      EXPECT_NEAR(*prediction.communication_s, simulated.communication_s, 0.01 * simulated.communication_s);
      EXPECT_EQ(prediction.communication_share(), *prediction.communication_s / prediction.step_time_s);
    }
  }
}

// The formulas of quorums cannot know whose late work will be lost. Here no worker is late.
TEST(PredictionParts, WhatDropsNothingSaysSo) {
  for (const auto& [name, algorithm, communication_s] : methods()) {
    const bool has_quorum = algorithm->traits().servers > 0;
    for (const Prediction& prediction : on_a_ring(480, {noise}).predict(*algorithm))
      EXPECT_EQ(prediction.drop_rate, has_quorum ? std::nullopt : std::optional(0.0)) << name;
  }
}

// A step of synchronous SGD has an all-reduce, and takes the slowest of 5 sums of 6 +- 0.4 s, which is expected
// 1.162964474 deviations above the mean. The sampled value is the mean of 480 maxima, which deviate by 0.67 x 0.4 s.
TEST(PredictionParts, SpeedUpsAreOverASynchronousStepWithItsAllReduce) {
  const PredictedRun setting = on_a_ring(480, {noise});
  const double sync_s = 6 + 0.4 * 1.162964474 + all_reduce_of(workers);
  for (const auto& [name, algorithm, communication_s] : methods())
    for (const Prediction& prediction : setting.predict(*algorithm)) {
      SCOPED_TRACE(std::string(name) + ": " + prediction.formula);
      const double eq_4_is_larger_s = prediction.formula.find("Eq") == std::string::npos ? 0 : 0.03;
      EXPECT_NEAR(prediction.sync_step_time_s, sync_s, 4 * 0.67 * 0.4 / std::sqrt(480) + eq_4_is_larger_s);
      EXPECT_DOUBLE_EQ(prediction.effective_speedup(),
                       prediction.kept * prediction.sync_step_time_s / prediction.step_time_s);
    }
}

// Predictions from the same sample of times for another budget or schedule, with 8 samples per micro-batch.
std::vector<Prediction> under(const PredictedRun& setting, const Algorithm& algorithm, const Budget& budget,
                              const LearningRate& rate = LearningRate(LearningRate::Options{.peak = 0.1})) {
  return setting.with_input([&](const PredictionInput& input) {
    return algorithm
        .forecast({.workers = input.workers,
                   .micro_batches = input.micro_batches,
                   .times = input.times,
                   .network = input.network,
                   .parameter_bytes = input.parameter_bytes,
                   .budget = budget,
                   .samples_per_micro_batch = 8,
                   .learning_rate = rate})
        .predictions;
  });
}

Prediction only(const std::vector<Prediction>& predictions) {
  EXPECT_EQ(predictions.size(), 1u);
  return predictions.empty() ? Prediction{} : predictions[0];
}

// Ten rounds of one step are followed by rounds of ten, so the number of rounds depends on the budget. A step takes 4 s
// and has 16 x 4 x 8 = 512 samples; an average takes 0.5 s.
TEST(PredictionParts, RoundsAreThoseWithinTheBudget) {
  const PredictedRun setting{.delays = {}};
  const LocalSgd local(make_post_local_period(10, 10), {});
  const auto expect_rounds = [&](const Budget& budget, int steps, int rounds) {
    const Prediction prediction = only(under(setting, local, budget));
    EXPECT_NEAR(prediction.step_time_s, 4 + 0.5 * rounds / steps, 1e-9) << steps;
    EXPECT_NEAR(prediction.communication_s.value(), 0.5 * rounds / steps, 1e-9) << steps;
  };
  expect_rounds({.steps = 25}, 25, 12);
  expect_rounds({.steps = 31}, 31, 13);
  expect_rounds({.samples = 25 * 512}, 25, 12);
  expect_rounds({.samples = 24 * 512 + 1}, 25, 12);  // the step in which samples are used up is taken
  expect_rounds({.steps = 25, .samples = 31 * 512}, 25, 12);
  expect_rounds({.steps = 31, .samples = 25 * 512}, 25, 12);
  // Steps begin until the time is up. Rounds of ten end at 45 + 40.5 = 85.5 s, and the last one, of one step, at 90 s.
  expect_rounds({.seconds = 86}, 21, 12);
  expect_rounds({.steps = 25, .seconds = 1e6}, 25, 12);
  expect_rounds({.steps = 25, .bytes = Bytes{1'000'000'000}}, 25, 12);
  EXPECT_TRUE(under(setting, local, {.bytes = Bytes{1'000'000'000}}).empty());
}

// The first 50 of 100 steps have a learning rate of 1 and rounds of 2 steps; the others have 0.1 and rounds of 20.
TEST(PredictionParts, RoundsFollowTheLearningRateOfTheirFirstStep) {
  const LearningRate rate(
      {.shape = LearningRate::Shape::step, .peak = 1, .decay_steps = {Step{50}}, .decay_factor = 0.1});
  const LocalSgd local(make_power_period({.power = 1, .coefficient = 2, .minimum = 1}), {});
  const Prediction prediction = only(under({.delays = {}}, local, {.steps = 100}, rate));
  EXPECT_NEAR(prediction.communication_s.value(), 0.5 * (25 + 3) / 100, 1e-9);  // 25 rounds, then 20, 20 and 10 steps
}

// The first 100 of 400 steps, before the threshold is set, are those of synchronous SGD.
TEST(PredictionParts, OfARunWithACalibrationAllPartsAreMixtures) {
  const PredictedRun setting{.micro_batches = 12, .delays = {pareto_delay(1.5, 0.5)}, .steps = 400};
  const AutomaticThresholdOptions options{.warmup_steps = 10, .calibration_steps = 90};
  const DropCompute method(DropComputeOptions{.threshold = make_automatic_threshold(options)});
  const Prediction all = under(setting, method, {.seconds = 1e6}).back();
  const Prediction of_400 = under(setting, method, {.steps = 400}).back();
  const Prediction sync = under(setting, SyncSgd(), {.steps = 400}).back();
  ASSERT_EQ(all.formula, "Eq. 6, sampled law");
  ASSERT_EQ(of_400.formula, "Eq. 6, sampled law");
  EXPECT_GT(all.kept_error, 0);
  EXPECT_DOUBLE_EQ(of_400.step_time_s, 0.25 * sync.step_time_s + 0.75 * all.step_time_s);
  EXPECT_DOUBLE_EQ(of_400.step_error_s, 0.25 * sync.step_error_s + 0.75 * all.step_error_s);
  EXPECT_DOUBLE_EQ(of_400.kept, 0.25 + 0.75 * all.kept);
  EXPECT_DOUBLE_EQ(of_400.kept_error, 0.75 * all.kept_error);
  EXPECT_DOUBLE_EQ(*of_400.drop_rate, 1 - of_400.kept);
  EXPECT_DOUBLE_EQ(of_400.communication_s.value(), all.communication_s.value());
}

// A longer warm-up only postpones the threshold, which is found in the same number of steps.
TEST(PredictionParts, TheWarmUpIsNotSearched) {
  const PredictedRun setting{.micro_batches = 12, .delays = {pareto_delay(1.5, 0.5)}, .steps = 400};
  const auto predicted = [&](int warmup) {
    const AutomaticThresholdOptions options{.warmup_steps = warmup, .calibration_steps = 20};
    const DropCompute method(DropComputeOptions{.threshold = make_automatic_threshold(options)});
    return under(setting, method, {.seconds = 1e6}).back();
  };
  EXPECT_EQ(predicted(0), predicted(150));
}

// With 10 s of communication per step, dropping gains less than without communication.
TEST(PredictionParts, AThresholdIsSearchedWithTheTimeOfTheCommunication) {
  const AutomaticThresholdOptions options{.warmup_steps = 0, .calibration_steps = 100};
  const DropCompute method(DropComputeOptions{.threshold = make_automatic_threshold(options)});
  const auto expect_drops = [&](std::vector<std::shared_ptr<const DelayProcess>> delays, double error) {
    double dropped[2];  // without communication, and with it
    for (const bool communicates : {false, true}) {
      const PredictedRun setting{
          .micro_batches = 12, .delays = delays, .steps = 1000, .network_s = communicates ? 10.0 : 0.0};
      const double simulated = setting.simulate(method).drop_rate;
      for (const Prediction& prediction : setting.predict(method)) {
        dropped[communicates] = *prediction.drop_rate;
        if (communicates) {
          EXPECT_NEAR(*prediction.drop_rate, simulated, error) << prediction.formula;
        }
      }
    }
    EXPECT_LT(dropped[1], 0.5 * dropped[0]);
  };
  expect_drops({noise}, 0.005);                  // predictions by the paper's formulas
  expect_drops({pareto_delay(1.5, 0.5)}, 0.05);  // prediction by drawn steps alone, some of them extreme
}

// The prediction for an automatic threshold equals that of a search with the same options, or that of the formulas.
TEST(PredictionParts, TheForecastOfAnAutomaticThresholdIsThatOfItsOptions) {
  constexpr int steps = 40, drawn_workers = 6;
  std::vector<double> times(drawn_workers * steps * micro_batches);
  exponential_delay(0.5)->add({.seed = 1, .purpose = Purpose::delay}, 0, times);
  for (double& time : times) time += 1;
  const MicroBatchTimes drawn{times, drawn_workers, steps, micro_batches};
  constexpr double serial_s = 0.2;
  std::set<double> found;
  for (const SpeedupForm form : {SpeedupForm::throughput, SpeedupForm::effective, SpeedupForm::reference})
    for (const auto& cap : {std::optional<double>{}, std::optional(0.01)}) {
      const auto rule = make_automatic_threshold({.form = form, .warmup_steps = 3, .maximum_drop_rate = cap});
      const auto sampled = rule.forecast({.micro_batches = micro_batches, .serial_s = serial_s, .drawn = drawn});
      ASSERT_TRUE(sampled);
      EXPECT_EQ(sampled->threshold_s, search_threshold(drawn, serial_s, form, cap).threshold);
      EXPECT_EQ(sampled->from, Step{3 + 44});
      found.insert(sampled->threshold_s);

      const MicroBatchLaw law{1.5, 0.5};
      const auto by_law = rule.forecast(
          {.micro_batches = micro_batches, .law = law, .slowest_s = 8, .serial_s = serial_s, .shortest_s = 1});
      const double best = best_threshold(micro_batches, law, 8, serial_s, cap.value_or(1), 1);
      const double kept = expected_micro_batches(micro_batches, best, law) / micro_batches;
      ASSERT_TRUE(by_law);
      EXPECT_EQ(by_law->threshold_s, best);
      EXPECT_EQ(1 - kept <= 0.01, cap.has_value());
    }
  EXPECT_EQ(found.size(), 6u);
}

// A quorum of all workers has no formula if only some of the workers were drawn and steps have no variance.
TEST(PredictionParts, WhereThereIsNoFormulaTheReasonIsTheMethods) {
  const PredictedRun many{.workers = 5000, .delays = {pareto_delay(1.5, 0.5)}, .steps = 64};
  for (const auto& [name, algorithm, communication_s] : methods()) {
    EXPECT_TRUE(many.predict(*algorithm).empty()) << name;
    const bool has_quorum = algorithm->traits().servers > 0;
    EXPECT_EQ(many.why_not_predicted(*algorithm), has_quorum ? not_all_drawn : has_no_variance) << name;
  }
}

// Eq. 5 is for micro-batches that are lost in flight and are not made up for later.
TEST(PredictionParts, ThereIsNoFormulaForOtherWaysToDrop) {
  const PredictedRun setting{.steps = 100};
  const auto dropping = [](Preempt preempt, DropCompensation compensation) {
    return DropCompute({.threshold = make_fixed_threshold(from_seconds(6.1)),
                        .preempt = preempt,
                        .compensation = std::move(compensation)});
  };
  EXPECT_FALSE(setting.predict(dropping(Preempt::discard, make_no_compensation())).empty());
  const DropCompute others[] = {dropping(Preempt::microbatch, make_no_compensation()),
                                dropping(Preempt::backward, make_no_compensation()),
                                dropping(Preempt::layer, make_no_compensation()),
                                dropping(Preempt::discard, make_extra_steps(0.1, ExtraStepsSchedule::kept)),
                                dropping(Preempt::discard, make_larger_batch(0.5)),
                                dropping(Preempt::discard, make_recomputation(10)),
                                dropping(Preempt::discard, make_carry_over(1))};
  for (const DropCompute& method : others) {
    EXPECT_TRUE(setting.predict(method).empty());
    EXPECT_EQ(setting.why_not_predicted(method), "none for these settings");
  }
}

// In predictions, averages contain the parameters and the moments that the policy averages. On a ring of N workers an
// all-reduce of P bytes takes 2 (N - 1) (L + P / (N B)).

constexpr double ring_latency_s = 0.01, ring_bytes_per_s = 8;

double ring_s(int members, double bytes) {
  return 2 * (members - 1) * (ring_latency_s + bytes / members / ring_bytes_per_s);
}

struct Case {
  int moments;  // number of the optimizer's moments
  AveragePolicy policy;
  double vectors;  // vectors of 16 bytes per average
};
constexpr auto keep = StatePolicy::keep, average = StatePolicy::average, reset = StatePolicy::reset;
const Case cases[] = {
    {0, {.moments = {average, average}}, 1}, {1, {.moments = {keep, keep}}, 1},
    {1, {.moments = {average, average}}, 2}, {2, {.moments = {average, average}}, 3},
    {2, {.moments = {reset, average}}, 2},   {2, {.moments = {average, keep}}, 2},
};

struct PredictedBytes : testing::TestWithParam<Case> {
  PredictedRun setting() const {
    return {.workers = 4,
            .steps = 80,
            .network = make_ring_network(ring_latency_s, ring_bytes_per_s),
            .moments = GetParam().moments};
  }
  double bytes() const { return 16 * GetParam().vectors; }  // a vector has 16 bytes
};

TEST_P(PredictedBytes, AnAverageCarriesTheMomentsThatAreAveraged) {
  const StatePolicies policies{.average = GetParam().policy};
  const LocalSgd local(every(8), policies);
  EXPECT_NEAR(setting().predict(local).at(0).communication_s.value(), ring_s(4, bytes()) / 8, 1e-8);
}

INSTANTIATE_TEST_SUITE_P(Moments, PredictedBytes, testing::ValuesIn(cases));

// For steps without variance, or with sums far from normal, formulas are compared with the simulated cluster and closed
// forms. A sample of 512 steps is a whole run of 512 steps, so it shows exactly what the run takes.

// 1 s plus a Pareto delay of at least 0.5 s and 1.5 s on average, which has no variance.
const PredictedRun heavy{.delays = {pareto_delay(1.5, 0.5)}, .steps = 512};

DropCompute automatic(const AutomaticThresholdOptions& options = {}) {
  return DropCompute(DropComputeOptions{.threshold = make_automatic_threshold(options)});
}

struct Named {
  const char* formula;
  std::shared_ptr<const Algorithm> method;
};

TEST(HeavyTails, WithoutAVarianceTheSampledLawAloneIsUsedAndNamed) {
  const Named methods[] = {
      {"sampled E[T]", std::make_shared<SyncSgd>()},
      {"Eq. 6, sampled law", std::make_shared<DropCompute>(from_seconds(16), Preempt::discard, 1.0 / 3)},
      {"rounds of sampled sums", std::make_shared<LocalSgd>(every(8), StatePolicies{})},
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

// If sums were normal, the best threshold would be shorter than any micro-batch, with a predicted gain of several
// times.
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
    // The simulation's search has other steps, and finds a threshold near the predicted one.
    EXPECT_NEAR(predictions[0].step_time_s / simulated.step_s, 1, 0.05);
    EXPECT_NEAR(*predictions[0].drop_rate, simulated.drop_rate, 0.02);
    const double simulated_gain = (1 - simulated.drop_rate) * setting.simulate(SyncSgd()).step_s / simulated.step_s;
    EXPECT_NEAR(predictions[0].effective_speedup() / simulated_gain, 1, 0.1);
    EXPECT_GT(simulated_gain, 1.2);
  }
}

// A micro-batch takes at least 1.5 s. Sums that were normally distributed would often be shorter, but a threshold is
// never set below 1.5 s.
TEST(HeavyTails, ByNormalSumsTooNoThresholdIsShorterThanAMicroBatch) {
  const PredictedRun setting{.workers = 64, .delays = {pareto_delay(2.05, 0.5)}, .steps = 100'000};
  const auto predictions = setting.predict(automatic());
  ASSERT_EQ(predictions.size(), 3u);
  for (const Prediction& prediction : predictions) EXPECT_GE(prediction.step_time_s, 1.5 + 0.5) << prediction.formula;
  EXPECT_EQ(predictions[2].formula, "Eq. 6, sampled law");
}

// If times have a variance, the paper's formulas also exist. If drawn steps differ from them, their prediction comes
// last.
TEST(HeavyTails, FarFromNormalTheSampledLawComesLast) {
  const PredictedRun setting{.micro_batches = 1, .delays = {exponential_delay(1)}};
  const DropCompute method(from_seconds(3), Preempt::discard, 1.0 / 3);
  const auto predictions = setting.predict(method);
  ASSERT_EQ(predictions.size(), 3u);
  EXPECT_EQ(predictions[0].formula, "Eqs. 4 to 6");
  EXPECT_EQ(predictions[1].formula, "Eqs. 5 and 6, sampled E[T]");
  EXPECT_EQ(predictions[2].formula, "Eq. 6, sampled law");
  // For exponential times, E[min(t, the maximum of 16)] is the sum of (1 - e^-t)^k / k over k = 1 ... 16.
  double expected = 1 + 0.5;
  for (int k = 1; k <= 16; ++k) expected += std::pow(1 - std::exp(-2.0), k) / k;
  const double kept = 1 - std::exp(-2.0);
  EXPECT_NEAR(predictions[2].step_time_s, expected, 3.5 * predictions[2].step_error_s);
  EXPECT_NEAR(predictions[2].kept, kept, 3.5 * predictions[2].kept_error);
  EXPECT_GT(std::abs(predictions[0].kept - kept), 0.02);
}

// The expected slowest of 16 sums of two exponential times is computed by quadrature.
TEST(HeavyTails, ShortRoundsAreSampledAsWell) {
  const PredictedRun setting{.micro_batches = 1, .delays = {exponential_delay(1)}};
  const auto predictions = setting.predict(LocalSgd(every(2), {}));
  ASSERT_EQ(predictions.size(), 2u);
  EXPECT_EQ(predictions[0].formula, "rounds of normal sums");
  EXPECT_EQ(predictions[1].formula, "rounds of sampled sums");
  const boost::math::gamma_distribution<double> sum_of_two(2);
  const double expected =
      1 + (expected_order_statistic([&](double p) { return quantile(sum_of_two, p); }, 16, 16) + 0.5) / 2;
  EXPECT_NEAR(predictions[1].step_time_s, expected, 3.5 * predictions[1].step_error_s);
  EXPECT_GT(std::abs(predictions[0].step_time_s - expected), 0.1);
}

// Eq. 5 assumes one distribution for all workers. If workers always differ, the sample is searched.
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

// No formula applies if times have no variance and the sample is too short: 100 steps do not make 8 rounds of 20.
TEST(HeavyTails, RoundsThatAreTooLongForTheSampleHaveNoFormulaWithoutAVariance) {
  PredictedRun setting = heavy;
  setting.steps = 100;
  EXPECT_EQ(setting.predict(LocalSgd(every(12), {})).size(), 1u);
  EXPECT_TRUE(setting.predict(LocalSgd(every(20), {})).empty());
}

// Only some of the 5,000 workers are drawn, so without a variance no formula gives the time of the slowest.
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
  EXPECT_NE(reason(long_rounds, LocalSgd(every(20), {})).find("no finite variance"), std::string::npos);
  // If no formula applies to the method, the reason is not the variance.
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
  // Numbers that agree in four digits count as equal.
  EXPECT_FALSE(misses(of(10 * (1 + 4e-5), 1), of(10, 1)));
  EXPECT_TRUE(misses(of(10 * (1 + 6e-5), 1), of(10, 1)));
}

// Formulas for more workers than are drawn one by one. Workers that differ from the others count, even if they are few.

constexpr int many = 20'000;  // 4,096 of them are drawn

using Delays = std::vector<std::shared_ptr<const DelayProcess>>;

Delays only_worker_3_is_slower_by(double value_s) {
  return {exponential_delay(0.001), scoped_delay(constant_delay(value_s), {.workers = {3}})};
}

std::vector<double> slow_ones(int count) {
  std::vector<double> factors(many, 1.0);
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) factors[factors.size() - 1 - i] = 2;
  return factors;
}

// All wait for the slow worker's 4 x (1 + 1 + 0.001) s. The time of another worker, 4 x (1 + 0.001) s with a
// deviation of 0.002 s, never exceeds that.
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

// By 4.5 s a worker of 1 s has done all 4 micro-batches, and a worker of 2 s has done 2. One slow worker hardly changes
// the kept share; a quarter of the workers counts as a quarter. The step lasts until the threshold in both cases.
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
  EXPECT_EQ(setting.why_not_predicted(*read.algorithm),
            "the workers have different times, and there are too many to sample each");
}

// The declared distribution does not contain a drift, so the sample is used. The drift rises from 0 to 0.2 s over the
// run, 0.1 s on average. The one worker that takes 3 s longer is the slowest in each step.
TEST(ManyWorkers, CountWhereTheSampleDoesTooNotTheDeclaredLaw) {
  const PredictedRun setting{
      .workers = many,
      .micro_batches = 1,
      .delays = {drift_delay(0.0001, 5), scoped_delay(constant_delay(3), {.workers = {many - 1}})}};
  const auto law = setting.with_input([](const PredictionInput& input) { return input.times.law; });
  EXPECT_NEAR(law.mean, 1 + 0.1 + 3.0 / many, 0.001);
  EXPECT_NEAR(setting.predict(SyncSgd()).at(0).step_time_s, 1 + 0.1 + 3 + 0.5, 0.001);
}

// Each worker has its own distribution. The expected value is the maximum over all workers.
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

// Formulas of quorums are compared with closed forms and the simulated cluster. The maximum of 16 normal times lies
// 1.765991393 deviations above the mean.

constexpr double of_16 = 1.765991393;

Prediction the_only(const std::vector<Prediction>& predictions) {
  EXPECT_EQ(predictions.size(), 1u);
  return predictions.at(0);
}

// With a quorum of all workers nobody is late, and the order statistic is exact. Slices have 16 / servers bytes.
TEST(QuorumPrediction, SeveralServersSendTheirSlicesSideBySide) {
  for (const int servers : {1, 2}) {
    const PredictedRun setting{.network = make_ring_network(0.1, 40, {.contention = false})};
    const BackupWorkers method(16, {.servers = servers});
    const Prediction prediction = the_only(setting.predict(method));
    const double message_s = 0.1 + 16.0 / servers / 40;
    // The tolerance is three times 0.2 s / sqrt(512) = 0.009 s, the error of the mean of 512 sampled maxima.
    EXPECT_NEAR(prediction.step_time_s, 6 + 0.4 * of_16 + 2 * message_s, 0.03);
    const auto simulated = setting.simulate(method);
    EXPECT_NEAR(simulated.step_s, 6 + 0.4 * of_16 + 2 * message_s, 3 * simulated.error_s);
  }
}

// Two machines have four workers each, which are late together. The fifth gradient arrives with those of the slower
// machine, after the greater of two exponential times, 0.5 (1 + 1/2). It does not arrive after the fifth of eight
// times.
TEST(QuorumPrediction, WorkersWhoAreLateTogetherAreNotIndependent) {
  const PredictedRun setting{.workers = 8,
                             .micro_batches = 1,
                             .delays = {scoped_delay(exponential_delay(0.5), {.group_size = 4})},
                             .steps = 4000,
                             .network_s = 0.1};
  const BackupWorkers cancels(5, {.late = LateWork::cancel});
  const Prediction prediction = the_only(setting.predict(cancels));
  EXPECT_EQ(prediction.formula, "order statistic, late together");
  EXPECT_NEAR(prediction.step_time_s, 1 + 0.75 + 0.2, 3 * 0.025);  // three times 0.56 s / sqrt(512)
  const auto simulated = setting.simulate(cancels);
  EXPECT_NEAR(simulated.step_s, 1 + 0.75 + 0.2, 3 * simulated.error_s);
}

// Two of eight workers are always the slowest, so the sixth is the slowest of six: 1 + (1 + ... + 1/6) / 2.
TEST(QuorumPrediction, WorkersThatAreSlowForGoodAreNeverAmongTheFirst) {
  const PredictedRun setting{.workers = 8,
                             .micro_batches = 1,
                             .delays = {exponential_delay(0.5), scoped_delay(constant_delay(30), {.workers = {2, 7}})},
                             .steps = 4000,
                             .network_s = 0.1};
  double expected = 1;
  for (int i = 1; i <= 6; ++i) expected += 0.5 / i;
  const BackupWorkers cancels(6, {.late = LateWork::cancel});
  const Prediction prediction = the_only(setting.predict(cancels));
  EXPECT_EQ(prediction.formula, "order statistic, unlike workers");
  EXPECT_NEAR(prediction.step_time_s, expected + 0.2, 3 * 0.027);  // three times 0.61 s / sqrt(512)
  const auto simulated = setting.simulate(cancels);
  EXPECT_NEAR(simulated.step_s, expected + 0.2, 3 * simulated.error_s);
  EXPECT_NEAR(the_only(setting.predict(BackupWorkers(6))).step_time_s, prediction.step_time_s, 1e-12);
  EXPECT_GT(prediction.sync_step_time_s, 31);
}

}  // namespace
}  // namespace syncopate
