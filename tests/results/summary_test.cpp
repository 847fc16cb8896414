#include "results/summary.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "experiments/execution/execution.hpp"
#include "results/build_info.hpp"
#include "results/found_runs.hpp"
#include "results/run.hpp"
#include "results/run_directory.hpp"
#include "workers/base/machine.hpp"
#include "workers/models/torch_library.hpp"

namespace syncopate {
namespace {

// A run on two workers, with 30 steps, four evaluations and two rounds, and its plan.

MetricsRow row(std::int64_t step, double loss, double accuracy) {
  MetricsRow row;
  row.step = step;
  row.samples = step * 64;
  row.time = Time{std::chrono::milliseconds(100 * step)};
  row.evaluation = Evaluation{loss, accuracy, loss / 2, std::isfinite(loss)};
  return row;
}

Run plan() {
  Run run;
  run.experiment = "quickstart";
  run.method = "DropCompute";
  run.method_index = 2;
  run.sweep = {{"methods.threshold_s", "0.07"}};
  run.seed = 3;
  run.hash = "0123456789abcdef";
  run.evaluation.target_accuracy = 0.8;
  return run;
}

Recording four_rows() {
  Recording recording;
  recording.metrics = {row(0, 2.3, 0.1), row(10, 0.6, 0.79), row(20, 0.4, 0.85), row(30, 0.5, 0.83)};
  recording.rows = {{.step = 10,
                     .end = Time{std::chrono::milliseconds(1000)},
                     .duration = {},
                     .kept = 30,
                     .dropped = 2,
                     .period = 10,
                     .bytes = 500},
                    {.step = 30,
                     .end = Time{std::chrono::milliseconds(3000)},
                     .duration = {},
                     .kept = 60,
                     .dropped = 4,
                     .period = 20,
                     .bytes = 500}};
  return recording;
}

// Two workers take 3 s each. One computes for 2.5 s and waits for 0.5 s. The other computes for 2 s, discards 0.4 s of
// computing, and communicates for 0.6 s.
RunTotals totals() {
  RunTotals totals;
  totals.end = Time{std::chrono::milliseconds(3000)};
  totals.accounts.resize(2);
  totals.accounts[0][Activity::compute] = std::chrono::milliseconds(2500);
  totals.accounts[0][Activity::wait] = std::chrono::milliseconds(500);
  totals.accounts[1][Activity::compute] = std::chrono::milliseconds(2000);
  totals.accounts[1][Activity::discarded] = std::chrono::milliseconds(400);
  totals.accounts[1][Activity::communicate] = std::chrono::milliseconds(600);
  totals.kept = {50, 40};
  totals.dropped = {0, 10};
  totals.bytes = 1000;
  totals.collectives = 6;
  totals.messages = 7;
  return totals;
}

using std::chrono::milliseconds;

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

TEST(Summary, TakesQualityFromTheLastAndTheBestEvaluation) {
  const RunTotals all = totals();
  const RunSummary summary = summarise(plan(), four_rows(), &all, 8, 2);
  EXPECT_EQ(summary.final_test_accuracy, 0.83);
  EXPECT_EQ(summary.final_test_loss, 0.5);
  EXPECT_EQ(summary.final_train_loss, 0.25);
  EXPECT_EQ(summary.best_test_accuracy, 0.85);
  EXPECT_EQ(summary.best_test_loss, 0.4);
}

TEST(Summary, CountsWhatTheTotalsSay) {
  const RunTotals all = totals();
  const RunSummary summary = summarise(plan(), four_rows(), &all, 8, 2);
  EXPECT_EQ(summary.status, RunStatus::finished);
  EXPECT_EQ(summary.end_time_s, 3);
  EXPECT_EQ(summary.steps, 30);
  EXPECT_EQ(summary.rounds, 2);
  EXPECT_EQ(summary.kept_micro_batches, 90);
  EXPECT_EQ(summary.dropped_micro_batches, 10);
  EXPECT_DOUBLE_EQ(summary.drop_rate(), 0.1);
  EXPECT_EQ(summary.samples, 90 * 8);
  EXPECT_EQ(summary.collectives, 6);
  EXPECT_EQ(summary.messages, 7);
  EXPECT_DOUBLE_EQ(summary.samples_per_virtual_s(), 240);
  EXPECT_DOUBLE_EQ(summary.samples_per_host_s(), 360);
}

TEST(Summary, CountsOfCommunicationAreWrittenAndReadAndMayBeMissing) {
  const RunTotals all = totals();
  const std::string written = to_json(summarise(plan(), four_rows(), &all, 8, 2));
  auto json = nlohmann::json::parse(written);
  EXPECT_EQ(json["collectives"], 6);
  EXPECT_EQ(json["messages"], 7);
  EXPECT_EQ(summary_from_json(written)->collectives, 6);
  EXPECT_EQ(summary_from_json(written)->messages, 7);
  json.erase("collectives");
  json.erase("messages");
  const auto older = summary_from_json(json.dump());
  ASSERT_TRUE(older.has_value());
  EXPECT_FALSE(older->collectives || older->messages);
  const std::string ended_early = to_json(summarise(plan(), four_rows(), nullptr, 8, 2));
  EXPECT_TRUE(nlohmann::json::parse(ended_early)["messages"].is_null());
  EXPECT_FALSE(summary_from_json(ended_early)->messages.has_value());
}

TEST(Summary, TimeToTargetIsTheFirstEvaluationThatMeetsIt) {
  const auto target = summarise(plan(), four_rows(), nullptr, 8, 2).time_to_target;
  ASSERT_TRUE(target.has_value());
  EXPECT_EQ(target->time_s, 2.0);
  EXPECT_EQ(target->step, 20);
  EXPECT_EQ(target->samples, 1280);
}

TEST(Summary, TwoTargetsMustBeMetTogether) {
  auto run = plan();
  run.evaluation.target_accuracy = 0.78;  // reached at step 10
  run.evaluation.target_loss = 0.5;       // reached at step 20
  EXPECT_EQ(summarise(run, four_rows(), nullptr, 8, 2).time_to_target->step, 20);
}

TEST(Summary, ATargetThatIsNotMetIsCensored) {
  auto run = plan();
  run.evaluation.target_accuracy = 0.86;
  const RunSummary summary = summarise(run, four_rows(), nullptr, 8, 2);
  EXPECT_FALSE(summary.time_to_target->time_s.has_value());
  const auto json = nlohmann::json::parse(to_json(summary));
  EXPECT_TRUE(json["time_to_target"]["time_s"].is_null());
  EXPECT_EQ(json["time_to_target"]["censored"], true);
}

TEST(Summary, ATargetIsMetByWhatIsEqualToIt) {
  auto run = plan();
  run.evaluation.target_accuracy = 0.85;
  EXPECT_EQ(summarise(run, four_rows(), nullptr, 8, 2).time_to_target->step, 20);
  run.evaluation.target_accuracy.reset();
  run.evaluation.target_loss = 0.6;
  const RunSummary by_loss = summarise(run, four_rows(), nullptr, 8, 2);
  ASSERT_TRUE(by_loss.time_to_target.has_value()) << "a target for the loss alone";
  EXPECT_EQ(by_loss.time_to_target->step, 10);
  EXPECT_EQ(by_loss.time_to_target->target_loss, 0.6);
  EXPECT_FALSE(by_loss.time_to_target->target_accuracy.has_value());
}

// Example: only the training loss of this model has overflowed.
TEST(Summary, AModelThatIsNotFiniteIsNeitherTheBestNorAtTheTarget) {
  Recording recording = four_rows();
  recording.metrics.push_back(row(40, 0.1, 0.99));
  recording.metrics.back().evaluation->finite = false;
  cut_after_divergence(recording);
  auto run = plan();
  run.evaluation.target_accuracy = 0.9;
  const RunSummary summary = summarise(run, recording, nullptr, 8, 2);
  EXPECT_EQ(summary.best_test_accuracy, 0.85);
  EXPECT_EQ(summary.best_test_loss, 0.4);
  EXPECT_FALSE(summary.time_to_target->time_s.has_value());
}

// Totals replace sums over rows, because they include events after the last row. A diverged run ends with its last row.
TEST(Summary, TotalsReplaceWhatRoundsSay) {
  RunTotals all = totals();
  all.end = Time{milliseconds(3500)};
  all.bytes = 1234;
  all.emulated = {50, 40};
  all.overruns = {3, 4};
  all.overrun_excess = milliseconds(625);
  const RunSummary summary = summarise(plan(), four_rows(), &all, 8, 2);
  EXPECT_EQ(summary.end_time_s, 3.5);
  EXPECT_EQ(summary.communicated_bytes, 1234);
  EXPECT_EQ(summary.kept_per_worker, (std::vector<std::int64_t>{50, 40}));
  EXPECT_EQ(summary.dropped_per_worker, (std::vector<std::int64_t>{0, 10}));
  EXPECT_EQ(summary.emulated_micro_batches, 90);
  EXPECT_EQ(summary.overruns, 7);
  EXPECT_EQ(summary.overrun_excess_s, 0.625);
  EXPECT_EQ(summary.host_s, 2);

  Recording diverged = four_rows();
  diverged.diverged = true;
  const RunSummary early = summarise(plan(), diverged, &all, 8, 2);
  EXPECT_EQ(early.end_time_s, 3);
  EXPECT_EQ(early.communicated_bytes, 1000);
  EXPECT_EQ(early.dropped_micro_batches, 6);
  EXPECT_EQ(early.samples, 90 * 8);
  EXPECT_TRUE(early.accounts.empty());
  EXPECT_FALSE(early.collectives.has_value());
}

TEST(Summary, OfARunThatWasEndedIsThatOfTheLastRoundOrEvaluation) {
  Recording recording = four_rows();
  recording.rows.back().step = 34;
  recording.rows.back().end = Time{milliseconds(3250)};
  RunSummary summary = summarise(plan(), recording, nullptr, 8, 2);
  EXPECT_EQ(summary.steps, 34);
  EXPECT_EQ(summary.end_time_s, 3.25);
  recording.metrics.push_back(row(36, 0.5, 0.5));  // the row's time is 3.6 s
  summary = summarise(plan(), recording, nullptr, 8, 2);
  EXPECT_EQ(summary.steps, 36);
  EXPECT_EQ(summary.end_time_s, 3.6);
}

TEST(Summary, NamesTheRunThatItIsOf) {
  const RunSummary summary = summarise(plan(), four_rows(), nullptr, 8, 2);
  EXPECT_EQ(summary.experiment, "quickstart");
  EXPECT_EQ(summary.method, "DropCompute");
  EXPECT_EQ(summary.method_index, 2u);
  EXPECT_EQ(summary.sweep, plan().sweep);
  EXPECT_EQ(summary.seed, 3u);
  EXPECT_EQ(summary.hash, "0123456789abcdef");
}

TEST(Summary, WithoutATargetThereIsNoTimeToIt) {
  auto run = plan();
  run.evaluation.target_accuracy.reset();
  EXPECT_TRUE(nlohmann::json::parse(to_json(summarise(run, four_rows(), nullptr, 8, 2)))["time_to_target"].is_null());
}

TEST(Summary, TellsTheLastMeasuredCurvatureAndTheLongestPeriod) {
  Recording recording = four_rows();
  std::swap(recording.rows.front().period, recording.rows.back().period);  // so that the longest is not the last one
  recording.measurements = {{Step{0}, {}, "largest_eigenvalue", 9},
                            {Step{0}, {}, "hessian_trace", 90},
                            {Step{20}, {}, "largest_eigenvalue", 4},
                            {Step{20}, {}, "hessian_trace", 50},
                            {Step{20}, {}, "gradient_norm", 7}};
  const RunSummary summary = summarise(plan(), recording, nullptr, 8, 2);
  const auto read = summary_from_json(to_json(summary));
  ASSERT_TRUE(read);
  for (const RunSummary& each : {summary, *read}) {
    EXPECT_EQ(measure_named("final_largest_eigenvalue")->value(each), 4);
    EXPECT_EQ(measure_named("final_hessian_trace")->value(each), 50);
    EXPECT_EQ(measure_named("largest_eigenvalue_fall")->value(each), 5);
    EXPECT_EQ(measure_named("hessian_trace_fall")->value(each), 40);
    EXPECT_FALSE(measure_named("hessian_trace_log_change")->value(each)) << "two measurements have no slope";
    EXPECT_EQ(measure_named("largest_period")->value(each), 20);
  }
  const auto without = summary_from_json(to_json(summarise(plan(), four_rows(), nullptr, 8, 2)));
  ASSERT_TRUE(without);
  EXPECT_FALSE(without->final_largest_eigenvalue || without->final_hessian_trace);
}

// From the second measurement on, ln(trace) falls by 0.1 per step. The first measurement is far above this line.
TEST(Summary, TellsTheSlopeOfTheTraceWithoutTheFirstMeasurement) {
  Recording recording = four_rows();
  recording.measurements = {{Step{0}, {}, "hessian_trace", 1000}};
  for (const int step : {10, 20, 30})
    recording.measurements.push_back({Step{step}, {}, "hessian_trace", std::exp(-0.1 * step)});
  const RunSummary summary = summarise(plan(), recording, nullptr, 8, 2);
  EXPECT_NEAR(summary.hessian_trace_log_change.value(), -2, 1e-12);
  recording.measurements.back().value = std::exp(-4);  // with three equidistant points, the ends determine the slope
  EXPECT_NEAR(summarise(plan(), recording, nullptr, 8, 2).hessian_trace_log_change.value(), -3, 1e-12);
  recording.measurements.back().value = -1;
  EXPECT_FALSE(summarise(plan(), recording, nullptr, 8, 2).hessian_trace_log_change);
}

// By the formula, 0.9 of the micro-batches are kept in 0.08 s per step. The run keeps 0.9 in 0.1 s per step.
TEST(Summary, MeasuresTheThroughputByAFormula) {
  RunSummary summary;
  const auto share = [&] { return measure_named("first_formula_over_throughput")->value(summary); };
  summary.steps = 10;
  summary.end_time_s = 1;
  summary.kept_micro_batches = 90;
  summary.dropped_micro_batches = 10;
  EXPECT_FALSE(share());  // there is no formula
  summary.predicted.resize(1);
  Prediction& formula = summary.predicted.front().prediction;
  formula.step_time_s = 0.08;
  formula.kept = 0.9;
  EXPECT_FALSE(share());  // the formula does not predict a drop rate
  formula.drop_rate = 0.1;
  EXPECT_NEAR(share().value(), 1.25, 1e-12);
  formula.drop_rate = 0.0;  // a tenth of the micro-batches is not computed at all
  EXPECT_FALSE(share());
}

TEST(Summary, MeasuresWhichShareOfTheDropsOneWorkerHas) {
  const Measure& share = *measure_named("largest_share_of_drops");
  RunSummary summary;
  EXPECT_FALSE(share.value(summary));
  summary.dropped_per_worker = {0, 0, 0};
  EXPECT_FALSE(share.value(summary));
  summary.dropped_per_worker = {2, 9, 1};
  EXPECT_EQ(share.value(summary), 0.75);
}

TEST(Summary, MeasuresTheLongestSamples) {
  RunSummary summary = summarise(plan(), four_rows(), nullptr, 8, 2);
  EXPECT_FALSE(measure_named("longest_test_accuracy")->value(summary));
  EXPECT_FALSE(measure_named("longest_kept_share")->value(summary));
  KeptSamples kept;
  kept.by_length.kept = {5, 2, 1};
  kept.longest = {4, 8, 20};
  summary.samples_kept = kept;
  EXPECT_EQ(measure_named("longest_kept_share")->value(summary), 0.125);
  EXPECT_FALSE(measure_named("longest_test_accuracy")->value(summary));  // a time-only run has no accuracy
  summary.samples_kept->test_accuracy = {0.5, 0.75, 0.25};
  EXPECT_EQ(measure_named("longest_test_accuracy")->value(summary), 0.25);
  summary.samples_kept->test_accuracy.back() = std::nan("");  // no test sample has this length
  EXPECT_FALSE(measure_named("longest_test_accuracy")->value(summary));
  summary.samples_kept->by_length.kept = {0, 0, 0};
  EXPECT_FALSE(measure_named("longest_kept_share")->value(summary));
}

// Returns rows in which validation losses fall while test losses rise.
Recording validated_rows() {
  Recording recording = four_rows();
  for (MetricsRow& row : recording.metrics) {
    row.evaluation->validation_loss = 4 - 0.1 * static_cast<double>(row.step.value());
    row.evaluation->validation_accuracy = row.step == Step{20} ? 0.75 : 0.5;
  }
  return recording;
}

TEST(Summary, TellsTheValidationSetsQualityWhereThereIsOne) {
  const RunSummary summary = summarise(plan(), validated_rows(), nullptr, 8, 2);
  EXPECT_EQ(summary.final_validation_loss, 1);
  EXPECT_EQ(summary.best_validation_loss, 1);
  EXPECT_EQ(summary.final_validation_accuracy, 0.5);
  EXPECT_EQ(summary.best_validation_accuracy, 0.75);
  EXPECT_EQ(summary.final_test_loss, 0.5);
  const auto read = summary_from_json(to_json(summary));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->final_validation_loss, 1);
  EXPECT_EQ(read->best_validation_loss, 1);
  EXPECT_EQ(read->final_validation_accuracy, 0.5);
  EXPECT_EQ(read->best_validation_accuracy, 0.75);
  const RunSummary without = summarise(plan(), four_rows(), nullptr, 8, 2);
  EXPECT_FALSE(without.final_validation_loss || without.best_validation_loss || without.final_validation_accuracy);
  EXPECT_THAT(to_json(without), testing::Not(testing::HasSubstr("validation")));
}

TEST(Summary, TargetsMayBeOfTheValidationSet) {
  auto run = plan();
  run.evaluation.target_accuracy = 0.75;
  EXPECT_EQ(summarise(run, validated_rows(), nullptr, 8, 2).time_to_target->step, 10);
  run.evaluation.targets_validation = true;
  EXPECT_EQ(summarise(run, validated_rows(), nullptr, 8, 2).time_to_target->step, 20);
  run.evaluation.target_accuracy.reset();
  run.evaluation.target_loss = 1.5;
  EXPECT_EQ(summarise(run, validated_rows(), nullptr, 8, 2).time_to_target->step, 30);
  EXPECT_FALSE(summarise(run, four_rows(), nullptr, 8, 2).time_to_target->step) << "nothing was held out";
}

TEST(Summary, OfADivergedRunKeepsTheBestOfBefore) {
  Recording recording = four_rows();
  recording.metrics.push_back(row(40, nan, nan));
  cut_after_divergence(recording);
  const RunSummary summary = summarise(plan(), recording, nullptr, 8, 2);
  EXPECT_EQ(summary.status, RunStatus::diverged);
  EXPECT_THAT(summary.reason, testing::HasSubstr("step 40"));
  EXPECT_EQ(summary.best_test_loss, 0.4);
  EXPECT_EQ(summary.end_time_s, 4);
}

TEST(Summary, StalenessIsAHistogramOverStepsWithoutItsLastZeros) {
  RunTotals all = totals();
  EXPECT_TRUE(summarise(plan(), four_rows(), &all, 8, 2).staleness.empty());
  EXPECT_FALSE(summarise(plan(), four_rows(), &all, 8, 2).mean_staleness().has_value());
  all.staleness = {10, 0, 5, 5, 0, 0};
  const RunSummary summary = summarise(plan(), four_rows(), &all, 8, 2);
  EXPECT_EQ(summary.staleness, (std::vector<std::int64_t>{10, 0, 5, 5}));
  EXPECT_DOUBLE_EQ(*summary.mean_staleness(), (5 * 2 + 5 * 3) / 20.0);
  all.staleness = {0, 0};
  EXPECT_FALSE(summarise(plan(), four_rows(), &all, 8, 2).mean_staleness().has_value());
}

TEST(Summary, WithoutTotalsIsMadeFromRounds) {
  const RunSummary summary = summarise(plan(), four_rows(), nullptr, 8, 2);
  EXPECT_EQ(summary.kept_micro_batches, 90);
  EXPECT_EQ(summary.dropped_micro_batches, 6);
  EXPECT_EQ(summary.communicated_bytes, 1000);
  EXPECT_EQ(summary.end_time_s, 3);
}

// Two workers communicate for 1.5 s and 2.5 s within 4 steps.
TEST(RunSummary, CommunicationPerStepIsTheWorkersMean) {
  RunSummary summary;
  summary.steps = 4;
  EXPECT_EQ(summary.communication_s(), std::nullopt);  // as in a run that did not complete
  summary.accounts.resize(2);
  summary.accounts[0][Activity::communicate] = std::chrono::milliseconds(1500);
  summary.accounts[1][Activity::communicate] = std::chrono::milliseconds(2500);
  summary.accounts[1][Activity::wait] = std::chrono::seconds(100);
  EXPECT_DOUBLE_EQ(summary.communication_s().value(), 0.5);
  summary.steps = 0;
  EXPECT_EQ(summary.communication_s(), std::nullopt);
}

// Each request in this test wants one item.
TEST(Recorded, CoversWhatAsksForNothingElse) {
  const RecordingPlan all{
      .trace = true, .trace_seconds = 2.5, .trace_events = 50, .durations = true, .parameters = true};
  const RecordingPlan nothing{.durations = false};
  const auto wants = [&](auto change) {
    RecordingPlan wanted = all;
    change(wanted);
    return wanted;
  };
  EXPECT_TRUE(covers(all, all));
  EXPECT_TRUE(covers(all, nothing));
  EXPECT_TRUE(covers(nothing, nothing));
  EXPECT_TRUE(covers(nothing, {})) << "under MPI durations are there anyway, and elsewhere nobody has asked";
  EXPECT_FALSE(covers(nothing, {.trace = true}));
  EXPECT_FALSE(covers(nothing, {.durations = true}));
  EXPECT_FALSE(covers(nothing, {.parameters = true}));
  EXPECT_FALSE(covers(all, wants([](RecordingPlan& plan) { plan.trace_seconds = 2.25; })));
  EXPECT_FALSE(covers(all, wants([](RecordingPlan& plan) { plan.trace_seconds = 2.75; })));
  EXPECT_FALSE(covers(all, wants([](RecordingPlan& plan) { plan.trace_seconds.reset(); }))) << "to its end";
  EXPECT_FALSE(covers(wants([](RecordingPlan& plan) { plan.trace_seconds.reset(); }), all));
  EXPECT_FALSE(covers(all, wants([](RecordingPlan& plan) { plan.trace_events = 51; })));
  EXPECT_FALSE(covers(all, wants([](RecordingPlan& plan) { plan.trace_events = 49; })));
  for (const auto& less : {wants([](RecordingPlan& plan) { plan.trace = false; }),
                           wants([](RecordingPlan& plan) { plan.durations = false; }),
                           wants([](RecordingPlan& plan) { plan.durations.reset(); }),
                           wants([](RecordingPlan& plan) { plan.parameters = false; })}) {
    EXPECT_TRUE(covers(all, less));
    EXPECT_FALSE(covers(less, all));
  }
  // Limits of a trace have no effect if no trace is requested.
  EXPECT_TRUE(covers(all, {.trace_seconds = 9, .trace_events = 9}));
}

// summary.json and metadata.json. Each value is written under its name and read back correctly.

TEST(SummaryJson, AccountsForEveryWorkerSecond) {
  const RunTotals all = totals();
  const auto json = nlohmann::json::parse(to_json(summarise(plan(), four_rows(), &all, 8, 2)));
  const auto& seconds = json["worker_seconds"];
  EXPECT_DOUBLE_EQ(seconds["summed"]["compute"], 4.5);
  EXPECT_DOUBLE_EQ(seconds["summed"]["discarded"], 0.4);
  EXPECT_DOUBLE_EQ(seconds["summed"]["wait"], 0.5);
  EXPECT_DOUBLE_EQ(seconds["summed"]["communicate"], 0.6);
  EXPECT_DOUBLE_EQ(seconds["summed"]["down"], 0);
  EXPECT_DOUBLE_EQ(seconds["summed"]["total"], 6) << "N x T";
  EXPECT_EQ(seconds["per_worker"]["compute"], (std::vector<double>{2.5, 2}));
  EXPECT_EQ(json["kept_micro_batches_per_worker"], (std::vector<int>{50, 40}));
  EXPECT_EQ(json["dropped_micro_batches_per_worker"], (std::vector<int>{0, 10}));
  EXPECT_EQ(json["schema_version"], results_schema_version);
  EXPECT_EQ(json["method_index"], 2);
}

TEST(SummaryJson, HasStalenessOnlyWhereGradientsHadOne) {
  RunTotals all = totals();
  EXPECT_FALSE(nlohmann::json::parse(to_json(summarise(plan(), four_rows(), &all, 8, 2))).contains("staleness"));
  all.staleness = {3, 0, 1, 0};
  const std::string text = to_json(summarise(plan(), four_rows(), &all, 8, 2));
  const auto staleness = nlohmann::json::parse(text)["staleness"];
  EXPECT_DOUBLE_EQ(staleness["mean"], 0.5);
  EXPECT_EQ(staleness["max"], 2);
  EXPECT_EQ(staleness["histogram"], (std::vector<int>{3, 0, 1}));
  EXPECT_EQ(summary_from_json(text)->staleness, (std::vector<std::int64_t>{3, 0, 1}));
}

TEST(SummaryJson, SaysWhereTimesAreNotThoseDeclared) {
  RunSummary summary;
  EXPECT_FALSE(nlohmann::json::parse(to_json(summary)).contains("overruns"));  // because no micro-batch was emulated
  summary.emulated_micro_batches = 1000;
  summary.overruns = 10;  // 1 %, which is tolerated
  summary.overrun_excess_s = 0.25;
  auto json = nlohmann::json::parse(to_json(summary));
  EXPECT_EQ(json["overruns"],
            nlohmann::json::parse(R"({"micro_batches": 10, "of": 1000, "excess_s": 0.25, "warning": null})"));
  summary.overruns = 32;
  json = nlohmann::json::parse(to_json(summary));
  EXPECT_EQ(json["overruns"]["warning"],
            "3.2 % of the micro-batches took longer than their drawn durations, so times are too long");
  const auto again = summary_from_json(to_json(summary));
  ASSERT_TRUE(again);
  EXPECT_EQ(again->overrun_warning(), summary.overrun_warning());
}

TEST(SummaryJson, ReadsBackWhatItWrote) {
  RunTotals all = totals();
  all.staleness = {3, 0, 1};
  const RunSummary summary = summarise(plan(), four_rows(), &all, 8, 2);
  const auto copy = summary_from_json(to_json(summary));
  ASSERT_TRUE(copy.has_value());
  EXPECT_FALSE(copy->accounts.empty());
  EXPECT_EQ(to_json(*copy), to_json(summary));
}

// Returns a run in which all values differ, so that mixed-up fields are detected.
RunSummary all_different() {
  RunSummary summary;
  summary.status = RunStatus::failed;
  summary.reason = "why";
  summary.experiment = "e";
  summary.method = "m";
  summary.method_index = 2;
  summary.point_index = 7;
  summary.sweep = {{"cluster.workers", "2"}, {"a.b", "x"}};
  summary.own_training = {{"clip_norm", "0.5"}};
  summary.seed = 3;
  summary.hash = "0123456789abcdef";
  summary.commit = "c0ffee";
  summary.final_test_accuracy = 0.5;
  summary.final_test_loss = 1.5;
  summary.best_test_accuracy = 0.75;
  summary.best_test_loss = 1.25;
  summary.final_train_loss = 1.125;
  summary.end_time_s = 8;
  summary.time_to_target = TimeToTarget{0.625, 1.375, 6.5, 11, 12};
  summary.steps = 16;
  summary.rounds = 5;
  summary.samples = 640;
  summary.kept_micro_batches = 60;
  summary.dropped_micro_batches = 20;
  summary.communicated_bytes = 700;
  summary.collectives = 13;
  summary.messages = 14;
  summary.host_s = 4;
  summary.kept_per_worker = {35, 25};
  summary.dropped_per_worker = {15, 5};
  summary.staleness = {4, 2, 2};
  summary.mean_squared_gradient_norm = 0.03125;
  summary.emulated_micro_batches = 1000;
  summary.overruns = 32;
  summary.overrun_excess_s = 0.375;
  summary.recorded = {.trace = true, .trace_seconds = 2.25, .trace_events = 77, .durations = true, .parameters = true};
  summary.predicted = {{.prediction = {.formula = "first",
                                       .step_time_s = 2,
                                       .communication_s = 0.5,
                                       .kept = 0.75,
                                       .drop_rate = 0.125,
                                       .sync_step_time_s = 3,
                                       .step_error_s = 0.0625,
                                       .kept_error = 0.03125},
                        .total_time_s = 60},
                       {.prediction = {.formula = "second",
                                       .step_time_s = 4,
                                       .communication_s = 1,
                                       .kept = 1,
                                       .drop_rate = {},
                                       .sync_step_time_s = 10},
                        .total_time_s = {}}};
  return summary;
}

TEST(SummaryJson, EveryValueStandsUnderItsOwnName) {
  RunSummary summary = all_different();
  summary.accounts.resize(2);
  int seconds = 0;
  for (Account& account : summary.accounts)
    for (Duration& time : account.time) time = std::chrono::seconds(1 << seconds++);
  EXPECT_EQ(nlohmann::json::parse(to_json(summary)), nlohmann::json::parse(R"({
    "schema_version": 2, "status": "failed", "reason": "why",
    "experiment": "e", "method": "m", "method_index": 2, "point_index": 7,
    "sweep": [["cluster.workers", "2"], ["a.b", "x"]],
    "own_training": [["clip_norm", "0.5"]], "seed": 3, "hash": "0123456789abcdef", "commit": "c0ffee",
    "final_test_accuracy": 0.5, "final_test_loss": 1.5, "best_test_accuracy": 0.75, "best_test_loss": 1.25,
    "final_train_loss": 1.125, "end_time_s": 8.0,
    "time_to_target": {"target_accuracy": 0.625, "target_loss": 1.375, "time_s": 6.5, "step": 11, "samples": 12,
                       "censored": false},
    "steps": 16, "rounds": 5, "samples": 640, "kept_micro_batches": 60, "dropped_micro_batches": 20,
    "drop_rate": 0.25, "communicated_bytes": 700, "collectives": 13, "messages": 14, "host_s": 4.0,
    "samples_per_virtual_s": 80.0, "samples_per_host_s": 160.0,
    "predicted": [{"formula": "first", "sampled": false, "step_time_s": 2.0, "communication_s": 0.5, "kept": 0.75,
                   "drop_rate": 0.125, "sync_step_time_s": 3.0, "effective_speedup": 1.125, "total_time_s": 60.0},
                  {"formula": "second", "sampled": false, "step_time_s": 4.0, "communication_s": 1.0, "kept": 1.0,
                   "drop_rate": null, "sync_step_time_s": 10.0, "effective_speedup": 2.5, "total_time_s": null}],
    "worker_seconds": {"summed": {"compute": 33.0, "discarded": 66.0, "wait": 132.0, "communicate": 264.0,
                                  "down": 528.0, "total": 1023.0},
                       "per_worker": {"compute": [1.0, 32.0], "discarded": [2.0, 64.0], "wait": [4.0, 128.0],
                                      "communicate": [8.0, 256.0], "down": [16.0, 512.0]}},
    "kept_micro_batches_per_worker": [35, 25], "dropped_micro_batches_per_worker": [15, 5],
    "staleness": {"mean": 0.75, "max": 2, "histogram": [4, 2, 2]},
    "mean_squared_gradient_norm": 0.03125,
    "overruns": {"micro_batches": 32, "of": 1000, "excess_s": 0.375,
                 "warning": "3.2 % of the micro-batches took longer than their drawn durations, so times are too long"},
    "recorded": {"trace": {"seconds": 2.25, "events": 77}, "durations": true, "parameters": true}
  })"));
}

TEST(SummaryJson, ReadsEveryValueBackToItsPlace) {
  const RunSummary summary = all_different();
  const auto copy = summary_from_json(to_json(summary));
  ASSERT_TRUE(copy.has_value());
  EXPECT_EQ(to_json(*copy), to_json(summary));
  EXPECT_EQ(copy->recorded.trace_seconds, 2.25);
  EXPECT_EQ(copy->recorded.trace_events, 77);
  EXPECT_TRUE(copy->recorded.parameters);
  EXPECT_EQ(copy->emulated_micro_batches, 1000);
  EXPECT_EQ(copy->overrun_excess_s, 0.375);
}

FormulaTime formula() {
  return {.prediction = {.formula = "Eqs. 4 to 6",
                         .step_time_s = 2,
                         .communication_s = 0.5,
                         .kept = 0.9,
                         .drop_rate = {},
                         .sync_step_time_s = 3},
          .total_time_s = 60};
}

TEST(SummaryJson, PredictionsStandBesideWhatTheRunTook) {
  const RunTotals all = totals();
  RunSummary summary = summarise(plan(), four_rows(), &all, 8, 2);
  EXPECT_DOUBLE_EQ(summary.step_time_s(), 3.0 / 30);
  EXPECT_FALSE(nlohmann::json::parse(to_json(summary)).contains("predicted"));
  summary.predicted = {formula()};
  const auto json = nlohmann::json::parse(to_json(summary))["predicted"][0];
  EXPECT_EQ(json["formula"], "Eqs. 4 to 6");
  EXPECT_DOUBLE_EQ(json["effective_speedup"], 0.9 * 3 / 2);
  EXPECT_TRUE(json["drop_rate"].is_null());
  const auto copy = summary_from_json(to_json(summary));
  ASSERT_TRUE(copy.has_value());
  ASSERT_EQ(copy->predicted.size(), 1u);
  EXPECT_EQ(copy->predicted[0].prediction, formula().prediction);
  EXPECT_EQ(copy->predicted[0].total_time_s, 60);
}

TEST(SummaryJson, AValueThatIsNotANumberIsNull) {
  Recording recording;
  recording.metrics = {row(0, nan, nan)};
  cut_after_divergence(recording);
  const auto json = nlohmann::json::parse(to_json(summarise(plan(), recording, nullptr, 8, 2)));
  EXPECT_TRUE(json["final_test_loss"].is_null());
  EXPECT_TRUE(json["final_test_accuracy"].is_null());
}

TEST(SummaryJson, TruncatedOrOlderFilesAreNotGuessedAt) {
  const std::string text = to_json(summarise(plan(), four_rows(), nullptr, 8, 2));
  EXPECT_TRUE(summary_from_json(text).has_value());
  EXPECT_FALSE(summary_from_json(text.substr(0, text.size() / 2)).has_value());
  auto older = nlohmann::json::parse(text);
  older["schema_version"] = results_schema_version - 1;
  EXPECT_FALSE(summary_from_json(older.dump()).has_value());
  EXPECT_FALSE(summary_from_json("{}").has_value());
}

nlohmann::json metadata_of(const Run& run, const RunSummary& summary, const ExecutionBackend& backend) {
  Outcome outcome;
  outcome.start = std::chrono::system_clock::from_time_t(951'827'696);  // on a leap day
  outcome.end = std::chrono::system_clock::from_time_t(951'827'697);
  return nlohmann::json::parse(files_of(run, outcome, summary, backend).at("metadata.json"));
}

TEST(Metadata, SaysWhatMadeTheRunAndWhen) {
  const auto json = metadata_of(plan(), {}, {.threads = 2});
  EXPECT_EQ(json["start"], "2000-02-29T12:34:56Z");
  EXPECT_EQ(json["end"], "2000-02-29T12:34:57Z");
  EXPECT_EQ(json["threads"], 2);
  for (const char* key : {"syncopate_version", "commit", "host", "operating_system", "compiler", "compiler_flags"}) {
    EXPECT_FALSE(json[key].get<std::string>().empty()) << key;
  }
}

TEST(Metadata, EveryValueStandsUnderItsOwnName) {
  syncopate::Run run = plan();
  run.hash = "0123456789abcdef";
  run.fingerprint = "f1";
  run.training.arithmetic.bfloat16 = true;
  RunSummary summary;
  summary.status = RunStatus::diverged;
  const auto json = metadata_of(run, summary, {.threads = 2, .call = "c"});
  EXPECT_EQ(json["cluster"], "simulated");
  EXPECT_EQ(json["threads"], 2);
  EXPECT_EQ(json["processes"], 1);
  EXPECT_EQ(json["libtorch_version"], torch_version());
  EXPECT_EQ(json["torch_kernels"], torch_kernels("cpu"));
  EXPECT_EQ(json["device"], "cpu");
  EXPECT_EQ(json["precision"], "bfloat16");
  EXPECT_EQ(json["exit"], "diverged");
  EXPECT_EQ(json["configuration_hash"], "0123456789abcdef");
  EXPECT_EQ(json["course"], "f1");
  EXPECT_EQ(json["call"], "c");
  EXPECT_EQ(json["schema_version"], results_schema_version);
  EXPECT_EQ(json["results_version"], results_version);
  EXPECT_EQ(json["host"], host_name());
  EXPECT_EQ(json["operating_system"], operating_system());
  EXPECT_EQ(json["processor"], processor_name());
  EXPECT_EQ(json["cores"], std::thread::hardware_concurrency());
  EXPECT_EQ(json["syncopate_version"], build_info().version);
  EXPECT_EQ(json["commit"], build_info().commit);
  EXPECT_EQ(json["compiler"], build_info().compiler);
  EXPECT_EQ(json["compiler_flags"], build_info().flags);
  EXPECT_FALSE(json.contains("measured_micro_batch_s"));
  run.cluster.measured_micro_batch_s = 0.125;
  EXPECT_EQ(metadata_of(run, summary, {})["measured_micro_batch_s"], 0.125);
}

// Predictions of formulas, written and read again.

const FormulaTime sampled{.prediction = {.formula = "Eq. 6, sampled law",
                                         .step_time_s = 0.5,
                                         .communication_s = 0.125,
                                         .kept = 0.75,
                                         .drop_rate = 0.25,
                                         .sync_step_time_s = 1,
                                         .is_sampled = true},
                          .total_time_s = 50};

TEST(FormulaJson, IsReadAsItWasWritten) {
  const FormulaTime read = Json(sampled).get<FormulaTime>();
  EXPECT_EQ(read.prediction, sampled.prediction);
  EXPECT_EQ(read.total_time_s, sampled.total_time_s);
  FormulaTime exact{.prediction = {.formula = "Eq. 4", .step_time_s = 2, .sync_step_time_s = 2}, .total_time_s = {}};
  EXPECT_EQ(Json(exact).get<FormulaTime>().prediction, exact.prediction);
  EXPECT_FALSE(Json(exact).get<FormulaTime>().total_time_s);
  Json older = sampled;
  older.erase("sampled");
  EXPECT_FALSE(older.get<FormulaTime>().prediction.is_sampled);
}

TEST(FormulaJson, WithErrorsIsTheSameAndWhatFollowsFromIt) {
  FormulaTime with_error = sampled;
  with_error.prediction.step_error_s = 0.0625;
  auto json = json_with_errors(with_error);
  EXPECT_EQ(json.at("effective_speedup"), 1.5) << "0.75 x 1 / 0.5";
  EXPECT_EQ(json.at("communication_share"), 0.25);
  EXPECT_EQ(json.at("step_time_standard_error_s"), 0.0625);
  EXPECT_TRUE(json_with_errors(sampled).at("step_time_standard_error_s").is_null());
  for (const char* key : {"communication_share", "step_time_standard_error_s", "effective_speedup_standard_error"})
    json.erase(key);
  EXPECT_EQ(json, Json(sampled));
  with_error.prediction.communication_s.reset();
  EXPECT_TRUE(json_with_errors(with_error).at("communication_share").is_null());
  EXPECT_TRUE(Json(with_error).at("communication_s").is_null());
  EXPECT_EQ(Json(with_error).get<FormulaTime>().prediction.communication_s, std::nullopt);
}

// Whole numbers in result files are either read exactly or refused.

template <typename Value>
Value read(const std::string& text) {
  return Json::parse(text).get<Value>();
}

TEST(Json, ReadsWholeNumbersOfTheirWholeRange) {
  EXPECT_EQ(read<std::int64_t>("-9223372036854775808"), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(read<std::uint64_t>("18446744073709551615"), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(read<int>("-2147483648"), std::numeric_limits<int>::min());
  EXPECT_EQ(read<std::size_t>("0"), 0u);
  EXPECT_EQ(read<std::vector<std::int64_t>>("[1, -2]"), (std::vector<std::int64_t>{1, -2}));
}

TEST(Json, RefusesWhatIsNoWholeNumberOfTheType) {
  for (const char* text : {"1.5", "1e300", "-1e300", "2.0", "9223372036854775808", "\"1\"", "null", "true", "[1]"})
    EXPECT_THROW(read<std::int64_t>(text), Json::type_error) << text;
  EXPECT_THROW(read<std::size_t>("-1"), Json::type_error);
  EXPECT_THROW(read<int>("2147483648"), Json::type_error);
  EXPECT_THROW(read<std::vector<std::int64_t>>("[1, 1e300]"), Json::type_error);
  EXPECT_THROW(Json::parse(R"({"steps": 1e300})").value("steps", std::int64_t{0}), Json::type_error);
}

TEST(Json, ReadsOtherValuesAsTheLibraryDoes) {
  EXPECT_EQ(read<double>("3"), 3.0);
  EXPECT_EQ(read<double>("1e300"), 1e300);
  EXPECT_TRUE(read<bool>("true"));
  EXPECT_EQ(read<std::string>("\"a\""), "a");
}

TEST(Json, KeepsTheOrderInWhichKeysAreWritten) {
  Json json;
  json["b"] = 1;
  json["a"] = std::int64_t{-2};
  EXPECT_EQ(json.dump(), R"({"b":1,"a":-2})");
}

}  // namespace
}  // namespace syncopate
