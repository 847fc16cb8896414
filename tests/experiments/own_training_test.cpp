// [methods.training]: a method with its own keys of [training] is trained as if they were everybody's, and shows them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "experiments/commands/commands.hpp"
#include "results/result_table.hpp"
#include "results/summary.hpp"
#include "tests/experiments/experiment_file.hpp"
#include "tests/experiments/run_results.hpp"
#include "workers/config/toml.hpp"

namespace syncopate {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::Pair;

class OwnTraining : public ExperimentFile {
 protected:
  // The runs of seed 3: synchronous SGD, and DropCompute with what is given of its own.
  std::vector<syncopate::Run> runs_with(const std::string& own, Overrides overrides = {}) const {
    overrides.insert(overrides.end(), {"seeds=[3]", "methods.drop.training={" + own + "}"});
    return load(overrides).runs;
  }
  // The same method in an experiment whose [training] has them.
  syncopate::Run as_everybodys(Overrides overrides) const {
    overrides.emplace_back("seeds=[3]");
    return load(overrides).runs.at(1);
  }
};

// Strengths of the two forms do not compare: another form has its own default, and none has no strength at all.
TEST_F(OwnTraining, WithAnotherFormOfRandAugmentHasNoneOfTheFilesStrength) {
  const auto differs = [&](const std::string& own) {
    return runs_with("augmentation.randaugment." + own,
                     {"training.model=none", "training.parameters=10",
                      "training.augmentation.randaugment={form='composer',strength=10,operations=3}"})[1]
        .own_training;
  };
  EXPECT_THAT(differs("form='torchvision'"), ElementsAre(Pair("augmentation.randaugment.form", "\"torchvision\""),
                                                         Pair("augmentation.randaugment.operations", "2"),
                                                         Pair("augmentation.randaugment.strength", "9")));
  EXPECT_THAT(differs("form='none'"), ElementsAre(Pair("augmentation.randaugment.form", "\"none\"")));
  EXPECT_THAT(differs("strength=5"), ElementsAre(Pair("augmentation.randaugment.strength", "5.0")));
}

// A form of an optimizer is one of its keys.
TEST_F(OwnTraining, WithAnotherFormOfTheFilesOptimizerKeepsItsOtherKeys) {
  const auto runs =
      runs_with("optimizer.form='pytorch'", {"training.optimizer={name='rmsprop',form='tensorflow',momentum=0.5}"});
  EXPECT_THAT(runs[1].own_training, testing::Contains(Pair("optimizer.form", "\"pytorch\"")));
  EXPECT_THAT(runs[1].own_training, Not(testing::Contains(Pair("optimizer.momentum", testing::_))));
}

TEST_F(OwnTraining, OfAMethodIsTrainedAsIfItWereEverybodys) {
  struct Case {
    std::string own;
    Overrides everybodys;
  };
  const Case cases[] = {
      {"clip_norm=0.1", {"training.clip_norm=0.1"}},
      {"micro_batch_size=4", {"training.micro_batch_size=4"}},
      {"model='mlp'", {"training.model=mlp"}},
      {"learning_rate={peak=0.01,warmup_epochs=1}",
       {"training.learning_rate.peak=0.01", "training.learning_rate.warmup_epochs=1"}},
      {"learning_rate={schedule='constant',peak=0.3}", {"training.learning_rate={schedule='constant',peak=0.3}"}},
      {"optimizer={name='adamw',weight_decay=0.05}", {"training.optimizer={name='adamw',weight_decay=0.05}"}},
      {"optimizer.momentum=0.5", {"training.optimizer.momentum=0.5"}},
  };
  const std::vector<syncopate::Run> plain = load({"seeds=[3]"}).runs;
  const std::string common = results_text(plain[0], outcome_of(plain[0]));
  for (const Case& one : cases) {
    const auto runs = runs_with(one.own);
    const syncopate::Run other = as_everybodys(one.everybodys);
    EXPECT_EQ(results_text(runs[1], outcome_of(runs[1])), results_text(other, outcome_of(other))) << one.own;
    EXPECT_NE(results_text(runs[1], outcome_of(runs[1])), results_text(plain[1], outcome_of(plain[1]))) << one.own;
    EXPECT_EQ(results_text(runs[0], outcome_of(runs[0])), common) << one.own;
    EXPECT_EQ(runs[0].hash, plain[0].hash) << one.own;
    EXPECT_NE(runs[1].hash, plain[1].hash) << one.own;
    EXPECT_EQ(runs[1].setting, runs[0].setting) << "they are compared: " << one.own;
  }
}

TEST_F(OwnTraining, ThatIsTheFilesIsTheSameRun) {
  const auto runs = runs_with("learning_rate.peak=0.2,micro_batch_size=8");
  EXPECT_EQ(runs[1].hash, load({"seeds=[3]"}).runs[1].hash);
  EXPECT_THAT(runs[1].own_training, ElementsAre());
}

TEST_F(OwnTraining, StandsInTheResolvedConfigurationWhichReadsBackToItself) {
  for (const char* const own :
       {"clip_norm=0.1", "optimizer={name='adamw',weight_decay=0.05}", "learning_rate={warmup_epochs=1}",
        "micro_batch_size=4,learning_rate={schedule='step',peak=1,decay_steps=[3]}"}) {
    const syncopate::Run run = runs_with(own, {"training.learning_rate.warmup_steps=2"})[1];
    write(run.resolved_toml);
    const Experiment again = load();
    ASSERT_EQ(again.runs.size(), 1u);
    EXPECT_EQ(again.runs[0].resolved_toml, run.resolved_toml) << own;
    EXPECT_EQ(again.runs[0].hash, run.hash) << own;
    EXPECT_EQ(again.runs[0].own_training, run.own_training) << own;
    EXPECT_EQ(results_text(again.runs[0], outcome_of(again.runs[0])), results_text(run, outcome_of(run))) << own;
    write(small);
  }
}

TEST_F(OwnTraining, ShowsWhatDiffersAndOfAnotherOptimizerWhatIsNotItsDefault) {
  const auto differs = [&](const std::string& own) { return runs_with(own)[1].own_training; };
  EXPECT_THAT(differs("clip_norm=1"), ElementsAre(Pair("clip_norm", "1.0")));
  EXPECT_THAT(differs("optimizer.weight_decay=0.05,learning_rate.peak=0.2"),
              ElementsAre(Pair("optimizer.weight_decay", "0.05")));
  EXPECT_THAT(differs("optimizer.name='adamw'"), ElementsAre(Pair("optimizer.name", "\"adamw\"")));
  EXPECT_THAT(differs("optimizer={name='adamw',beta1=0.9,weight_decay=0.05}"),
              ElementsAre(Pair("optimizer.name", "\"adamw\""), Pair("optimizer.weight_decay", "0.05")));
  EXPECT_THAT(load({"methods.drop.training.clip_norm=1"}).resolved_toml,
              HasSubstr("[methods.training]\nclip_norm = 1.0\n"));
}

TEST_F(OwnTraining, ShowsOfAnotherScheduleWhatTheFilesDoesNotHaveAlready) {
  const auto differs = [&](const std::string& own, const std::string& common) {
    return runs_with("learning_rate={" + own + "}", {"training.learning_rate={" + common + "}"})[1].own_training;
  };
  const std::string constant = "schedule='constant',peak=0.1";
  EXPECT_THAT(differs("schedule='cosine',peak=0.1", constant),
              ElementsAre(Pair("learning_rate.schedule", "\"cosine\"")));
  EXPECT_THAT(differs("schedule='cosine',peak=0.2,final=0,hold_steps=3", constant),
              ElementsAre(Pair("learning_rate.schedule", "\"cosine\""), Pair("learning_rate.peak", "0.2"),
                          Pair("learning_rate.final", "0.0"), Pair("learning_rate.hold_steps", "3")));
  // A schedule of its own has no warm-up unless it says so.
  EXPECT_THAT(differs("schedule='linear',peak=0.1", constant + ",warmup_steps=2"),
              ElementsAre(Pair("learning_rate.schedule", "\"linear\""), Pair("learning_rate.warmup_steps", "0")));
  EXPECT_THAT(differs("schedule='constant',peak=0.1", "schedule='step',peak=0.1,decay_steps=[3],factor=0.5"),
              ElementsAre(Pair("learning_rate.schedule", "\"constant\"")));
}

// Epochs are counted in a method's own steps.
TEST_F(OwnTraining, WithABatchOfItsOwnHasItsOwnNumberOfStepsPerEpoch) {
  const auto runs = runs_with("micro_batch_size=4");
  EXPECT_EQ(runs[0].budget.steps, Step{60});
  EXPECT_EQ(runs[1].budget.steps, Step{120});
  EXPECT_EQ(runs[1].training.samples_per_micro_batch, 4);
  EXPECT_NEAR(runs[1].training.learning_rate->at(60), 0.1, 1e-6) << "half of its own cosine";
}

TEST_F(OwnTraining, CanBeSwept) {
  const auto runs = load({"seeds=[3]", "sweep.\"methods.drop.training.optimizer.weight_decay\"=[0, 0.1]",
                          "methods.drop.training.clip_norm=1"})
                        .runs;
  ASSERT_EQ(runs.size(), 3u) << "one of synchronous SGD, which it does not concern";
  EXPECT_EQ(runs[1].training.optimizer->weight_decay().rate, 0);
  EXPECT_EQ(runs[2].training.optimizer->weight_decay().rate, 0.1);
  EXPECT_THAT(runs[2].sweep, ElementsAre(Pair("methods.drop.training.optimizer.weight_decay", "0.1")));
}

TEST_F(OwnTraining, IsCheckedLikeEverybodysAndNamesItsPlace) {
  write(std::string(small) + R"([methods.training]
learning_rat = 3
clip_norm = -1
optimizer = { name = "rmsprop", epsilon = 0 }
)");
  const std::string found = faults({});
  EXPECT_THAT(found, HasSubstr(":31:1: methods.1.training.learning_rat = 3; unknown key; did you mean"));
  EXPECT_THAT(found, HasSubstr("\"learning_rate\"?"));
  EXPECT_THAT(found, HasSubstr(":32:13: methods.1.training.clip_norm = -1; must be a finite number of at least 0"));
  EXPECT_THAT(found, HasSubstr(":33:43: methods.1.training.optimizer.epsilon = 0; must be a finite number above 0"));
  EXPECT_EQ(std::count(found.begin(), found.end(), '\n'), 2) << found;
  write(small);
  EXPECT_THAT(faults({"methods.drop.training=5"}),
              HasSubstr("methods.1.training = 5; must be a table, [methods.training]"));
  EXPECT_THAT(faults({"methods.drop.training.workers=5"}), HasSubstr("methods.1.training.workers = 5; unknown key"));
  // It offers what may stand there.
  EXPECT_THAT(faults({"methods.drop.training.workers=5"}),
              testing::AllOf(HasSubstr("clip_norm"), Not(HasSubstr("common")), Not(HasSubstr("_hash"))));
}

// A fault of the file is told once, not again for every method.
TEST_F(OwnTraining, DoesNotRepeatTheFilesFaults) {
  const std::string found = faults({"training.clip_norm=-1", "methods.drop.training.micro_batch_size=4"});
  EXPECT_EQ(std::count(found.begin(), found.end(), '\n'), 0) << found;
}

// A warm-up of the file's that is longer than each training, of 60, 120 and 10 steps: one value, one message. One that
// fits the method and the file is the phase's fault, and one that fits neither it nor the method is told once.
TEST_F(OwnTraining, AndTheCommonPhaseTellOneValuesFaultOnce) {
  const auto found = [&](int warmup, const std::string& own) {
    write(std::string(small) + "[methods.training]\n" + own + "\n[training.common]\nepochs = 1\n");
    const std::string report = faults({"training.learning_rate.warmup_steps=" + std::to_string(warmup)});
    EXPECT_EQ(std::count(report.begin(), report.end(), '\n'), 0) << report;
    return report;
  };
  EXPECT_THAT(found(1000, "micro_batch_size = 4"), HasSubstr(": training.learning_rate.warmup_steps = 1000; must end"));
  EXPECT_THAT(found(30, "micro_batch_size = 4"),
              HasSubstr(": training.common.learning_rate.warmup_steps = 30; must end"));
  EXPECT_THAT(found(30, "micro_batch_size = 20"), HasSubstr("learning_rate.warmup_steps = 30; must end"));
  EXPECT_EQ(found(5, "micro_batch_size = 4"), "");
}

// What starts at its end takes up its parameters.
TEST_F(OwnTraining, BehindACommonPhaseHasItsSize) {
  EXPECT_EQ(faults({"training.common={steps=2}"}), "");
  const std::string of_other = "must have as many as that of ";
  EXPECT_THAT(faults({"training.common={steps=2,model='mlp'}"}), HasSubstr(of_other + "\"sync-sgd\""));
  const std::string found = faults({"training.common={steps=2}", "methods.drop.training.model='mlp'"});
  EXPECT_THAT(found, HasSubstr("training.common; its model has"));
  EXPECT_THAT(found, HasSubstr(of_other + "\"drop\""));
  EXPECT_THAT(found, Not(HasSubstr("\"sync-sgd\"")));
  EXPECT_THAT(faults({"training.common={steps=2,common={steps=1}}"}),
              HasSubstr("training.common.common; must be left out"));
}

// What a method asks of the optimizer, it asks of its own.
TEST_F(OwnTraining, IsWhatAMethodIsCheckedAgainst) {
  const std::string elastic = "algorithm='elastic-averaging',beta=0.5,period=2,momentum=0.9";
  const Overrides adamw = {"training.optimizer={name='adamw'}", "methods=[{" + elastic + "}]"};
  EXPECT_THAT(faults(adamw), HasSubstr("methods.0.momentum = 0.9;"));
  EXPECT_EQ(faults({adamw[0], "methods=[{" + elastic + ",training={optimizer={name='sgd'}}}]"}), "");
  EXPECT_THAT(faults({"methods=[{" + elastic + ",training={optimizer={name='adamw'}}}]"}),
              HasSubstr("methods.0.momentum = 0.9;"));
  const std::string sharded = "algorithm='backup-workers',backups=0,servers=2";
  EXPECT_THAT(faults({"methods=[{" + sharded + ",training={optimizer={name='lamb'}}}]"}),
              HasSubstr("its name must be an optimizer that looks at each parameter alone"));
  EXPECT_EQ(faults({"training.optimizer.name='lamb'", "methods=[{" + sharded + ",training={optimizer={name='sgd'}}}]"}),
            "");
}

TEST_F(OwnTraining, IsInTheSummaryAndBelowTheTable) {
  const syncopate::Run run = runs_with("clip_norm=1,optimizer.weight_decay=0.05")[1];
  const RunSummary summary = summarise(run, outcome_of(run));
  const std::optional<RunSummary> read = summary_from_json(to_json(summary));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->own_training, run.own_training);
  const RunSummary runs[] = {*read};
  EXPECT_THAT(result_table(runs), HasSubstr("[training] of drop: clip_norm = 1.0, optimizer.weight_decay = 0.05\n"));

  RunSummary swept[] = {*read};
  swept[0].sweep = {{"methods.drop.training.clip_norm", "1"}};
  EXPECT_THAT(result_table(swept), HasSubstr("[training] of drop, clip_norm = 1: optimizer.weight_decay = 0.05\n"));
  std::vector<RunSummary> rows;
  for (const char* workers : {"8", "16", "32", "64"}) {
    rows.push_back(*read);
    rows.back().sweep = {{"cluster.workers", workers}};
  }
  EXPECT_THAT(result_table(rows), HasSubstr("[training] of drop: clip_norm = 1.0, optimizer.weight_decay = 0.05\n"));
  rows[1].own_training = {{"clip_norm", "2.0"}};
  EXPECT_THAT(result_table(rows),
              HasSubstr("[training] of drop (3 of 4 rows): clip_norm = 1.0, optimizer.weight_decay = 0.05\n"
                        "[training] of drop, workers = 16: clip_norm = 2.0\n"));
  swept[0].own_training.clear();
  EXPECT_THAT(result_table(swept), Not(HasSubstr("[training]")));
}

TEST_F(OwnTraining, IsPredictedWithItsOwnSteps) {
  const auto predicted = predict(load({"methods.drop.training.micro_batch_size=4"}));
  ASSERT_EQ(predicted.size(), 2u);
  for (const auto& method : predicted) EXPECT_TRUE(method.simulated);
}

}  // namespace
}  // namespace syncopate
