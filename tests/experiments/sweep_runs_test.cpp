// The runs that a sweep comes to.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "tests/experiments/experiment_file.hpp"

namespace syncopate {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

TEST_F(ExperimentFile, ASweepIsACrossProductOfItsKeys) {
  const Overrides sweep = {"sweep.cluster.micro_batches=[1,2]", "sweep.\"training.learning_rate.peak\"=[0.1,0.2,0.3]",
                           "seeds=[1]"};
  const Experiment experiment = load(sweep);
  ASSERT_EQ(experiment.runs.size(), 12u);  // 2 x 3 points, 2 methods
  EXPECT_THAT(experiment.runs[0].sweep,
              ElementsAre(Pair("cluster.micro_batches", "1"), Pair("training.learning_rate.peak", "0.1")));
  EXPECT_THAT(experiment.runs[11].sweep,
              ElementsAre(Pair("cluster.micro_batches", "2"), Pair("training.learning_rate.peak", "0.3")));
  EXPECT_EQ(experiment.runs[0].cluster.micro_batches, 1);
  EXPECT_EQ(experiment.runs[11].cluster.micro_batches, 2);
  EXPECT_DOUBLE_EQ(experiment.runs[0].training.learning_rate->options().peak, 0.1);
}

TEST_F(ExperimentFile, AnUnknownKeyOfASweepIsToldOnce) {
  write(small + std::string("[sweep]\n\"cluster.worker\" = [2, 4, 8]\n"));
  const std::string found = faults({});
  EXPECT_THAT(found, testing::HasSubstr("cluster.worker = 2; unknown key; did you mean \"workers\"?"));
  EXPECT_EQ(found.find("unknown key"), found.rfind("unknown key")) << found;
}

TEST_F(ExperimentFile, TheLastKeyOfASweepVariesFastest) {
  const Experiment experiment =
      load({"sweep.cluster.micro_batches=[1,2]", "sweep.\"training.learning_rate.peak\"=[0.3,0.1,0.2]"});
  std::vector<std::tuple<int, double, std::string, std::uint64_t>> expected, found;
  for (const int micro_batches : {1, 2})
    for (const double peak : {0.3, 0.1, 0.2})
      for (const char* method : {"sync-sgd", "drop"})
        for (const std::uint64_t seed : {3, 5}) expected.emplace_back(micro_batches, peak, method, seed);
  for (const syncopate::Run& run : experiment.runs) {
    found.emplace_back(run.cluster.micro_batches, run.training.learning_rate->options().peak, run.method, run.seed);
    EXPECT_THAT(run.sweep, ElementsAre(Pair("cluster.micro_batches", std::to_string(run.cluster.micro_batches)),
                                       Pair("training.learning_rate.peak",
                                            fmt::format("{}", run.training.learning_rate->options().peak))));
  }
  EXPECT_EQ(found, expected);
}

TEST_F(ExperimentFile, ASweptKeyOfOneMethodDoesNotRepeatTheOthers) {
  const Experiment experiment = load({"sweep.methods.drop.threshold_s=[0.01,0.02,inf]", "seeds=[1]"});
  std::vector<std::string> methods;
  for (const syncopate::Run& run : experiment.runs) methods.push_back(run.method);
  EXPECT_THAT(methods, ElementsAre("sync-sgd", "drop", "drop", "drop"));
  EXPECT_TRUE(experiment.runs[0].sweep.empty());
  EXPECT_THAT(experiment.runs[3].sweep, ElementsAre(Pair("methods.drop.threshold_s", "inf")));
}

// What [training] says of a key is nothing to a method that has it otherwise: neither a run nor a word in its label.
TEST_F(ExperimentFile, ASweptKeyThatAMethodHasOtherwiseDoesNotRepeatIt) {
  const Experiment experiment =
      load({"sweep.\"training.learning_rate.peak\"=[0.05,0.1,0.2]", "sweep.cluster.micro_batches=[1,2]", "seeds=[1]",
            "methods.drop.training.learning_rate.peak=0.01"});
  std::vector<std::string> methods;
  for (const syncopate::Run& run : experiment.runs) methods.push_back(run.method);
  EXPECT_THAT(methods,
              ElementsAre("sync-sgd", "drop", "sync-sgd", "drop", "sync-sgd", "sync-sgd", "sync-sgd", "sync-sgd"));
  EXPECT_THAT(experiment.runs[1].sweep, ElementsAre(Pair("cluster.micro_batches", "1")));
  EXPECT_THAT(experiment.runs[3].sweep, ElementsAre(Pair("cluster.micro_batches", "2")));
  EXPECT_THAT(experiment.runs[7].sweep,
              ElementsAre(Pair("training.learning_rate.peak", "0.2"), Pair("cluster.micro_batches", "2")));
}

// Keys of a model that another method trains: neither a run nor a word in the label.
TEST_F(ExperimentFile, ASweptKeyOfAModelThatAMethodDoesNotUseDoesNotRepeatIt) {
  const Experiment experiment =
      load({"sweep.\"models.mlp.hidden\"=[[4],[8]]", "seeds=[1]", "methods.drop.training.model='mlp'"});
  std::vector<std::string> methods;
  for (const syncopate::Run& run : experiment.runs) methods.push_back(run.method);
  EXPECT_THAT(methods, ElementsAre("sync-sgd", "drop", "drop"));
  EXPECT_TRUE(experiment.runs[0].sweep.empty());
  EXPECT_THAT(experiment.runs[2].sweep, ElementsAre(Pair("models.mlp.hidden", testing::_)));
}

TEST_F(ExperimentFile, ASweptKeyThatConcernsNoMethodIsAFault) {
  write(std::string(small) + "[sweep]\n\"models.mlp.hidden\" = [[4], [8]]\n");
  EXPECT_THAT(faults({}), HasSubstr(":31:1: sweep.\"models.mlp.hidden\"; must be a key that a method uses"));
  EXPECT_EQ(faults({"training.model=mlp"}), "");
}

// A common phase is trained by the file's own keys, so that it differs where the method does not.
TEST_F(ExperimentFile, ASweptKeyOfTheCommonPhaseConcernsAllMethods) {
  const Experiment experiment = load({"sweep.\"training.learning_rate.peak\"=[0.05,0.1]", "seeds=[1]",
                                      "training.common.steps=2", "methods.drop.training.learning_rate.peak=0.01"});
  EXPECT_EQ(experiment.runs.size(), 4u);
}

// A label that is swept is not found under its old name at the other points.
TEST_F(ExperimentFile, TheLabelByWhichAMethodIsSweptMayBeSweptItself) {
  const Experiment experiment =
      load({"sweep.methods.drop.label=['a','b']", "sweep.methods.drop.threshold_s=[0.01,0.02]", "seeds=[1]"});
  std::vector<std::string> methods;
  for (const syncopate::Run& run : experiment.runs) methods.push_back(run.method);
  EXPECT_THAT(methods, ElementsAre("sync-sgd", "a", "a", "b", "b"));
  EXPECT_THAT(experiment.runs[4].sweep,
              ElementsAre(Pair("methods.drop.label", "b"), Pair("methods.drop.threshold_s", "0.02")));
}

TEST_F(ExperimentFile, SweptValuesThatMeanTheSameAreRefused) {
  const auto refusal = [&](const std::string& one, const std::string& other) {
    return faults({"methods=[{algorithm=\"sync-sgd\"}]", "sweep.delays=[[" + one + "], [" + other + "]]"});
  };
  const std::string constant = "{kind=\"constant\", value=1}";
  for (const char* same : {"{value=1.0, kind=\"constant\"}", "{kind=\"constant\", value=1, unit=\"seconds\"}"})
    EXPECT_THAT(refusal(constant, same), HasSubstr("make the same run of \"sync-sgd\"; must hold no value twice"))
        << same;
  EXPECT_THAT(refusal(constant, constant), HasSubstr("must hold no value twice"));
  EXPECT_EQ(refusal(constant, "{kind=\"constant\", value=1, unit=\"micro_batch\"}"), "");
}

TEST_F(ExperimentFile, TheCommandLineEndsTheSweepOfAKeyThatItSets) {
  write(std::string(small) + "[sweep]\n\"cluster.micro_batches\" = [1, 2]\n");
  EXPECT_EQ(load().runs.size(), 8u);
  const Experiment experiment = load({"cluster.micro_batches=4"});
  EXPECT_EQ(experiment.runs.size(), 4u);
  EXPECT_EQ(experiment.runs[0].cluster.micro_batches, 4);
  EXPECT_THAT(experiment.resolved_toml, testing::Not(HasSubstr("sweep")));
}

TEST_F(ExperimentFile, FaultsOfAllSweepPointsAreReportedAtOnce) {
  write(std::string(small) + "[sweep]\n\"training.learning_rate.peak\" = [0.1, -2, \"x\"]\n");
  const std::string report = faults({});
  EXPECT_THAT(report, HasSubstr(file.string() + ":31:39: training.learning_rate.peak = -2; must be"));
  EXPECT_THAT(report, HasSubstr(file.string() + ":31:43: training.learning_rate.peak = \"x\"; must be"));
  EXPECT_THAT(faults({"sweep.seeds=[[1],[2]]"}), HasSubstr("sweep.\"seeds\"; must not be swept"));
  EXPECT_THAT(faults({"sweep.name=[\"a\",\"b\"]"}),
              HasSubstr("sweep.\"name\"; must not be swept: it names the directory of all the runs"));
}

TEST_F(ExperimentFile, SweptTablesAreShownByTheirKindsWhereTheseDiffer) {
  const auto shown = [&](const std::string& networks) {
    const Experiment experiment = load({"sweep.network=" + networks, "seeds=[1]"});
    std::vector<std::string> values;
    for (const syncopate::Run& run : experiment.runs) {
      EXPECT_THAT(run.sweep, ElementsAre(Pair("network", testing::_)));
      if (values.empty() || values.back() != run.sweep[0].second) values.push_back(run.sweep[0].second);
    }
    return values;
  };
  EXPECT_THAT(shown("[{kind=\"free\"},{kind=\"fixed\",latency_s=0.5}]"), ElementsAre("free", "fixed"));
  EXPECT_THAT(shown("[{kind=\"fixed\",latency_s=1.5},{kind=\"fixed\",latency_s=0.5}]"),
              ElementsAre("fixed; latency_s = 1.5", "fixed; latency_s = 0.5"));
}

}  // namespace
}  // namespace syncopate
