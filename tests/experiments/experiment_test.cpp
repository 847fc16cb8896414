#include "experiments/sections/experiment.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

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

TEST_F(ExperimentFile, LabelsAreUnique) {
  EXPECT_THAT(faults({"methods.0.label=drop"}),
              HasSubstr("methods.1.label = \"drop\"; must be a name that no other method has"));
}

TEST_F(ExperimentFile, WhatFollowsFromAFaultIsNotReported) {
  const auto only_fault = [&](const Overrides& overrides, const std::string& fault) {
    const std::string report = faults(overrides);
    EXPECT_THAT(report, HasSubstr(fault));
    EXPECT_THAT(report, testing::Not(HasSubstr("\n"))) << report;
  };
  only_fault({"methods.drop={label=\"b\", algorithm=\"backup-workers\", backups=2}", "cluster.workers=1.5"},
             "cluster.workers = 1.5; must be an integer");
  only_fault({"cluster.worker_factors=[1,2,1,1]", "cluster.workers=1.5"}, "cluster.workers = 1.5");
  only_fault({"cluster.slow_workers={count=2, factor=3}", "cluster.workers=0"}, "cluster.workers = 0");
  only_fault({"cluster.leave=[{workers=[3], after_steps=1}]", "cluster.workers=0"}, "cluster.workers = 0");
  only_fault({"cluster.worker_factors=[1,-2,1,1]"}, "cluster.worker_factors = -2");
  only_fault({"seeds=[-1]"}, "seeds = -1; each element must be");
  only_fault({"methods=5"}, "methods = 5; must be an array of tables");
  only_fault({"budget.epochs=-1", "training.learning_rate.warmup_steps=20"}, "budget.epochs = -1; must be");
  only_fault({"budget={steps=1.5}", "training.learning_rate.warmup_steps=20"}, "budget.steps = 1.5; must be");
  only_fault({"budget={steps=20}", "training.learning_rate.warmup_epochs=1", "cluster.workers=0"},
             "cluster.workers = 0");
  only_fault({"training.learning_rate.total_steps=0", "training.learning_rate.warmup_steps=5"},
             "training.learning_rate.total_steps = 0; must be");
  only_fault({"training.optimizer={name=\"sgd\", momentum=2, nesterov=true}"}, "training.optimizer.momentum = 2");
}

// Two values of a sweep lack the same; where in the command line is not told.
TEST_F(ExperimentFile, WhatIsMissingOnTheCommandLineIsReportedOnce) {
  EXPECT_EQ(faults({"sweep.network=[{kind=\"ring\",latency_s=1},{kind=\"ring\",latency_s=2}]"}),
            "command line: network.bandwidth_bytes_per_s is missing; must be a number above 0");
  EXPECT_EQ(faults({"sweep.cluster=[{workers=4},{workers=8},{workers=8,micro_batches=2}]"}),
            "command line: cluster.micro_batch_s is missing; must be a number above 0 and at most 1000000000");
}

TEST_F(ExperimentFile, MethodsAreCheckedAgainstTheRestOfTheFile) {
  const auto with = [&](const std::string& method, Overrides overrides = {}) {
    overrides.insert(overrides.begin(), "methods=[{" + method + "}]");
    return faults(overrides);
  };
  const std::string epoch = "algorithm=\"random-drop\", drop_rate=0.1, from_epoch=1";
  EXPECT_EQ(with(epoch), "");
  EXPECT_THAT(with(epoch, {"training.model=quadratic", "budget={steps=5}"}), HasSubstr("methods.0.from_epoch = 1;"));

  const std::string sharded = "algorithm=\"backup-workers\", backups=0, servers=2";
  EXPECT_EQ(with(sharded), "");
  EXPECT_EQ(with("algorithm=\"backup-workers\", backups=0", {"training.clip_norm=1"}), "");
  EXPECT_THAT(with(sharded, {"training.clip_norm=1"}),
              HasSubstr("training.clip_norm = 1; must be 0: with the servers of \"backup-workers\""));
  for (const char* name : {"lars", "lamb", "lans"}) {
    const std::string layer_wise = fmt::format("training.optimizer.name={}", name);
    EXPECT_EQ(with("algorithm=\"backup-workers\", backups=0", {layer_wise}), "");
    EXPECT_THAT(with(sharded, {layer_wise}),
                HasSubstr(fmt::format("training.optimizer.name = \"{}\"; must be an optimizer that", name)));
  }

  const std::string distance = "algorithm=\"dynamic-averaging\", threshold=1, check_every=2";
  EXPECT_EQ(with(distance), "");
  EXPECT_THAT(with(distance, {"training={model=\"none\", parameters=1}"}),
              HasSubstr("\"dynamic-averaging\"; needs a model"));

  const std::string momentum = "algorithm=\"elastic-averaging\", beta=0.5, period=2, momentum=0.9";
  EXPECT_EQ(with(momentum), "");
  for (const char* optimizer :
       {"{name=\"sgd\", momentum=0.5}", "{name=\"sgd\", weight_decay=0.1}", "{name=\"adamw\"}"}) {
    const std::string key = "training.optimizer=";
    EXPECT_THAT(with(momentum, {key + optimizer}), HasSubstr("methods.0.momentum = 0.9;")) << optimizer;
  }

  const std::string alone = "algorithm=\"branch-train-merge\"";
  const Overrides total = {"training.learning_rate.total_steps=9"};
  EXPECT_EQ(with(alone, {"budget={bytes=7, seconds=1}", total[0]}), "");
  EXPECT_THAT(with(alone, {"budget={bytes=7}", total[0]}), HasSubstr("\"branch-train-merge\"; needs a budget"));
}

TEST_F(ExperimentFile, LabelsAreSmoothedWhereThereAreSome) {
  EXPECT_EQ(faults({"training.label_smoothing=0.1"}), "");
  EXPECT_THAT(faults({"training.label_smoothing=0.1", "training.model=quadratic", "budget={steps=5}"}),
              HasSubstr("training.label_smoothing = 0.1; must be 0: this model has no labels"));
}

// A list that fits no tensor would exclude nothing, unseen. Those of publications have the names of several codes.
TEST_F(ExperimentFile, OneOfTheExcludedTensorsMustBeThere) {
  const auto with = [&](const std::string& words, const std::string& hidden = "4") {
    return faults({"training.optimizer={name='lamb',exclude=[" + words + "]}", "training.model=mlp",
                   "models.mlp.hidden=[" + hidden + "]"});
  };
  EXPECT_EQ(with("'bias', 'linear2'"), "");
  EXPECT_EQ(with("'bias', 'gamma', 'beta', 'LayerNorm'"), "");
  EXPECT_THAT(with("'norm'"), HasSubstr("[\"norm\"]; is in no tensor's name; one must be in one of linear1.weight, "
                                        "linear2.weight, linear1.bias, linear2.bias"));
  EXPECT_THAT(with("'norm', 'gamma'"),
              HasSubstr("; are all in no tensor's name; one must be in one of linear1.weight"));
  EXPECT_THAT(with("1"), HasSubstr("each element must be a string"));
  EXPECT_THAT(
      with("'gamma'", "4,4,4,4,4,4"),
      testing::ContainsRegex("must be in one of (linear[1-7].weight, ){7}(linear[1-3].bias,? ){3}and 4 others"));
}

// Two matrices, of 16 x 12 and 10 x 16. Factors of rank r have 28 r and 26 r numbers instead of 192 and 160.
TEST_F(ExperimentFile, ARankWhoseFactorsMakeNoMatrixSmallerIsAFault) {
  const auto with = [&](const std::string& keys, const std::string& model = "mlp") {
    return faults({"methods=[{algorithm='sync-sgd',compression={name='powersgd'," + keys + "}}]",
                   "training.model=" + model, "models.mlp.hidden=[16]", "datasets.gaussian-mixture.dimension=12",
                   "datasets.gaussian-mixture.classes=10", "training.dataset=gaussian-mixture"});
  };
  EXPECT_EQ(with("rank=3"), "");
  EXPECT_THAT(with("rank=4"), HasSubstr("methods.0.compression.rank = 4; must be at most 3: factors of a higher rank"));
  EXPECT_EQ(with("rank=6,least_rate=1.0"), "");
  EXPECT_EQ(with("rank=12,least_rate=0.0"), "");  // full rank of the first; the other one is sent whole
  EXPECT_THAT(with("rank=13,least_rate=0.0"), HasSubstr("rank = 13; must be at most 12: no matrix of the model"));
  EXPECT_THAT(with("rank=7,least_rate=1.0"), HasSubstr("rank = 7; must be at most 6"));
  EXPECT_THAT(with("rank=1,least_rate=7.0"), HasSubstr("rank = 1; the model has no matrix that factors of any rank"));
  EXPECT_THAT(with("least_rate=7.0"), HasSubstr("rank = 2 (the default); the model has no matrix"));
}

TEST_F(ExperimentFile, RowsOfTablesThatTheModelDoesNotHaveAreAFault) {
  const auto with = [&](const std::string& keys, const std::string& model = "mlp") {
    return faults({"methods=[{algorithm='sync-sgd',compression={name='sparse-rows'" + keys + "}}]",
                   "training.model=" + model, "models.mlp.hidden=[16]"});
  };
  EXPECT_EQ(with(",tables=['nothing','linear2']"), "");
  EXPECT_THAT(with(",tables=['nothing']"),
              HasSubstr("methods.0.compression.tables = [\"nothing\"]; one of them must be in the name of a matrix of "
                        "the model: \"linear1.weight\", \"linear2.weight\""));
  EXPECT_THAT(with(",tables=['bias']"), HasSubstr("must be in the name of a matrix"));
  EXPECT_THAT(with("", "linear"), HasSubstr("(the default); one of them must be in the name of a matrix"));
  EXPECT_EQ(with(",exchange='dense'", "linear"), "");
}

// 4 workers, so that a step has 4 gradients, of 16 samples each.
TEST_F(ExperimentFile, ARoundThatNeedsMoreThanTheWholeBudgetIsAFault) {
  const auto with = [&](const std::string& budget, const std::string& method) {
    return faults({"training.learning_rate.schedule=constant", "budget=" + budget, "methods=[{" + method + "}]"});
  };
  const auto batch = [](int gradients) { return "algorithm='k-batch-sync',gradients=" + std::to_string(gradients); };
  EXPECT_EQ(with("{steps=40}", batch(160)), "");
  EXPECT_THAT(with("{steps=40}", batch(161)),
              HasSubstr("methods.0.gradients = 161; must be at most 160: the whole budget has no more gradients"));
  EXPECT_EQ(with("{epochs=6}", batch(240)), "");
  EXPECT_THAT(with("{epochs=6}", batch(241)), HasSubstr("must be at most 240"));
  EXPECT_EQ(with("{samples=97}", batch(7)), "");  // six gradients have 96
  EXPECT_THAT(with("{samples=97}", batch(8)), HasSubstr("must be at most 7"));
  EXPECT_THAT(with("{samples=97,steps=1}", batch(5)), HasSubstr("must be at most 4"));
  EXPECT_THAT(with("{steps=1,seconds=1000.0}", batch(5)), HasSubstr("must be at most 4"));
  EXPECT_EQ(with("{seconds=0.1}", batch(1000)), "");
  EXPECT_EQ(with("{bytes=100}", batch(1000)), "");
  EXPECT_EQ(with("{steps=9223372036854775807}", batch(1000)), "");
  // Trials that come to nothing have no samples.
  const std::string trials = "algorithm='mindflayer',limit_s=0.02,trials=8";
  EXPECT_THAT(with("{steps=1}", trials), HasSubstr("methods.0.trials = 8; must be at most 4"));
  EXPECT_EQ(with("{samples=64}", trials), "");
}

TEST_F(ExperimentFile, EmptyListsOfSeedsAndMethodsAreFaults) {
  EXPECT_THAT(faults({"seeds=[]"}), HasSubstr("seeds = []; must hold at least one seed"));
  EXPECT_THAT(faults({"methods=[]"}), HasSubstr("methods = []; must have at least one entry"));
}

TEST_F(ExperimentFile, RunsKnowThePlaceOfTheirMethodAlsoWhereSweepPointsShareOne) {
  std::vector<std::size_t> places;
  for (const syncopate::Run& run : load({"sweep.methods.drop.threshold_s=[0.01,0.02]", "seeds=[1]"}).runs) {
    places.push_back(run.method_index);
  }
  EXPECT_THAT(places, ElementsAre(0u, 1u, 1u));
}

TEST_F(ExperimentFile, AnUnknownMethodIsReportedWithTheNearestAndNothingElse) {
  const std::string report = faults({"methods.drop.algorithm=dropcomput"});
  EXPECT_THAT(report, HasSubstr("command line: methods.1.algorithm = \"dropcomput\""));
  EXPECT_THAT(report, HasSubstr("did you mean \"dropcompute\"?"));
  EXPECT_THAT(report, testing::Not(HasSubstr("\n")));
}

TEST_F(ExperimentFile, EpochsNeedADataSet) {
  const std::string report = faults({"training.model=quadratic"});
  EXPECT_THAT(report, HasSubstr("budget.epochs = 6; must not count epochs"));
}

TEST_F(ExperimentFile, AnAccuracyTargetNeedsAModelWithAccuracy) {
  EXPECT_EQ(load({"evaluation.target_accuracy=0.8"}).runs.at(0).evaluation.target_accuracy, 0.8);
  EXPECT_THAT(faults({"evaluation.target_accuracy=0.8", "training.model=quadratic", "budget={steps=5}"}),
              HasSubstr("this model has no accuracy"));
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
