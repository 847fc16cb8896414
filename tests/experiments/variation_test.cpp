// Ranges, keys that go together, names of values, variants, profiles, and what the command line may say.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "experiments/commands/commands.hpp"
#include "experiments/sections/variation.hpp"
#include "tests/experiments/experiment_file.hpp"

namespace syncopate {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using testing::StartsWith;

class SweepLanguage : public ExperimentFile {
 protected:
  void add(const std::string& text) const { write(small + text); }

  // Of the runs of the first method and seed, in their order.
  template <typename Of>
  auto of_runs(const Experiment& experiment, Of of) const {
    std::vector<decltype(of(experiment.runs.front()))> values;
    for (const syncopate::Run& run : experiment.runs)
      if (run.method == experiment.methods.front() && run.seed == experiment.seeds.front()) values.push_back(of(run));
    return values;
  }
  std::vector<int> micro_batches(const Overrides& overrides) const {
    return of_runs(load(overrides), [](const syncopate::Run& run) { return run.cluster.micro_batches; });
  }
  std::vector<double> peaks(const Overrides& overrides) const {
    return of_runs(load(overrides),
                   [](const syncopate::Run& run) { return run.training.learning_rate->options().peak; });
  }
  std::vector<std::vector<std::pair<std::string, std::string>>> names(const Overrides& overrides = {}) const {
    return of_runs(load(overrides), [](const syncopate::Run& run) { return run.sweep; });
  }
};

TEST_F(SweepLanguage, ARangeWithAStepEndsAtTheLastValueThatIsNotBeyond) {
  EXPECT_THAT(micro_batches({"sweep.cluster.micro_batches={from=2,to=9,step=3}"}), ElementsAre(2, 5, 8));
  EXPECT_THAT(micro_batches({"sweep.cluster.micro_batches={from=8,to=2,step=-3}"}), ElementsAre(8, 5, 2));
  EXPECT_THAT(micro_batches({"sweep.cluster.micro_batches={from=4,to=4,step=1}"}), ElementsAre(4));
  EXPECT_THAT(micro_batches({"sweep.cluster.micro_batches={from=2,to=9.5,step=3}"}), ElementsAre(2, 5, 8));
}

// Whole numbers are exact where numbers with a fraction have no room for their last digits.
TEST(SweptValues, AreWholeNumbersUpToTheLastThereIs) {
  const auto values = [](const std::string& range) {
    FaultList faults;
    const auto swept = read_swept_values(*parse_toml("x = " + range, "test").find("x"), "sweep", "x", faults);
    std::vector<std::int64_t> numbers;
    if (swept)
      for (const TomlNode& value : swept->values) numbers.push_back(std::get<std::int64_t>(value.value));
    return numbers;
  };
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max(),
                         least = std::numeric_limits<std::int64_t>::min();
  EXPECT_THAT(values("{ from = 9223372036854775800, to = 9223372036854775807, step = 5 }"),
              ElementsAre(most - 7, most - 2));
  EXPECT_THAT(values("{ from = 9223372036854775806, to = 9223372036854775807, step = 1 }"),
              ElementsAre(most - 1, most));
  EXPECT_THAT(values("{ from = 9223372036854775806, to = 1e30, step = 3 }"), IsEmpty()) << "too many";
  EXPECT_THAT(values("{ from = 9223372036854775806, to = 9.3e18, step = 100000000000000000 }"), ElementsAre(most - 1));
  EXPECT_THAT(values("{ from = -9223372036854775807, to = -9223372036854775808, step = -1 }"),
              ElementsAre(least + 1, least));
  EXPECT_THAT(values("{ from = 1234567890123, to = 1234567890125, step = 1 }"),
              ElementsAre(1234567890123, 1234567890124, 1234567890125));
  EXPECT_THAT(values("{ from = 3074457345618258602, to = 9223372036854775807, factor = 3 }"),
              ElementsAre(3074457345618258602, most - 1));
  EXPECT_THAT(values("{ from = 9223372036854775807, to = 9223372036854775806, step = 1 }"), testing::IsEmpty());
}

TEST_F(SweepLanguage, ARangeWithAFactorMultiplies) {
  EXPECT_THAT(micro_batches({"sweep.cluster.micro_batches={from=1,to=17,factor=2}"}), ElementsAre(1, 2, 4, 8, 16));
  EXPECT_THAT(peaks({"sweep.\"training.learning_rate.peak\"={from=0.1,to=0.001,factor=0.1}"}),
              ElementsAre(0.1, 0.01, 0.001));
}

// 0.1 + 2 x 0.1 is 0.30000000000000004 in binary numbers, and ten steps of 0.1 do not reach 1.
TEST_F(SweepLanguage, ARangeHasTheNumbersThatOneWouldWrite) {
  EXPECT_THAT(peaks({"sweep.\"training.learning_rate.peak\"={from=0.1,to=1.0,step=0.1}"}),
              ElementsAre(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0));
  EXPECT_EQ(names({"sweep.\"training.learning_rate.peak\"={from=0.1,to=1.0,step=0.1}"})[2].front().second, "0.3");
}

TEST_F(SweepLanguage, ARangeThatMeansNothingIsAFault) {
  const auto refusal = [&](const std::string& range) { return faults({"sweep.cluster.micro_batches=" + range}); };
  EXPECT_THAT(refusal("{from=1,to=4}"), HasSubstr("must be a list, or a range"));
  EXPECT_THAT(refusal("{from=1,to=4,step=1,factor=2}"), HasSubstr("must be a list, or a range"));
  EXPECT_THAT(refusal("{to=4,step=1}"), HasSubstr("must be a list, or a range"));
  EXPECT_THAT(refusal("{from=1,to=4,step=0}"), HasSubstr("step must not be 0"));
  EXPECT_THAT(refusal("{from=1,to=4,step=-1}"), HasSubstr("holds no value: step leads away from `to`"));
  EXPECT_THAT(refusal("{from=1,to=4,factor=1}"), HasSubstr("factor must be above 0 and not 1"));
  EXPECT_THAT(refusal("{from=0,to=4,factor=2}"), HasSubstr("from and to must be above 0 beside a factor"));
  EXPECT_THAT(refusal("{from=1,to=\"x\",step=2}"), HasSubstr("to must be a number"));
  EXPECT_THAT(refusal("{from=1,to=4,stepp=2}"), HasSubstr("stepp; unknown key; must be one of from, to, step, factor"));
  EXPECT_THAT(refusal("{from=1,to=1e9,step=1}"), HasSubstr("must hold at most 1000000 values"));
  EXPECT_THAT(refusal("[]"), HasSubstr("sweep.\"cluster.micro_batches\" = []; must hold a value"));
  EXPECT_THAT(refusal("3"), HasSubstr("must be a list of values"));
}

TEST_F(SweepLanguage, ASweepOfNothingIsAFault) {
  for (const char* const nothing : {"[sweep]\n", "[sweep.cluster]\n", "[sweep]\ncluster = {}\n"}) {
    add(nothing);
    EXPECT_THAT(faults({}), HasSubstr("sweep; must hold a key with its values, such as ")) << nothing;
    EXPECT_EQ(micro_batches({"cluster.micro_batches=2,3"}).size(), 2u) << "the command line sweeps one";
  }
  add("[sweep]\n\"cluster.workers\" = [2, 4]\n");
  EXPECT_EQ(load({"~sweep.\"cluster.workers\""}).runs.size(), load({"cluster.workers=2"}).runs.size())
      << "what the command line removes may be the last one";
}

TEST_F(SweepLanguage, ValuesMayHaveNames) {
  add("[sweep]\ndelays = [{ label = \"quiet\", value = [] }, { label = \"loud\", value = [{kind=\"constant\", "
      "value=1e-3}]}]");
  EXPECT_THAT(names(), ElementsAre(ElementsAre(Pair("delays", "quiet")), ElementsAre(Pair("delays", "loud"))));
  add("[sweep]\n\"cluster.micro_batches\" = [{ label = \"a\", value = 1 }, { label = \"a\", value = 2 }]");
  EXPECT_THAT(faults({}), HasSubstr("must hold no label twice"));
  add("[sweep]\n\"cluster.micro_batches\" = [{ label = 3, value = 1 }, 2]");
  EXPECT_THAT(faults({}), HasSubstr("label must be a text"));
}

TEST_F(SweepLanguage, KeysThatGoTogetherTakeTheirValuesTogether) {
  add("[sweep]\n\"cluster.micro_batches\" = [1, 2]\n\"cluster.workers\" = [2, 3]\n"
      "\"training.learning_rate.peak\" = [0.1, 0.3]\nzip = [\"cluster.micro_batches\", "
      "\"training.learning_rate.peak\"]");
  std::vector<std::string> found;
  for (const auto& point : names()) {
    std::string text;
    for (const auto& [key, value] : point) text += value + " ";
    found.push_back(text);
  }
  EXPECT_THAT(found, ElementsAre("1 0.1 2 ", "1 0.1 3 ", "2 0.3 2 ", "2 0.3 3 "));
}

TEST_F(SweepLanguage, KeysThatGoTogetherMustBeSweptAndHaveAsManyValues) {
  const std::string two = "[sweep]\n\"cluster.micro_batches\" = [1, 2]\n\"cluster.workers\" = [2, 3, 4]\n";
  add(two + "zip = [\"cluster.micro_batches\", \"cluster.workers\"]");
  EXPECT_THAT(faults({}), HasSubstr("must be keys of as many values: \"cluster.micro_batches\" has 2, "
                                    "\"cluster.workers\" has 3"));
  add(two + "zip = [\"cluster.micro_batches\", \"cluster.wrokers\"]");
  EXPECT_THAT(faults({}), HasSubstr("must be a key of [sweep]; did you mean \"cluster.workers\"?"));
  add(two + "zip = [\"cluster.micro_batches\"]");
  EXPECT_THAT(faults({}), HasSubstr("must be a list of at least two swept keys"));
  // Where the command line sets one of them, the other one is swept alone.
  add(two + "zip = [\"cluster.micro_batches\", \"cluster.workers\"]");
  EXPECT_THAT(micro_batches({"cluster.workers=2"}), ElementsAre(1, 2));
}

TEST_F(SweepLanguage, ElementsOfAListOnTheCommandLineMustBeToml) {
  EXPECT_THAT(faults({"training.learning_rate={schedule='constant',peak=1},{schedule='constant' peak=2}"}),
              HasSubstr("its value is not valid TOML, at its character 22: "));
  EXPECT_EQ(
      load({"training.learning_rate={schedule='constant',peak=1},{schedule='constant',peak=2}", "seeds=1"}).runs.size(),
      4u);
}

TEST_F(SweepLanguage, AVariantPutsItsKeysIntoTheFile) {
  add(R"(
[[variants]]
label = "as it is"
[[variants]]
label = "large"
cluster.micro_batches = 8
"training.learning_rate.peak" = 0.4
methods.drop.threshold_s = 0.5
)");
  const Experiment experiment = load({"seeds=[1]"});
  ASSERT_EQ(experiment.runs.size(), 4u);
  EXPECT_THAT(experiment.runs[0].sweep, ElementsAre(Pair("variant", "as it is")));
  EXPECT_THAT(experiment.runs[3].sweep, ElementsAre(Pair("variant", "large")));
  EXPECT_EQ(experiment.runs[1].cluster.micro_batches, 2);
  EXPECT_EQ(experiment.runs[3].cluster.micro_batches, 8);
  EXPECT_DOUBLE_EQ(experiment.runs[3].training.learning_rate->options().peak, 0.4);
  EXPECT_THAT(experiment.runs[1].resolved_toml, HasSubstr("threshold_s = 0.015"));
  EXPECT_THAT(experiment.runs[3].resolved_toml, AllOf(HasSubstr("threshold_s = 0.5"), Not(HasSubstr("variants"))));
  EXPECT_THAT(experiment.runs[3].resolved_toml, HasSubstr("schedule = \"cosine\""));  // the table's other keys stay
}

TEST_F(SweepLanguage, ATableOfAVariantThatNamesAnotherKindStandsByItself) {
  add("[[variants]]\nlabel = \"free\"\nnetwork.kind = \"free\"\n[[variants]]\nlabel = \"slow\"\nnetwork.latency_s = "
      "2.0");
  const Experiment experiment = load({"seeds=[1]"});
  ASSERT_EQ(experiment.runs.size(), 4u);  // no fault: the free network knows no latency
  EXPECT_THAT(experiment.runs[3].resolved_toml, AllOf(HasSubstr("\"fixed\""), HasSubstr("latency_s = 2.0")));
}

TEST_F(SweepLanguage, AVariantOfOneMethodDoesNotRepeatTheOthers) {
  add("[[variants]]\nlabel = \"a\"\n[[variants]]\nlabel = \"b\"\nmethods.drop.threshold_s = 0.5");
  const Experiment experiment = load({"seeds=[1]"});
  ASSERT_EQ(experiment.runs.size(), 3u);
  EXPECT_THAT(experiment.runs[0].sweep, IsEmpty());
  EXPECT_THAT(experiment.runs[1].sweep, ElementsAre(Pair("variant", "a")));
  EXPECT_THAT(experiment.runs[2].sweep, ElementsAre(Pair("variant", "b")));
}

TEST_F(SweepLanguage, AVariantRemovesKeys) {
  add("[[variants]]\nlabel = \"a\"\n[[variants]]\nlabel = \"b\"\nremove = [\"datasets.gaussian-mixture.train\"]");
  const Experiment experiment = load({"seeds=[1]"});
  EXPECT_THAT(experiment.runs[1].resolved_toml, HasSubstr("train = 640\n"));
  EXPECT_THAT(experiment.runs[3].resolved_toml, Not(HasSubstr("train = 640\n")));
  add("[[variants]]\nlabel = \"a\"\nremove = [\"training.learning_rat\"]");
  EXPECT_THAT(faults({}), HasSubstr("variants.0.remove = \"training.learning_rat\"; must be a key that the file has"));
}

TEST_F(SweepLanguage, AVariantHasANameOfItsOwn) {
  add("[[variants]]\nlabel = \"a\"\n[[variants]]\nlabel = \"a\"\ncluster.workers = 2");
  EXPECT_THAT(faults({}), HasSubstr("variants.1.label = \"a\"; must be a name that no other variant has"));
  add("[[variants]]\ncluster.workers = 2");
  EXPECT_THAT(faults({}), HasSubstr("variants.0.label; must be the variant's name"));
  add("[[variants]]\nlabel = \"a\"\nseeds = [4]");
  EXPECT_THAT(faults({}), HasSubstr("variants.0.seeds; must be a key of a run: this one is the whole file's"));
  add("[[variants]]\nlabel = \"a\"\nmethods.dorp.threshold_s = 1");
  EXPECT_THAT(faults({}), AllOf(HasSubstr("variants.0.methods.dorp"), HasSubstr("did you mean \"drop\"?")));
  add("[[variants]]\nlabel = \"a\"\n\"cluster.workers\" = 0");
  EXPECT_THAT(faults({}), HasSubstr(":32:21: cluster.workers = 0; must be"));
}

TEST_F(SweepLanguage, VariantsAndSweepsMustNotSetTheSameKey) {
  const std::string variants = "[[variants]]\nlabel = \"a\"\n[[variants]]\nlabel = \"b\"\nnetwork.kind = \"free\"\n";
  add(variants + "[sweep]\n\"network.latency_s\" = [1, 2]");
  EXPECT_THAT(faults({}), HasSubstr("must not be swept together with variants, \"network\", which holds it"));
  add(variants + "[sweep]\n\"cluster.workers\" = [1, 2]");
  EXPECT_EQ(load({"seeds=[1]"}).runs.size(), 8u);
}

TEST_F(SweepLanguage, TheCommandLineWinsOverVariants) {
  add("[[variants]]\nlabel = \"a\"\n[[variants]]\nlabel = \"b\"\ncluster.workers = 2\ncluster.micro_batches = 7");
  const Experiment experiment = load({"cluster.workers=3", "seeds=[1]"});
  for (const syncopate::Run& run : experiment.runs) EXPECT_EQ(run.cluster.workers, 3);
  EXPECT_EQ(experiment.runs.back().cluster.micro_batches, 7);
}

TEST_F(SweepLanguage, WhatIsResolvedReadsBackToTheSameRuns) {
  add(R"(
[sweep]
"training.learning_rate.peak" = { from = 0.1, to = 0.4, factor = 2 }
"cluster.micro_batches" = [{ label = "few", value = 1 }, 2, 3]
zip = [["training.learning_rate.peak", "cluster.micro_batches"]]
[[variants]]
label = "delayed"
delays = [{ kind = "constant", value = 0.001 }]
[[variants]]
label = "not delayed"
)");
  const Experiment experiment = load();
  const auto hashes = [](const Experiment& read) {
    std::vector<std::string> found;
    for (const syncopate::Run& run : read.runs) {
      found.push_back(run.hash);
      for (const auto& [key, value] : run.sweep) found.back() += fmt::format(", {} = {}", key, value);
    }
    return found;
  };
  write(experiment.resolved_toml);
  const Experiment again = load();
  EXPECT_EQ(hashes(again), hashes(experiment));
  EXPECT_EQ(again.resolved_toml, experiment.resolved_toml);
  const std::vector<std::string> all = hashes(again);
  EXPECT_EQ(std::set(all.begin(), all.end()).size(), 24u);  // 2 variants x 3 points x 2 methods x 2 seeds
}

TEST_F(SweepLanguage, AProfileIsAppliedWhereItIsAskedFor) {
  add("[profiles.full]\nseeds = 4\nbudget.epochs = 60\ncluster.workers = 8\n[profiles.tiny]\ncluster.workers = 1");
  EXPECT_EQ(load().runs.size(), 4u);
  const Experiment full = load_experiment(file, {}, {.profiles = {"full"}});
  EXPECT_EQ(full.runs.size(), 8u);
  EXPECT_THAT(full.seeds, ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(full.runs[0].cluster.workers, 8);
  EXPECT_THAT(full.resolved_toml, Not(HasSubstr("profiles")));
  // The later one wins, and the command line over both.
  EXPECT_EQ(load_experiment(file, {}, {.profiles = {"full", "tiny"}}).runs[0].cluster.workers, 1);
  EXPECT_EQ(load_experiment(file, {"cluster.workers=5"}, {.profiles = {"full"}}).runs[0].cluster.workers, 5);
}

TEST_F(SweepLanguage, AProfileThatIsNotThereIsAFault) {
  const auto refusal = [&](const std::string& profile) {
    try {
      load_experiment(file, {}, {.profiles = {profile}});
    } catch (const ConfigurationFault& fault) {
      return std::string(fault.what());
    }
    return std::string();
  };
  EXPECT_THAT(refusal("full"), HasSubstr("command line: --profile full; the file has no [profiles]"));
  add("[profiles.full]\ncluster.workers = 8");
  EXPECT_THAT(refusal("fulll"), HasSubstr("must be full; did you mean \"full\"?"));
  add("[profiles.full]\nmethods.dorp.threshold_s = 8");
  EXPECT_THAT(faults({}), HasSubstr("profiles.full.methods.dorp"));  // also where nobody asks for it
}

TEST_F(SweepLanguage, ProfilesThatAreNotAskedForCanBeChecked) {
  const auto checked = [&](const std::string& without = {}) {
    try {
      check_profiles(file, {}, without);
    } catch (const ConfigurationFault& fault) {
      return std::string(fault.what());
    }
    return std::string();
  };
  EXPECT_EQ(checked(), "");
  add("[profiles.full]\nseedz = 4\n[profiles.tiny]\ncluster.workers = 0\n[profiles.right]\ncluster.workers = 1");
  EXPECT_NO_THROW(load());  // which does not take them
  EXPECT_THAT(checked(), AllOf(HasSubstr("with --profile full:\n"), HasSubstr("seedz = 4; unknown key"),
                               HasSubstr("with --profile tiny:\n"), Not(HasSubstr("right"))));
  add("[clustre]\nworkers = 2\n[profiles.full]\nseedz = 4");
  const std::string of_file = faults({});  // which each profile has as well, and which are said once
  const std::string all = checked(of_file);
  EXPECT_THAT(all, AllOf(StartsWith(of_file), HasSubstr("with --profile full:\n")));
  EXPECT_EQ(all.find("clustre"), all.rfind("clustre"));
}

TEST_F(SweepLanguage, ANumberOfSeedsMeansTheFirstOnes) {
  EXPECT_THAT(load({"seeds=3"}).seeds, ElementsAre(1, 2, 3));
  EXPECT_THAT(load({"seeds=4,9"}).seeds, ElementsAre(4, 9));
  EXPECT_THAT(faults({"seeds=0"}), HasSubstr("seeds = 0"));
  EXPECT_THAT(faults({"seeds=100000000000"}),
              HasSubstr("2 methods x 100000000000 seeds are 200000000000 runs; must be at most 10000"));
}

TEST_F(SweepLanguage, TheCommandLineSweepsByCommas) {
  EXPECT_THAT(micro_batches({"cluster.micro_batches=1,2,4"}), ElementsAre(1, 2, 4));
  EXPECT_THAT(names({"training.learning_rate.schedule=cosine,constant"}),
              ElementsAre(ElementsAre(Pair("training.learning_rate.schedule", "cosine")),
                          ElementsAre(Pair("training.learning_rate.schedule", "constant"))));
  // In the place of what the file sweeps, also by another name of the method.
  add("[sweep]\n\"methods.drop.threshold_s\" = [1, 2]");
  EXPECT_EQ(load({"methods.1.threshold_s=3,4,5", "seeds=1"}).runs.size(), 4u);
  EXPECT_THAT(faults({"cluster.micro_batches=1,,4"}), HasSubstr("an element of the list is empty"));
  EXPECT_THAT(faults({"description=a, b"}), HasSubstr("a text with commas stands in quotes"));
  EXPECT_EQ(load({"description=\"a, b\""}).description, "a, b");
}

TEST_F(SweepLanguage, TheCommandLineSweepsOverARange) {
  EXPECT_EQ(load({"cluster.micro_batches={ from = 1, to = 4, factor = 2 }"}).runs.size(),
            load({"cluster.micro_batches=1,2,4"}).runs.size());
  EXPECT_THAT(faults({"cluster.micro_batches={ from = 1, to = 4, step = 0 }"}), HasSubstr("step must not be 0"));
}

TEST_F(SweepLanguage, TheCommandLineRemovesKeys) {
  EXPECT_THAT(load({"~datasets.gaussian-mixture.train"}).resolved_toml, Not(HasSubstr("train = 640\n")));
  EXPECT_THAT(load({"~methods.drop"}).methods, ElementsAre("sync-sgd"));
  EXPECT_THAT(faults({"~training.learning_rate.schedul"}),
              HasSubstr("there is no such key to remove; did you mean \"schedule\"?"));
}

TEST_F(SweepLanguage, RunsAreChosenByMethodVariantAndHash) {
  add("[[variants]]\nlabel = \"a\"\n[[variants]]\nlabel = \"b\"\ncluster.workers = 2");
  const auto chosen = [&](const std::vector<std::string>& names) {
    Experiment experiment = load({"seeds=1"});
    choose_runs(experiment, names);
    std::vector<std::string> found;
    for (const syncopate::Run& run : experiment.runs) found.push_back(run.method + " " + run.sweep.front().second);
    return found;
  };
  EXPECT_THAT(chosen({}), ElementsAre("sync-sgd a", "drop a", "sync-sgd b", "drop b"));
  EXPECT_THAT(chosen({"drop"}), ElementsAre("drop a", "drop b"));
  EXPECT_THAT(chosen({"b"}), ElementsAre("sync-sgd b", "drop b"));
  EXPECT_THAT(chosen({"b", "drop", "a"}), ElementsAre("drop a", "drop b"));
  const std::string hash = load({"seeds=1"}).runs[2].hash;
  EXPECT_THAT(chosen({hash.substr(0, 12)}), ElementsAre("sync-sgd b"));
  EXPECT_THAT([&] { chosen({"dorp"}); },
              testing::ThrowsMessage<ConfigurationFault>(HasSubstr("did you mean \"drop\"?")));
  EXPECT_THROW(chosen({""}), ConfigurationFault);
}

}  // namespace
}  // namespace syncopate
