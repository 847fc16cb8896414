// What a formula says, written and read again.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "results/found_runs.hpp"

namespace syncopate {
namespace {

const FormulaTime sampled{.prediction = {.formula = "Eq. 6, sampled law",
                                         .step_time_s = 0.5,
                                         .communication_s = 0.125,
                                         .kept = 0.75,
                                         .drop_rate = 0.25,
                                         .sync_step_time_s = 1,
                                         .is_sampled = true},
                          .total_time_s = 50};

TEST(FormulaJson, IsReadAsItWasWritten) {
  const FormulaTime read = formula_of(json_of(sampled));
  EXPECT_EQ(read.prediction, sampled.prediction);
  EXPECT_EQ(read.total_time_s, sampled.total_time_s);
  FormulaTime exact{.prediction = {.formula = "Eq. 4", .step_time_s = 2, .sync_step_time_s = 2}, .total_time_s = {}};
  EXPECT_EQ(formula_of(json_of(exact)).prediction, exact.prediction);
  EXPECT_FALSE(formula_of(json_of(exact)).total_time_s);
  auto older = json_of(sampled);
  older.erase("sampled");
  EXPECT_FALSE(formula_of(older).prediction.is_sampled);
}

TEST(FormulaJson, WithErrorsIsTheSameAndWhatFollowsFromIt) {
  FormulaTime with_error = sampled;
  with_error.prediction.step_error_s = 0.0625;
  auto json = json_with_errors(with_error);
  EXPECT_EQ(json.at("effective_speedup"), 1.5) << "0.75 x 1 / 0.5";
  EXPECT_EQ(json.at("communication_share"), 0.25);
  EXPECT_EQ(json.at("step_time_standard_error_s"), 0.0625);
  EXPECT_TRUE(json_with_errors(sampled).at("step_time_standard_error_s").is_null());
  EXPECT_TRUE(json.at("mean_staleness").is_null());
  with_error.prediction.mean_staleness = 3.5;
  EXPECT_EQ(json_with_errors(with_error).at("mean_staleness"), 3.5);
  for (const char* key :
       {"communication_share", "mean_staleness", "step_time_standard_error_s", "effective_speedup_standard_error"})
    json.erase(key);
  EXPECT_EQ(json, json_of(sampled));
}

}  // namespace
}  // namespace syncopate
