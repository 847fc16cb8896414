// Tuning as its users see it: what is run, found again, chosen, shown and exported.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/experiments/program.hpp"

namespace syncopate {
namespace {

namespace fs = std::filesystem;

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class TuningProgram : public ProgramTest {
 protected:
  // Two thresholds of one method: the shorter, the shorter the steps.
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
  // The numbers are those of the trials' own files.
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
  EXPECT_THAT(again.err, AllOf(HasSubstr("12 of 12 trials are there already"),
                               HasSubstr("4 of 4 runs are there already"), Not(HasSubstr("begins"))));
  const ProgramOutcome extended = syncopate("run " + file);
  EXPECT_THAT(extended.err, AllOf(HasSubstr("12 of 12 trials are there already"), HasSubstr("trial 1 of 4: ")));
  // What is chosen is one run, however it is asked for.
  const ProgramOutcome by_hand = syncopate("run " + file + " ~tune methods.A.threshold_s=0.05 --only A");
  EXPECT_THAT(by_hand.err, HasSubstr("2 of 2 runs are there already"));
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
  EXPECT_THAT(check.out, AllOf(HasSubstr("A, seed=1, to be tuned"),
                               HasSubstr("# Tried before, with the seeds 7, 8, judged by step_time_s:\n"),
                               HasSubstr("A: methods.A.threshold_s = 0.05, 0.06, 0.055\n"),
                               HasSubstr("\n# 12 trials, then 4 runs; how long")));
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

// A run of a number of steps that the model does not survive.
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
              HasSubstr("bad: not tuned, and not run: of no setting have all trials a final_train_loss; the first "
                        "that has none: "));
  EXPECT_THAT(run.out, AllOf(HasSubstr("good: tuned, peak = 0.01 is the best of 2 settings in 2 trials"),
                             HasSubstr("bad: not tuned: none of 2 settings in 2 trials has a final_train_loss"),
                             Not(HasSubstr("\nbad "))));
  EXPECT_THAT(syncopate("run " + diverging).err, HasSubstr("4 of 4 trials are there already")) << "also what diverged";
}

// No model is right about every sample after 20 steps; both rates end at the same time, and one comes nearer.
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

// The faster rate meets the target, the others miss it: the quadratic's loss is all that there is to go by.
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
  EXPECT_THAT(syncopate("run " + file + small, 2).err, HasSubstr("6 of 6 trials are there already"));
}

TEST_F(TuningProgram, ComparesNothingThatIsNotTuned) {
  const ProgramOutcome compare = syncopate("compare " + file);
  EXPECT_EQ(compare.status, 2);
  EXPECT_THAT(compare.err, HasSubstr("compare tunes nothing"));
  const ProgramOutcome predict = syncopate("predict " + file);
  EXPECT_EQ(predict.status, 0);
  EXPECT_THAT(predict.err, HasSubstr("with the file's own values of what [tune] tunes"));
}

}  // namespace
}  // namespace syncopate
