// [tune]: how it is read, what is tried, and what runs come of it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "experiments/commands/commands.hpp"
#include "experiments/execution/tuning.hpp"
#include "tests/experiments/experiment_file.hpp"

namespace syncopate {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::Pair;
using testing::SizeIs;

class TuneTable : public ExperimentFile {
 protected:
  // `small` has the methods sync-sgd and drop, and the seeds 3 and 5.
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

// A trial is an ordinary run: the same as one with this key and seed, in a file without [tune].
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
              HasSubstr("tune; must try all methods with as many settings: \"sync-sgd\" has 3, \"drop\" has 6"));
  EXPECT_THAT(faults_of("seeds = [11]\n\"methods.drop.threshold_s\" = [0.015, 0.02]\n"),
              HasSubstr("\"sync-sgd\" has 1, \"drop\" has 2"));
}

TEST_F(TuneTable, ItsSeedsAreItsOwn) {
  EXPECT_THAT(faults_of("\"training.clip_norm\" = [0, 1]\n"), HasSubstr("tune.seeds is missing"));
  EXPECT_THAT(faults_of("seeds = [11, 5]\n\"training.clip_norm\" = [0, 1]\n"),
              HasSubstr("tune.seeds = [11, 5]; must be none of the experiment's seeds, such as 5"));
  EXPECT_THAT(faults_of("seeds = [11, 11]\n\"training.clip_norm\" = [0, 1]\n"), HasSubstr("must hold 11 once"));
  EXPECT_THAT(faults_of("seeds = []\n\"training.clip_norm\" = [0, 1]\n"), HasSubstr("must have at least one seed"));
  EXPECT_THAT(faults_of(rates, "", {"seeds=11"}), HasSubstr("such as 11")) << "seeds = 11 means 1 to 11";
}

TEST_F(TuneTable, JudgesByWhatIsHeldOut) {
  EXPECT_THAT(faults_of(rates, "", {"~training.validation_samples"}),
              HasSubstr("tune; judges by the validation split: must stand beside training.validation_samples"));
  EXPECT_THAT(faults_of(rates + "measure = \"final_test_loss\"\n"), HasSubstr("must be none of the test set"));
  EXPECT_THAT(faults_of(rates + "measure = \"final_validation_los\"\n"), HasSubstr("did you mean"));
  EXPECT_THAT(faults_of(rates + "measure = \"steps\"\n"), HasSubstr("must be one of which less or more is better"));
  EXPECT_THAT(faults_of(rates + "measure = \"time_to_target_s\"\n"), HasSubstr("needs evaluation.target_accuracy"));
  EXPECT_THAT(faults_of(rates + "measure = \"time_to_target_s\"\n", "", {"evaluation.target_loss=0.1"}), IsEmpty());
  EXPECT_THAT(faults_of(rates + "measure = \"time_to_target_s\"\n", "",
                        {"evaluation.target_loss=0.1", "~training.validation_samples"}),
              HasSubstr("goes by the validation split: must stand beside training.validation_samples"));
  EXPECT_EQ(faults_of(rates + "measure = \"final_train_loss\"\n", "", {"~training.validation_samples"}), "");
  EXPECT_THAT(
      faults_of(rates, "",
                {"training.model=none", "training.parameters=10", "~training.validation_samples", "budget={steps=5}"}),
      HasSubstr("tune.measure is missing; must be named where no model is trained"));
}

// A model whose loss is a formula has nothing to hold out.
TEST_F(TuneTable, AModelWithoutDataIsJudgedByItsLoss) {
  const Overrides quadratic = {"training.model=quadratic",     "~training.dataset", "~training.micro_batch_size",
                               "~training.validation_samples", "~budget.epochs",    "budget.steps=5"};
  tune(rates);
  EXPECT_EQ(load(quadratic).tuning->measure, "final_test_loss");
  EXPECT_THAT(faults_of(rates + "measure = \"time_to_target_s\"\n", "", quadratic),
              HasSubstr("needs evaluation.target_accuracy or target_loss"));
  EXPECT_EQ(faults_of(rates + "measure = \"time_to_target_s\"\n", "[evaluation]\ntarget_loss = 0.1\n", quadratic), "");
}

// One file: trials aim at the validation split, and the runs' time to the target is of the test set.
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

TEST_F(TuneTable, TunesKeysThatAreThere) {
  EXPECT_THAT(faults_of("seeds = [11]\n\"cluster.workers\" = [2, 4]\n"),
              HasSubstr("tune.\"cluster.workers\"; must be a key of [training] or of a method: methods.LABEL.key"));
  EXPECT_THAT(faults_of("seeds = [11]\n\"methods.dorp.threshold_s\" = [2, 4]\n"), HasSubstr("did you mean \"drop\"?"));
  EXPECT_THAT(faults_of("seeds = [11]\n\"training.learning_rate.peek\" = [2, 4]\n"), HasSubstr("unknown key"));
  EXPECT_THAT(faults_of("seeds = [11]\n\"training.learning_rate.peak\" = [0.1, -1]\n"),
              HasSubstr("learning_rate.peak = -1; must be"));
  EXPECT_THAT(faults_of("seeds = [11]\n\"training.learning_rate.peak\" = []\n"), HasSubstr("must hold a value"));
  EXPECT_THAT(faults_of("seeds = [11]\n\"methods.drop.label\" = [\"a\"]\n"), HasSubstr("says which method it is"));
  EXPECT_THAT(faults_of("seeds = [11]\n"), HasSubstr("tune; must have keys with the values"));
  EXPECT_THAT(faults_of("sees = [11]\n"), HasSubstr("sees"));
}

TEST_F(TuneTable, DoesNotTuneWhatVaries) {
  EXPECT_THAT(faults_of(rates, "[sweep]\n\"training.learning_rate\" = [{ schedule = \"constant\", peak = 0.1 }]\n"),
              HasSubstr("tune.\"training.learning_rate.peak\"; must not be tuned: \"training.learning_rate\" varies"));
  EXPECT_THAT(faults_of(rates, "[[variants]]\nlabel = \"a\"\ntraining.learning_rate.peak = 1.0\n"),
              HasSubstr("must not be tuned: \"variant\" varies, which sets it"));
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
              HasSubstr("must be what varies, one of variant"));
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
  EXPECT_THAT(fault(15), HasSubstr("tune; 12 trials beside 4 runs; must be together at most 15"));
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
