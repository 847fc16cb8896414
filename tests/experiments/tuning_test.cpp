// The trials of tuning and the chosen settings, for functions with known minima.
#include "experiments/execution/tuning.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "experiments/commands/commands.hpp"
#include "experiments/sections/experiment.hpp"
#include "experiments/sections/variation.hpp"
#include "results/result_table.hpp"
#include "tests/experiments/experiment_file.hpp"
#include "tests/experiments/program.hpp"

namespace syncopate {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

VariedKey axis(const std::string& key, TomlNode::Array values, bool goes_by_steps = false) {
  VariedKey axis{.key = key, .path = {"training", key}, .values = std::move(values), .goes_by_steps = goes_by_steps};
  for (const TomlNode& value : axis.values) axis.labels.push_back(inline_toml(value));
  return axis;
}
VariedKey numbers(const std::string& key, const std::vector<double>& values, bool goes_by_steps = false) {
  TomlNode::Array nodes;
  for (const double value : values) nodes.push_back({value, {}});
  return axis(key, std::move(nodes), goes_by_steps);
}
VariedKey integers(const std::string& key, const std::vector<std::int64_t>& values) {
  TomlNode::Array nodes;
  for (const std::int64_t value : values) nodes.push_back({value, {}});
  return axis(key, std::move(nodes));
}

double number(const TomlNode& node) {
  const auto* integer = std::get_if<std::int64_t>(&node.value);
  return integer ? static_cast<double>(*integer) : std::get<double>(node.value);
}

TEST(VariedKey, GoesOnByTheRatioOfItsLastTwoValues) {
  EXPECT_DOUBLE_EQ(number(*next_beyond(numbers("x", {0.05, 0.1, 0.2}), true)), 0.4);
  EXPECT_DOUBLE_EQ(number(*next_beyond(numbers("x", {0.2, 0.05, 0.1}), false)), 0.025);
  EXPECT_DOUBLE_EQ(number(*next_beyond(numbers("x", {0.1, 0.3, 0.6}), true)), 1.2);
  EXPECT_DOUBLE_EQ(number(*next_beyond(numbers("x", {0.1, 0.4, 0.6}), false)), 0.025) << "by the nearest two";
}

TEST(VariedKey, GoesOnByItsStepOrWhereARatioHasNoSense) {
  EXPECT_DOUBLE_EQ(number(*next_beyond(numbers("x", {0.5, 0.6, 0.7}, true), true)), 0.8);
  EXPECT_DOUBLE_EQ(number(*next_beyond(numbers("x", {0, 0.25}), true)), 0.5);
  EXPECT_DOUBLE_EQ(number(*next_beyond(numbers("x", {0, 0.25}), false)), -0.25);
}

TEST(VariedKey, StaysWholeAndEndsWhereThereIsNoWholeNumberBeyond) {
  const auto next = next_beyond(integers("x", {1, 2, 4}), true);
  ASSERT_TRUE(next && std::holds_alternative<std::int64_t>(next->value));
  EXPECT_EQ(std::get<std::int64_t>(next->value), 8);
  EXPECT_FALSE(next_beyond(integers("x", {1, 2, 4}), false));
  EXPECT_FALSE(next_beyond(integers("x", {4}), true)) << "there is no neighbour to go by";
  EXPECT_FALSE(next_beyond(axis("x", {{std::string("a"), {}}, {std::string("b"), {}}}), true));
}

// Tunes one group. A function of a setting's numbers gives a trial's loss. The trial fails if the loss is NaN.
class TunerTest : public testing::Test {
 protected:
  using Loss = std::function<double(const std::vector<double>& at, std::uint64_t seed)>;

  void tune(std::vector<VariedKey> axes, const Loss& of, int extensions = 2, double allowed = 1e9) {
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
  std::vector<std::string> made_;  // executed trials
};

// The minimum is at x = 8.
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

// Beyond 0.9 the next value would be 0.4 further. The key does not allow this, nor half or a quarter of this distance,
// so an eighth is tried.
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
  // With seed 7 alone the choice would be 1, and with seed 9 alone 3. The means over both are 4, 3 and 5.
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

// Times to a target for the settings 0, 1, ... with the seeds 7 and 9. For a trial that missed the target, its end and
// the distance by which it missed.
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
  // A trial that missed the target ends at 50, so times are cut to this horizon. The means are 50 (50, and 80 cut to
  // 50), 40 (30, and 60 cut to 50) and 50 (50, and 90 cut to 50).
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
  // The third setting's trials reach the target after all other trials have ended.
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
  // The minimum is at x = 8, y = 1. For y this is within the grid.
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
  EXPECT_THAT(tuning_lines(*read), HasSubstr("\nSettings were tuned at \"none\" and used at all points.\n"));
  EXPECT_FALSE(tuning_from_json("{\"schema_version\": 99}"));
  EXPECT_FALSE(tuning_from_json("nothing"));
}

namespace fs = std::filesystem;

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class TuningProgram : public ProgramTest {
 protected:
  // Writes two thresholds of one method. The shorter one gives shorter steps.
  void SetUp() override {
    ProgramTest::SetUp();
    file = write("e.toml", R"(name = "e"
seeds = [1, 2]
[cluster]
workers = 4
micro_batch_s = 0.01
micro_batches = 4
[[delays]]
kind = "exponential"
mean = 0.01
[network]
kind = "free"
[training]
model = "none"
parameters = 10
[budget]
steps = 50
[[methods]]
label = "A"
algorithm = "dropcompute"
threshold_s = 1.0
[[methods]]
label = "B"
algorithm = "dropcompute"
threshold_s = 1.0
[tune]
seeds = [7, 8]
measure = "step_time_s"
extend = 1
methods.A.threshold_s = [0.05, 0.06, 0.055]
methods.B.threshold_s = { from = 0.04, to = 0.16, factor = 2 }
)");
  }
  nlohmann::json tuning() const { return nlohmann::json::parse(read("results/runs/e/tuning.json")); }

  std::string file;
};

TEST_F(TuningProgram, TriesChoosesRunsAndSaysSo) {
  const ProgramOutcome run = syncopate("run " + file);
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.err,
              AllOf(StartsWith("12 trials, then 4 runs; "), HasSubstr("\ntrial 1 of 12: A, threshold_s = 0.05"),
                    HasSubstr("\nrun 4 of 4: B, seed 2: finished")));
  EXPECT_THAT(run.out,
              AllOf(HasSubstr("A: tuned, threshold_s = 0.045"),
                    HasSubstr("is the best of 4 settings in 8 trials by "
                              "step_time_s"),
                    HasSubstr("the grid of threshold_s was extended; threshold_s is at the edge of the grid")));
  for (const char* const saved : {"results/runs/e/table.txt", "results/runs/e/table.md"})
    EXPECT_THAT(read(saved), HasSubstr("A: tuned, threshold_s = 0.045"));
  const auto json = tuning();
  EXPECT_EQ(json["methods"][0]["chosen"]["methods.A.threshold_s"], "0.0454545454545");
  EXPECT_EQ(json["methods"][1]["chosen"]["methods.B.threshold_s"], "0.02");
  std::map<std::string, double> times;  // by hash
  for (const auto& entry : fs::recursive_directory_iterator(directory / "results/runs/e/Trials"))
    if (entry.path().filename() == "summary.json") {
      const auto summary = nlohmann::json::parse(read(entry.path().lexically_relative(directory)));
      times[summary["hash"]] = summary["end_time_s"].get<double>() / summary["steps"].get<double>();
    }
  EXPECT_EQ(times.size(), 16u);
  for (const auto& method : json["methods"])
    for (const auto& setting : method["settings"]) {
      double sum = 0;
      for (const auto& trial : setting["trials"]) {
        EXPECT_DOUBLE_EQ(trial["value"], times.at(trial["hash"]));
        sum += times.at(trial["hash"]);
      }
      EXPECT_DOUBLE_EQ(setting["mean"], sum / 2);
      EXPECT_GE(setting["mean"], method["mean"]);
    }
}

TEST_F(TuningProgram, ComputesNothingTwice) {
  ASSERT_EQ(syncopate("run " + file + " tune.extend=0").status, 0);
  const ProgramOutcome again = syncopate("run " + file + " tune.extend=0");
  EXPECT_THAT(again.err, AllOf(HasSubstr("12 of 12 trials already exist"), HasSubstr("4 of 4 runs already exist"),
                               Not(HasSubstr("begins"))));
  const ProgramOutcome extended = syncopate("run " + file);
  EXPECT_THAT(extended.err, AllOf(HasSubstr("12 of 12 trials already exist"), HasSubstr("trial 1 of 4: ")));
  // A user who sets the chosen setting by hand gets the same runs.
  const ProgramOutcome by_hand = syncopate("run " + file + " ~tune methods.A.threshold_s=0.05 --only A");
  EXPECT_THAT(by_hand.err, HasSubstr("2 of 2 runs already exist"));
}

TEST_F(TuningProgram, TrialsAreNoResults) {
  ASSERT_EQ(syncopate("run --quiet " + file).status, 0);
  const ProgramOutcome table = syncopate("table results/runs/e");
  EXPECT_THAT(table.out, AllOf(HasSubstr("\nA "), HasSubstr("\nB "), HasSubstr("B: tuned, threshold_s = 0.02 is"),
                               Not(HasSubstr("\nA, threshold_s"))));
  EXPECT_THAT(syncopate("table results/runs/e/Trials").out, HasSubstr("\nA, threshold_s = 0.05"));
  ASSERT_EQ(syncopate("export results/runs/e").status, 0);
  const std::string runs = read("results/runs/e/runs.csv");
  EXPECT_EQ(std::count(runs.begin(), runs.end(), '\n'), 1 + 4);
  EXPECT_THAT(runs, Not(HasSubstr("trial")));
  ASSERT_EQ(syncopate("export --trials results/runs/e").status, 0);
  const std::string all = read("results/runs/e/runs.csv");
  EXPECT_EQ(std::count(all.begin(), all.end(), '\n'), 1 + 4 + 16);
  EXPECT_THAT(all,
              AllOf(StartsWith("experiment,method,seed,clock,hash,trial,"), HasSubstr(",true,"), HasSubstr(",false,")));
  const ProgramOutcome python = shell("PYTHONPATH='" SYNCOPATE_SOURCE_DIR "' '" SYNCOPATE_PYTHON
                                      "' -c 'import pathlib, plots.runs; "
                                      "print(len(plots.runs.find_run_directories(pathlib.Path(\"results/runs/e\"))))'");
  EXPECT_EQ(python.out, "4\n") << python.err;
}

TEST_F(TuningProgram, CheckPrintsWhatWillBeTried) {
  const ProgramOutcome check = syncopate("check " + file);
  EXPECT_THAT(check.out,
              AllOf(HasSubstr("A, seed=1, to be tuned"),
                    HasSubstr("# Trials before the runs, with the seeds 7, 8, judged by step_time_s:\n"),
                    HasSubstr("A: methods.A.threshold_s = 0.05, 0.06, 0.055\n"),
                    HasSubstr("\n# 12 trials, then 4 runs; less than a second on this machine, by arithmetic")));
  EXPECT_EQ(syncopate("check " + write("again.toml", check.out)).out, check.out);
}

TEST_F(TuningProgram, OnlySomeMethodsAreTunedAndTheOthersStay) {
  ASSERT_EQ(syncopate("run --quiet --only A " + file).status, 0);
  EXPECT_EQ(tuning()["methods"].size(), 1u);
  const auto a = tuning()["methods"][0];
  ASSERT_EQ(syncopate("run --quiet --only B " + file).status, 0);
  EXPECT_EQ(tuning()["methods"].size(), 2u);
  EXPECT_EQ(tuning()["methods"][0], a);
}

constexpr const char* two_on_a_quadratic = R"([cluster]
workers = 2
micro_batch_s = 0.01
[network]
kind = "free"
[training]
model = "quadratic"
optimizer = { name = "sgd" }
learning_rate = { schedule = "constant", peak = 0.01 }
)";

// The model diverges within the run's steps.
TEST_F(TuningProgram, AMethodOfWhichAllTrialsFailIsNotRun) {
  const std::string diverging = write("d.toml", std::string("name = \"d\"\n") + two_on_a_quadratic + R"([budget]
steps = 400
[[methods]]
label = "good"
algorithm = "sync-sgd"
[[methods]]
label = "bad"
algorithm = "sync-sgd"
[tune]
seeds = [7]
measure = "final_train_loss"
extend = 0
methods.good.training.learning_rate.peak = [0.01, 1e9]
methods.bad.training.learning_rate.peak = [1e8, 1e9]
)");
  const ProgramOutcome run = syncopate("run " + diverging);
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err,
              HasSubstr("bad: skipped, since no setting has a final_train_loss in all of its trials; the first "
                        "trial without it: "));
  EXPECT_THAT(run.out, AllOf(HasSubstr("good: tuned, peak = 0.01 is the best of 2 settings in 2 trials"),
                             HasSubstr("bad: not tuned: none of 2 settings in 2 trials has a final_train_loss"),
                             Not(HasSubstr("\nbad "))));
  EXPECT_THAT(syncopate("run " + diverging).err, HasSubstr("4 of 4 trials already exist")) << "also what diverged";
}

// After 20 steps no model classifies every sample correctly. Runs with both rates end at the same time, but one of them
// is nearer to the target.
TEST_F(TuningProgram, AMethodWhoseTrialsMissTheTargetIsRunAllTheSame) {
  const std::string missing = write("m.toml", R"(name = "m"
[cluster]
workers = 2
micro_batch_s = 0.01
[network]
kind = "free"
[training]
model = "linear"
dataset = "gaussian-mixture"
micro_batch_size = 8
validation_samples = 100
optimizer = { name = "sgd" }
learning_rate = { schedule = "constant", peak = 0.1 }
[datasets.gaussian-mixture]
train = 640
[budget]
steps = 20
[evaluation]
target_loss = 1e-9
[[methods]]
algorithm = "sync-sgd"
[tune]
seeds = [7, 8]
measure = "time_to_target_s"
extend = 0
training.learning_rate.peak = [1e-6, 0.1]
)");
  const ProgramOutcome run = syncopate("run --threads 1 " + missing);
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out,
              HasSubstr("sync-sgd: tuned, peak = 0.1 is the best of 2 settings in 4 trials by time_to_target_s "
                        "(0.2, restricted to 0.2, by which 0 of its 2 trials reached the target)"));
  EXPECT_THAT(run.err, HasSubstr("run 1 of 1: sync-sgd, seed 1: finished"));
}

// A quadratic has only a loss. Trials with the fastest rate reach the target, and the others miss it.
TEST_F(TuningProgram, AModelWithoutDataIsTunedToATarget) {
  const std::string quadratic = write("q.toml", std::string("name = \"q\"\n") + two_on_a_quadratic + R"([budget]
steps = 60
[evaluation]
every_steps = 1
target_loss = 0.2
[[methods]]
algorithm = "sync-sgd"
[tune]
seeds = [7]
measure = "steps_to_target"
extend = 0
training.learning_rate.peak = [0.0001, 0.001, 0.5]
)");
  const ProgramOutcome run = syncopate("run --threads 1 " + quadratic);
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out,
              HasSubstr("sync-sgd: tuned, peak = 0.5 is the best of 3 settings in 3 trials by steps_to_target"));
}

TEST_F(TuningProgram, WorksUnderMpi) {
  const std::string small = " cluster.workers=2 cluster.micro_batches=2 budget.steps=3 tune.extend=0 --only A";
  const ProgramOutcome run = syncopate("run " + file + small, 2);
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("A: tuned, threshold_s = "));
  EXPECT_TRUE(fs::exists(directory / "results/runs/e/tuning-mpi.json"));
  EXPECT_THAT(syncopate("run " + file + small, 2).err, HasSubstr("6 of 6 trials already exist"));
}

TEST_F(TuningProgram, ComparesNothingThatIsNotTuned) {
  const ProgramOutcome compare = syncopate("compare " + file);
  EXPECT_EQ(compare.status, 2);
  EXPECT_THAT(compare.err, HasSubstr("compare does not tune"));
  const ProgramOutcome predict = syncopate("predict " + file);
  EXPECT_EQ(predict.status, 0);
  EXPECT_THAT(predict.err, HasSubstr("with the file's own values of the tuned keys"));
}

// The table [tune]: its keys, the trials, and the resulting runs.

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::Pair;
using testing::SizeIs;

class TuneTable : public ExperimentFile {
 protected:
  // The file `small` has the methods sync-sgd and drop, and the seeds 3 and 5.
  void tune(const std::string& text, const std::string& rest = "") const {
    std::string file = small;
    const std::string mark = "micro_batch_size = 8\n";
    file.insert(file.find(mark) + mark.size(), "validation_samples = 40\n");
    write(file + rest + "\n[tune]\n" + text);
  }
  std::string faults_of(const std::string& text, const std::string& rest = "", const Overrides& overrides = {}) const {
    tune(text, rest);
    return faults(overrides);
  }
  const std::string rates = "seeds = [11, 12]\n\"training.learning_rate.peak\" = [0.1, 0.2, 0.4]\n";
  const std::string variants =
      "[[variants]]\nlabel = \"none\"\n[[variants]]\nlabel = \"slow\"\ncluster.slow_workers = { count = 1, factor = "
      "2.0 }\n";
};

TEST_F(TuneTable, TriesAllMethodsWithTheirOwnSeeds) {
  tune(rates);
  const Experiment experiment = load();
  ASSERT_TRUE(experiment.tuning);
  EXPECT_EQ(experiment.tuning->measure, "final_validation_accuracy");
  EXPECT_EQ(experiment.tuning->extensions, 2);
  EXPECT_THAT(experiment.tuning->groups, SizeIs(2));
  std::vector<std::string> trials;
  for (const syncopate::Run& run : first_trials(experiment)) {
    EXPECT_TRUE(run.is_trial);
    trials.push_back(fmt::format("{} {} {}", run.method, run.training.learning_rate->options().peak, run.seed));
  }
  EXPECT_THAT(trials, ElementsAre("sync-sgd 0.1 11", "sync-sgd 0.1 12", "sync-sgd 0.2 11", "sync-sgd 0.2 12",
                                  "sync-sgd 0.4 11", "sync-sgd 0.4 12", "drop 0.1 11", "drop 0.1 12", "drop 0.2 11",
                                  "drop 0.2 12", "drop 0.4 11", "drop 0.4 12"));
}

// A trial is an ordinary run. It equals the run with this key and seed in a file without [tune].
TEST_F(TuneTable, MakesTheRunsThatOneWouldMakeByHand) {
  tune(rates);
  const Experiment tuned = load();
  const std::vector<syncopate::Run> trials = first_trials(tuned);
  const auto chosen = tuned.tuning->runs({{0, {{0.4, {}}}}, {1, {{0.1, {}}}}});
  tune("seeds = [11]\n");
  const Experiment of_trial = load({"~tune", "seeds=[12]", "methods.0.training.learning_rate.peak=0.4"});
  EXPECT_EQ(trials[5].hash, of_trial.runs[0].hash);
  EXPECT_THAT(trials[5].sweep, ElementsAre(Pair("training.learning_rate.peak", "0.4")));
  const Experiment by_hand =
      load({"~tune", "methods.0.training.learning_rate.peak=0.4", "methods.1.training.learning_rate.peak=0.1"});
  ASSERT_THAT(chosen, SizeIs(4));
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(chosen[i].hash, by_hand.runs[i].hash);
    EXPECT_THAT(chosen[i].sweep, IsEmpty());
    EXPECT_FALSE(chosen[i].is_trial);
    EXPECT_THAT(chosen[i].resolved_toml, Not(HasSubstr("tune")));
  }
}

TEST_F(TuneTable, AMethodsOwnKeysStandInThePlaceOfAllMethods) {
  tune(
      "seeds = [11]\n\"training.learning_rate.peak\" = [0.1, 0.2]\nmethods.drop.threshold_s = [0.015, 0.02]\n"
      "methods.drop.training.learning_rate.peak = 0.3\n");
  EXPECT_THAT(faults({}), HasSubstr("tune.\"methods.drop.training.learning_rate.peak\" = 0.3; must be a list"));
  tune(
      "seeds = [11]\n\"training.learning_rate.peak\" = [0.1, 0.2]\n\"training.clip_norm\" = [0, 1]\n"
      "\"methods.drop.threshold_s\" = [0.015, 0.02]\nmethods.drop.training.learning_rate.peak = [0.7]\n");
  EXPECT_EQ(faults({}), "");
  std::set<double> rates_of_drop;
  for (const syncopate::Run& run : first_trials(load()))
    if (run.method == "drop") rates_of_drop.insert(run.training.learning_rate->options().peak);
  EXPECT_THAT(rates_of_drop, ElementsAre(0.7));
}

TEST_F(TuneTable, GivesAllMethodsAsManySettings) {
  EXPECT_THAT(faults_of(rates + "\"methods.drop.threshold_s\" = [0.015, 0.02]\n"),
              HasSubstr("tune; every method must have equally many settings: \"sync-sgd\" has 3, \"drop\" has 6"));
  EXPECT_THAT(faults_of("seeds = [11]\n\"methods.drop.threshold_s\" = [0.015, 0.02]\n"),
              HasSubstr("\"sync-sgd\" has 1, \"drop\" has 2"));
}

TEST_F(TuneTable, AProfileChangesIt) {
  tune(rates, "[profiles.other]\ntune.seeds = [77]\n");
  EXPECT_EQ(faults({}), "");
  EXPECT_THAT(load_experiment(file, {}, {.profiles = {"other"}}).tuning->seeds, ElementsAre(77));
}

TEST_F(TuneTable, ItsSeedsAreItsOwn) {
  EXPECT_THAT(faults_of("\"training.clip_norm\" = [0, 1]\n"), HasSubstr("tune.seeds is missing"));
  EXPECT_THAT(faults_of("seeds = [11, 5]\n\"training.clip_norm\" = [0, 1]\n"),
              HasSubstr("tune.seeds = [11, 5]; must not contain the experiment's own seeds, such as 5"));
  EXPECT_THAT(faults_of("seeds = [11, 11]\n\"training.clip_norm\" = [0, 1]\n"), HasSubstr("must not list 11 twice"));
  EXPECT_THAT(faults_of("seeds = []\n\"training.clip_norm\" = [0, 1]\n"), HasSubstr("must list at least one seed"));
  EXPECT_THAT(faults_of(rates, "", {"seeds=11"}), HasSubstr("such as 11")) << "seeds = 11 means 1 to 11";
  EXPECT_THAT(faults_of("seeds = [1]\n\"training.clip_norm\" = [0, 1]\n", "", {"~seeds"}), HasSubstr("such as 1"))
      << "without seeds the seed is 1";
}

TEST_F(TuneTable, JudgesByWhatIsHeldOut) {
  EXPECT_THAT(faults_of(rates, "", {"~training.validation_samples"}),
              HasSubstr("tune; uses the validation split: set training.validation_samples"));
  EXPECT_THAT(faults_of(rates + "measure = \"final_test_loss\"\n"), HasSubstr("must not be a measure of the test set"));
  EXPECT_THAT(faults_of(rates + "measure = \"final_validation_los\"\n"), HasSubstr("did you mean"));
  EXPECT_THAT(faults_of(rates + "measure = \"steps\"\n"), HasSubstr("must be a measure with a better direction"));
  EXPECT_THAT(faults_of(rates + "measure = \"time_to_target_s\"\n"), HasSubstr("needs evaluation.target_accuracy"));
  EXPECT_THAT(faults_of(rates + "measure = \"time_to_target_s\"\n", "", {"evaluation.target_loss=0.1"}), IsEmpty());
  EXPECT_THAT(faults_of(rates + "measure = \"time_to_target_s\"\n", "",
                        {"evaluation.target_loss=0.1", "~training.validation_samples"}),
              HasSubstr("uses the validation split: set training.validation_samples"));
  EXPECT_EQ(faults_of(rates + "measure = \"final_train_loss\"\n", "", {"~training.validation_samples"}), "");
  EXPECT_THAT(
      faults_of(rates, "",
                {"training.model=none", "training.parameters=10", "~training.validation_samples", "budget={steps=5}"}),
      HasSubstr("tune.measure is missing; must be set if no model is trained"));
}

TEST_F(TuneTable, AModelWithoutDataIsJudgedByItsLoss) {
  const Overrides quadratic = {"training.model=quadratic",     "~training.dataset", "~training.micro_batch_size",
                               "~training.validation_samples", "~budget.epochs",    "budget.steps=5"};
  tune(rates);
  EXPECT_EQ(load(quadratic).tuning->measure, "final_test_loss");
  EXPECT_THAT(faults_of(rates + "measure = \"time_to_target_s\"\n", "", quadratic),
              HasSubstr("needs evaluation.target_accuracy or target_loss"));
  EXPECT_EQ(faults_of(rates + "measure = \"time_to_target_s\"\n", "[evaluation]\ntarget_loss = 0.1\n", quadratic), "");
}

// In one and the same file, targets of trials refer to the validation split, and targets of runs to the test set.
TEST_F(TuneTable, TrialsAimAtTheValidationSplitAndRunsAsTheFileSays) {
  tune(rates + "measure = \"time_to_target_s\"\n", "[evaluation]\ntarget_loss = 0.1\n");
  const Experiment experiment = load();
  for (const auto& trial : first_trials(experiment)) EXPECT_TRUE(trial.evaluation.targets_validation);
  for (const auto& run : experiment.runs) EXPECT_FALSE(run.evaluation.targets_validation);
  tune(rates + "measure = \"time_to_target_s\"\n", "[evaluation]\ntarget_loss = 0.1\ntarget_of = \"validation\"\n");
  const Experiment both = load();
  EXPECT_EQ(first_trials(both).front().hash, first_trials(experiment).front().hash) << "the same trial";
  EXPECT_TRUE(both.runs.front().evaluation.targets_validation);
  tune(rates, "[evaluation]\ntarget_loss = 0.1\n");
  EXPECT_FALSE(first_trials(load()).front().evaluation.targets_validation)
      << "they are judged by their last validation";
}

// Trials take the keys of [tune.trials]. The runs and the values to try stay as they are.
TEST_F(TuneTable, TrialsMayHaveOtherKeysThanTheRuns) {
  const std::string shorter = rates + "[tune.trials]\nbudget = { steps = 4 }\n\"methods.drop.threshold_s\" = 0.013\n";
  tune(rates);
  const Experiment plain = load();
  tune(shorter);
  const Experiment experiment = load();
  const std::vector<syncopate::Run> trials = first_trials(experiment);
  ASSERT_THAT(trials, SizeIs(12));
  for (const syncopate::Run& run : trials) EXPECT_THAT(run.resolved_toml, HasSubstr("steps = 4"));
  EXPECT_THAT(trials.back().resolved_toml, HasSubstr("threshold_s = 0.013"));
  EXPECT_EQ(trials.back().training.learning_rate->options().peak, 0.4);
  for (std::size_t i = 0; i < plain.runs.size(); ++i) EXPECT_EQ(experiment.runs[i].hash, plain.runs[i].hash);
  const std::map<std::size_t, syncopate::Setting> best = {{0, {{0.4, {}}}}, {1, {{0.1, {}}}}};
  const auto chosen = experiment.tuning->runs(best), chosen_without = plain.tuning->runs(best);
  ASSERT_EQ(chosen.size(), chosen_without.size());
  for (std::size_t i = 0; i < chosen.size(); ++i) EXPECT_EQ(chosen[i].hash, chosen_without[i].hash);
  EXPECT_THAT(first_trials(load({"budget.steps=6"})).front().resolved_toml, HasSubstr("steps = 6"))
      << "the command line comes last";
  write(experiment.resolved_toml);
  EXPECT_EQ(first_trials(load()).front().hash, trials.front().hash) << "check prints [tune.trials]";
}

TEST_F(TuneTable, KeysOfTrialsAreChecked) {
  const auto fault_of = [&](const std::string& keys) { return faults_of(rates + "[tune.trials]\n" + keys); };
  EXPECT_THAT(fault_of("budget = { stepz = 4 }\n"), HasSubstr("[tune.trials]: budget.stepz"));
  EXPECT_THAT(fault_of("seeds = [4]\n"), HasSubstr("tune.trials.seeds; must be a key of a run"));
  EXPECT_THAT(fault_of("methods.dorp.threshold_s = 0.1\n"), HasSubstr("did you mean \"drop\"?"));
  EXPECT_THAT(fault_of("training.learning_rate.peak = 0.1\n"),
              HasSubstr("tune.trials.training.learning_rate.peak; must not be changed in trials: "
                        "\"training.learning_rate.peak\" is tuned"));
  EXPECT_THAT(fault_of("methods.drop.label = \"other\"\n"), HasSubstr("it identifies the methods"));
  EXPECT_THAT(faults_of(rates + "trials = 3\n"), HasSubstr("tune.trials = 3; must be a table of keys"));
}

TEST_F(TuneTable, TunesKeysThatAreThere) {
  EXPECT_THAT(faults_of("seeds = [11]\n\"cluster.workers\" = [2, 4]\n"),
              HasSubstr("tune.\"cluster.workers\"; must be a key of [training] or of a method: methods.LABEL.key"));
  EXPECT_THAT(faults_of("seeds = [11]\n\"methods.dorp.threshold_s\" = [2, 4]\n"), HasSubstr("did you mean \"drop\"?"));
  EXPECT_THAT(faults_of("seeds = [11]\n\"training.learning_rate.peek\" = [2, 4]\n"), HasSubstr("unknown key"));
  EXPECT_THAT(faults_of("seeds = [11]\n\"training.learning_rate.peak\" = [0.1, -1]\n"),
              HasSubstr("[tune]: methods.0.training.learning_rate.peak = -1; must be"));
  EXPECT_THAT(faults_of("seeds = [11]\n\"training.learning_rate.peak\" = []\n"),
              HasSubstr("must contain at least one value"));
  EXPECT_THAT(faults_of("seeds = [11]\n\"methods.drop.label\" = [\"a\"]\n"), HasSubstr("it identifies the method"));
  EXPECT_THAT(faults_of("seeds = [11]\n"), HasSubstr("tune; must contain at least one key with the values"));
  EXPECT_THAT(faults_of("sees = [11]\n"), HasSubstr("sees"));
}

TEST_F(TuneTable, DoesNotTuneWhatVaries) {
  EXPECT_THAT(faults_of(rates, "[sweep]\n\"training.learning_rate\" = [{ schedule = \"constant\", peak = 0.1 }]\n"),
              HasSubstr("tune.\"training.learning_rate.peak\"; must not be tuned: the sweep or variants set it "
                        "(\"training.learning_rate\")"));
  EXPECT_THAT(faults_of("seeds = [11]\n\"training.learning_rate\" = [{ schedule = \"constant\", peak = 0.1 }]\n",
                        "[sweep]\n\"training.learning_rate.peak\" = [0.1, 0.2]\n"),
              HasSubstr("tune.\"training.learning_rate\"; must not be tuned: the sweep or variants set it "
                        "(\"training.learning_rate.peak\")"));
  EXPECT_THAT(faults_of(rates, "[[variants]]\nlabel = \"a\"\ntraining.learning_rate.peak = 1.0\n"),
              HasSubstr("must not be tuned: the sweep or variants set it (\"variant\")"));
}

TEST_F(TuneTable, TheCommandLineWins) {
  tune(rates);
  EXPECT_FALSE(load({"training.learning_rate.peak=0.3"}).tuning);
  EXPECT_FALSE(load({"training.learning_rate.peak=0.3,0.5"}).tuning);
  EXPECT_FALSE(load({"~tune"}).tuning);
  EXPECT_THAT(load({"tune.seeds=[99]"}).tuning->seeds, ElementsAre(99));
}

TEST_F(TuneTable, EachPointIsTunedByItself) {
  tune(rates, variants);
  const Experiment experiment = load();
  EXPECT_THAT(experiment.tuning->groups, SizeIs(4)) << "two methods, two variants";
  EXPECT_THAT(first_trials(experiment), SizeIs(4 * 3 * 2));
}

TEST_F(TuneTable, MayBeTunedAtOneVariantForAll) {
  tune(rates + "where = { variant = \"none\" }\n", variants);
  const Experiment experiment = load();
  EXPECT_THAT(experiment.tuning->groups, SizeIs(2));
  EXPECT_THAT(experiment.tuning->where, ElementsAre(Pair("variant", "none")));
  for (const syncopate::Run& run : first_trials(experiment))
    EXPECT_THAT(run.resolved_toml, Not(HasSubstr("slow_workers.count = 1")));
  EXPECT_THAT(first_trials(experiment), SizeIs(2 * 3 * 2));
  const auto chosen = experiment.tuning->runs({{0, {{0.4, {}}}}, {1, {{0.1, {}}}}});
  EXPECT_THAT(chosen, SizeIs(2 * 2 * 2)) << "of both variants";
  for (const syncopate::Run& run : chosen)
    EXPECT_EQ(run.training.learning_rate->options().peak, run.method == "drop" ? 0.1 : 0.4);
  EXPECT_THAT(
      faults_of(rates + "where = { variant = \"noon\" }\n", variants),
      HasSubstr("tune.where; \"variant\" = noon must be a value of the sweep, one of none, slow; did you mean"));
  EXPECT_THAT(faults_of(rates + "where = { varant = \"none\" }\n", variants),
              HasSubstr("must be a swept key, one of variant"));
  EXPECT_THAT(faults_of(rates + "where = { variant = \"none\" }\n"), HasSubstr("sweeps nothing and has no variants"));
}

TEST_F(TuneTable, WhatDoesNotConcernAMethodIsNotTunedAgain) {
  tune(rates, "[sweep]\n\"methods.drop.threshold_s\" = [0.015, 0.02]\n");
  EXPECT_THAT(load().tuning->groups, SizeIs(3)) << "sync-sgd once, drop twice";
}

TEST_F(TuneTable, OnlyWhatIsChosenIsTuned) {
  tune(rates, variants);
  Experiment experiment = load();
  choose_runs(experiment, {"drop", "slow"});
  EXPECT_THAT(first_trials(experiment), SizeIs(3 * 2));
  experiment = load();
  EXPECT_THROW(choose_runs(experiment, {experiment.runs.front().hash}), ConfigurationFault) << "it is not known yet";
}

TEST_F(TuneTable, TrialsCountForTheLimit) {
  tune(rates);
  const auto fault = [&](std::int64_t most) -> std::string {
    try {
      load_experiment(file, {}, {.most_runs = most});
    } catch (const ConfigurationFault& fault) {
      return fault.what();
    }
    return "";
  };
  EXPECT_THAT(fault(15), HasSubstr("tune; 12 trials and 4 runs; must be at most 15 together"));
  EXPECT_EQ(fault(16), "");
}

TEST_F(TuneTable, StandsInWhatCheckPrintsAndInNoRun) {
  tune(rates + "extend = 1\n", variants);
  const Experiment first = load();
  write(first.resolved_toml);
  const Experiment again = load();
  ASSERT_TRUE(again.tuning);
  EXPECT_EQ(again.tuning->extensions, 1);
  const auto a = first_trials(first), b = first_trials(again);
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i].hash, b[i].hash);
  for (std::size_t i = 0; i < first.runs.size(); ++i) EXPECT_EQ(first.runs[i].hash, again.runs[i].hash);
}

}  // namespace
}  // namespace syncopate
