// Which trials tuning makes, and what it chooses, on functions whose best settings are known.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "experiments/execution/tuning.hpp"
#include "experiments/sections/experiment.hpp"
#include "results/result_table.hpp"

namespace syncopate {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TunedAxis axis(const std::string& key, TomlNode::Array values, bool goes_by_steps = false) {
  TunedAxis axis{.key = key, .path = {"training", key}, .values = std::move(values), .goes_by_steps = goes_by_steps};
  for (const TomlNode& value : axis.values) axis.labels.push_back(inline_toml(value));
  return axis;
}
TunedAxis numbers(const std::string& key, const std::vector<double>& values, bool goes_by_steps = false) {
  TomlNode::Array nodes;
  for (const double value : values) nodes.push_back({value, {}});
  return axis(key, std::move(nodes), goes_by_steps);
}
TunedAxis integers(const std::string& key, const std::vector<std::int64_t>& values) {
  TomlNode::Array nodes;
  for (const std::int64_t value : values) nodes.push_back({value, {}});
  return axis(key, std::move(nodes));
}

double number(const TomlNode& node) {
  const auto* integer = std::get_if<std::int64_t>(&node.value);
  return integer ? static_cast<double>(*integer) : std::get<double>(node.value);
}

TEST(TunedAxis, GoesOnByTheRatioOfItsLastTwoValues) {
  EXPECT_DOUBLE_EQ(number(*next_beyond(numbers("x", {0.05, 0.1, 0.2}), true)), 0.4);
  EXPECT_DOUBLE_EQ(number(*next_beyond(numbers("x", {0.2, 0.05, 0.1}), false)), 0.025);
  EXPECT_DOUBLE_EQ(number(*next_beyond(numbers("x", {0.1, 0.3, 0.6}), true)), 1.2);
  EXPECT_DOUBLE_EQ(number(*next_beyond(numbers("x", {0.1, 0.4, 0.6}), false)), 0.025) << "by the nearest two";
}

TEST(TunedAxis, GoesOnByItsStepOrWhereARatioHasNoSense) {
  EXPECT_DOUBLE_EQ(number(*next_beyond(numbers("x", {0.5, 0.6, 0.7}, true), true)), 0.8);
  EXPECT_DOUBLE_EQ(number(*next_beyond(numbers("x", {0, 0.25}), true)), 0.5);
  EXPECT_DOUBLE_EQ(number(*next_beyond(numbers("x", {0, 0.25}), false)), -0.25);
}

TEST(TunedAxis, StaysWholeAndEndsWhereThereIsNoWholeNumberBeyond) {
  const auto next = next_beyond(integers("x", {1, 2, 4}), true);
  ASSERT_TRUE(next && std::holds_alternative<std::int64_t>(next->value));
  EXPECT_EQ(std::get<std::int64_t>(next->value), 8);
  EXPECT_FALSE(next_beyond(integers("x", {1, 2, 4}), false));
  EXPECT_FALSE(next_beyond(integers("x", {4}), true)) << "there is no neighbour to go by";
  EXPECT_FALSE(next_beyond(axis("x", {{std::string("a"), {}}, {std::string("b"), {}}}), true));
}

// One group, whose trials have the loss `of` at the setting's numbers; NaN: they fail.
class TunerTest : public testing::Test {
 protected:
  using Loss = std::function<double(const std::vector<double>& at, std::uint64_t seed)>;

  void tune(std::vector<TunedAxis> axes, const Loss& of, int extensions = 2, double allowed = 1e9) {
    auto plan = std::make_shared<TuningPlan>();
    plan->seeds = {7, 9};
    plan->measure = "final_validation_loss";
    plan->extensions = extensions;
    plan->groups = {{.method_index = 0, .method = "m", .point = {}, .axes = std::move(axes)}};
    plan->trial = [allowed](std::size_t, const Setting& setting, std::uint64_t seed) {
      syncopate::Run run;
      run.seed = seed;
      for (const TomlNode& value : setting) {
        if (std::holds_alternative<double>(value.value) || std::holds_alternative<std::int64_t>(value.value))
          if (number(value) > allowed) throw ConfigurationFault("beyond what the key allows");
        run.hash += inline_toml(value) + " ";
      }
      return run;
    };
    tuner_ = std::make_unique<Tuner>(plan, std::set<std::size_t>{0});
    do {
      for (const Tuner::Trial& trial : tuner_->open()) {
        std::vector<double> at;
        for (std::size_t i = 0; i < trial.run.hash.size(); i = trial.run.hash.find(' ', i) + 1)
          at.push_back(std::stod(trial.run.hash.substr(i)));
        const double loss = of(at, trial.run.seed);
        tuner_->take(trial, std::isnan(loss) ? "diverged" : "finished",
                     {std::isnan(loss) ? std::nullopt : std::optional(loss)});
        made_.push_back(trial.run.hash);
      }
    } while (tuner_->extend());
  }
  std::vector<double> chosen() const {
    std::vector<double> values;
    const auto settings = tuner_->chosen();
    if (settings.contains(0))
      for (const TomlNode& value : settings.at(0)) values.push_back(number(value));
    return values;
  }
  TunedMethod result() const { return tuner_->results().front(); }

  std::unique_ptr<Tuner> tuner_;
  std::vector<std::string> made_;  // trials
};

// Least at 8.
double valley(const std::vector<double>& at, std::uint64_t) { return std::pow(std::log2(at[0]) - 3, 2); }

TEST_F(TunerTest, ChoosesTheLeastLossWithinTheGrid) {
  tune({integers("x", {2, 8, 32})}, valley);
  EXPECT_THAT(chosen(), ElementsAre(8));
  EXPECT_EQ(made_.size(), 3u * 2);
  EXPECT_THAT(result().extended, IsEmpty());
  EXPECT_THAT(result().at_edge, IsEmpty());
}

TEST_F(TunerTest, ExtendsTheGridUntilTheBestIsWithinIt) {
  tune({integers("x", {1, 2, 4})}, valley);
  EXPECT_THAT(chosen(), ElementsAre(8));
  EXPECT_EQ(made_.size(), 5u * 2) << "1, 2, 4, and then 8 and 16";
  EXPECT_EQ(result().trials(), 10u);
  EXPECT_THAT(result().extended, ElementsAre("x"));
  EXPECT_THAT(result().at_edge, IsEmpty());
}

TEST_F(TunerTest, ExtendsDownwardsAsWell) {
  tune({numbers("x", {64, 32, 16})}, valley);
  EXPECT_THAT(chosen(), ElementsAre(8));
  EXPECT_EQ(made_.size(), 5u * 2) << "and then 8 and 4";
}

TEST_F(TunerTest, SaysWhereTheBestIsAtTheEdgeAllTheSame) {
  tune({integers("x", {1, 2})}, valley, 1);
  EXPECT_THAT(chosen(), ElementsAre(4));
  EXPECT_THAT(result().at_edge, ElementsAre("x"));
  const std::string line =
      tuning_lines(Tuning{.experiment = "e", .measure = "l", .seeds = {7, 9}, .methods = {result()}});
  EXPECT_EQ(line,
            "m: tuned, x = 4 is the best of 3 settings in 6 trials by l (1); the grid of x was extended; x is at the "
            "edge of the grid\n");
}

TEST_F(TunerTest, EndsWhereTheKeyEnds) {
  tune({integers("x", {1, 2, 4})}, valley, 2, 4);
  EXPECT_THAT(chosen(), ElementsAre(4));
  EXPECT_EQ(made_.size(), 3u * 2);
  EXPECT_THAT(result().at_edge, IsEmpty()) << "there is nothing beyond";
}

// Beyond 0.9 the grid goes on by 0.4, which the key does not allow, nor the half and the quarter of it.
TEST_F(TunerTest, GoesLessFarWhereTheKeyEndsBeforeTheNextValue) {
  const auto loss = [](const std::vector<double>& at, std::uint64_t) { return 1 - at[0]; };
  tune({numbers("x", {0, 0.5, 0.9})}, loss, 1, 0.99);
  ASSERT_EQ(chosen().size(), 1u);
  EXPECT_DOUBLE_EQ(chosen().front(), 0.95);
  EXPECT_THAT(result().extended, ElementsAre("x"));
  EXPECT_THAT(result().at_edge, ElementsAre("x"));
}

TEST_F(TunerTest, OfEqualSettingsTheFirstIsChosen) {
  tune(
      {integers("x", {3, 1, 2})}, [](const auto&, auto) { return 1.0; }, 0);
  EXPECT_THAT(chosen(), ElementsAre(3));
}

TEST_F(TunerTest, GoesByTheMeanOverSeeds) {
  // By seed 7 alone it would be 1, by seed 9 alone 3: means 4, 3 and 5.
  const auto loss = [](const std::vector<double>& at, std::uint64_t seed) {
    return seed == 7 ? std::vector<double>{0, 3, 9}[static_cast<std::size_t>(at[0]) - 1]
                     : std::vector<double>{8, 3, 1}[static_cast<std::size_t>(at[0]) - 1];
  };
  tune({integers("x", {1, 2, 3})}, loss, 0);
  EXPECT_THAT(chosen(), ElementsAre(2));
  EXPECT_DOUBLE_EQ(*result().settings[1].mean, 3);
}

TEST_F(TunerTest, ATrialThatDivergesIsTheWorst) {
  const auto loss = [](const std::vector<double>& at, std::uint64_t seed) {
    return at[0] == 1 && seed == 9 ? std::numeric_limits<double>::quiet_NaN() : at[0];
  };
  tune({integers("x", {1, 2, 3})}, loss, 0);
  EXPECT_THAT(chosen(), ElementsAre(2));
  EXPECT_FALSE(result().settings[0].mean);
}

TEST_F(TunerTest, WhereAllDivergeNothingIsChosen) {
  tune({integers("x", {1, 2, 3})}, [](const auto&, auto) { return std::numeric_limits<double>::quiet_NaN(); });
  EXPECT_THAT(chosen(), IsEmpty());
  EXPECT_EQ(made_.size(), 3u * 2);
  EXPECT_THAT(tuning_lines(Tuning{.measure = "l", .methods = {result()}}),
              HasSubstr("m: not tuned: none of 3 settings in 6 trials has a l"));
}

// Times to a target of settings 1, 2, ... with the seeds 7 and 9; of a trial that missed it, its end and by how much.
class TunedByTime : public testing::Test {
 protected:
  void tune(const std::vector<std::vector<TrialValue>>& values) {
    std::vector<std::int64_t> grid;
    for (std::size_t i = 0; i < values.size(); ++i) grid.push_back(static_cast<std::int64_t>(i));
    auto plan = std::make_shared<TuningPlan>();
    plan->seeds = {7, 9};
    plan->measure = "time_to_target_s";
    plan->groups = {{.method_index = 0, .method = "m", .point = {}, .axes = {integers("x", grid)}}};
    plan->trial = [](std::size_t, const Setting&, std::uint64_t seed) {
      syncopate::Run run;
      run.seed = seed;
      return run;
    };
    Tuner tuner(plan, {0});
    for (const Tuner::Trial& trial : tuner.open())
      tuner.take(trial, "finished", values[trial.place.front()][trial.run.seed == 7 ? 0 : 1]);
    result = tuner.results().front();
  }
  TunedMethod result;
};

TEST_F(TunedByTime, TrialsThatMissTheTargetAreRankedByRestrictedTime) {
  // All are known until 50: means of 50 (50, and 80 cut to 50), 40 (30, and 60 cut to 50) and 50.
  tune({{{50, {}}, {80, {}}}, {{30, {}}, {60, 0.02}}, {{50, 0.1}, {90, 0.1}}});
  EXPECT_EQ(result.chosen, 1u);
  EXPECT_EQ(result.horizon, 50);
  EXPECT_DOUBLE_EQ(*result.settings[0].mean, 50);
  EXPECT_DOUBLE_EQ(*result.settings[1].mean, 40);
  EXPECT_DOUBLE_EQ(*result.settings[2].mean, 50);
  const Tuning tuning{.measure = "time_to_target_s", .seeds = {7, 9}, .methods = {result}};
  EXPECT_THAT(tuning_lines(tuning), HasSubstr("x = 1 is the best of 3 settings in 6 trials by time_to_target_s (40, "
                                              "restricted to 50, by which 1 of its 2 trials reached the target)"));
  EXPECT_EQ(to_json(*tuning_from_json(to_json(tuning))), to_json(tuning));
}

TEST_F(TunedByTime, OfThoseThatAllMissTheOneThatCameNearestIsChosen) {
  tune({{{60, 0.05}, {60, 0.04}}, {{60, 0.01}, {60, 0.03}}, {{60, 0.02}, {60, 0.03}}});
  EXPECT_EQ(result.chosen, 1u);
  EXPECT_DOUBLE_EQ(*result.settings[1].mean, 60);
  // The third ends after the others, and reaches the target only then.
  tune({{{60, 0.05}, {60, 0.04}}, {{60, 0.01}, {60, 0.01}}, {{70, {}}, {75, {}}}});
  EXPECT_EQ(result.chosen, 2u);
}

TEST_F(TunedByTime, WhereAllReachTheTargetMeansAreOfTheWholeTimes) {
  tune({{{50, {}}, {80, {}}}, {{30, {}}, {60, {}}}});
  EXPECT_EQ(result.chosen, 1u);
  EXPECT_FALSE(result.horizon);
  EXPECT_DOUBLE_EQ(*result.settings[0].mean, 65);
}

TEST_F(TunedByTime, ATrialThatHasNoValueIsTheWorstAllTheSame) {
  tune({{{}, {10, {}}}, {{60, 0.5}, {60, 0.5}}});
  EXPECT_EQ(result.chosen, 1u);
}

TEST(TrialValue, OfARunThatMissedItsTargetIsUntilItsEnd) {
  RunSummary run;
  run.end_time_s = 12;
  run.steps = 40;
  run.samples = 640;
  run.final_validation_accuracy = 0.75;
  run.time_to_target.emplace().target_accuracy = 0.875;
  EXPECT_EQ(value_of_trial(run, "time_to_target_s").value, 12);
  EXPECT_EQ(value_of_trial(run, "time_to_target_s").missed_by, 0.125);
  EXPECT_EQ(value_of_trial(run, "steps_to_target").value, 40);
  EXPECT_EQ(value_of_trial(run, "samples_to_target").value, 640);
  EXPECT_FALSE(value_of_trial(run, "end_time_s").missed_by) << "it goes by no target";
  run.time_to_target->time_s = 9;
  EXPECT_EQ(value_of_trial(run, "time_to_target_s").value, 9);
  EXPECT_FALSE(value_of_trial(run, "time_to_target_s").missed_by);
  run.status = RunStatus::diverged;
  EXPECT_FALSE(value_of_trial(run, "time_to_target_s").value);
}

TEST_F(TunerTest, AnExtendedAxisMeetsAllValuesOfTheOthers) {
  // Least at x = 8, y = 1, which is within its axis.
  const auto loss = [](const std::vector<double>& at, std::uint64_t) {
    return std::pow(std::log2(at[0]) - 3, 2) + std::pow(at[1] - 1, 2);
  };
  tune({integers("x", {2, 4}), numbers("y", {0, 1, 2}, true)}, loss);
  EXPECT_THAT(chosen(), ElementsAre(8, 1));
  EXPECT_EQ(made_.size(), 4u * 3 * 2) << "x: 2, 4, and then 8 and 16";
  EXPECT_THAT(result().extended, ElementsAre("x"));
}

TEST_F(TunerTest, WhatWasTriedReadsBack) {
  tune({integers("x", {1, 2, 4})}, valley);
  const Tuning tuning{.experiment = "e",
                      .measure = "final_validation_loss",
                      .seeds = {7, 9},
                      .where = {{"variant", "none"}},
                      .methods = tuner_->results()};
  const auto read = tuning_from_json(to_json(tuning));
  ASSERT_TRUE(read);
  EXPECT_EQ(to_json(*read), to_json(tuning));
  EXPECT_EQ(read->methods.front().chosen, 3u);
  EXPECT_THAT(tuning_lines(*read), HasSubstr("\nSettings were found at \"none\", and kept elsewhere.\n"));
  EXPECT_FALSE(tuning_from_json("{\"schema_version\": 99}"));
  EXPECT_FALSE(tuning_from_json("nothing"));
}

}  // namespace
}  // namespace syncopate
