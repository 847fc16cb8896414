// What predictions say besides the time of a step: their communication against what the simulated cluster's accounts
// book, the synchronous SGD that they are compared with, how long budgets of other kinds last, and standard errors.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/asynchronous/async_sgd.hpp"
#include "algorithms/asynchronous/softsync.hpp"
#include "algorithms/local_sgd/drop_local_sgd.hpp"
#include "algorithms/local_sgd/elastic_averaging.hpp"
#include "algorithms/local_sgd/hierarchical_sgd.hpp"
#include "algorithms/local_sgd/outer_local_sgd.hpp"
#include "algorithms/quorum/backup_all_reduce.hpp"
#include "algorithms/quorum/backup_workers.hpp"
#include "algorithms/synchronous/drop_compensation.hpp"
#include "algorithms/synchronous/drop_compute.hpp"
#include "algorithms/synchronous/drop_threshold.hpp"
#include "algorithms/synchronous/random_drop.hpp"
#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/predicted_run.hpp"
#include "workers/time/distributions.hpp"
#include "workers/time/network.hpp"

namespace syncopate {
namespace {

constexpr int workers = 5, micro_batches = 4;
constexpr double latency_s = 0.1, bytes_per_s = 40, parameter_bytes = 16;
// On a ring a model takes as long as it has bytes, and a request without values the latency alone.
constexpr double message_s = latency_s + parameter_bytes / bytes_per_s;
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
  double communication_s;  // of a step
};

std::vector<Method> methods() {
  using Exchange = ElasticOptions::Exchange;
  const double all_s = all_reduce_of(workers);
  // Groups of 3 and of 2: of eight steps three end with their own averages, and one with that of all.
  const double groups_s = (3 * (all_reduce_of(3) * 3 + all_reduce_of(2) * 2) / 5 + all_s) / 8;
  const double slices_s = latency_s + 8 / bytes_per_s;  // of three servers' slices of 4, 4 and 8 bytes
  return {
      {"sync", std::make_shared<SyncSgd>(), all_s},
      {"drop", std::make_shared<DropCompute>(from_seconds(1e3), Preempt::discard, 0.5), all_s},
      {"random", std::make_shared<RandomDrop>(0, 0), all_s},
      {"backup workers", std::make_shared<BackupWorkers>(workers), 2 * message_s},
      {"three servers", std::make_shared<BackupWorkers>(workers, BackupOptions{.servers = 3}), 2 * slices_s},
      {"backup all-reduce", std::make_shared<BackupAllReduce>(workers), all_s},
      {"async", std::make_shared<AsyncSgd>(AsyncSgd::Options{}), 2 * message_s},
      {"softsync", std::make_shared<Softsync>(2), 2 * message_s},
      {"EASGD", std::make_shared<ElasticAveraging>(ElasticOptions{.alpha = 0.1, .period = 8}), all_s / 8},
      {"asynchronous EASGD",
       std::make_shared<ElasticAveraging>(
           ElasticOptions{.exchange = Exchange::asynchronous, .alpha = 0.1, .period = 8}),
       (latency_s + message_s) / 8},  // a request, and the centre
      {"local", std::make_shared<LocalSgd>(every(8), StatePolicies{}), all_s / 8},
      {"outer", std::make_shared<OuterLocalSgd>(every(8), make_plain_outer(1), StatePolicies{}), all_s / 8},
      {"groups",
       std::make_shared<HierarchicalSgd>(HierarchicalOptions{.group_size = 3, .group_period = 2, .period = every(8)}),
       groups_s},
      {"drop local", std::make_shared<DropLocalSgd>(every(8), DropLocalOptions{}), all_s / 8},
  };
}

// Every worker's step takes the same, so that formulas are exact whatever they go by.
TEST(PredictionParts, WithoutSpreadTimeAndCommunicationAreThoseOfTheAccounts) {
  const PredictedRun setting = on_a_ring(480, {});
  for (const auto& [name, algorithm, communication_s] : methods()) {
    SCOPED_TRACE(name);
    const auto predictions = setting.predict(*algorithm);
    ASSERT_FALSE(predictions.empty());
    const auto simulated = setting.simulate(*algorithm);
    for (const Prediction& prediction : predictions) {
      EXPECT_NEAR(prediction.communication_s, communication_s, 1e-8) << prediction.formula;
      // Runs end with a barrier, or while messages are under way.
      EXPECT_NEAR(prediction.communication_s, simulated.communication_s, 0.01 * simulated.communication_s);
      EXPECT_NEAR(prediction.step_time_s, simulated.step_s, 0.005 * simulated.step_s);
      EXPECT_EQ(prediction.kept, 1);
      EXPECT_EQ(prediction.communication_share(), prediction.communication_s / prediction.step_time_s);
    }
  }
}

// Without a variance sums are put together from what is drawn, here from all steps of the run. Groups of unequal size
// take unequal times for their averages.
TEST(PredictionParts, GroupsOfUnequalSizeHaveTheirOwnAverages) {
  const PredictedRun setting = on_a_ring(512, {pareto_delay(1.5, 0.5)});
  for (const auto& [size, period] : {std::pair(3, 2), {4, 2}, {2, 3}, {5, 4}, {1, 4}}) {
    const HierarchicalSgd method({.group_size = size, .group_period = period, .period = every(8)});
    const auto predictions = setting.predict(method);
    ASSERT_EQ(predictions.size(), 1u);
    EXPECT_EQ(predictions[0].formula, "rounds of groups' sampled sums");
    const auto simulated = setting.simulate(method);
    EXPECT_NEAR(predictions[0].step_time_s, simulated.step_s, 1e-6) << size;
    EXPECT_NEAR(predictions[0].communication_s, simulated.communication_s, 1e-6) << size;
  }
}

// Nearly all of a round's steps are cut: normal sums of what is left go on beyond eight thresholds, the round does not.
TEST(PredictionParts, NoRoundLastsLongerThanItsThresholds) {
  using Clock = DropLocalOptions::Clock;
  const PredictedRun setting{.steps = 800};
  for (const double threshold_s : {5.0, 5.5, 5.9}) {
    const DropLocalSgd by_step(every(8), {.threshold = from_seconds(threshold_s), .clock = Clock::step});
    const DropLocalSgd by_round(every(8), {.threshold = from_seconds(8 * threshold_s), .clock = Clock::period});
    for (const DropLocalSgd* method : {&by_step, &by_round}) {
      const Prediction prediction = setting.predict(*method).front();
      EXPECT_LE(prediction.step_time_s, threshold_s + 0.5 / 8 + 1e-9);
      EXPECT_NEAR(prediction.step_time_s, setting.simulate(*method).step_s, 0.02);
    }
  }
}

// Of quorums it is not known beforehand whose late work is lost, though here nobody is late.
TEST(PredictionParts, WhatDropsNothingSaysSo) {
  for (const auto& [name, algorithm, communication_s] : methods()) {
    const std::string method = name;
    const bool has_quorum = method == "backup workers" || method == "three servers" || method == "backup all-reduce";
    for (const Prediction& prediction : on_a_ring(480, {noise}).predict(*algorithm)) {
      EXPECT_EQ(prediction.drop_rate, has_quorum ? std::nullopt : std::optional(0.0)) << name;
      EXPECT_NEAR(prediction.communication_s, communication_s, 1e-8) << name;
    }
  }
}

// A step of synchronous SGD: the slowest of 5 sums of 6 +- 0.4 s, whose expectation lies 1.162964474 deviations above
// the mean, and an all-reduce. What is sampled is the mean of 480 maxima, whose deviation is 0.67 times 0.4 s.
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

// The same sample under another budget or schedule, in samples of 8 per micro-batch.
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

// Ten rounds of one step, then rounds of ten: how many of them a budget holds can be told from the mean. A step takes
// 4 s, an average 0.5 s, and all samples of a step are 16 x 4 x 8.
TEST(PredictionParts, RoundsAreThoseWithinTheBudget) {
  const PredictedRun setting{.delays = {}};
  const LocalSgd local(make_post_local_period(10, 10), {});
  const auto expect_rounds = [&](const Budget& budget, int steps, int rounds) {
    const Prediction prediction = only(under(setting, local, budget));
    EXPECT_NEAR(prediction.step_time_s, 4 + 0.5 * rounds / steps, 1e-9) << steps;
    EXPECT_NEAR(prediction.communication_s, 0.5 * rounds / steps, 1e-9) << steps;
  };
  expect_rounds({.steps = 25}, 25, 12);
  expect_rounds({.steps = 31}, 31, 13);
  expect_rounds({.samples = 25 * 512}, 25, 12);
  expect_rounds({.samples = 24 * 512 + 1}, 25, 12);  // the step in which they are used up is taken
  expect_rounds({.steps = 25, .samples = 31 * 512}, 25, 12);
  expect_rounds({.steps = 31, .samples = 25 * 512}, 25, 12);
  // Steps begin until the seconds are up: rounds end at 45 and 85.5 s, and the last one, of a step, at 90 s.
  expect_rounds({.seconds = 86}, 21, 12);
  expect_rounds({.steps = 25, .seconds = 1e6}, 25, 12);
  expect_rounds({.steps = 25, .bytes = Bytes{1'000'000'000}}, 25, 12);
  EXPECT_TRUE(under(setting, local, {.bytes = Bytes{1'000'000'000}}).empty());
}

// Half of 100 steps at a rate of 1, that is in rounds of 2; then at 0.1, in rounds of 20.
TEST(PredictionParts, RoundsFollowTheLearningRateOfTheirFirstStep) {
  const LearningRate rate(
      {.shape = LearningRate::Shape::step, .peak = 1, .decay_steps = {Step{50}}, .decay_factor = 0.1});
  const LocalSgd local(make_power_period({.power = 1, .coefficient = 2, .minimum = 1}), {});
  const Prediction prediction = only(under({.delays = {}}, local, {.steps = 100}, rate));
  EXPECT_NEAR(prediction.communication_s, 0.5 * (25 + 3) / 100, 1e-9);  // of 20, 20 and the last 10
}

// Before the threshold is set, 100 of 400 steps are those of synchronous SGD.
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
  EXPECT_DOUBLE_EQ(of_400.communication_s, all.communication_s);
}

// What a longer warm-up postpones is the same threshold, found in as many steps.
TEST(PredictionParts, TheWarmUpIsNotSearched) {
  const PredictedRun setting{.micro_batches = 12, .delays = {pareto_delay(1.5, 0.5)}, .steps = 400};
  const auto predicted = [&](int warmup) {
    const AutomaticThresholdOptions options{.warmup_steps = warmup, .calibration_steps = 20};
    const DropCompute method(DropComputeOptions{.threshold = make_automatic_threshold(options)});
    return under(setting, method, {.seconds = 1e6}).back();
  };
  EXPECT_EQ(predicted(0), predicted(150));
}

// With 10 s of communication per step there is less to gain by dropping than with none.
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
  expect_drops({noise}, 0.005);                  // by the paper's formulas
  expect_drops({pareto_delay(1.5, 0.5)}, 0.05);  // by drawn steps alone, of which some are far out
}

// What is asked of the rule is what its search, or the formulas, give for the same options.
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
      const auto sampled = rule->forecast({.micro_batches = micro_batches, .serial_s = serial_s, .drawn = drawn});
      ASSERT_TRUE(sampled);
      EXPECT_EQ(sampled->threshold_s, search_threshold(drawn, serial_s, form, cap).threshold);
      EXPECT_EQ(sampled->from, Step{3 + 44});
      found.insert(sampled->threshold_s);

      const MicroBatchLaw law{1.5, 0.5};
      const auto by_law = rule->forecast(
          {.micro_batches = micro_batches, .law = law, .slowest_s = 8, .serial_s = serial_s, .shortest_s = 1});
      const auto best = best_threshold(micro_batches, law, 8, serial_s, cap.value_or(1), 1);
      ASSERT_TRUE(by_law);
      EXPECT_EQ(by_law->threshold_s, best.threshold);
      EXPECT_EQ(best.drop_rate <= 0.01, cap.has_value());
    }
  EXPECT_EQ(found.size(), 6u);
}

// Groups' averages have no formula where they wait for each other; where not all workers were drawn and steps
// have no variance, what goes in rounds has none for that reason, and a quorum for that of the number of workers.
TEST(PredictionParts, WhereThereIsNoFormulaTheReasonIsTheMethods) {
  PredictedRun shared = on_a_ring(64, {noise}), many{.workers = 5000, .delays = {pareto_delay(1.5, 0.5)}, .steps = 64};
  shared.network = make_parameter_server_network(workers, {latency_s, bytes_per_s});
  for (const auto& [name, algorithm, communication_s] : methods()) {
    const std::string method = name;
    const bool sends_messages = algorithm->traits().servers > 0;
    // Of methods that send messages it is that of predict_by_formula (results/run.hpp).
    if (!sends_messages) {
      EXPECT_EQ(shared.predict(*algorithm).empty(), method == "groups") << name;
    }
    if (method == "groups") {
      EXPECT_NE(shared.why_not_predicted(*algorithm).find("shared links"), std::string::npos);
    }
    const bool counts = sends_messages || method == "backup all-reduce" || method == "groups";
    if (method == "backup workers" || method == "backup all-reduce" || method == "three servers") continue;
    EXPECT_TRUE(many.predict(*algorithm).empty()) << name;
    EXPECT_EQ(many.why_not_predicted(*algorithm), counts ? "too many workers to draw them all" : has_no_variance)
        << name;
  }
}

// Eq. 5 counts what is lost in flight and does not come back.
TEST(PredictionParts, ThereIsNoFormulaForOtherWaysToDrop) {
  const PredictedRun setting{.steps = 100};
  const auto dropping = [](Preempt preempt, std::shared_ptr<const DropCompensation> compensation) {
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

}  // namespace
}  // namespace syncopate
