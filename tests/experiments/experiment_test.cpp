// An experiment file that is loaded: its runs, what they resolve to, and what each section makes of its keys.
#include "experiments/sections/experiment.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/experiments/experiment_file.hpp"

namespace syncopate {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

TEST_F(ExperimentFile, ExpandsToMethodsTimesSeeds) {
  const Experiment experiment = load();
  EXPECT_EQ(experiment.name, "small");
  EXPECT_THAT(experiment.methods, ElementsAre("sync-sgd", "drop"));
  EXPECT_THAT(experiment.seeds, ElementsAre(3u, 5u));
  std::vector<std::pair<std::string, std::uint64_t>> runs;
  std::set<std::string> hashes;
  for (const syncopate::Run& run : experiment.runs) {
    runs.emplace_back(run.method, run.seed);
    hashes.insert(run.hash);
    EXPECT_EQ(run.hash.size(), 16u);
    EXPECT_EQ(run.cluster.compute_time->seed(), run.seed);
  }
  EXPECT_THAT(runs, ElementsAre(Pair("sync-sgd", 3), Pair("sync-sgd", 5), Pair("drop", 3), Pair("drop", 5)));
  EXPECT_EQ(hashes.size(), 4u);
}

TEST_F(ExperimentFile, EveryRunRepeatsItselfFromItsResolvedConfiguration) {
  for (const syncopate::Run& run : load({"sweep.training.learning_rate.peak=[0.1,0.3]"}).runs) {
    write(run.resolved_toml);
    const Experiment again = load();
    ASSERT_EQ(again.runs.size(), 1u);
    EXPECT_EQ(again.resolved_toml, run.resolved_toml);
    EXPECT_EQ(again.runs[0].resolved_toml, run.resolved_toml);
    EXPECT_EQ(again.runs[0].hash, run.hash);
    EXPECT_EQ(again.runs[0].seed, run.seed);
    EXPECT_EQ(again.runs[0].method, run.method);
  }
}

TEST_F(ExperimentFile, TheResolvedExperimentReadsBackToItself) {
  const Overrides overrides = {"sweep.training.learning_rate.peak=[0.1,0.3]", "cluster.slow_workers.count=1",
                               "cluster.slow_workers.factor=2"};
  const Experiment experiment = load(overrides);
  write(experiment.resolved_toml);
  const Experiment again = load();
  EXPECT_EQ(again.resolved_toml, experiment.resolved_toml);
  ASSERT_EQ(again.runs.size(), experiment.runs.size());
  for (std::size_t i = 0; i < again.runs.size(); ++i) EXPECT_EQ(again.runs[i].hash, experiment.runs[i].hash);
}

TEST_F(ExperimentFile, ADescriptionMakesNoOtherRuns) {
  const Experiment plain = load();
  const Experiment described = load({"description=\"two methods\""});
  ASSERT_EQ(described.runs.size(), plain.runs.size());
  for (std::size_t i = 0; i < plain.runs.size(); ++i) {
    EXPECT_EQ(described.runs[i].hash, plain.runs[i].hash);
    EXPECT_THAT(described.runs[i].resolved_toml, HasSubstr("description = \"two methods\""));
  }
  EXPECT_NE(load({"training.clip_norm=1"}).runs[0].hash, plain.runs[0].hash);
}

// What is recorded beside a run decides nothing in it.
TEST_F(ExperimentFile, RecordingMakesNoOtherRuns) {
  const Experiment plain = load();
  EXPECT_THAT(plain.resolved_toml, testing::Not(HasSubstr("recording")));
  EXPECT_FALSE(plain.runs[0].recording.trace);
  EXPECT_TRUE(plain.runs[0].recording.records_durations(true));  // under MPI
  EXPECT_FALSE(plain.runs[0].recording.records_durations(false));
  const Experiment recorded = load(
      {"recording.trace=true", "recording.trace_seconds=2.5", "recording.trace_events=50", "recording.durations=true"});
  EXPECT_EQ(recorded.runs[0].hash, plain.runs[0].hash);
  const RecordingPlan& plan = recorded.runs[0].recording;
  EXPECT_TRUE(plan.trace);
  EXPECT_EQ(plan.trace_seconds, 2.5);
  EXPECT_EQ(plan.trace_events, 50);
  EXPECT_TRUE(plan.records_durations(false));
  write(recorded.runs[0].resolved_toml);
  EXPECT_EQ(load().runs.at(0).recording.trace_seconds, 2.5);
  EXPECT_FALSE(load({"recording.durations=false"}).runs[0].recording.records_durations(true));
  EXPECT_THAT(
      faults({"recording.trace_events=0", "recording.trace_seconds=0", "recording.trce=true"}),
      testing::AllOf(HasSubstr("trace_events = 0; must be an integer of at least 1"), HasSubstr("trace_seconds = 0"),
                     HasSubstr("trce = true; unknown key; did you mean \"trace\"?")));
}

TEST_F(ExperimentFile, EpochsBecomeSteps) {
  const syncopate::Run run = load().runs.at(0);
  EXPECT_EQ(run.budget.steps, Step{60});
  EXPECT_EQ(load({"budget.epochs=0.25"}).runs.at(0).budget.steps, Step{3});  // 2.5, rounded away from zero
  EXPECT_EQ(load({"budget.steps=7"}).runs.at(0).budget.steps, Step{7});      // the first limit reached counts
  EXPECT_EQ(load({"evaluation.every_epochs=2"}).runs.at(0).evaluation.every_steps, Step{20});
  EXPECT_EQ(run.evaluation.every_steps, Step{100});
}

TEST_F(ExperimentFile, BudgetsAreStepsEpochsSamplesSecondsOrBytes) {
  const Budget budget =
      load({"budget={samples=100, seconds=2.5, bytes=7}", "training.learning_rate.total_steps=9"}).runs.at(0).budget;
  EXPECT_FALSE(budget.steps);
  EXPECT_EQ(budget.samples, 100);
  EXPECT_EQ(budget.seconds, 2.5);
  EXPECT_EQ(budget.bytes, Bytes{7});
  EXPECT_THAT(faults({"budget={}"}), HasSubstr("budget = a table; must set at least one of steps, epochs"));
  EXPECT_THAT(faults({"budget={seconds=1}"}), HasSubstr("training.learning_rate.total_steps; must be given"));
}

TEST_F(ExperimentFile, LearningRateSchedulesAreThoseOfTheFile) {
  EXPECT_DOUBLE_EQ(rate({}, 0), 0.2);
  EXPECT_NEAR(rate({}, 30), (0.2 + 1e-6) / 2, 1e-12);  // half of the cosine of 60 steps, down to the default end
  EXPECT_DOUBLE_EQ(rate({"training.learning_rate.warmup_epochs=1", "training.learning_rate.final=0"}, 5), 0.1);
  const Overrides step = {"training.learning_rate={schedule=\"step\", peak=1, decay_epochs=[1,2], factor=0.5}"};
  EXPECT_DOUBLE_EQ(rate(step, 9), 1);
  EXPECT_DOUBLE_EQ(rate(step, 10), 0.5);
  EXPECT_DOUBLE_EQ(rate(step, 20), 0.25);
  EXPECT_DOUBLE_EQ(rate({"training.learning_rate={schedule=\"linear\", peak=1, final=0, total_steps=4}"}, 3), 0.25);
  EXPECT_THAT(faults({"training.learning_rate.warmup_steps=60"}),
              HasSubstr("must end before the schedule does, at step 60"));
  EXPECT_THAT(faults({"training.learning_rate={schedule=\"step\", peak=1, decay_steps=[5,5]}"}),
              HasSubstr("must ascend"));
}

TEST_F(ExperimentFile, OptimizersAreThoseOfTheFile) {
  EXPECT_EQ(load().runs.at(0).training.optimizer->moments(), 0);
  const syncopate::Run momentum = load({"training.optimizer.momentum=0.9", "training.optimizer.decoupled=true",
                                        "training.optimizer.decay=all", "training.optimizer.weight_decay=0.1"})
                                      .runs.at(0);
  EXPECT_EQ(momentum.training.optimizer->moments(), 1);
  EXPECT_EQ(momentum.training.optimizer->weight_decay().form, DecayForm::decoupled);
  EXPECT_EQ(momentum.training.optimizer->weight_decay().scope, DecayScope::all);
  EXPECT_EQ(momentum.training.optimizer->weight_decay().rate, 0.1);
  EXPECT_EQ(load({"training.optimizer.name=adamw"}).runs.at(0).training.optimizer->moments(), 2);
  EXPECT_THAT(faults({"training.optimizer.nesterov=true"}),
              HasSubstr("nesterov = true; must be false without momentum"));
}

TEST_F(ExperimentFile, SlowWorkersAreTheLastOnesOrListed) {
  const auto base = [&](const Overrides& overrides, int worker) {
    return to_seconds(load(overrides).runs.at(0).cluster.compute_time->base(Rank{worker}));
  };
  const Overrides slow = {"cluster.slow_workers={count=1, factor=3}"};
  EXPECT_DOUBLE_EQ(base(slow, 2), 0.01);
  EXPECT_DOUBLE_EQ(base(slow, 3), 0.03);
  EXPECT_DOUBLE_EQ(base({"cluster.worker_factors=[1,2,1,1]"}, 1), 0.02);
  EXPECT_THAT(faults({"cluster.worker_factors=[1,2]"}), HasSubstr("must have one factor per worker, 4; found 2"));
  EXPECT_THAT(faults({"cluster.slow_workers={count=5, factor=3}"}), HasSubstr("must be an integer from 0 to 4"));
}

TEST_F(ExperimentFile, WorkersMayLeaveAfterTheirStepsOfData) {
  EXPECT_TRUE(load().runs.at(0).cluster.data_of.empty());
  EXPECT_THAT(load().resolved_toml, testing::Not(HasSubstr("leave")));
  const Experiment leaving =
      load({"cluster.leave=[{workers=[3,1], after_steps=20}, {workers=[2], after_steps=0}]", "seeds=[3]"});
  EXPECT_THAT(leaving.runs.at(0).cluster.data_of, ElementsAre(std::nullopt, Step{20}, Step{0}, Step{20}));
  EXPECT_NE(leaving.runs.at(0).hash, load().runs.at(0).hash);
  write(std::string(small) + "[[cluster.leave]]\nworkers = [2]\nafter_steps = 1\n");
  const Experiment swept = load({"sweep.cluster.leave.0.after_steps=[5,6]", "seeds=[3]"});
  ASSERT_EQ(swept.runs.size(), 4u);
  EXPECT_EQ(swept.runs.at(3).cluster.data_of.at(2), Step{6});
}

TEST_F(ExperimentFile, WhoseModelIsEvaluatedMustNotLeave) {
  EXPECT_THAT(faults({"cluster.leave=[{workers=[0], after_steps=5}]"}), HasSubstr("must not name worker 0"));
  EXPECT_EQ(faults({"cluster.leave=[{workers=[0], after_steps=5}]", "methods=[{algorithm=\"async-sgd\"}]"}), "");
  // Of several servers none has the whole model.
  const auto with_servers = [&](const std::string& servers) {
    return faults({"cluster.leave=[{workers=[0], after_steps=5}]",
                   "methods=[{algorithm=\"backup-workers\",backups=1,servers=" + servers + "}]"});
  };
  EXPECT_EQ(with_servers("1"), "");
  EXPECT_THAT(with_servers("2"), HasSubstr("must not name worker 0"));
  // Of servers of servers each has.
  EXPECT_EQ(faults({"cluster.leave=[{workers=[0], after_steps=5}]",
                    "methods=[{algorithm=\"halos\",regions=2,local_steps=2,merge_every=2,mixing=0.5,"
                    "local_update={name=\"plain\"},global_update={name=\"plain\"}}]"}),
            "");
}

TEST_F(ExperimentFile, WhoLeavesMustBeAWorkerAndLeaveOnce) {
  EXPECT_THAT(faults({"cluster.leave=[{workers=[0,4], after_steps=1}]"}),
              HasSubstr("cluster.leave.0.workers = 4; each element must be an integer from 0 to 3"));
  EXPECT_THAT(faults({"cluster.leave=[{workers=[2], after_steps=-1}]"}),
              HasSubstr("cluster.leave.0.after_steps = -1; must be an integer from 0"));
  EXPECT_THAT(faults({"cluster.leave=[{workers=[1,2], after_steps=1}, {workers=[2], after_steps=5}]"}),
              HasSubstr("cluster.leave.1.workers = [2]; must not name worker 2, which leaves already"));
  EXPECT_THAT(faults({"cluster.leave=[{workers=[1,1], after_steps=1}]"}), HasSubstr("must not name worker 1"));
  EXPECT_THAT(faults({"cluster.leave=[{workers=[], after_steps=1}]"}), HasSubstr("must name at least one worker"));
  EXPECT_THAT(faults({"cluster.micro_batch_s=0.5", "delays=[{kind=\"normal\", mean=-5, standard_deviation=1}]"}),
              HasSubstr("its 0.5 s and the delays' means add up to -4.5 s"));
  EXPECT_THAT(faults({"cluster.leave=[{worker=[1], after_steps=1}]"}),
              testing::AllOf(HasSubstr("cluster.leave.0.workers is missing"), HasSubstr("did you mean \"workers\"?")));
  EXPECT_THAT(faults({"cluster.leave=3"}), HasSubstr("must be an array of tables, [[cluster.leave]]"));
}

TEST_F(ExperimentFile, ALearningRateMustHaveAPeakAbove0) {
  const std::string report = faults({"training.learning_rate.peak=0"});
  EXPECT_EQ(report, "command line: training.learning_rate.peak = 0; must be a finite number above 0");
  EXPECT_THAT(faults({"training.learning_rate={schedule=\"constant\", peak=0.0}"}), HasSubstr("above 0"));
}

TEST_F(ExperimentFile, TheNetworkIsThatOfTheFileAndMustBeChosen) {
  EXPECT_EQ(load().runs.at(0).cluster.network->message({.payload = Bytes{100}}), from_seconds(0.5));
  EXPECT_EQ(load({"network={kind=\"free\"}"}).runs.at(0).cluster.network->message({.payload = Bytes{100}}),
            Duration{0});
  EXPECT_THAT(faults({"network={}"}),
              HasSubstr("network.kind is missing; must be one of \"fixed\", \"ring\", \"tree\", "));
}

TEST_F(ExperimentFile, TimeOnlyRunsNeedNeitherDataNorOptimizerButADeclaredSize) {
  write(R"(
[cluster]
workers = 2
micro_batch_s = 1
[network]
kind = "free"
[training]
model = "none"
parameters = 1000
[budget]
steps = 3
[[methods]]
algorithm = "sync-sgd"
)");
  const Experiment experiment = load();
  const syncopate::Run& run = experiment.runs.at(0);
  EXPECT_EQ(experiment.name, file.stem().string());
  EXPECT_EQ(run.seed, 1u);
  EXPECT_EQ(run.training.make_objective(), nullptr);
  EXPECT_EQ(run.training.parameter_bytes, Bytes{4000});
  EXPECT_EQ(run.method, "sync-sgd");
  EXPECT_THAT(run.resolved_toml, testing::Not(HasSubstr("dataset =")));  // read back, it would have to exist
}

TEST_F(ExperimentFile, RunsKnowThePlaceOfTheirMethodAlsoWhereSweepPointsShareOne) {
  std::vector<std::size_t> places;
  for (const syncopate::Run& run : load({"sweep.methods.drop.threshold_s=[0.01,0.02]", "seeds=[1]"}).runs) {
    places.push_back(run.method_index);
  }
  EXPECT_THAT(places, ElementsAre(0u, 1u, 1u));
}

TEST(Experiment, TheQuickStartComparesFourMethodsWithThreeSeeds) {
  const Experiment experiment =
      load_experiment(SYNCOPATE_SOURCE_DIR "/experiments/quickstart.toml", {"training.dataset=gaussian-mixture"});
  EXPECT_EQ(experiment.methods.size(), 4u);
  EXPECT_EQ(experiment.runs.size(), 12u);
}

TEST(Experiment, MissingFilesDirectoriesAndBadTomlAreConfigurationFaults) {
  EXPECT_THROW(load_experiment("/nonexistent.toml", {}), ConfigurationFault);
  EXPECT_THROW(load_experiment("/", {}), ConfigurationFault);
}

}  // namespace
}  // namespace syncopate
