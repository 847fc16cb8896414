#include "results/summary.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "tests/results/four_rows.hpp"

namespace syncopate {
namespace {

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
  run.evaluation.target_accuracy = 0.78;  // met at step 10
  run.evaluation.target_loss = 0.5;       // met at step 20
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

// Such as one whose loss on the training set alone has overflowed.
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

// Where there are totals, they go further than rounds and evaluations do; a diverged run ends where its rows do.
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
  recording.metrics.push_back(row(36, 0.5, 0.5));  // at 3.6 s
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
  std::swap(recording.rows.front().period, recording.rows.back().period);  // so that the longest is not the last
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
    EXPECT_EQ(measure_named("largest_period")->value(each), 20);
  }
  const auto without = summary_from_json(to_json(summarise(plan(), four_rows(), nullptr, 8, 2)));
  ASSERT_TRUE(without);
  EXPECT_FALSE(without->final_largest_eigenvalue || without->final_hessian_trace);
}

// 0.9 of the micro-batches in 0.08 s by the formula; measured 0.9 in 0.1 s.
TEST(Summary, MeasuresTheThroughputByAFormula) {
  RunSummary summary;
  const auto share = [&] { return measure_named("first_formula_over_throughput")->value(summary); };
  summary.steps = 10;
  summary.end_time_s = 1;
  summary.kept_micro_batches = 90;
  summary.dropped_micro_batches = 10;
  EXPECT_FALSE(share());  // no formula
  summary.predicted.resize(1);
  Prediction& formula = summary.predicted.front().prediction;
  formula.step_time_s = 0.08;
  formula.kept = 0.9;
  EXPECT_FALSE(share());  // it does not say what is dropped
  formula.drop_rate = 0.1;
  EXPECT_NEAR(share().value(), 1.25, 1e-12);
  formula.drop_rate = 0.0;  // a tenth is not even computed
  EXPECT_FALSE(share());
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
  EXPECT_FALSE(measure_named("longest_test_accuracy")->value(summary));  // time alone
  summary.samples_kept->test_accuracy = {0.5, 0.75, 0.25};
  EXPECT_EQ(measure_named("longest_test_accuracy")->value(summary), 0.25);
  summary.samples_kept->test_accuracy.back() = std::nan("");  // no test sample is so long
  EXPECT_FALSE(measure_named("longest_test_accuracy")->value(summary));
  summary.samples_kept->by_length.kept = {0, 0, 0};
  EXPECT_FALSE(measure_named("longest_kept_share")->value(summary));
}

// Its losses fall while those of the test set rise again.
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

// Two workers that communicate for 1.5 s and 2.5 s within 4 steps.
TEST(RunSummary, CommunicationPerStepIsTheWorkersMean) {
  RunSummary summary;
  summary.steps = 4;
  EXPECT_EQ(summary.communication_s(), std::nullopt);  // of a run that has not come to its end
  summary.accounts.resize(2);
  summary.accounts[0][Activity::communicate] = std::chrono::milliseconds(1500);
  summary.accounts[1][Activity::communicate] = std::chrono::milliseconds(2500);
  summary.accounts[1][Activity::wait] = std::chrono::seconds(100);
  EXPECT_DOUBLE_EQ(summary.communication_s().value(), 0.5);
  summary.steps = 0;
  EXPECT_EQ(summary.communication_s(), std::nullopt);
}

// With the recording that is there, one of what is wanted at a time.
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
  // How long a trace would go on means nothing where none is asked for.
  EXPECT_TRUE(covers(all, {.trace_seconds = 9, .trace_events = 9}));
}

}  // namespace
}  // namespace syncopate
