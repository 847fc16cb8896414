// The search for a threshold against an independent computation (tests/golden) and closed forms.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "algorithms/synchronous/drop_threshold.hpp"
#include "tests/algorithms/golden_search.hpp"

namespace syncopate {
namespace {

const nlohmann::json& golden() { return golden_searches(SYNCOPATE_SOURCE_DIR); }
Recorded search_case() { return recorded_search_case(golden()); }

// Golden values have nine or more digits after the point.
void expect_close(double found, double expected) { EXPECT_NEAR(found, expected, 1e-9 * std::max(1.0, expected)); }

TEST(ThresholdSearch, TheTimesAreThoseOfTheRecipe) {
  const auto times = search_case().times;
  expect_close(std::accumulate(times.begin(), times.end(), 0.0), golden().at("search_case").at("sum_of_times"));
}

TEST(ThresholdSearch, TheReferenceCodesSearchFindsTheAuthorsThreshold) {
  const Recorded times = search_case();
  const auto& recipe = golden().at("search_case");
  const auto found = search_threshold(times.view, recipe.at("serial_time"), SpeedupForm::reference);
  for (const char* source : {"reference", "authors_function"}) {
    const auto& expected = recipe.at(source);
    expect_close(found.threshold, expected.at("threshold"));
    expect_close(found.drop_rate, expected.at("drop_rate"));
    expect_close(found.time_saved, expected.at("time_saved"));
    expect_close(found.effective_speedup - 1, expected.at("speedup_minus_1"));
  }
  EXPECT_EQ(found.threshold, threshold_grid(times.view).at(recipe.at("reference").at("index")));
}

TEST(ThresholdSearch, TheSearchByEquationSixFindsTheTabulatedThreshold) {
  const Recorded times = search_case();
  const auto& recipe = golden().at("search_case");
  const auto& expected = recipe.at("equation_6");
  const auto found = search_threshold(times.view, recipe.at("serial_time"), SpeedupForm::effective);
  EXPECT_EQ(found.threshold, threshold_grid(times.view).at(expected.at("index")));
  expect_close(found.threshold, expected.at("threshold"));
  expect_close(found.effective_speedup, expected.at("speedup"));
  expect_close(12 * (1 - found.drop_rate), expected.at("kept"));
}

TEST(ThresholdSearch, EquationSixMatchesItsTableThresholdByThreshold) {
  const Recorded times = search_case();
  const auto& recipe = golden().at("search_case");
  std::vector<double> thresholds;
  for (const auto& row : recipe.at("thresholds")) thresholds.push_back(row.at("threshold"));
  const auto effects = threshold_effects(times.view, recipe.at("serial_time"), SpeedupForm::effective, thresholds);
  ASSERT_EQ(effects.size(), 5u);
  for (std::size_t k = 0; k < effects.size(); ++k) {
    expect_close(effects[k].effective_speedup, recipe.at("thresholds")[k].at("speedup"));
    expect_close(12 * (1 - effects[k].drop_rate), recipe.at("thresholds")[k].at("kept"));
  }
}

void expect_sweep(const char* name, SpeedupForm form, std::optional<double> maximum_drop_rate = {}) {
  const auto& sweep = golden().at("sweep");
  ASSERT_FALSE(sweep.at(name).empty());
  for (const auto& row : sweep.at(name)) {
    const Recorded times = recorded(row, sweep.at("steps"), sweep.at("seed"), 1);
    const auto found = search_threshold(times.view, row.at("serial_time"), form, maximum_drop_rate);
    EXPECT_EQ(found.threshold, threshold_grid(times.view).at(row.at("index"))) << row;
    expect_close(found.threshold, row.at("threshold"));
    expect_close(found.effective_speedup, row.at("speedup"));
    expect_close(found.drop_rate, row.at("drop_rate"));
  }
}

TEST(ThresholdSearch, SweepsOverWorkersMicroBatchesAndNoiseMatchTheTables) {
  expect_sweep("equation_6", SpeedupForm::effective);
  expect_sweep("reference", SpeedupForm::reference);
}

TEST(ThresholdSearch, ACapOnTheDropRateTakesTheBestOfTheRest) {
  expect_sweep("equation_6_with_at_most_5_percent_dropped", SpeedupForm::effective, 0.05);
}

TEST(ThresholdSearch, TheGridRunsFromTheEarliestSixthEndToTheLatestEnd) {
  // Two workers, one step, 8 micro-batches of 1 and of 1.5: the 6th ends at 6 and at 9, the last at 8 and at 12.
  std::vector<double> times(16, 1.0);
  std::fill(times.begin() + 8, times.end(), 1.5);
  const auto grid = threshold_grid({times, 2, 1, 8});
  ASSERT_EQ(grid.size(), 200u);
  EXPECT_EQ(grid.front(), 6);
  EXPECT_EQ(grid.back(), 12);
  EXPECT_NEAR(grid[100] - grid[99], 6.0 / 199, 1e-12);
}

TEST(ThresholdSearch, WithFewMicroBatchesTheGridStartsAfterTheFirstHalf) {
  const std::vector<double> times(5, 1.0);
  EXPECT_EQ(threshold_grid({times, 1, 1, 5}).front(), 3);
  EXPECT_EQ(threshold_grid({times, 1, 1, 4}).front(), 2);
  EXPECT_EQ(threshold_grid({times, 1, 1, 3}).front(), 2);
  EXPECT_EQ(threshold_grid({times, 1, 1, 2}).front(), 1);
  EXPECT_EQ(threshold_grid({times, 1, 1, 1}).front(), 1);
}

// One straggler of 4 workers, M = 2: ends at 1 and 2, and at 3 and 6; T^c = 1, so a step takes 7 without a threshold.
TEST(ThresholdSearch, TheEffectOfAThresholdIsEquationSix) {
  const std::vector<double> times = {1, 1, 1, 1, 1, 1, 3, 3};
  const MicroBatchTimes recorded{times, 4, 1, 2};
  const std::vector<double> thresholds = {2.5, 3.5};
  const auto paper = threshold_effects(recorded, 1, SpeedupForm::effective, thresholds);
  EXPECT_DOUBLE_EQ(paper[0].drop_rate, 2.0 / 8);
  EXPECT_DOUBLE_EQ(paper[0].time_saved, 1 - 3.5 / 7);
  EXPECT_DOUBLE_EQ(paper[0].effective_speedup, 6.0 / 8 * 7 / 3.5);
  EXPECT_DOUBLE_EQ(paper[1].effective_speedup, 7.0 / 8 * 7 / 4.5);
  // The last micro-batch before 2.5 ends at 2, before 3.5 at 3.
  const auto code = threshold_effects(recorded, 1, SpeedupForm::reference, thresholds);
  EXPECT_DOUBLE_EQ(code[0].drop_rate, 2.0 / 8);
  EXPECT_DOUBLE_EQ(code[0].time_saved, 1 - 3.0 / 7);
  EXPECT_DOUBLE_EQ(code[0].effective_speedup, 6.0 / 8 * 7 / 3);
  EXPECT_DOUBLE_EQ(code[1].effective_speedup, 7.0 / 8 * 7 / 4);
}

// Two workers, one micro-batch in each of two steps: 1 and 4, then 1 and 9; T^c = 1. A threshold of 2 keeps two of four
// and takes 3 + 3 instead of 5 + 10.
TEST(ThresholdSearch, ThroughputCountsAllStepsTogether) {
  const std::vector<double> times = {1, 1, 4, 9};
  const auto effect = threshold_effects({times, 2, 2, 1}, 1, SpeedupForm::throughput, std::vector<double>{2})[0];
  EXPECT_DOUBLE_EQ(effect.drop_rate, 0.5);
  EXPECT_DOUBLE_EQ(effect.time_saved, 1 - 6.0 / 15);
  EXPECT_DOUBLE_EQ(effect.effective_speedup, 2.0 / 4 * 15 / 6);
}

// Micro-batches per time of what was recorded, under a threshold that keeps what ends before it.
double throughput(const MicroBatchTimes& recorded, double serial_time, double threshold) {
  double kept = 0;
  std::vector<double> slowest(static_cast<std::size_t>(recorded.steps));
  for (std::size_t i = 0; i < recorded.times.size();) {
    const std::size_t step = i / static_cast<std::size_t>(recorded.micro_batches) % slowest.size();
    double end = 0;
    for (int m = 0; m < recorded.micro_batches; ++m) kept += (end += recorded.times[i++]) < threshold ? 1 : 0;
    slowest[step] = std::max(slowest[step], end);
  }
  double time = 0;
  for (const double end : slowest) time += std::min(end, threshold) + serial_time;
  return kept / time;
}

// Pareto times from 2 ms on; shape 1.2 has no variance, 0.8 no mean.
std::vector<double> pareto_times(double shape, std::size_t count, std::uint64_t seed) {
  std::vector<double> times(count);
  for (std::size_t k = 0; k < count; ++k) times[k] = 0.002 * std::pow(1 - splitmix_uniform(seed, k + 1), -1 / shape);
  return times;
}

// What is found in one record is tried on another one, against the best of thresholds over the whole range.
TEST(ThresholdSearch, UnderHeavyTailsItComesCloseToTheBestFixedThreshold) {
  constexpr int workers = 16, micro_batches = 4, steps = 2000;
  constexpr double serial_s = 0.001;
  for (const double shape : {0.8, 1.05, 1.2, 1.5}) {
    const auto others = pareto_times(shape, workers * steps * micro_batches, 99);
    const MicroBatchTimes tried{others, workers, steps, micro_batches};
    double best = 0;
    for (double threshold = 0.002; threshold < 10; threshold *= 1.05)
      best = std::max(best, throughput(tried, serial_s, threshold));
    for (const int recorded_steps : {44, 200})
      for (std::uint64_t seed = 1; seed <= 8; ++seed) {
        const auto times =
            pareto_times(shape, static_cast<std::size_t>(workers * recorded_steps * micro_batches), seed);
        const auto found =
            search_threshold({times, workers, recorded_steps, micro_batches}, serial_s, SpeedupForm::throughput);
        EXPECT_GT(throughput(tried, serial_s, found.threshold), 0.96 * best)
            << "shape " << shape << ", " << recorded_steps << " steps, seed " << seed;
      }
  }
}

// One of four workers takes 10 instead of 1: dropping it takes a threshold just above 1.
TEST(ThresholdSearch, TheSecondGridComesCloserThanTheFirst) {
  const std::vector<double> times = {1, 1, 1, 10};
  const auto found = search_threshold({times, 4, 1, 1}, 0, SpeedupForm::throughput);
  EXPECT_GT(found.threshold, 1);
  EXPECT_LT(found.threshold, 1.0002);  // 10^(1/199) = 1.012 has neighbours 1 and 1.023, whose second is 1.0001
  EXPECT_NEAR(found.effective_speedup, 0.75 * 10, 0.002);
}

TEST(ThresholdSearch, WhatEndsAtTheThresholdIsDropped) {
  const std::vector<double> times = {1, 1};
  for (const SpeedupForm form : {SpeedupForm::throughput, SpeedupForm::effective, SpeedupForm::reference}) {
    const auto effect = threshold_effects({times, 1, 1, 2}, 0, form, std::vector<double>{1, 2})[0];
    EXPECT_EQ(effect.drop_rate, 1);
    EXPECT_EQ(effect.effective_speedup, 0);  // also where what is left of the step takes no time
  }
}

// Four workers, one of them with no work and one that takes 10 instead of 1; T^c = 1, so a step takes 11 without a
// threshold. One just above 1 keeps three of four and makes that 2.
TEST(ThresholdSearch, WhatTakesNoTimeHindersNoSearch) {
  const std::vector<double> times = {0, 1, 1, 10};
  const MicroBatchTimes recorded{times, 4, 1, 1};
  EXPECT_EQ(threshold_grid(recorded).front(), 1);
  EXPECT_EQ(threshold_grid(recorded).back(), 10);
  const auto found = search_threshold(recorded, 1, SpeedupForm::throughput);
  EXPECT_GT(found.threshold, 1);
  EXPECT_LT(found.threshold, 1.0002);
  EXPECT_EQ(found.drop_rate, 0.25);
  EXPECT_NEAR(found.effective_speedup, 0.75 * 11 / 2, 0.001);
  EXPECT_DOUBLE_EQ(search_threshold(recorded, 1, SpeedupForm::reference).effective_speedup, 0.75 * 11 / 2);
}

// Two workers, one micro-batch in each of two steps: 0 and 0, then 0 and 4. A threshold of 2 keeps three of four and
// halves the second step; the first one is as long as it was.
TEST(ThresholdSearch, AStepOfNoDurationIsNeitherFasterNorSlower) {
  const std::vector<double> times = {0, 0, 0, 4};
  const MicroBatchTimes recorded{times, 2, 2, 1};
  const std::vector<double> thresholds = {2};
  const auto all = threshold_effects(recorded, 0, SpeedupForm::throughput, thresholds)[0];
  EXPECT_EQ(all.drop_rate, 0.25);
  EXPECT_EQ(all.time_saved, 0.5);
  EXPECT_EQ(all.effective_speedup, 0.75 * 4 / 2);
  for (const SpeedupForm form : {SpeedupForm::effective, SpeedupForm::reference}) {
    const auto mean = threshold_effects(recorded, 0, form, thresholds)[0];
    EXPECT_EQ(mean.time_saved, (0 + 0.5) / 2);
    EXPECT_EQ(mean.effective_speedup, (1 + 0.5 * 4 / 2) / 2);
  }
  EXPECT_GT(search_threshold(recorded, 0, SpeedupForm::throughput).threshold, 0);
}

TEST(ThresholdSearch, WhereNothingTakesTimeNoThresholdIsSet) {
  const std::vector<double> times(8, 0.0);
  const MicroBatchTimes recorded{times, 2, 2, 2};
  for (const SpeedupForm form : {SpeedupForm::throughput, SpeedupForm::effective, SpeedupForm::reference}) {
    EXPECT_EQ(search_threshold(recorded, 0, form).threshold, std::numeric_limits<double>::infinity());
    for (const ThresholdEffect& effect : threshold_effects(recorded, 0, form, threshold_grid(recorded))) {
      EXPECT_EQ(effect.drop_rate, 0);
      EXPECT_EQ(effect.time_saved, 0);
      EXPECT_EQ(effect.effective_speedup, 1);
    }
  }
}

TEST(ThresholdSearch, WithoutAnySpreadNoThresholdIsSet) {
  const std::vector<double> times(static_cast<std::size_t>(8 * 3 * 12), 1.0);
  for (const SpeedupForm form : {SpeedupForm::throughput, SpeedupForm::effective, SpeedupForm::reference}) {
    const auto found = search_threshold({times, 8, 3, 12}, 1, form);
    EXPECT_EQ(found.threshold, std::numeric_limits<double>::infinity());
    EXPECT_EQ(found.drop_rate, 0);
    EXPECT_EQ(found.effective_speedup, 1);
  }
}

// One of four workers takes 10 instead of 1. Every threshold between drops its micro-batch, a quarter, and a step then
// takes 1 by the reference code: the first of them is 9/199 above 1.
TEST(ThresholdSearch, OfEqualThresholdsTheFirstIsTaken) {
  const std::vector<double> times = {1, 1, 1, 10};
  const auto found = search_threshold({times, 4, 1, 1}, 0, SpeedupForm::reference);
  EXPECT_DOUBLE_EQ(found.threshold, 1 + 9.0 / 199);
  EXPECT_DOUBLE_EQ(found.effective_speedup, 0.75 * 10);
}

TEST(ThresholdSearch, ACapAllowsWhatDropsJustAsMuch) {
  const std::vector<double> times = {1, 1, 1, 10};
  for (const SpeedupForm form : {SpeedupForm::throughput, SpeedupForm::effective, SpeedupForm::reference}) {
    EXPECT_EQ(search_threshold({times, 4, 1, 1}, 0, form, 0.25).drop_rate, 0.25);
    EXPECT_EQ(search_threshold({times, 4, 1, 1}, 0, form, 0.2499).threshold, std::numeric_limits<double>::infinity());
  }
}

TEST(ThresholdSearch, ACapThatNoThresholdMeetsSetsNone) {
  const Recorded times = search_case();
  // Even the highest threshold of the grid drops the very last micro-batch, 1 of 8448.
  EXPECT_EQ(search_threshold(times.view, 800, SpeedupForm::effective, 1e-5).threshold,
            std::numeric_limits<double>::infinity());
}

}  // namespace
}  // namespace syncopate
