// Ranges, keys that vary together, names of values, variants, profiles, and overrides on the command line.

#include "experiments/sections/variation.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "experiments/commands/commands.hpp"
#include "experiments/sections/definition.hpp"
#include "results/result_table.hpp"
#include "results/summary.hpp"
#include "tests/experiments/experiment_file.hpp"
#include "tests/experiments/run_results.hpp"
#include "workers/config/toml.hpp"

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

  // Applies `of` to the runs of the first method and seed, in order.
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
  EXPECT_THAT(micro_batches({"sweep.cluster.micro_batches={from=9,to=1.5,step=-2}"}), ElementsAre(9, 7, 5, 3));
}

// Whole numbers are exact even if a double lacks digits for them.
TEST(SweptValues, AreWholeNumbersUpToTheLastThereIs) {
  const auto values = [](const std::string& range) {
    FaultList faults;
    VariedKey key{.key = "x"};
    std::vector<std::int64_t> numbers;
    if (read_values(*parse_toml("x = " + range, "test").find("x"), "sweep", key, faults))
      for (const TomlNode& value : key.values) numbers.push_back(std::get<std::int64_t>(value.value));
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

// In binary arithmetic, 0.1 + 2 x 0.1 is 0.30000000000000004, and ten steps of 0.1 do not reach 1.
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
  EXPECT_THAT(refusal("{from=1,to=4,step=-1}"), HasSubstr("contains no value: step leads away from `to`"));
  EXPECT_THAT(refusal("{from=1,to=4,factor=1}"), HasSubstr("factor must be above 0 and not 1"));
  EXPECT_THAT(refusal("{from=0,to=4,factor=2}"), HasSubstr("from and to must be above 0 in a range with a factor"));
  EXPECT_THAT(refusal("{from=1,to=\"x\",step=2}"), HasSubstr("to must be a number"));
  EXPECT_THAT(refusal("{from=1,to=4,stepp=2}"), HasSubstr("stepp; unknown key; must be one of from, to, step, factor"));
  EXPECT_THAT(refusal("{from=1,to=1e9,step=1}"), HasSubstr("must contain at most 1000000 values"));
  EXPECT_THAT(refusal("[]"), HasSubstr("sweep.\"cluster.micro_batches\" = []; must contain at least one value"));
  EXPECT_THAT(refusal("3"), HasSubstr("must be a list of values"));
}

TEST_F(SweepLanguage, ASweepOfNothingIsAFault) {
  for (const char* const nothing : {"[sweep]\n", "[sweep.cluster]\n", "[sweep]\ncluster = {}\n"}) {
    add(nothing);
    EXPECT_THAT(faults({}), HasSubstr("sweep; must contain a key with its values, such as ")) << nothing;
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
  EXPECT_THAT(faults({}), HasSubstr("must not repeat a label"));
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
  EXPECT_THAT(faults({}), HasSubstr("must be keys with equal numbers of values: \"cluster.micro_batches\" has 2, "
                                    "\"cluster.workers\" has 3"));
  add(two + "zip = [\"cluster.micro_batches\", \"cluster.wrokers\"]");
  EXPECT_THAT(faults({}), HasSubstr("must be a key of [sweep]; did you mean \"cluster.workers\"?"));
  add(two + "zip = [\"cluster.micro_batches\"]");
  EXPECT_THAT(faults({}), HasSubstr("must be a list of at least two swept keys"));
  // If the command line sets one of the two keys, the other one is swept alone.
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
  EXPECT_THAT(experiment.runs[3].resolved_toml, HasSubstr("schedule = \"cosine\""));  // other keys of this table stay
}

TEST_F(SweepLanguage, ATableOfAVariantThatNamesAnotherKindStandsByItself) {
  add("[[variants]]\nlabel = \"free\"\nnetwork.kind = \"free\"\n[[variants]]\nlabel = \"slow\"\nnetwork.latency_s = "
      "2.0");
  const Experiment experiment = load({"seeds=[1]"});
  ASSERT_EQ(experiment.runs.size(), 4u);  // no fault: the free network does not take over latency_s
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
  EXPECT_THAT(faults({}),
              HasSubstr("variants.0.remove = \"training.learning_rat\"; must be a key that is in the file"));
}

TEST_F(SweepLanguage, AVariantHasANameOfItsOwn) {
  add("[[variants]]\nlabel = \"a\"\n[[variants]]\nlabel = \"a\"\ncluster.workers = 2");
  EXPECT_THAT(faults({}), HasSubstr("variants.1.label = \"a\"; must be a name that no other variant has"));
  add("[[variants]]\ncluster.workers = 2");
  EXPECT_THAT(faults({}), HasSubstr("variants.0.label; must be the variant's name"));
  add("[[variants]]\nlabel = \"a\"\nseeds = [4]");
  EXPECT_THAT(faults({}), HasSubstr("variants.0.seeds; must be a key of a run: this key concerns the whole file"));
  add("[[variants]]\nlabel = \"a\"\nmethods.dorp.threshold_s = 1");
  EXPECT_THAT(faults({}), AllOf(HasSubstr("variants.0.methods.dorp"), HasSubstr("did you mean \"drop\"?")));
  add("[[variants]]\nlabel = \"a\"\n\"cluster.workers\" = 0");
  EXPECT_THAT(faults({}), HasSubstr(":32:21: variant \"a\": cluster.workers = 0; must be"));
}

TEST_F(SweepLanguage, VariantsAndSweepsMustNotSetTheSameKey) {
  const std::string variants = "[[variants]]\nlabel = \"a\"\n[[variants]]\nlabel = \"b\"\nnetwork.kind = \"free\"\n";
  add(variants + "[sweep]\n\"network.latency_s\" = [1, 2]");
  EXPECT_THAT(faults({}), HasSubstr("must not be swept together with variants, \"network\", which contains this key"));
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
  // Later profiles take precedence over earlier ones, and the command line over all of them.
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
  EXPECT_THAT(faults({}), HasSubstr("profiles.full.methods.dorp"));  // even though the profile is not requested
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
  EXPECT_NO_THROW(load());  // no profile is requested
  EXPECT_THAT(checked(),
              AllOf(HasSubstr("with --profile full:\n"), HasSubstr("profile \"full\": seedz = 4; unknown key"),
                    HasSubstr("with --profile tiny:\n"), Not(HasSubstr("right"))));
  add("[clustre]\nworkers = 2\n[profiles.full]\nseedz = 4");
  const std::string of_file = faults({});  // these faults, which occur with each profile too, are reported once
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
  // Lists on the command line replace keys that the file sweeps, even if they name the method in another way.
  add("[sweep]\n\"methods.drop.threshold_s\" = [1, 2]");
  EXPECT_EQ(load({"methods.1.threshold_s=3,4,5", "seeds=1"}).runs.size(), 4u);
  EXPECT_THAT(faults({"cluster.micro_batches=1,,4"}), HasSubstr("an element of the list is empty"));
  EXPECT_THAT(faults({"description=a, b"}), HasSubstr("put quotes around a text with commas"));
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

// The runs that result from a sweep.

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

TEST_F(ExperimentFile, ASweepIsACrossProductOfItsKeys) {
  const Overrides sweep = {"sweep.cluster.micro_batches=[1,2]", "sweep.\"training.learning_rate.peak\"=[0.1,0.2,0.3]",
                           "seeds=[1]"};
  const Experiment experiment = load(sweep);
  ASSERT_EQ(experiment.runs.size(), 12u);  // 2 x 3 points with 2 methods
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

// If a method overrides a swept key of [training], the sweep adds no runs of this method, and its label lacks the key.
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

// If only another method trains a model, swept keys of this model add no runs, and the label lacks these keys.
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

// A common phase is trained with the keys in the file, so it varies even if the method does not.
TEST_F(ExperimentFile, ASweptKeyOfTheCommonPhaseConcernsAllMethods) {
  const Experiment experiment = load({"sweep.\"training.learning_rate.peak\"=[0.05,0.1]", "seeds=[1]",
                                      "training.common.steps=2", "methods.drop.training.learning_rate.peak=0.01"});
  EXPECT_EQ(experiment.runs.size(), 4u);
}

// A sweep may rename a method. In runs with a new label no method has the label that the file gives.
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
    EXPECT_THAT(refusal(constant, same), HasSubstr("make the same run of \"sync-sgd\"; must not list a value twice"))
        << same;
  EXPECT_THAT(refusal(constant, constant), HasSubstr("must not be listed twice"));
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
  EXPECT_THAT(report, HasSubstr(file.string() + ":31:39: [sweep]: training.learning_rate.peak = -2; must be"));
  EXPECT_THAT(report, HasSubstr(file.string() + ":31:43: [sweep]: training.learning_rate.peak = \"x\"; must be"));
  EXPECT_THAT(faults({"sweep.seeds=[[1],[2]]"}), HasSubstr("sweep.\"seeds\"; must not be swept"));
  EXPECT_THAT(faults({"sweep.name=[\"a\",\"b\"]"}),
              HasSubstr("sweep.\"name\"; must not be swept: it names the directory of all runs"));
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

using testing::ElementsAre;

std::vector<std::string> labels_of(const std::string& list) {
  return swept_labels(parse_toml("a = " + list, "f").find("a")->array());
}

TEST(SweptLabel, IsTheValueWhereItIsShort) {
  EXPECT_THAT(labels_of("[1, 2.5]"), ElementsAre("1", "2.5"));
  EXPECT_THAT(labels_of("[\"adamw\", \"sgd\"]"), ElementsAre("adamw", "sgd"));
  EXPECT_THAT(labels_of("[[1, 2], [3]]"), ElementsAre("[1, 2]", "[3]"));
}

TEST(SweptLabel, OfTablesIsTheirKindWhereTheseDiffer) {
  EXPECT_THAT(labels_of("[{kind=\"free\"}, {kind=\"fixed\", latency_s=0.5}]"), ElementsAre("free", "fixed"));
}

TEST(SweptLabel, OfTablesIsTheNameOrRuleThatChoosesTheirKeys) {
  EXPECT_THAT(labels_of("[{rule=\"constant\", steps=4}, {rule=\"constant\", steps=8}, {rule=\"power\", power=2}]"),
              ElementsAre("constant; steps = 4", "constant; steps = 8", "power"));
  EXPECT_THAT(labels_of("[{momentum=0.9, name=\"sgd\"}, {name=\"adam\", beta1=0.9}]"), ElementsAre("sgd", "adam"));
  EXPECT_THAT(labels_of("[{schedule=\"step\", peak=1}, {schedule=\"step\", peak=2}]"),
              ElementsAre("step; peak = 1", "step; peak = 2"));
}

TEST(SweptLabel, OfOneDelayAloneIsItsKindAndOfNoneIsNone) {
  EXPECT_THAT(labels_of("[[{kind=\"exponential\", mean=0.005}], []]"), ElementsAre("exponential", "none"));
  EXPECT_THAT(labels_of("[[{kind=\"exponential\", mean=1}], [{kind=\"exponential\", mean=2}]]"),
              ElementsAre("exponential; mean = 1", "exponential; mean = 2"));
}

TEST(SweptLabel, OfTablesOfOneKindIsWhatTheyDifferBy) {
  const std::string bursts = "bursts = { mean_on_steps = 5, mean_off_steps = 35 }";
  EXPECT_THAT(
      labels_of("[{kind=\"constant\", value=4, workers=[56, 57]}, {kind=\"constant\", value=4, " + bursts +
                "}, {kind=\"constant\", value=4, " + bursts +
                ", group_size=8}, {kind=\"pareto\", shape=1.5, minimum=0.1666667}]"),
      ElementsAre("constant; workers = [56, 57]", "constant; bursts", "constant; bursts; group_size = 8", "pareto"));
}

TEST(SweptLabel, OfTablesWithinTablesIsWhatTheseDifferBy) {
  EXPECT_THAT(labels_of("[{kind=\"a\", b={x=1, y=2}}, {kind=\"a\", b={x=1, y=3}}, {kind=\"a\"}]"),
              ElementsAre("a; b.y = 2", "a; b.y = 3", "a"));
}

TEST(SweptLabel, OfTablesWithoutKindIsWhatTheyDifferBy) {
  EXPECT_THAT(labels_of("[{peak=0.1, final=0}, {peak=0.2, final=0}, {peak=0.2, final=0.1}]"),
              ElementsAre("peak = 0.1; final = 0", "peak = 0.2; final = 0", "peak = 0.2; final = 0.1"));
  EXPECT_THAT(labels_of("[[{value=1, x=0}], [{value=2, x=0}]]"), ElementsAre("value = 1", "value = 2"));
  EXPECT_THAT(labels_of("[[{value=1}, {value=3}], [{value=2}, {value=3}]]"), ElementsAre("0.value = 1", "0.value = 2"));
  EXPECT_THAT(labels_of("[{peak=0.1}]"), ElementsAre("peak = 0.1"));
}

TEST(SweptLabel, OfTablesHasLongNumbersInShort) {
  EXPECT_THAT(
      labels_of("[{kind=\"ring\", rate=1.25e9}, {kind=\"ring\", rate=1.25e8}, {kind=\"ring\", rate=1234567891.0}]"),
      ElementsAre("ring; rate = 1.25e+09", "ring; rate = 1.25e+08", "ring; rate = 1234567891.0"));
  EXPECT_THAT(labels_of("[{value=100.0}, {value=20000}]"), ElementsAre("value = 100.0", "value = 20000"));
  EXPECT_THAT(labels_of("[1.25e9, 12500.0]"), ElementsAre("1250000000.0", "12500.0")) << "they name folders of runs";
}

TEST(SweptLabel, IsShortAndNobodyElses) {
  std::string numbers = "1";
  for (int i = 2; i < 100; ++i) numbers += ", " + std::to_string(i);
  const std::string lists =
      "[[" + numbers + ", 1], [" + numbers + ", 2], {}, {x=1}, [{}], \"" + std::string(99, 'x') + "\", 1, \"1\"]";
  const auto labels = labels_of(lists);
  EXPECT_EQ(std::set(labels.begin(), labels.end()).size(), 8u) << testing::PrintToString(labels);
  for (const std::string& label : labels) EXPECT_LE(label.size(), 70u);
}

// Keys that are solved for: hashes, sweeps, variants, methods' own learning rates, and reading experiments back.

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// With 60 steps, a period of H makes ceil(60 / H) rounds.
class SolvedNumbers : public ExperimentFile {
 protected:
  static constexpr const char* in_twelve_rounds = R"({ rule = "constant", steps = { rounds = 12 } })";

  void write_period(const std::string& period, const std::string& rest = "") const {
    write(std::string(small) + "[[methods]]\nlabel = \"local\"\nalgorithm = \"local-sgd\"\nperiod = " + period + "\n" +
          rest);
  }
  // Returns the runs of "local" with one seed.
  std::vector<syncopate::Run> runs(const Overrides& overrides = {}) const {
    std::vector<syncopate::Run> all;
    for (const syncopate::Run& run : load(overrides).runs)
      if (run.method == "local" && run.seed == 3) all.push_back(run);
    return all;
  }
  std::vector<std::string> notes(const Overrides& overrides = {}) const {
    std::vector<std::string> all;
    for (const syncopate::Run& run : runs(overrides)) all.push_back(run.solved);
    return all;
  }
  std::string hash_with(const std::string& steps) const {
    write_period("{ rule = \"constant\", steps = " + steps + " }");
    return runs().at(0).hash;
  }
};

TEST_F(SolvedNumbers, MakeTheRunOfTheNumber) {
  const std::string five = hash_with("5");
  EXPECT_EQ(hash_with("{ rounds = 12 }"), five);
  EXPECT_EQ(hash_with("{ share = 0.2 }"), five);
  EXPECT_NE(hash_with("4"), five);
}

TEST_F(SolvedNumbers, StayWhenTheRunsConfigurationIsReadAgain) {
  write_period(in_twelve_rounds);
  const syncopate::Run solved = runs().at(0);
  EXPECT_EQ(solved.solved, "period.steps = 5 makes 12 rounds");
  EXPECT_THAT(solved.resolved_toml, HasSubstr("steps = 5\n"));
  write(solved.resolved_toml);
  EXPECT_EQ(load().runs.at(0).hash, solved.hash);
  EXPECT_EQ(load().runs.at(0).resolved_toml, solved.resolved_toml);
  const syncopate::Run shorter = load({"~budget.epochs", "budget.steps=30"}).runs.at(0);
  EXPECT_EQ(shorter.solved, "") << "12 rounds are not what 5 makes then";
  EXPECT_THAT(shorter.resolved_toml, AllOf(HasSubstr("steps = 5\n"), Not(HasSubstr("solved_for"))));
}

// In the output of `check`, the runs have the solved numbers, and the experiment has their targets.
TEST_F(SolvedNumbers, AreSolvedAnewAtEachPointOfASweepAlsoOfWhatIsResolved) {
  write_period(in_twelve_rounds, "[sweep]\n\"budget.epochs\" = [6, 12, 24]\n");
  const std::vector<std::string> found{"period.steps = 5 makes 12 rounds", "period.steps = 10 makes 12 rounds",
                                       "period.steps = 20 makes 12 rounds"};
  EXPECT_EQ(notes(), found);
  const Experiment experiment = load();
  EXPECT_THAT(experiment.resolved_toml, AllOf(HasSubstr("rounds = 12\n"), Not(HasSubstr("solved_for"))));
  write(experiment.resolved_toml);
  EXPECT_EQ(notes(), found);
  EXPECT_EQ(load().hashes, experiment.hashes);
  EXPECT_EQ(load().resolved_toml, experiment.resolved_toml);
}

TEST_F(SolvedNumbers, RoundsMayBeSwept) {
  const std::vector<std::string> hashes{hash_with("5"), hash_with("10")};
  const std::vector<std::string> sweeps{"\"methods.local.period.steps.rounds\" = [12, 6]",
                                        "\"methods.local.period.steps\" = [{ rounds = 12 }, { share = 0.1 }]",
                                        "\"methods.local.period.steps\" = [{ share = 0.2 }, 10]"};
  for (const std::string& sweep : sweeps) {
    SCOPED_TRACE(sweep);
    write_period(in_twelve_rounds, "[sweep]\n" + sweep + "\n");
    const std::vector<syncopate::Run> swept = runs();
    ASSERT_EQ(swept.size(), 2u);
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(swept[i].hash, hashes[i]);
      ASSERT_EQ(swept[i].sweep.size(), 1u);
      EXPECT_THAT(swept[i].sweep[0].second, Not(HasSubstr("{"))) << "a table is not a name";
    }
    const Experiment experiment = load();
    write(experiment.resolved_toml);
    EXPECT_EQ(load().hashes, experiment.hashes);
  }
}

TEST_F(SolvedNumbers, ThatMakeTheSameRunAreTheSameValue) {
  write_period(in_twelve_rounds, "[sweep]\n\"methods.local.period.steps\" = [{ rounds = 12 }, { share = 0.2 }]\n");
  EXPECT_THAT(faults({}), HasSubstr("make the same run of \"local\"; must not list a value twice"));
}

TEST_F(SolvedNumbers, AVariantSaysTheOneOrTheOther) {
  write_period(in_twelve_rounds,
               "[[variants]]\nlabel = \"often\"\nmethods.local.period.steps.share = 0.5\n"
               "[[variants]]\nlabel = \"seldom\"\nmethods.local.period.steps = 30\n");
  EXPECT_THAT(notes(), ElementsAre("period.steps = 2 makes 30 rounds", ""));
}

// At a constant rate H = floor(coefficient / rate). So coefficients of 5 to 6 times the rate give H = 5.
TEST_F(SolvedNumbers, GoByTheRateThatTheMethodHasForItself) {
  const auto coefficient = [&](const std::string& rest) {
    write_period(R"({ rule = "power", power = 1, coefficient = { rounds = 12 }, minimum = 1 })", rest);
    const std::string text = runs({"training.learning_rate={schedule='constant',peak=0.2}"}).at(0).resolved_toml;
    const std::string key = "coefficient = ";
    return std::stod(text.substr(text.find(key) + key.size()));
  };
  EXPECT_THAT(coefficient(""), AllOf(testing::Ge(1.0), testing::Le(1.2)));
  EXPECT_THAT(coefficient("[methods.training.learning_rate]\npeak = 0.4\n"), AllOf(testing::Ge(2.0), testing::Le(2.4)));
  EXPECT_THAT(coefficient("local_phase = { peak = 0.1 }\n"), AllOf(testing::Ge(0.5), testing::Le(0.6)));
}

TEST_F(SolvedNumbers, NeedABudgetThatCountsSteps) {
  write_period(in_twelve_rounds);
  EXPECT_THAT(faults({"budget={seconds=10}"}), HasSubstr("methods.2.period.steps = a table; must be a number if the "
                                                         "budget is not in steps or epochs"));
}

// [methods.training]: a method with its own keys of [training] trains as if the whole file had these keys, and its
// label shows them.

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::Pair;

class OwnTraining : public ExperimentFile {
 protected:
  // Returns the runs of seed 3: synchronous SGD, and DropCompute with these keys in its own table.
  std::vector<syncopate::Run> runs_with(const std::string& own, Overrides overrides = {}) const {
    overrides.insert(overrides.end(), {"seeds=[3]", "methods.drop.training={" + own + "}"});
    return load(overrides).runs;
  }
  // Returns DropCompute's run in an experiment that has these keys in [training].
  syncopate::Run as_everybodys(Overrides overrides) const {
    overrides.emplace_back("seeds=[3]");
    return load(overrides).runs.at(1);
  }
};

// The strengths of the two forms of RandAugment are not comparable. So a method with another form than the file's has
// that form's default strength.
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

// An optimizer's form is one of its keys, so its other keys stay.
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
  // A schedule of the method's own has no warm-up unless it declares one.
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
  // The message lists the keys that are allowed there.
  EXPECT_THAT(faults({"methods.drop.training.workers=5"}),
              testing::AllOf(HasSubstr("clip_norm"), Not(HasSubstr("common")), Not(HasSubstr("_hash"))));
}

TEST_F(OwnTraining, DoesNotRepeatTheFilesFaults) {
  const std::string found = faults({"training.clip_norm=-1", "methods.drop.training.micro_batch_size=4"});
  EXPECT_EQ(std::count(found.begin(), found.end(), '\n'), 0) << found;
}

// The file's warm-up applies to three trainings: the file's of 60 steps, the method's of 120, and the phase's of 10. If
// it is longer than several of them, there is still one message. If it is longer than the phase alone, the message is
// about the phase.
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

// A training that starts from a common phase must have the phase's number of parameters.
TEST_F(OwnTraining, BehindACommonPhaseHasItsSize) {
  EXPECT_EQ(faults({"training.common={steps=2}"}), "");
  const std::string of_other = "must equal those of ";
  EXPECT_THAT(faults({"training.common={steps=2,model='mlp'}"}), HasSubstr(of_other + "\"sync-sgd\""));
  const std::string found = faults({"training.common={steps=2}", "methods.drop.training.model='mlp'"});
  EXPECT_THAT(found, HasSubstr("training.common; its model has"));
  EXPECT_THAT(found, HasSubstr(of_other + "\"drop\""));
  EXPECT_THAT(found, Not(HasSubstr("\"sync-sgd\"")));
  EXPECT_THAT(faults({"training.common={steps=2,common={steps=1}}"}),
              HasSubstr("training.common.common = a table; must be left out"));
}

// A method's requirements on the optimizer apply to its own optimizer.
TEST_F(OwnTraining, IsWhatAMethodIsCheckedAgainst) {
  const std::string elastic = "algorithm='elastic-averaging',beta=0.5,period=2,momentum=0.9";
  const Overrides adamw = {"training.optimizer={name='adamw'}", "methods=[{" + elastic + "}]"};
  EXPECT_THAT(faults(adamw), HasSubstr("methods.0.momentum = 0.9;"));
  EXPECT_EQ(faults({adamw[0], "methods=[{" + elastic + ",training={optimizer={name='sgd'}}}]"}), "");
  EXPECT_THAT(faults({"methods=[{" + elastic + ",training={optimizer={name='adamw'}}}]"}),
              HasSubstr("methods.0.momentum = 0.9;"));
  const std::string sharded = "algorithm='backup-workers',backups=0,servers=2";
  EXPECT_THAT(faults({"methods=[{" + sharded + ",training={optimizer={name='lamb'}}}]"}),
              HasSubstr("its optimizer must be one that updates each parameter independently"));
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

ObjectivePlan data(std::int64_t samples_per_micro_batch, std::int64_t steps_per_epoch) {
  ObjectivePlan plan;
  plan.samples_per_micro_batch = samples_per_micro_batch;
  plan.steps_per_epoch = steps_per_epoch;
  return plan;
}

TEST(DataPosition, WholeEpochsAreWholeEpochs) {
  EXPECT_EQ(in_steps_of(data(8, 64), 32, data(16, 32)), Step{64});
  EXPECT_EQ(in_steps_of(data(16, 32), 192, data(8, 64)), Step{96});
  EXPECT_EQ(in_steps_of(data(7, 14), 30, data(10, 10)), Step{42})
      << "also where an epoch drops other samples at its end";
}

TEST(DataPosition, WithinAnEpochNoSampleIsMetAgain) {
  EXPECT_EQ(in_steps_of(data(8, 64), 37, data(16, 32)), Step{74});
  EXPECT_EQ(in_steps_of(data(16, 32), 3, data(8, 64)), Step{2}) << "24 samples are one step and a half";
  EXPECT_EQ(in_steps_of(data(50, 2), 9, data(10, 10)), Step{2});
  EXPECT_EQ(in_steps_of(data(60, 1), 9, data(10, 10)), Step{1})
      << "the next epoch: 90 samples are more than one of its steps";
}

TEST(DataPosition, IsTheSameForTheSameBatchAndWithoutEpochs) {
  EXPECT_EQ(in_steps_of(data(8, 64), 37, data(8, 64)), Step{37});
  EXPECT_EQ(in_steps_of(data(8, 0), 37, data(16, 0)), Step{37});
}

}  // namespace
}  // namespace syncopate
