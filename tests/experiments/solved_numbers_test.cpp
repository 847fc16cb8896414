// Numbers that are solved for: hashes, sweeps, variants, rates of a method's own, and how experiments read back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "tests/experiments/experiment_file.hpp"

namespace syncopate {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// 60 steps, so that H makes ceil(60 / H) rounds.
class SolvedNumbers : public ExperimentFile {
 protected:
  static constexpr const char* in_twelve_rounds = R"({ rule = "constant", steps = { rounds = 12 } })";

  void write_period(const std::string& period, const std::string& rest = "") const {
    write(std::string(small) + "[[methods]]\nlabel = \"local\"\nalgorithm = \"local-sgd\"\nperiod = " + period + "\n" +
          rest);
  }
  // Of "local", for one seed.
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

// What `check` prints: the numbers are the runs', the experiment asks.
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
  EXPECT_THAT(faults({}), HasSubstr("make the same run of \"local\"; must hold no value twice"));
}

TEST_F(SolvedNumbers, AVariantSaysTheOneOrTheOther) {
  write_period(in_twelve_rounds,
               "[[variants]]\nlabel = \"often\"\nmethods.local.period.steps.share = 0.5\n"
               "[[variants]]\nlabel = \"seldom\"\nmethods.local.period.steps = 30\n");
  EXPECT_THAT(notes(), ElementsAre("period.steps = 2 makes 30 rounds", ""));
}

// H = floor(coefficient / rate) at a constant rate: what makes H = 5 is from 5 to 6 rates.
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
  EXPECT_THAT(faults({"budget={seconds=10}"}), HasSubstr("methods.2.period.steps = a table; must be a number where the "
                                                         "budget is not counted in steps or epochs"));
}

}  // namespace
}  // namespace syncopate
