// Faults of an experiment file that several of its sections make together, and which of all faults are reported.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/experiments/experiment_file.hpp"

namespace syncopate {
namespace {

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

// Two values of a sweep lack the same; where in the command line is not told.
TEST_F(ExperimentFaults, WhatIsMissingOnTheCommandLineIsReportedOnce) {
  EXPECT_EQ(
      faults({"sweep.network=[{kind=\"ring\",latency_s=1},{kind=\"ring\",latency_s=2}]"}),
      "command line: network.bandwidth_bytes_per_s is missing; must be a number above 0: kind = \"ring\" asks for it");
  EXPECT_EQ(faults({"sweep.cluster=[{workers=4},{workers=8},{workers=8,micro_batches=2}]"}),
            "command line: cluster.micro_batch_s is missing; must be a number above 0 and at most 1000000000");
}

// An exchange can begin during the backward pass where it is a plain sum of a step's gradients.
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

// One method with a server is enough.
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
                             HasSubstr(": model = \"none\" asks for it")));
  EXPECT_THAT(
      faults({"network={kind=\"two-level\", latency_s=1, bandwidth_bytes_per_s=1, inside={latency_s=1, "
              "bandwidth_bytes_per_s=1}}"}),
      HasSubstr("network.group_size is missing; must be an integer from 2 to 1048576: kind = \"two-level\" asks "
                "for it"));
  EXPECT_THAT(faults({"methods.0.algorithm=local-sgd", "methods.0.period={rule=\"constant\"}"}),
              testing::AllOf(HasSubstr("methods.0.period.steps is missing"), HasSubstr("rule = \"constant\"")));
  EXPECT_THAT(
      faults({"delays=[{kind=\"bernoulli\"}]"}),
      testing::AllOf(HasSubstr("delays.0.probability is missing"), HasSubstr(": kind = \"bernoulli\" asks for it")));
  EXPECT_EQ(faults({"~training.learning_rate.peak"}).find("for it"), std::string::npos) << "all models need one";
  EXPECT_THAT(faults({"~cluster.workers"}), testing::Not(HasSubstr("for it"))) << "every file needs it";
}

// The keys of a network stand in the file, but its variant has another kind of network, which begins without them.
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
                        "= \"parameter-server\" asks for it; another kind starts its own table, without the "
                        "latency_s of line 10"));
  EXPECT_THAT(variant, HasSubstr("without the bandwidth_bytes_per_s of line 11"));
  write(file_of_ring + "[profiles.server]\nnetwork.kind = \"parameter-server\"\n");
  EXPECT_THAT(faults({}, {.profiles = {"server"}}), HasSubstr("without the latency_s of line 10"));
  write(file_of_ring + "[methods.training.learning_rate]\nschedule = \"constant\"\n");
  EXPECT_THAT(faults(), HasSubstr("methods.1.training.learning_rate.peak is missing; must be a finite number above 0; "
                                  "another schedule starts its own table, without the peak of line 18"));
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

TEST_F(ExperimentFaults, LabelsAreSmoothedWhereThereAreSome) {
  EXPECT_EQ(faults({"training.label_smoothing=0.1"}), "");
  EXPECT_THAT(faults({"training.label_smoothing=0.1", "training.model=quadratic", "budget={steps=5}"}),
              HasSubstr("training.label_smoothing = 0.1; must be 0: this model has no labels"));
}

// A list that fits no tensor would exclude nothing, unseen. Those of publications have the names of several codes.
TEST_F(ExperimentFaults, OneOfTheExcludedTensorsMustBeThere) {
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
TEST_F(ExperimentFaults, ARankWhoseFactorsMakeNoMatrixSmallerIsAFault) {
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

TEST_F(ExperimentFaults, RowsOfTablesThatTheModelDoesNotHaveAreAFault) {
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
  EXPECT_EQ(with("{samples=97}", batch(7)), "");  // six gradients have 96
  EXPECT_THAT(with("{samples=97}", batch(8)), HasSubstr("must be at most 7"));
  EXPECT_THAT(with("{samples=97,steps=1}", batch(5)), HasSubstr("must be at most 4"));
  EXPECT_THAT(with("{steps=1,seconds=1000.0}", batch(5)), HasSubstr("must be at most 4"));
  EXPECT_EQ(with("{seconds=0.1}", batch(1000)), "");
  EXPECT_EQ(with("{bytes=100}", batch(1000)), "");
  EXPECT_EQ(with("{steps=9223372036854775807}", batch(1000)), "");
  // Trials that come to nothing have no samples.
  const std::string trials = "algorithm='mindflayer',rule='clipping-rennala',limit_s=0.02,trials=8";
  EXPECT_THAT(with("{steps=1}", trials), HasSubstr("methods.0.trials = 8; must be at most 4"));
  EXPECT_EQ(with("{samples=64}", trials), "");
  EXPECT_THAT(with("{steps=2}", "algorithm='mindflayer',limit_s=inf,trials_per_worker=3"),
              HasSubstr("methods.0.trials_per_worker = 3; must be at most 2"));
}

TEST_F(ExperimentFaults, EmptyListsOfSeedsAndMethodsAreFaults) {
  EXPECT_THAT(faults({"seeds=[]"}), HasSubstr("seeds = []; must hold at least one seed"));
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
  EXPECT_THAT(report, HasSubstr("budget.epochs = 6; must not count epochs"));
}

TEST_F(ExperimentFaults, AnAccuracyTargetNeedsAModelWithAccuracy) {
  EXPECT_EQ(load({"evaluation.target_accuracy=0.8"}).runs.at(0).evaluation.target_accuracy, 0.8);
  EXPECT_THAT(faults({"evaluation.target_accuracy=0.8", "training.model=quadratic", "budget={steps=5}"}),
              HasSubstr("this model has no accuracy"));
}

}  // namespace
}  // namespace syncopate
