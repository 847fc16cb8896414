// Synchronisation periods as they are written in experiment files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>

#include "algorithms/local_sgd/sync_period.hpp"
#include "workers/config/settings.hpp"
#include "workers/config/toml.hpp"

namespace syncopate {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

struct Reading {
  std::shared_ptr<const SyncPeriod> period;
  std::string faults;
  std::string resolved;
};

Reading read(const std::string& table, const SyncPeriodContext& context = {}) {
  SettingsDocument document(parse_toml("period = " + table, "test.toml"));
  Settings settings = document.root().section("period");
  Reading reading;
  reading.period = make_sync_period(settings, context);
  reading.faults = document.check().report();
  reading.resolved = write_toml(document.resolved());
  return reading;
}

TEST(SyncPeriodSettings, AConstantPeriodReadsItsSteps) {
  const auto reading = read(R"({ rule = "constant", steps = 8 })");
  EXPECT_EQ(reading.faults, "");
  EXPECT_EQ(reading.period->at(100, 0.1, 1000), Step{8});
}

TEST(SyncPeriodSettings, ThePowerRuleReadsEveryKey) {
  const auto reading = read(R"({ rule = "power", power = 3, coefficient = 0.5, minimum = 4, maximum = 100, )"
                            R"(warmup_steps = 50, warmup_period = 6 })");
  EXPECT_EQ(reading.faults, "");
  EXPECT_EQ(reading.period->at(49, 0.125, 1000), Step{6});
  EXPECT_EQ(reading.period->at(50, 0.5, 1000), Step{4});
  EXPECT_EQ(reading.period->at(50, 0.125, 1000), Step{64});
  EXPECT_EQ(reading.period->at(50, 0.0625, 1000), Step{100});
}

TEST(SyncPeriodSettings, ThePowerRuleIsQuadraticWithoutWarmUpUnlessTold) {
  const auto reading = read(R"({ rule = "power", coefficient = 1, minimum = 4 })");
  EXPECT_EQ(reading.faults, "");
  EXPECT_EQ(reading.period->at(0, 0.125, 1000), Step{64});
  EXPECT_EQ(reading.period->at(0, 0.001, 2000000), Step{1000000});
  EXPECT_THAT(reading.resolved, AllOf(HasSubstr("power = 2"), HasSubstr("warmup_steps = 0"),
                                      HasSubstr("warmup_period = 4"), Not(HasSubstr("maximum"))));
}

TEST(SyncPeriodSettings, TheWarmUpIsThatOfTheLearningRateUnlessTold) {
  const SyncPeriodContext context{.learning_rate_warmup = 50};
  const auto reading = read(R"({ rule = "power", coefficient = 1, minimum = 4 })", context);
  EXPECT_EQ(reading.period->at(49, 0.125, 1000), Step{4});
  EXPECT_EQ(reading.period->at(50, 0.125, 1000), Step{64});
}

TEST(SyncPeriodSettings, WithoutAnEndInStepsTheMaximumIsRequired) {
  EXPECT_THAT(read(R"({ rule = "power", coefficient = 1, minimum = 4 })", {.counts_steps = false}).faults,
              HasSubstr("maximum"));
  EXPECT_EQ(read(R"({ rule = "power", coefficient = 1, minimum = 4, maximum = 9 })", {.counts_steps = false}).faults,
            "");
}

TEST(SyncPeriodSettings, TheWarmUpPeriodIsTheMinimumUnlessTold) {
  const auto reading = read(R"({ rule = "power", coefficient = 1, minimum = 4, warmup_steps = 10 })");
  EXPECT_EQ(reading.period->at(9, 0.125, 1000), Step{4});
  EXPECT_EQ(reading.period->at(10, 0.125, 1000), Step{64});
}

TEST(SyncPeriodSettings, PostLocalReadsItsSwitch) {
  const auto reading = read(R"({ rule = "post-local", switch_step = 30, steps = 16 })");
  EXPECT_EQ(reading.faults, "");
  EXPECT_EQ(reading.period->at(29, 0.1, 1000), Step{1});
  EXPECT_EQ(reading.period->at(30, 0.1, 1000), Step{16});
}

TEST(SyncPeriodSettings, SwapReadsItsSwitch) {
  const auto reading = read(R"({ rule = "swap", switch_step = 30 })");
  EXPECT_EQ(reading.faults, "");
  EXPECT_EQ(reading.period->at(29, 0.1, 971), Step{1});
  EXPECT_EQ(reading.period->at(30, 0.1, 970), Step{970});
  EXPECT_THAT(read(R"({ rule = "swap", switch_step = -1 })").faults, HasSubstr("switch_step = -1"));
  EXPECT_THAT(read(R"({ rule = "swap" })").faults, HasSubstr("switch_step"));
  EXPECT_THAT(read(R"({ rule = "swap", switch_step = 1, steps = 4 })").faults, HasSubstr("steps"));
}

TEST(SyncPeriodSettings, SwapNeedsABudgetThatEndsWithoutCommunication) {
  EXPECT_EQ(read(R"({ rule = "swap", switch_step = 3 })", {.counts_steps = false}).faults,
            "");  // counted in seconds, say
  EXPECT_THAT(read(R"({ rule = "swap", switch_step = 3 })", {.budget_ends_alone = false}).faults, HasSubstr("bytes"));
}

TEST(SyncPeriodSettings, AnUnknownRuleIsOneFaultThatNamesTheRules) {
  const auto reading = read(R"({ rule = "powr", coefficient = 1, minimum = 4 })");
  EXPECT_THAT(reading.faults, AllOf(HasSubstr("rule"), HasSubstr("powr"), HasSubstr("constant"),
                                    HasSubstr("post-local"), Not(HasSubstr("coefficient"))));
  ASSERT_NE(reading.period, nullptr);
  EXPECT_EQ(reading.period->at(0, 0.1, 1000), Step{1});
}

TEST(SyncPeriodSettings, AllFaultsOfATableAreReportedAtOnce) {
  const auto reading = read(R"({ rule = "power", power = 0, coefficient = -1, minimum = 0, maximum = -5, )"
                            R"(warmup_steps = -1, warmup_period = 0, steps = 3 })");
  for (const char* key : {"power = 0", "coefficient = -1", "minimum = 0", "maximum = -5", "warmup_steps = -1",
                          "warmup_period = 0", "steps"}) {
    EXPECT_THAT(reading.faults, HasSubstr(key));
  }
}

TEST(SyncPeriodSettings, AMaximumBelowTheMinimumIsAFault) {
  EXPECT_THAT(read(R"({ rule = "power", coefficient = 1, minimum = 8, maximum = 7 })").faults,
              HasSubstr("maximum = 7"));
  EXPECT_EQ(read(R"({ rule = "power", coefficient = 1, minimum = 8, maximum = 8 })").faults, "");
}

TEST(SyncPeriodSettings, RequiredKeysAreMissed) {
  EXPECT_THAT(read(R"({ rule = "constant" })").faults, HasSubstr("steps"));
  EXPECT_THAT(read(R"({ rule = "post-local" })").faults, AllOf(HasSubstr("switch_step"), HasSubstr("steps")));
  EXPECT_THAT(read(R"({ rule = "power" })").faults, AllOf(HasSubstr("coefficient"), HasSubstr("minimum")));
  EXPECT_THAT(read("{ }").faults, HasSubstr("rule"));
}

// 1,000 steps at a constant rate of 0.1: H = floor(coefficient / 0.1).
const LearningRate constant_rate({.peak = 0.1});
SyncPeriodContext thousand_steps() { return {.total_steps = Step{1000}, .learning_rate = &constant_rate}; }

TEST(SyncPeriodSettings, StepsAreFoundForTheRoundsThatAreAskedFor) {
  const auto reading = read(R"({ rule = "constant", steps = { rounds = 125 } })", thousand_steps());
  EXPECT_EQ(reading.faults, "");
  EXPECT_EQ(reading.period->at(0, 0.1, 1000), Step{8});
  EXPECT_THAT(reading.resolved, AllOf(HasSubstr("steps = 8\n"), HasSubstr("[period.solved_for]\n"),
                                      HasSubstr("rounds = 125"), HasSubstr("found = 125")));
  const auto post_local =
      read(R"({ rule = "post-local", switch_step = 100, steps = { share = 0.19 } })", thousand_steps());
  EXPECT_EQ(post_local.faults, "");
  EXPECT_EQ(post_local.period->at(100, 0.1, 900), Step{10});
  EXPECT_THAT(post_local.resolved, AllOf(HasSubstr("share = 0.19"), HasSubstr("rounds = 190")));
}

TEST(SyncPeriodSettings, ACoefficientIsFoundForTheRoundsThatAreAskedFor) {
  const auto reading =
      read(R"({ rule = "power", power = 1, coefficient = { rounds = 125 }, minimum = 4 })", thousand_steps());
  EXPECT_EQ(reading.faults, "");
  EXPECT_EQ(reading.period->at(0, 0.1, 1000), Step{8});
  EXPECT_THAT(reading.resolved, AllOf(HasSubstr("coefficient = 0.8"), HasSubstr("found = 125")));
}

TEST(SyncPeriodSettings, TheNearestIsToldWhereNoneMakesJustAsMany) {
  EXPECT_THAT(read(R"({ rule = "constant", steps = { rounds = 400 } })", thousand_steps()).resolved,
              AllOf(HasSubstr("steps = 3\n"), HasSubstr("rounds = 400"), HasSubstr("found = 334")));
}

TEST(SyncPeriodSettings, WhatWasSolvedReadsBackToItself) {
  for (const char* table : {R"({ rule = "constant", steps = { rounds = 400 } })",
                            R"({ rule = "power", coefficient = { share = 0.07 }, minimum = 4 })"}) {
    const std::string resolved = read(table, thousand_steps()).resolved;
    SettingsDocument document(parse_toml(resolved, "resolved.toml"));
    Settings settings = document.root().section("period");
    make_sync_period(settings, thousand_steps());
    EXPECT_EQ(document.check().report(), "");
    EXPECT_EQ(write_toml(document.resolved()), resolved);
  }
}

TEST(SyncPeriodSettings, WhatIsNotTrueAnyMoreIsNotTold) {
  const std::string told = R"(, solved_for = { rounds = 125, found = 125 } })";
  EXPECT_THAT(read(R"({ rule = "constant", steps = 8)" + told, thousand_steps()).resolved, HasSubstr("solved_for"));
  EXPECT_THAT(read(R"({ rule = "constant", steps = 9)" + told, thousand_steps()).resolved,
              Not(HasSubstr("solved_for")));
}

TEST(SyncPeriodSettings, WhatCannotBeSolvedIsOneFault) {
  const auto faults = [](const std::string& table) {
    const std::string found = read("{ rule = " + table + " }", thousand_steps()).faults;
    EXPECT_EQ(std::ranges::count(found, '\n'), 0) << found;
    return found;
  };
  EXPECT_THAT(faults(R"("constant", steps = { rounds = 1001 })"),
              HasSubstr("steps.rounds = 1001; must be at most the run's 1000 steps"));
  EXPECT_THAT(faults(R"("constant", steps = { rounds = 0 })"),
              HasSubstr("steps.rounds = 0; must be an integer from 1"));
  EXPECT_THAT(faults(R"("constant", steps = { share = 1e-4 })"), HasSubstr("of 1000 steps these are 0"));
  EXPECT_THAT(faults(R"("constant", steps = { share = 1.5 })"), HasSubstr("at most 1"));
  EXPECT_THAT(faults(R"("constant", steps = { rounds = 5, share = 0.5 })"),
              HasSubstr("steps.share = 0.5; must not be given together with rounds"));
  EXPECT_THAT(faults(R"("constant", steps = {})"), HasSubstr("have rounds or share"));
  EXPECT_THAT(faults(R"("constant", steps = { round = 5 })"), HasSubstr("did you mean \"rounds\"?"));
  EXPECT_THAT(faults(R"("swap", switch_step = 10, steps = { rounds = 5 })"), HasSubstr("follow from its switch_step"));
  EXPECT_THAT(faults(R"("swap", switch_step = 10, coefficient = { rounds = 5 })"), HasSubstr("must be left out"));
  EXPECT_THAT(faults(R"("constant", steps = 5, coefficient = { rounds = 5 })"), HasSubstr("unknown key"));
  EXPECT_THAT(faults(R"("constant", steps = { rounds = 5 }, solved_for = { found = 5 })"),
              HasSubstr("must be left out"));
  EXPECT_THAT(read(R"({ rule = "constant", steps = { rounds = 5 } })", {.counts_steps = false}).faults,
              HasSubstr("not counted in steps or epochs"));
}

// Every row of the table can be chosen by its name and its keys.
TEST(SyncPeriodSettings, EveryRuleOfTheTableCanBeWritten) {
  for (const auto& row : sync_periods()) {
    const std::string keys = row.name == "power"        ? "coefficient = 0, minimum = 5"
                             : row.name == "post-local" ? "switch_step = 0, steps = 5"
                             : row.name == "swap"       ? "switch_step = 0"
                                                        : "steps = 5";
    const auto reading = read("{ rule = \"" + std::string(row.name) + "\", " + keys + " }");
    EXPECT_EQ(reading.faults, "") << row.name;
    EXPECT_EQ(reading.period->at(0, 0.1, 5), Step{5}) << row.name;
  }
}

}  // namespace
}  // namespace syncopate
