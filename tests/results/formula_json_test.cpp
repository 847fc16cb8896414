// What a formula says, written and read again.
#include "results/directory/formula_json.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace syncopate {
namespace {

const FormulaTime sampled{.prediction = {.formula = "Eq. 6, sampled law",
                                         .step_time_s = 0.5,
                                         .communication_s = 0.125,
                                         .kept = 0.75,
                                         .drop_rate = 0.25,
                                         .sync_step_time_s = 1,
                                         .step_error_s = 0.0625,
                                         .kept_error = 0.03125,
                                         .sync_step_error_s = 0.015625},
                          .total_time_s = 50};

TEST(FormulaJson, IsReadAsItWasWritten) {
  const FormulaTime read = formula_of(json_of(sampled));
  EXPECT_EQ(read.prediction, sampled.prediction);
  EXPECT_EQ(read.total_time_s, sampled.total_time_s);
  const FormulaTime exact{.prediction = {.formula = "Eq. 4", .step_time_s = 2, .sync_step_time_s = 2},
                          .total_time_s = {}};
  EXPECT_EQ(formula_of(json_of(exact)).prediction, exact.prediction);
  EXPECT_FALSE(formula_of(json_of(exact)).total_time_s);
}

TEST(FormulaJson, SaysWhatFollowsFromTheRest) {
  const auto json = json_of(sampled);
  EXPECT_EQ(json.at("effective_speedup"), 1.5) << "0.75 x 1 / 0.5";
  EXPECT_EQ(json.at("communication_share"), 0.25);
}

TEST(FormulaJson, OfAFileWithoutStandardErrorsHasNone) {
  auto json = json_of(sampled);
  for (const char* key : {"step_time_standard_error_s", "kept_standard_error", "sync_step_time_standard_error_s"})
    json.erase(key);
  const Prediction read = formula_of(json).prediction;
  EXPECT_EQ(read.step_error_s, 0);
  EXPECT_EQ(read.kept_error, 0);
  EXPECT_EQ(read.sync_step_error_s, 0);
  EXPECT_EQ(read.step_time_s, sampled.prediction.step_time_s);
}

}  // namespace
}  // namespace syncopate
