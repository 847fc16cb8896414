// Predictions made by hand, no two quantities of which have one value, as a table and as JSON.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "experiments/commands/commands.hpp"

namespace syncopate {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

PredictedMethod by_simulation_and_two_formulas() {
  PredictedMethod method;
  method.method = "m";
  method.algorithm = "dropcompute";
  method.sweep = {{"cluster.workers", "2"}};
  method.seed = 3;
  method.planned_steps = Step{60};
  method.simulated = SimulatedTime{.steps = 20,
                                   .whole = false,
                                   .step_time_s = 0.5,
                                   .error_s = 0.0625,
                                   .drop_rate = 0.25,
                                   .communication_share = 0.125,
                                   .micro_batches_per_s = 7,
                                   .total_time_s = 30};
  method.simulated_speedup = 1.5;
  method.simulated_speedup_error = 0.375;
  method.communicated = PredictedCommunication{.rounds = 60, .bytes = 123456, .is_exact = true};
  method.solved = "period.steps = 9 makes 60 rounds";
  method.compared_with = "\"x\"";
  method.formulas = {{.prediction = {.formula = "first",
                                     .step_time_s = 2,
                                     .communication_s = 0.375,
                                     .kept = 0.75,
                                     .drop_rate = 0.5625,
                                     .mean_staleness = 3.5,
                                     .sync_step_time_s = 6,
                                     .step_error_s = 0.03125,
                                     .kept_error = 0.5,
                                     .sync_step_error_s = 0.25},
                      .total_time_s = 120},
                     {.prediction = {.formula = "second",
                                     .step_time_s = 4,
                                     .communication_s = 3,
                                     .kept = 1,
                                     .drop_rate = {},
                                     .sync_step_time_s = 5},
                      .total_time_s = {}}};
  return method;
}

PredictedMethod by_nothing() {
  PredictedMethod method;
  method.method = "n";
  method.seed = 4;
  method.not_simulated = "needs training\nand more";
  method.why_no_formula = "a reason";
  return method;
}

TEST(PredictionTable, WhatASampleIsIsSaidWhereAFormulaGoesByOne) {
  std::vector<PredictedMethod> methods{by_simulation_and_two_formulas()};
  EXPECT_THAT(prediction_table(methods), testing::Not(HasSubstr("the run's own steps")));
  methods[0].formulas[1].prediction.is_sampled = true;
  EXPECT_THAT(prediction_table(methods), HasSubstr("up to 512 of the run's own steps"));
}

TEST(PredictionTable, SaysWhoseLinksAreNotShared) {
  std::vector<PredictedMethod> methods{by_simulation_and_two_formulas(), by_nothing()};
  EXPECT_THAT(prediction_table(methods), testing::Not(HasSubstr("not shared")));
  methods[1].has_unshared_links = true;
  EXPECT_THAT(prediction_table(methods), HasSubstr("\nLinks are not shared by n: "));
  methods[0].has_unshared_links = true;
  EXPECT_THAT(prediction_table(methods), HasSubstr("\nLinks are not shared: "));
}

TEST(PredictionTable, EveryValueOfTheJsonStandsUnderItsOwnName) {
  std::vector<PredictedMethod> methods{by_simulation_and_two_formulas(), by_nothing()};
  methods[0].formulas[1].prediction.is_sampled = true;
  methods[0].has_unshared_links = true;
  methods[0].target =
      PredictedTarget{.batch = 12.5, .steps = 40.5, .step_time_s = 0.5, .time_s = 20.25, .is_bound = true};
  auto json = nlohmann::json::parse(predictions_json("e", methods));
  auto& error = json["predictions"][0]["formulas"][0]["effective_speedup_standard_error"];
  EXPECT_NEAR(error, 2.25 * std::sqrt(4.0 / 9 + 1.0 / 576 + 1.0 / 4096), 1e-12);  // of 0.75, 6 and 2: shares of each
  error = "above";
  EXPECT_EQ(json, nlohmann::json::parse(R"({
    "experiment": "e", "predictions": [
      {"method": "m", "algorithm": "dropcompute", "sweep": [["cluster.workers", "2"]], "seed": 3, "planned_steps": 60,
       "rounds": 60, "communicated_bytes": 123456, "communication_is_exact": true,
       "to_target": {"batch": 12.5, "steps": 40.5, "step_time_s": 0.5, "time_s": 20.25, "is_bound": true}, "solved": "period.steps = 9 makes 60 rounds", "against": "\"x\"",
       "links": "not shared",
       "simulated": {"steps": 20, "whole": false, "step_time_s": 0.5, "step_time_standard_error_s": 0.0625,
                     "effective_speedup": 1.5, "effective_speedup_standard_error": 0.375, "drop_rate": 0.25, "communication_share": 0.125, "total_time_s": 30.0},
       "not_simulated": null,
       "formulas": [
         {"formula": "first", "sampled": false,
          "step_time_s": 2.0, "step_time_standard_error_s": 0.03125, "communication_s": 0.375,
          "communication_share": 0.1875, "mean_staleness": 3.5, "kept": 0.75, "drop_rate": 0.5625,
          "sync_step_time_s": 6.0, "effective_speedup": 2.25,
          "effective_speedup_standard_error": "above", "total_time_s": 120.0},
         {"formula": "second", "sampled": true,
          "step_time_s": 4.0, "step_time_standard_error_s": null, "communication_s": 3.0,
          "communication_share": 0.75, "mean_staleness": null, "kept": 1.0, "drop_rate": null,
          "sync_step_time_s": 5.0, "effective_speedup": 1.25,
          "effective_speedup_standard_error": null, "total_time_s": null}],
       "no_formula": null},
      {"method": "n", "algorithm": "", "sweep": [], "seed": 4, "planned_steps": null, "links": null, "to_target": null, "simulated": null,
       "rounds": null, "communicated_bytes": null, "communication_is_exact": null, "solved": null, "against": null,
       "not_simulated": "needs training\nand more", "formulas": [], "no_formula": "a reason"}]})"));
}

std::vector<std::vector<std::string>> words_of_rows(const std::string& table) {
  std::istringstream lines(table);
  std::vector<std::vector<std::string>> rows;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    rows.emplace_back(std::istream_iterator<std::string>(words), std::istream_iterator<std::string>());
  }
  return rows;
}

TEST(PredictionTable, EveryValueStandsInItsColumn) {
  const std::vector<PredictedMethod> methods{by_simulation_and_two_formulas(), by_nothing()};
  const auto rows = words_of_rows(prediction_table(methods));
  ASSERT_EQ(rows.size(), 3u + 3 + 2 + 4) << "a heading of two lines and a rule; notes after an empty line";
  EXPECT_THAT(rows[3], ElementsAre("m,", "workers", "=", "2", "simulation,", "20", "of", "60", "steps", "0.500", "+-",
                                   "0.062", "1.50", "+-", "0.38", "25.0", "12.5", "30.00", "60", "123.5k"));
  EXPECT_THAT(rows[4], ElementsAre("first", "2.000", "+-", "0.031", "2.2", "+-", "1.5", "56.2", "18.8", "120.0"));
  EXPECT_THAT(rows[5], ElementsAre("second", "4.000", "1.250", "-", "75.0", "-"));
  EXPECT_THAT(rows[6], ElementsAre("n", "needs", "training", "-", "-", "-", "-", "-", "-", "-"));
  EXPECT_THAT(rows[7], ElementsAre("no", "formula:", "a", "reason", "-", "-", "-", "-", "-"));
  EXPECT_THAT(rows[9], ElementsAre("m,", "workers", "=", "2:", "period.steps", "=", "9", "makes", "60", "rounds"));
  EXPECT_THAT(rows[10], ElementsAre("m,", "workers", "=", "2:", "a", "mean", "staleness", "of", "3.5", "updates,",
                                    "whatever", "its", "workers'", "times"));
}

TEST(PredictionTable, MarksWhatIsNotExact) {
  std::vector<PredictedMethod> methods{by_simulation_and_two_formulas()};
  methods[0].communicated = PredictedCommunication{.rounds = 59.6, .bytes = 2.5e9, .is_exact = false};
  const std::string table = prediction_table(methods);
  EXPECT_THAT(table, HasSubstr("~60"));
  EXPECT_THAT(table, HasSubstr("~2.5G"));
  EXPECT_THAT(table, HasSubstr("~: as in the steps that were simulated, drawn out\n"));
}

TEST(PredictionTable, SaysHowMuchOfTheRunWasSimulated) {
  std::vector<PredictedMethod> methods{by_simulation_and_two_formulas()};
  methods[0].planned_steps.reset();
  EXPECT_THAT(prediction_table(methods), HasSubstr("simulation, 20 steps "));
  methods[0].simulated->whole = true;
  EXPECT_THAT(words_of_rows(prediction_table(methods))[3][5], "0.500") << "the word after it";
  // An error that no digit shows is none, and so is one that is not known.
  methods[0].simulated->error_s = 0.4e-6;
  EXPECT_THAT(words_of_rows(prediction_table(methods))[3][5], "0.5000");
  methods[0].simulated->error_s.reset();
  EXPECT_THAT(words_of_rows(prediction_table(methods))[3][5], "0.5000");
}

}  // namespace
}  // namespace syncopate
