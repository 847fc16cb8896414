// A loaded experiment file: its runs, their resolved configurations, and the keys of each section.
#include "experiments/sections/experiment.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "experiments/execution/execution.hpp"
#include "experiments/sections/variation.hpp"
#include "tests/experiments/experiment_file.hpp"
#include "workers/config/key_path.hpp"
#include "workers/config/toml.hpp"

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
  EXPECT_EQ(load({"budget.epochs=0.25"}).runs.at(0).budget.steps, Step{3});  // 2.5 steps are rounded away from zero
  EXPECT_EQ(load({"budget.steps=7"}).runs.at(0).budget.steps, Step{7});      // the first limit that is reached counts
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
  EXPECT_THAT(faults({"budget={seconds=1}"}), HasSubstr("training.learning_rate.total_steps; is required"));
}

TEST_F(ExperimentFile, LearningRateSchedulesAreThoseOfTheFile) {
  EXPECT_DOUBLE_EQ(rate({}, 0), 0.2);
  EXPECT_NEAR(rate({}, 30), (0.2 + 1e-6) / 2, 1e-12);  // half the cosine over 60 steps, which ends at 1e-6
  EXPECT_DOUBLE_EQ(rate({"training.learning_rate.warmup_epochs=1", "training.learning_rate.final=0"}, 5), 0.1);
  const Overrides step = {"training.learning_rate={schedule=\"step\", peak=1, decay_epochs=[1,2], factor=0.5}"};
  EXPECT_DOUBLE_EQ(rate(step, 9), 1);
  EXPECT_DOUBLE_EQ(rate(step, 10), 0.5);
  EXPECT_DOUBLE_EQ(rate(step, 20), 0.25);
  EXPECT_DOUBLE_EQ(rate({"training.learning_rate={schedule=\"linear\", peak=1, final=0, total_steps=4}"}, 3), 0.25);
  EXPECT_THAT(faults({"training.learning_rate.warmup_steps=60"}),
              HasSubstr("must end before the schedule does, at step 60"));
  EXPECT_THAT(faults({"training.learning_rate={schedule=\"step\", peak=1, decay_steps=[5,5]}"}),
              HasSubstr("must be in ascending order"));
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
  // If there are several servers, none has the whole model.
  const auto with_servers = [&](const std::string& servers) {
    return faults({"cluster.leave=[{workers=[0], after_steps=5}]",
                   "methods=[{algorithm=\"backup-workers\",backups=1,servers=" + servers + "}]"});
  };
  EXPECT_EQ(with_servers("1"), "");
  EXPECT_THAT(with_servers("2"), HasSubstr("must not name worker 0"));
  // Each server of a region has the whole model.
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
  EXPECT_THAT(
      faults({"cluster.leave=[{workers=[1,2], after_steps=1}, {workers=[2], after_steps=5}]"}),
      HasSubstr(
          "cluster.leave.1.workers = [2]; must not name worker 2 again: it is already among the workers that leave"));
  EXPECT_THAT(faults({"cluster.leave=[{workers=[1,1], after_steps=1}]"}), HasSubstr("must not name worker 1"));
  EXPECT_THAT(faults({"cluster.leave=[{workers=[], after_steps=1}]"}), HasSubstr("must name at least one worker"));
  EXPECT_THAT(faults({"cluster.micro_batch_s=0.5", "delays=[{kind=\"normal\", mean=-5, standard_deviation=1}]"}),
              HasSubstr("a micro-batch's 0.5 s and the delays' means sum to -4.5 s"));
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
  EXPECT_THAT(run.resolved_toml, testing::Not(HasSubstr("dataset =")));  // reading it again would need the data
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

// Faults of an experiment file that several of its sections cause together, and the choice of faults to report.

using testing::HasSubstr;

struct ExperimentFaults : ExperimentFile {};

TEST_F(ExperimentFaults, LabelsAreUnique) {
  EXPECT_THAT(faults({"methods.0.label=drop"}),
              HasSubstr("methods.1.label = \"drop\"; must be a name that no other method has"));
}

TEST_F(ExperimentFaults, WhatFollowsFromAFaultIsNotReported) {
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
  for (const char* method :
       {"algorithm=\"gradient-coding\", code=\"fractional\", stragglers=2", "algorithm=\"wagma-sgd\", group_size=3",
        "algorithm=\"gradient-coding\", code=\"cyclic\", stragglers=2",
        "algorithm=\"halos\", regions=3, local_steps=2, merge_every=1, mixing=0.5, local_update={name=\"plain\"}, "
        "global_update={name=\"plain\"}",
        "algorithm=\"gradient-coding\", code=\"stochastic\", copies=2, stragglers=1",
        "algorithm=\"ad-psgd\", graph={kind=\"ring\"}",
        "algorithm=\"decentralized-sgd\", graph={kind=\"torus\", rows=3}"})
    only_fault({std::string("methods=[{label=\"a\", ") + method + "}]", "cluster.workers=0"}, "cluster.workers = 0");
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

// Two values of a sweep lack the same key. The message has no line and column, because the sweep is on the command
// line.
TEST_F(ExperimentFaults, WhatIsMissingOnTheCommandLineIsReportedOnce) {
  EXPECT_EQ(
      faults({"sweep.network=[{kind=\"ring\",latency_s=1},{kind=\"ring\",latency_s=2}]"}),
      "command line: network.bandwidth_bytes_per_s is missing; must be a number above 0: kind = \"ring\" requires it");
  EXPECT_EQ(faults({"sweep.cluster=[{workers=4},{workers=8},{workers=8,micro_batches=2}]"}),
            "command line: cluster.micro_batch_s is missing; must be a number above 0 and at most 1000000000");
}

// Sending can begin during the backward pass only if plain sums of a step's gradients are exchanged.
TEST_F(ExperimentFaults, OverlapNeedsSumsOfGradients) {
  const auto report = [&](const std::string& method) {
    return faults({"network={kind=\"ring\", latency_s=1e-3, bandwidth_bytes_per_s=1e9, overlap={buckets=4}}",
                   "methods=[{algorithm=\"sync-sgd\"}, {algorithm=\"stale-sgd\", staleness=1}, {label=\"one\", " +
                       method + "}]"});
  };
  for (const char* method : {"algorithm=\"random-drop\", drop_rate=0.1", "algorithm=\"dropcompute\", threshold_s=0.1",
                             "algorithm=\"backup-all-reduce\", backups=1"})
    EXPECT_EQ(report(method), "") << method;
  for (const char* method : {"algorithm=\"local-sgd\", period={rule=\"constant\", steps=2}", "algorithm=\"async-sgd\"",
                             "algorithm=\"decentralized-sgd\", graph={kind=\"ring\"}"})
    EXPECT_THAT(report(method), testing::AllOf(HasSubstr("network.overlap = a table; must be left out: \"one\""),
                                               HasSubstr("sums of a step's gradients")))
        << method;
  EXPECT_THAT(report("algorithm=\"sync-sgd\", compression={name=\"sign\"}"), HasSubstr("\"one\" compresses whole"));
}

TEST_F(ExperimentFaults, ALinkOfTheServerNeedsAServer) {
  const auto report = [&](const std::string& methods) {
    return faults({"network={kind=\"ring\", latency_s=1e-3, bandwidth_bytes_per_s=1e9, server={latency_s=1e-4}}",
                   "methods=[" + methods + "]"});
  };
  EXPECT_THAT(report("{algorithm=\"sync-sgd\"}, {algorithm=\"decentralized-sgd\", graph={kind=\"ring\"}}"),
              HasSubstr("network.server = { latency_s = 0.0001 }; must be left out: no method has a server"));
  EXPECT_EQ(report("{algorithm=\"sync-sgd\"}, {algorithm=\"async-sgd\"}"), "");
}

TEST_F(ExperimentFaults, AMissingKeySaysWhichOtherKeyAsksForIt) {
  EXPECT_THAT(faults({"training.model=none"}),
              testing::AllOf(HasSubstr("training.parameters is missing; must be an integer from 0 to 8589934588"),
                             HasSubstr(": model = \"none\" requires it")));
  EXPECT_THAT(faults({"network={kind=\"two-level\", latency_s=1, bandwidth_bytes_per_s=1, inside={latency_s=1, "
                      "bandwidth_bytes_per_s=1}}"}),
              HasSubstr("network.group_size is missing; must be an integer from 2 to 1048576: kind = \"two-level\" "
                        "requires it"));
  EXPECT_THAT(faults({"methods.0.algorithm=local-sgd", "methods.0.period={rule=\"constant\"}"}),
              testing::AllOf(HasSubstr("methods.0.period.steps is missing"), HasSubstr("rule = \"constant\"")));
  EXPECT_THAT(
      faults({"delays=[{kind=\"bernoulli\"}]"}),
      testing::AllOf(HasSubstr("delays.0.probability is missing"), HasSubstr(": kind = \"bernoulli\" requires it")));
  EXPECT_EQ(faults({"~training.learning_rate.peak"}).find("requires it"), std::string::npos) << "all models need one";
  EXPECT_THAT(faults({"~cluster.workers"}), testing::Not(HasSubstr("requires it"))) << "every file needs it";
}

// The file has keys of a network. The variant has another kind of network, so its table starts without these keys.
TEST_F(ExperimentFaults, ATableOfAnotherKindSaysThatItReplacesTheFiles) {
  const std::string fixed = "kind = \"fixed\"\nlatency_s = 0.5\n";
  std::string file_of_ring = small;
  file_of_ring.replace(file_of_ring.find(fixed), fixed.size(),
                       "kind = \"ring\"\nlatency_s = 1e-3\nbandwidth_bytes_per_s = 1e9\n");
  write(file_of_ring +
        "[[variants]]\nlabel = \"ring\"\n[[variants]]\nlabel = \"server\"\n"
        "network.kind = \"parameter-server\"\n");
  const std::string variant = faults();
  EXPECT_THAT(variant,
              HasSubstr("network.latency_s is missing; must be a number of at least 0 and at most 1000000000: kind "
                        "= \"parameter-server\" requires it; a different kind replaces the whole table, so the "
                        "latency_s from line 10 does not apply"));
  EXPECT_THAT(variant, HasSubstr("so the bandwidth_bytes_per_s from line 11 does not apply"));
  write(file_of_ring + "[profiles.server]\nnetwork.kind = \"parameter-server\"\n");
  EXPECT_THAT(faults({}, {.profiles = {"server"}}), HasSubstr("so the latency_s from line 10 does not apply"));
  write(file_of_ring + "[methods.training.learning_rate]\nschedule = \"constant\"\n");
  EXPECT_THAT(faults(), HasSubstr("methods.1.training.learning_rate.peak is missing; must be a finite number above 0; "
                                  "a different schedule replaces the whole table, so the peak from line 18 does not "
                                  "apply"));
  write(std::string(small) +
        "[[variants]]\nlabel = \"a\"\n[[variants]]\nlabel = \"b\"\nremove = [\"network.latency_s\"]\n");
  EXPECT_THAT(faults(),
              testing::AllOf(HasSubstr("network.latency_s is missing"), testing::Not(HasSubstr("starts its"))))
      << "it was removed";
}

TEST_F(ExperimentFaults, MethodsAreCheckedAgainstTheRestOfTheFile) {
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
  EXPECT_EQ(with(sharded, {"training.clip_norm=1"}), "");
  for (const char* name : {"lars", "lamb", "lans"}) {
    const std::string layer_wise = fmt::format("training.optimizer.name={}", name);
    EXPECT_EQ(with("algorithm=\"backup-workers\", backups=0", {layer_wise}), "");
    EXPECT_THAT(with(sharded, {layer_wise}),
                HasSubstr(fmt::format("training.optimizer.name = \"{}\"; must be one that updates each", name)));
  }

  // Optimizers that evaluate another model than they step.
  const std::string rounds = "algorithm=\"local-sgd\", period={rule=\"constant\", steps=2}";
  for (const char* name : {"schedule-free-sgd", "schedule-free-adamw", "gpa"}) {
    const std::string averaged = fmt::format("training.optimizer.name={}", name);
    for (const std::string& allowed : {std::string("algorithm=\"sync-sgd\""), std::string("algorithm=\"async-sgd\""),
                                       rounds + ", moments=\"average\"", rounds + ", first_moment=\"reset\""})
      EXPECT_EQ(with(allowed, {averaged}), "") << allowed;
    for (const std::string& refused : {sharded, rounds, std::string("algorithm=\"ad-psgd\"")})
      EXPECT_THAT(with(refused, {averaged}), HasSubstr("must be one that evaluates the model that it steps"))
          << refused;
  }
  for (const char* momentum : {"0", "1"})
    EXPECT_THAT(faults({"training.optimizer={name='schedule-free-sgd'}",
                        fmt::format("training.optimizer.momentum={}", momentum)}),
                HasSubstr("training.optimizer.momentum"));

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

TEST_F(ExperimentFaults, LabelsAreSmoothedWhereThereAreSome) {
  EXPECT_EQ(faults({"training.label_smoothing=0.1"}), "");
  EXPECT_THAT(faults({"training.label_smoothing=0.1", "training.model=quadratic", "budget={steps=5}"}),
              HasSubstr("training.label_smoothing = 0.1; must be 0: this model has no labels"));
}

// A list without any match would silently exclude nothing. Single names may match nothing, because published lists
// contain names from several code bases.
TEST_F(ExperimentFaults, OneOfTheExcludedTensorsMustBeThere) {
  const auto with = [&](const std::string& words, const std::string& hidden = "4") {
    return faults({"training.optimizer={name='lamb',exclude=[" + words + "]}", "training.model=mlp",
                   "models.mlp.hidden=[" + hidden + "]"});
  };
  EXPECT_EQ(with("'bias', 'linear2'"), "");
  EXPECT_EQ(with("'bias', 'gamma', 'beta', 'LayerNorm'"), "");
  EXPECT_THAT(with("'norm'"), HasSubstr("[\"norm\"]; occurs in no tensor's name; give at least one text that occurs in "
                                        "one of these names: linear1.weight, "
                                        "linear2.weight, linear1.bias, linear2.bias"));
  EXPECT_THAT(
      with("'norm', 'gamma'"),
      HasSubstr(
          "; occur in no tensor's name; give at least one text that occurs in one of these names: linear1.weight"));
  EXPECT_THAT(with("1"), HasSubstr("each element must be a string"));
  EXPECT_THAT(with("'gamma'", "4,4,4,4,4,4"),
              testing::ContainsRegex(
                  "occurs in one of these names: (linear[1-7].weight, ){7}(linear[1-3].bias,? ){3}and 4 others"));
}

// The model has two matrices, of 16 x 12 and 10 x 16 numbers. Factors of rank r have 28 r and 26 r instead of 192 and
// 160.
TEST_F(ExperimentFaults, ARankWhoseFactorsMakeNoMatrixSmallerIsAFault) {
  const auto with = [&](const std::string& keys, const std::string& model = "mlp") {
    return faults({"methods=[{algorithm='sync-sgd',compression={name='powersgd'," + keys + "}}]",
                   "training.model=" + model, "models.mlp.hidden=[16]", "datasets.gaussian-mixture.dimension=12",
                   "datasets.gaussian-mixture.classes=10", "training.dataset=gaussian-mixture"});
  };
  EXPECT_EQ(with("rank=3"), "");
  EXPECT_THAT(with("rank=4"),
              HasSubstr("methods.0.compression.rank = 4; must be at most 3: a higher rank shrinks no matrix"));
  EXPECT_EQ(with("rank=6,least_rate=1.0"), "");
  EXPECT_EQ(with("rank=12,least_rate=0.0"), "");  // full rank for the first matrix, while the second is sent whole
  EXPECT_THAT(with("rank=13,least_rate=0.0"), HasSubstr("rank = 13; must be at most 12: no matrix of the model"));
  EXPECT_THAT(with("rank=7,least_rate=1.0"), HasSubstr("rank = 7; must be at most 6"));
  EXPECT_THAT(with("rank=1,least_rate=7.0"), HasSubstr("rank = 1; the model has no matrix that factors of any rank"));
  EXPECT_THAT(with("least_rate=7.0"), HasSubstr("rank = 2 (the default); the model has no matrix"));
}

// The longest side of a tensor is 16, and the largest tile is a whole matrix of 16 x 12 values.
TEST_F(ExperimentFaults, TilesThatNoTensorFillsAreAFault) {
  for (const std::string kind : {"tiles", "demo"}) {
    const auto with = [&](const std::string& keys) {
      return faults({"methods=[{algorithm='sync-sgd',compression={name='" + kind + "'" + keys + "}}]",
                     "training.optimizer={name='sgd'}", "training.model=mlp", "models.mlp.hidden=[16]",
                     "datasets.gaussian-mixture.dimension=12", "datasets.gaussian-mixture.classes=10",
                     "training.dataset=gaussian-mixture"});
    };
    EXPECT_EQ(with(""), "");
    EXPECT_EQ(with(",tile=16"), "");
    EXPECT_THAT(with(",tile=17"), HasSubstr("methods.0.compression.tile = 17; must be at most 16: no tensor of the"));
    EXPECT_EQ(with(",tile=4,kept=16"), "");
    EXPECT_THAT(with(",tile=4,kept=17"), HasSubstr("kept = 17; must be at most 16, the number of values of a tile"));
    EXPECT_EQ(with(",tile=16,kept=191"), "");
    EXPECT_THAT(with(",tile=16,kept=192"), HasSubstr("kept = 192; must be less than 192, the number of values of the"));
  }
}

TEST_F(ExperimentFaults, MuonAndDionNeedAMatrix) {
  for (const std::string optimizer : {"muon", "dion"})
    for (const std::string model : {"quadratic", "valley", "diagonal-linear"})
      EXPECT_THAT(faults({"training.optimizer={name='" + optimizer + "'}", "training.model=" + model,
                          "~training.dataset", "~training.micro_batch_size", "budget={steps=5}"}),
                  HasSubstr("training.optimizer.name = \"" + optimizer +
                            "\"; finds no matrix to orthogonalise: the model has none"));
}

TEST_F(ExperimentFaults, ScaffoldNeedsPlainSteps) {
  const auto with = [&](const std::string& optimizer, const std::string& keys) {
    return faults({"training.optimizer={" + optimizer + "}",
                   "methods=[{algorithm='scaffold',period={rule='constant',steps=2}" + keys + "}]"});
  };
  EXPECT_EQ(with("name='sgd',weight_decay=1e-4", ",control='gradient'"), "");
  EXPECT_EQ(with("name='sgd',momentum=0.9", ""), "");
  EXPECT_THAT(with("name='sgd',momentum=0.9", ",control='gradient'"), HasSubstr("must be \"steps\" with momentum"));
  EXPECT_THAT(with("name='adamw'", ""), HasSubstr("algorithm = \"scaffold\"; needs the optimizer \"sgd\""));
}

TEST_F(ExperimentFaults, RowsOfTablesThatTheModelDoesNotHaveAreAFault) {
  const auto with = [&](const std::string& keys, const std::string& model = "mlp") {
    return faults({"methods=[{algorithm='sync-sgd',compression={name='sparse-rows'" + keys + "}}]",
                   "training.model=" + model, "models.mlp.hidden=[16]"});
  };
  EXPECT_EQ(with(",tables=['nothing','linear2']"), "");
  EXPECT_THAT(
      with(",tables=['nothing']"),
      HasSubstr("methods.0.compression.tables = [\"nothing\"]; must contain a part of the name of a matrix of the "
                "model: \"linear1.weight\", \"linear2.weight\""));
  EXPECT_THAT(with(",tables=['bias']"), HasSubstr("must contain a part of the name of a matrix"));
  EXPECT_THAT(with("", "linear"), HasSubstr("(the default); must contain a part of the name of a matrix"));
  EXPECT_EQ(with(",exchange='dense'", "linear"), "");
}

// A step has 4 gradients, one of each worker, with 16 samples each.
TEST_F(ExperimentFaults, ARoundThatNeedsMoreThanTheWholeBudgetIsAFault) {
  const auto with = [&](const std::string& budget, const std::string& method) {
    return faults({"training.learning_rate.schedule=constant", "budget=" + budget, "methods=[{" + method + "}]"});
  };
  const auto batch = [](int gradients) { return "algorithm='k-batch-sync',gradients=" + std::to_string(gradients); };
  EXPECT_EQ(with("{steps=40}", batch(160)), "");
  EXPECT_THAT(with("{steps=40}", batch(161)),
              HasSubstr("methods.0.gradients = 161; must be at most 160: the whole budget has no more gradients"));
  EXPECT_EQ(with("{epochs=6}", batch(240)), "");
  EXPECT_THAT(with("{epochs=6}", batch(241)), HasSubstr("must be at most 240"));
  EXPECT_EQ(with("{samples=97}", batch(7)), "");  // six gradients have 96 samples
  EXPECT_THAT(with("{samples=97}", batch(8)), HasSubstr("must be at most 7"));
  EXPECT_THAT(with("{samples=97,steps=1}", batch(5)), HasSubstr("must be at most 4"));
  EXPECT_THAT(with("{steps=1,seconds=1000.0}", batch(5)), HasSubstr("must be at most 4"));
  EXPECT_EQ(with("{seconds=0.1}", batch(1000)), "");
  EXPECT_EQ(with("{bytes=100}", batch(1000)), "");
  EXPECT_EQ(with("{steps=9223372036854775807}", batch(1000)), "");
  const std::string trials = "algorithm='mindflayer',rule='clipping-rennala',limit_s=0.02,trials=8";
  EXPECT_THAT(with("{steps=1}", trials), HasSubstr("methods.0.trials = 8; must be at most 4"));
  EXPECT_EQ(with("{samples=64}", trials), "");
  EXPECT_THAT(with("{steps=2}", "algorithm='mindflayer',limit_s=inf,trials_per_worker=3"),
              HasSubstr("methods.0.trials_per_worker = 3; must be at most 2"));
}

TEST_F(ExperimentFaults, EmptyListsOfSeedsAndMethodsAreFaults) {
  EXPECT_THAT(faults({"seeds=[]"}), HasSubstr("seeds = []; must list at least one seed"));
  EXPECT_THAT(faults({"methods=[]"}), HasSubstr("methods = []; must have at least one entry"));
}

TEST_F(ExperimentFaults, AnUnknownMethodIsReportedWithTheNearestAndNothingElse) {
  const std::string report = faults({"methods.drop.algorithm=dropcomput"});
  EXPECT_THAT(report, HasSubstr("command line: methods.1.algorithm = \"dropcomput\""));
  EXPECT_THAT(report, HasSubstr("did you mean \"dropcompute\"?"));
  EXPECT_THAT(report, testing::Not(HasSubstr("\n")));
}

TEST_F(ExperimentFaults, EpochsNeedADataSet) {
  const std::string report = faults({"training.model=quadratic"});
  EXPECT_THAT(report, HasSubstr("budget.epochs = 6; cannot be in epochs"));
}

TEST_F(ExperimentFaults, AnAccuracyTargetNeedsAModelWithAccuracy) {
  EXPECT_EQ(load({"evaluation.target_accuracy=0.8"}).runs.at(0).evaluation.target_accuracy, 0.8);
  EXPECT_THAT(faults({"evaluation.target_accuracy=0.8", "training.model=quadratic", "budget={steps=5}"}),
              HasSubstr("this model has no accuracy"));
}

// Bounds on experiments (numbers of runs, times, depth and size) are checked when the file is read.

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;
using Bounds = ExperimentFile;

std::string repeated(const std::string& text, int times, const std::string& between = "") {
  std::string result = text;
  for (int i = 1; i < times; ++i) result += between + text;
  return result;
}

// Returns "[1, 2, ..., count]".
std::string list_to(int count) {
  std::string list = "1";
  for (int value = 2; value <= count; ++value) list += ", " + std::to_string(value);
  return "[" + list + "]";
}

TEST_F(Bounds, MoreRunsThanTheLimitAreRefusedBeforeAnythingIsExpanded) {
  // 1,000 x 1,000 points with 2 methods and 2 seeds would take minutes and tens of gigabytes.
  write(std::string(small) + "[sweep]\n\"budget.epochs\" = " + list_to(1000) +
        "\n\"training.micro_batch_size\" = " + list_to(1000) + "\n");
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(faults({}), file.string() +
                            ":30:1: 1000000 points of a sweep x 2 methods x 2 seeds are 4000000 runs; must be at most "
                            "10000; --limit N changes this limit");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST_F(Bounds, TheLimitCountsRunsAndCanBeMoved) {
  const auto loads = [&](std::int64_t limit) {
    try {
      return load_experiment(file, {"sweep.\"budget.epochs\"=[1,2,3]"}, {.most_runs = limit}).runs.size();
    } catch (const ConfigurationFault&) {
      return std::size_t{0};
    }
  };
  EXPECT_EQ(loads(12), 12u);  // 3 points x 2 methods x 2 seeds
  EXPECT_EQ(loads(11), 0u);
  const auto refusal = [&](const std::vector<std::string>& overrides) {
    try {
      load_experiment(file, overrides, {.most_runs = 1});
    } catch (const ConfigurationFault& fault) {
      return std::string(fault.what());
    }
    return std::string();
  };
  EXPECT_THAT(refusal({"seeds=2", "sweep.\"budget.epochs\"=[1,2,3]"}),
              HasSubstr("3 points of a sweep x 2 methods x 2 seeds are 12 runs; must be at most 1"));
  EXPECT_THAT(refusal({"seeds=[1]"}), HasSubstr(": 2 methods x 1 seed are 2 runs; must be at most 1"));
  EXPECT_THAT(faults({"seeds=1000000000000"}), HasSubstr("1000000000000 seeds"));
}

TEST_F(Bounds, ANumberOfRunsBeyondAllIntegersIsAsLargeAsPossible) {
  SweepAxis thousand;
  thousand.entries.resize(1000);
  EXPECT_EQ(number_of_points({}), 1u);
  EXPECT_EQ(number_of_points({thousand, thousand}), 1'000'000u);
  EXPECT_EQ(number_of_points(std::vector(7, thousand)), std::numeric_limits<std::uint64_t>::max());
}

// Each of these values would stop the clock from advancing or a micro-batch from ending.
TEST_F(Bounds, TimesBeyondTheLimitOfDelaysAreRefusedWithIt) {
  const auto refused = [&](const std::string& override, const std::string& what) {
    EXPECT_THAT(faults({override}), HasSubstr(what)) << override;
  };
  refused("cluster.micro_batch_s=1e10",
          "cluster.micro_batch_s = 10000000000.0; must be a number above 0 and at most 1");
  refused("cluster.micro_batch_s=\"long\"", "must be a number above 0 and at most 1000000000, or \"measured\"");
  refused("cluster.slow_workers={count=1, factor=1e300}", "cluster.slow_workers.factor = 1e+300; must be a number");
  refused("cluster.worker_factors=[1, 1, 1, 1e300]", "each element must be a number above 0 and at most 1");
  // Each factor is allowed here, but not the product.
  refused("cluster={workers=4, micro_batch_s=1e6, slow_workers={count=1, factor=1e6}}",
          "is too large: the slowest worker's micro-batch must take at most 1e+09 s; found 1e+12 s");
  refused("cluster={workers=2, micro_batch_s=1e6, worker_factors=[1, 1e6]}", "cluster.worker_factors = [1, 1");
  refused("delays=[{kind=\"gamma\", shape=1e6, scale=1e6}]",
          "delays.0.kind = \"gamma\"; must have a mean of at most 1e+09 s; found 1e+12 s");
  refused("delays=[{kind=\"constant\", value=1e9}, {kind=\"lognormal\", mu=50, sigma=1}]", "delays.1.kind");
  // The model has 650 floats. The link is too slow for it.
  refused("network={kind=\"ring\", latency_s=0, bandwidth_bytes_per_s=1e-300}",
          "network.bandwidth_bytes_per_s = 1e-300; must let a model of ");
  refused("network={kind=\"parameter-server\", latency_s=0, bandwidth_bytes_per_s=1e-7}",
          "network.bandwidth_bytes_per_s = 1e-07; must let a model of ");
  const std::string ring = "network={kind=\"ring\", latency_s=0, bandwidth_bytes_per_s=1e9, ";
  refused(ring + "server={bandwidth_bytes_per_s=1e-7}}",
          "network.server.bandwidth_bytes_per_s = 1e-07; must let a model");
  refused(ring + "links=[{workers=[1], latency_s=1}, {workers=[2], bandwidth_bytes_per_s=1e-7}]}",
          "network.links.1.bandwidth_bytes_per_s = 1e-07; must let a model of ");
  refused(ring + "racks={group_size=2, latency_s=0, bandwidth_bytes_per_s=1e-7}}",
          "network.racks.bandwidth_bytes_per_s = 1e-07; must let a model of ");
  refused(ring + "racks={group_size=2, latency_s=1e9, bandwidth_bytes_per_s=1e9}}",
          "network.racks.latency_s = 1000000000.0; must let a model of ");
  refused(
      "network={kind=\"two-level\", group_size=2, latency_s=0, bandwidth_bytes_per_s=1e9, "
      "inside={latency_s=0, bandwidth_bytes_per_s=1e-7}}",
      "network.inside.bandwidth_bytes_per_s = 1e-07; must let a model of ");
  const std::string no_threshold = "methods=[{algorithm=\"sync-sgd\"}]";
  EXPECT_EQ(faults({no_threshold, "cluster.micro_batch_s=1e9"}), "");
  EXPECT_EQ(faults({no_threshold, "cluster={workers=4, micro_batch_s=1e3, slow_workers={count=1, factor=1e6}}"}), "");
}

// For each key, the last allowed value and the first one beyond it.
TEST_F(Bounds, OfNumbersAreTakenOrRefusedAsTheReferenceSays) {
  struct Border {
    std::string key;
    std::string taken;
    std::string refused;
  };
  const Border borders[] = {
      {"seeds", "[0]", "[-1]"},
      {"seeds", "[9223372036854775807]", "[1,2,1]"},
      {"name", "\"...\"", "\"..\""},
      {"name", "\".a\"", "\".\""},
      {"name", "\"a b\"", "\"a/b\""},
      {"name", "\" \"", "\"\""},
      {"cluster.workers", "1", "0"},
      {"cluster.micro_batches", "1", "0"},
      {"cluster.micro_batch_s", "1e-300", "0"},
      {"cluster.trailing_s", "0", "-1e-9"},
      {"cluster.trailing_s", "1e9", "1.1e9"},
      {"cluster.slow_workers", "{count=4, factor=3}", "{count=5, factor=3}"},
      {"cluster.slow_workers", "{count=0, factor=3}", "{count=-1, factor=3}"},
      {"cluster.slow_workers", "{count=1, factor=1e-9}", "{count=1, factor=0}"},
      {"cluster.leave", "[{workers=[3], after_steps=0}]", "[{workers=[4], after_steps=0}]"},
      {"cluster.leave", "[{workers=[3], after_steps=100000000000}]", "[{workers=[3], after_steps=100000000001}]"},
      {"training.clip_norm", "0", "-0.1"},
      {"training.label_smoothing", "0.99", "1"},
      {"training.label_smoothing", "0", "-0.1"},
      {"training.clip_norm", "1e300", "inf"},
      {"training.optimizer.momentum", "0", "-0.1"},
      {"training.optimizer.momentum", "0.9999", "1"},
      {"training.optimizer.weight_decay", "0", "-1"},
      {"training.optimizer.weight_decay", "1e300", "inf"},
      {"training.optimizer", "{name=\"adamw\", beta1=0}", "{name=\"adamw\", beta1=-0.1}"},
      {"training.optimizer", "{name=\"adamw\", beta1=0.9999}", "{name=\"adamw\", beta1=1}"},
      {"training.optimizer", "{name=\"adamw\", beta2=0}", "{name=\"adamw\", beta2=1}"},
      {"training.optimizer", "{name=\"adamw\", epsilon=1e-300}", "{name=\"adamw\", epsilon=0}"},
      {"training.optimizer", "{name=\"adamw\", epsilon=1}", "{name=\"adamw\", epsilon=inf}"},
      {"training.optimizer", "{name=\"rmsprop\", epsilon=1e-300}", "{name=\"rmsprop\", epsilon=0}"},
      {"training.optimizer", "{name=\"rmsprop\", rho=0}", "{name=\"rmsprop\", rho=1}"},
      {"training.optimizer", "{name=\"rmsprop\", mean_square_start=0}", "{name=\"rmsprop\", mean_square_start=-1}"},
      {"training.optimizer", "{name=\"lars\", epsilon=0}", "{name=\"lars\", epsilon=-1}"},
      {"training.optimizer", "{name=\"lars\", trust_coefficient=1e-300}", "{name=\"lars\", trust_coefficient=0}"},
      {"training.optimizer", "{name=\"lamb\", max_norm=0}", "{name=\"lamb\", max_norm=-1}"},
      {"training.optimizer", "{name=\"lamb\", ratio_min=10, ratio_max=10}",
       "{name=\"lamb\", ratio_min=10, ratio_max=9}"},
      {"training.optimizer", "{name=\"lans\", max_norm=1e300}", "{name=\"lans\", max_norm=inf}"},
      {"training.learning_rate.peak", "1e-300", "0"},
      {"training.learning_rate.peak", "1e300", "inf"},
      {"training.learning_rate.final", "0", "-1e-9"},
      {"training.learning_rate.warmup_steps", "59", "60"},  // the run has 60 steps
      {"training.learning_rate.warmup_steps", "0", "-1"},
      {"training.learning_rate.total_steps", "1", "0"},
      {"training.learning_rate", "{schedule=\"step\", peak=1, decay_steps=[0,1]}",
       "{schedule=\"step\", peak=1, decay_steps=[1,1]}"},
      {"training.learning_rate", "{schedule=\"step\", peak=1, decay_steps=[0]}",
       "{schedule=\"step\", peak=1, decay_steps=[-1]}"},
      {"training.learning_rate", "{schedule=\"step\", peak=1, decay_steps=[5], factor=1e-9}",
       "{schedule=\"step\", peak=1, decay_steps=[5], factor=0}"},
      {"training.learning_rate", "{schedule=\"polynomial\", peak=1, power=1e-9}",
       "{schedule=\"polynomial\", peak=1, power=0}"},
      {"training.learning_rate", "{schedule=\"polynomial\", peak=1, warmup_steps=30, hold_steps=29}",  // 60 steps run
       "{schedule=\"polynomial\", peak=1, warmup_steps=30, hold_steps=30}"},
      {"training.learning_rate", "{schedule=\"linear\", peak=1, warmup_share=0.5, hold_share=0.4}",
       "{schedule=\"linear\", peak=1, warmup_share=0.5, hold_share=0.5}"},
      {"training.learning_rate", "{schedule=\"linear\", peak=1, warmup_share=0}",
       "{schedule=\"linear\", peak=1, warmup_share=0, warmup_steps=1}"},
      {"training.learning_rate", "{schedule=\"exponential\", peak=1, decay_every_steps=1}",
       "{schedule=\"exponential\", peak=1, decay_every_steps=0}"},
      {"training.learning_rate", "{schedule=\"modified-cosine\", peak=1, warmup_steps=5, constant_from_step=5}",
       "{schedule=\"modified-cosine\", peak=1, warmup_steps=5, constant_from_step=4}"},
      {"training.learning_rate", "{schedule=\"cosine-step\", peak=1, base=1.1}",
       "{schedule=\"cosine-step\", peak=1, base=1}"},
      {"training.learning_rate.warmup_start", "0", "-1e-9"},
      {"budget.steps", "1", "0"},
      {"budget.steps", "9223372036854775807", "-1"},
      {"budget.epochs", "1e-9", "0"},
      {"budget.samples", "1", "0"},
      {"budget.seconds", "1e-9", "0"},
      {"budget.seconds", "1e300", "inf"},
      {"budget.bytes", "1", "0"},
      {"evaluation.every_steps", "1", "0"},
      {"evaluation.every_epochs", "1e-9", "0"},
      {"evaluation.train_samples", "1", "0"},
      {"evaluation.target_accuracy", "1e-9", "0"},
      {"evaluation.target_accuracy", "1", "1.0001"},
      {"evaluation.target_loss", "-1e300", "nan"},
      {"recording.trace_events", "1", "0"},
      {"recording.trace_seconds", "1e-9", "0"},
      {"recording.trace_seconds", "1e300", "inf"},
  };
  const std::string no_threshold = "methods=[{algorithm=\"sync-sgd\"}]";
  for (const auto& [key, taken, refused] : borders) {
    EXPECT_EQ(faults({no_threshold, key + "=" + taken}), "") << key << " = " << taken;
    EXPECT_THAT(faults({no_threshold, key + "=" + refused}), HasSubstr("command line: " + key.substr(0, key.find('.'))))
        << key << " = " << refused;
  }
}

TEST_F(Bounds, DelaysAndOutagesAreAtMost255) {
  const auto entries = [](const std::string& key, const std::string& entry, int count) {
    return Overrides{"methods=[{algorithm=\"sync-sgd\"}]", key + "=[" + repeated(entry, count, ",") + "]"};
  };
  const std::string delay = "{kind=\"constant\",value=0.1}", outage = "{workers=[1],at_s=1,duration_s=1}";
  EXPECT_EQ(faults(entries("delays", delay, 255)), "");
  EXPECT_THAT(faults(entries("delays", delay, 256)), HasSubstr("must have at most 255 entries"));
  EXPECT_EQ(faults(entries("outages", outage, 255)), "");
  EXPECT_THAT(faults(entries("outages", outage, 256)), HasSubstr("must have at most 255 entries"));
}

TEST_F(Bounds, DelaysInMicroBatchesAreBoundedInSeconds) {
  const auto with = [&](const std::string& value) {
    return faults({"methods=[{algorithm=\"sync-sgd\"}]", "cluster.micro_batch_s=1e3",
                   "delays=[{kind=\"constant\", unit=\"micro_batch\", value=" + value + "}]"});
  };
  EXPECT_EQ(with("1e6"), "");
  EXPECT_THAT(with("1.1e6"), HasSubstr("must have a mean of at most 1e+09 s; found 1.1e+09 s"));
}

TEST_F(Bounds, OutagesSoFrequentThatARunHardlyGoesOnAreRefused) {
  const auto with = [&](const std::string& between, const std::string& state) {
    return faults({"outages=[{mean_time_between_s=" + between + ", mean_duration_s=1, state=\"" + state + "\"}]"});
  };
  EXPECT_THAT(faults({"outages=[{mean_time_between_s=1e-9, mean_duration_s=1e-9}]"}),
              AllOf(HasSubstr("mean_time_between_s = 1e-09; must be a number of at least 1e-06"),
                    HasSubstr("mean_duration_s = 1e-09; must be a number of at least 1e-06")));
  // A micro-batch takes 0.01 s, and bounds are 1/1000 and 1/8 of that.
  EXPECT_EQ(with("1e-5", "kept"), "");
  EXPECT_THAT(with("9e-6", "kept"), HasSubstr("must be at least 1e-05 s, 1/1000 of a micro-batch's time"));
  EXPECT_EQ(with("1.25e-3", "lost"), "");
  EXPECT_THAT(with("1.24e-3", "lost"), HasSubstr("must be at least 0.00125 s, 1/8 of a micro-batch's time"));
  // The mean delay of 0.99 s is part of a micro-batch's time.
  EXPECT_THAT(faults({"delays=[{kind=\"constant\", value=0.99}]",
                      "outages=[{mean_time_between_s=0.12, mean_duration_s=1, state=\"lost\"}]"}),
              HasSubstr("must be at least 0.125 s, 1/8 of a micro-batch's time"));
  // The slowest worker's micro-batch takes ten times as long.
  EXPECT_THAT(
      faults({"cluster.slow_workers={count=1, factor=10}", "outages=[{mean_time_between_s=2e-5, mean_duration_s=1}]"}),
      HasSubstr("must be at least 0.0001 s"));
  // A delay without a mean counts with its minimum.
  EXPECT_THAT(faults({"delays=[{kind=\"pareto\", shape=0.5, minimum=0.99}]",
                      "outages=[{mean_time_between_s=0.12, mean_duration_s=1, state=\"lost\"}]"}),
              HasSubstr("must be at least 0.125 s, 1/8 of a micro-batch's time"));
}

TEST_F(Bounds, OutagesKeepTheStateOfWorkersWithEstimates) {
  const auto with = [&](const std::string& feedback, const std::string& state) {
    return faults(
        {"methods=[{algorithm=\"sync-sgd\", compression={name=\"top-k\", ratio=0.5, feedback=\"" + feedback + "\"}}]",
         "outages=[{workers=[0], at_s=1, duration_s=1, state=\"" + state + "\"}]"});
  };
  EXPECT_EQ(with("ef21", "kept"), "");
  EXPECT_EQ(with("residual", "lost"), "");
  EXPECT_THAT(with("ef21", "lost"), HasSubstr("must have state = \"kept\": \"sync-sgd\" has feedback = \"ef21\""));
}

// A step of 5 micro-batches takes 0.05 s. With a server, a worker repeats the whole step after an outage. Without one
// it repeats only a micro-batch, even with local steps.
TEST_F(Bounds, OutagesAreRareEnoughForWhatBeginsAnewAsAWhole) {
  const auto with = [&](const std::string& method, const std::string& between, const std::string& state) {
    return faults({"cluster.micro_batches=5", "methods=[{" + method + "}]",
                   "outages=[{workers=[0], at_s=1, duration_s=1, state=\"lost\"}, {mean_time_between_s=" + between +
                       ", mean_duration_s=1, state=\"" + state + "\"}]"});
  };
  const std::string async = "algorithm=\"async-sgd\"";
  EXPECT_EQ(with(async, "6.25e-3", "lost"), "");
  EXPECT_THAT(
      with(async, "6.24e-3", "lost"),
      HasSubstr("outages.1.mean_time_between_s = 0.00624; must be at least 0.00625 s, 1/8 of the time of a step "
                "of 5 micro-batches, which \"async-sgd\" repeats as a whole"));
  EXPECT_EQ(with(async, "1e-5", "kept"), "");
  EXPECT_EQ(with("algorithm=\"sync-sgd\"", "1.25e-3", "lost"), "");
  EXPECT_EQ(with("algorithm=\"local-sgd\", period={rule=\"constant\", steps=4}", "1.25e-3", "lost"), "");
}

TEST(Nesting, UpTo64PartsOfAKeyAreRead) {
  const auto depth_of = [](const TomlNode* node) {
    int depth = 0;
    for (; node && node->is_table() && !node->table().empty(); node = &node->table().front().value) ++depth;
    return depth;
  };
  const TomlNode dotted = parse_toml(repeated("a", 64, ".") + " = 1\n", "f");
  EXPECT_EQ(depth_of(&dotted), 64);
  const TomlNode header = parse_toml("[" + repeated("a", 64, ".") + "]\n", "f");
  EXPECT_EQ(depth_of(&header), 64);
  EXPECT_EQ(split_key(repeated("a", 64, ".")).size(), 64u);
}

TEST(Nesting, DeeperDocumentsAreRefusedWithTheirPlace) {
  const auto fault = [](const std::string& text) -> std::string {
    try {
      parse_toml(text, "f");
    } catch (const TomlSyntaxFault& problem) {
      return problem.what();
    }
    return "none";
  };
  const std::string expected = ": a key must have at most 64 parts, including the tables and arrays around it";
  EXPECT_EQ(fault("x = 1\n" + repeated("a", 65, ".") + " = 1\n"), "f:2:129" + expected);
  for (const std::string& deep : {
           repeated("a", 100'000, ".") + " = 1",
           repeated("'a b'", 100'000, " . ") + " = 1",
           "[" + repeated("\"a\\\"\"", 100'000, ".") + "]",
           "[[" + repeated("a", 100'000, ".") + "]]",
           "x = " + repeated("[", 100'000),
           "x = " + repeated("{ a = ", 100'000),
           "x = " + repeated("[{ a.a.a.a = ", 20) + "1" + repeated("}]", 20),
           "x = [\n  # \"\n  ''']''', \"]\", " + repeated("[", 64),
       })
    EXPECT_THAT(fault(deep), testing::EndsWith(expected)) << deep.substr(0, 40);
}

TEST(Nesting, LongDocumentsThatAreNotDeepAreRead) {
  const std::string text = "s = \"" + repeated("a", 1000, ".") + "\"\nl = '" + repeated("[", 1000) + "'\n# " +
                           repeated("{", 1000) + "\nm = \"\"\"\n" + repeated("a.", 1000) + "\\\"\"\"\"\"\nx = " + "[" +
                           repeated("[1.5, { a = 2.5 }]", 1000, ", ") + "]\n" + repeated("[t]\n", 1) + "k = ''\n";
  EXPECT_EQ(parse_toml(text, "f").find("x")->array().size(), 1000u);
}

TEST_F(Bounds, KeysOfOverridesAndSweepsAreBoundedToo) {
  const std::string deep = repeated("a", 60'000, ".");
  EXPECT_THAT(faults({deep + "=1"}), AllOf(StartsWith("command line: a.a.a."), HasSubstr("must have at most 64 parts"),
                                           testing::SizeIs(testing::Lt(200u))));
  EXPECT_THAT(faults({"sweep.\"" + deep + "\"=[1]"}), HasSubstr("must have at most 64 parts"));
  EXPECT_THAT(faults({"x=" + repeated("[", 1000) + repeated("]", 1000)}),
              HasSubstr("at its character 65: a key must have at most 64 parts"));
}

TEST_F(Bounds, AnExperimentFileMustBeARegularFileOfModestSize) {
  const auto fault = [](const std::string& name) -> std::string {
    try {
      load_experiment(name, {});
    } catch (const ConfigurationFault& problem) {
      return problem.what();
    }
    return "none";
  };
  EXPECT_EQ(fault("/dev/zero"), "/dev/zero: is a device or a pipe; must be an experiment file");
  EXPECT_EQ(fault(""), "the name of the experiment file is empty");
  EXPECT_EQ(fault("/proc/self/mem"), "/proc/self/mem: cannot be read: Input/output error")
      << "a regular file, whose first bytes are no memory: an error of reading is not the end";
  std::filesystem::remove(file);
  ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
  EXPECT_EQ(fault(file), file.string() + ": is a device or a pipe; must be an experiment file");
  std::filesystem::remove(file);
  write("");
  std::filesystem::resize_file(file, 65'000'000);  // the hole takes no disk space
  EXPECT_EQ(fault(file), file.string() + ": has 65 MB; an experiment file must have at most 64");
}

TEST_F(Bounds, OfVeryManyFaultsTheFirstAreTold) {
  std::string text = small;
  for (int i = 0; i < 20'000; ++i) text = "unknown_" + std::to_string(i) + " = 1\n" + text;
  write(text);
  const std::string report = faults({});
  EXPECT_THAT(report, StartsWith(file.string() + ":1:1: unknown_19999 = 1; unknown key"));
  EXPECT_THAT(report, testing::EndsWith("\nand 19950 more faults"));
  EXPECT_EQ(std::ranges::count(report, '\n'), 50);
}

TEST_F(Bounds, OneSweepAxisMustNotHoldAnother) {
  const auto sweep = [&](const std::string& axes) { return faults({"sweep={" + axes + "}"}); };
  const std::string cluster = "\"cluster\" = [{workers = 4, micro_batch_s = 0.01, micro_batches = 2}]";
  EXPECT_THAT(
      sweep(cluster + ", \"cluster.workers\" = [2, 4]"),
      HasSubstr(
          "sweep.\"cluster.workers\"; must not be swept together with sweep.\"cluster\", which contains this key"));
  EXPECT_THAT(sweep("\"cluster.workers\" = [2, 4], " + cluster),
              HasSubstr("with sweep.\"cluster\", which contains this key"));
  EXPECT_THAT(
      sweep("\"methods.drop.threshold_s\" = [1.5], \"methods.1.threshold_s\" = [2.5]"),
      HasSubstr("sweep.\"methods.1.threshold_s\"; must not be swept together with sweep.\"methods.drop.threshold_s\", "
                "which is the same key"));
  EXPECT_EQ(sweep("\"cluster.workers\" = [2, 4], \"cluster.micro_batches\" = [1, 2]"), "");
}

TEST_F(Bounds, AValueMustNotBeSweptTwice) {
  const auto sweep = [&](const std::string& values) { return faults({"sweep.\"training.clip_norm\"=" + values}); };
  EXPECT_THAT(sweep("[0.5, 1, 0.5]"), HasSubstr("sweep.\"training.clip_norm\" = 0.5; must not be listed twice"));
  EXPECT_THAT(sweep("[1, 1.0]"), HasSubstr("= 1.0; must not be listed twice"));
  EXPECT_THAT(faults({"sweep.\"models.mlp.hidden\"=[[1, 2], [1, 2]]"}),
              HasSubstr("= [1, 2]; must not be listed twice"));
  EXPECT_EQ(sweep("[0.5, 1, 1.5]"), "");
}

TEST_F(Bounds, WhatNoConvolutionHasIsRefused) {
  const Overrides cnn = {"training.model=cnn", "training.dataset=fashion-mnist", "models.cnn.channels=[]"};
  const auto with = [&](const std::string& key) {
    Overrides all = cnn;
    all.push_back(key);
    return faults(all);
  };
  EXPECT_THAT(with("models.cnn.kernel=1000"),
              HasSubstr("models.cnn.kernel = 1000; has no effect without convolutions (channels = [])"));
  EXPECT_THAT(with("models.cnn.batch_norm=true"), HasSubstr("models.cnn.batch_norm = true; has no effect"));
  EXPECT_EQ(faults(cnn), "");
  write(load(cnn).resolved_toml);
  EXPECT_EQ(faults({}), "");
}

struct WithServers : Algorithm {
  explicit WithServers(int count) : count(count) {}
  void run(Worker&) const override {}
  Traits traits() const override { return {.servers = count}; }
  int count;
};

TEST(Participants, AreTheMostWorkersAndTheMostServersOfAnyRun) {
  Experiment experiment;
  for (const auto& [workers, servers] : {std::pair(4, 0), std::pair(2, 3), std::pair(3, 1)}) {
    experiment.runs.emplace_back().cluster.workers = workers;
    experiment.runs.back().algorithm = std::make_shared<WithServers>(servers);
  }
  EXPECT_EQ(participants(experiment).workers, 4);
  EXPECT_EQ(participants(experiment).servers, 3);
}

}  // namespace
}  // namespace syncopate
