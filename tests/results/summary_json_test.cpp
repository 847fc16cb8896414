// summary.json and metadata.json: every value under its name, and back in its place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "results/build_info.hpp"
#include "results/run.hpp"
#include "results/run_directory.hpp"
#include "results/summary.hpp"
#include "tests/results/four_rows.hpp"
#include "workers/base/machine.hpp"

namespace syncopate {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

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
  EXPECT_FALSE(nlohmann::json::parse(to_json(summary)).contains("overruns"));  // nothing was emulated
  summary.emulated_micro_batches = 1000;
  summary.overruns = 10;  // 1 %, which is not yet too much
  summary.overrun_excess_s = 0.25;
  auto json = nlohmann::json::parse(to_json(summary));
  EXPECT_EQ(json["overruns"],
            nlohmann::json::parse(R"({"micro_batches": 10, "of": 1000, "excess_s": 0.25, "warning": null})"));
  summary.overruns = 32;
  json = nlohmann::json::parse(to_json(summary));
  EXPECT_EQ(json["overruns"]["warning"],
            "times are not those declared: 3.2 % of the micro-batches took longer than drawn");
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

// Each quality, count and time of a run is another one, so that none can stand in another's place.
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
                 "warning": "times are not those declared: 3.2 % of the micro-batches took longer than drawn"},
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

TEST(Metadata, SaysWhatMadeTheRunAndWhen) {
  RunMetadata metadata;
  metadata.cluster = "simulated";
  metadata.threads = 2;
  metadata.blas_kernel = "SkylakeX";
  metadata.start = std::chrono::system_clock::from_time_t(951'827'696);  // a leap day
  metadata.end = std::chrono::system_clock::from_time_t(951'827'697);
  metadata.exit = "finished";
  const auto json = nlohmann::json::parse(to_json(metadata));
  EXPECT_EQ(json["start"], "2000-02-29T12:34:56Z");
  EXPECT_EQ(json["end"], "2000-02-29T12:34:57Z");
  EXPECT_EQ(json["threads"], 2);
  EXPECT_EQ(json["blas_kernel"], "SkylakeX");
  for (const char* key : {"syncopate_version", "commit", "host", "operating_system", "compiler", "compiler_flags"}) {
    EXPECT_FALSE(json[key].get<std::string>().empty()) << key;
  }
}

TEST(Metadata, EveryValueStandsUnderItsOwnName) {
  RunMetadata metadata;
  metadata.cluster = "mpi";
  metadata.threads = 2;
  metadata.processes = 5;
  metadata.blas_kernel = "SkylakeX";
  metadata.libtorch_version = "2.9";
  metadata.torch_kernels = "AVX2";
  metadata.exit = "diverged";
  metadata.hash = "0123456789abcdef";
  auto json = nlohmann::json::parse(to_json(metadata));
  EXPECT_EQ(json["cluster"], "mpi");
  EXPECT_EQ(json["threads"], 2);
  EXPECT_EQ(json["processes"], 5);
  EXPECT_EQ(json["libtorch_version"], "2.9");
  EXPECT_EQ(json["torch_kernels"], "AVX2");
  EXPECT_EQ(json["exit"], "diverged");
  EXPECT_EQ(json["configuration_hash"], "0123456789abcdef");
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
  metadata.measured_micro_batch_s = 0.125;
  EXPECT_EQ(nlohmann::json::parse(to_json(metadata))["measured_micro_batch_s"], 0.125);
}

}  // namespace
}  // namespace syncopate
