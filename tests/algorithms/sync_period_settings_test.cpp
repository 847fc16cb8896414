// Synchronisation periods as they are written in experiment files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "algorithms/local_sgd/sync_period.hpp"
#include "workers/settings/settings_document.hpp"
#include "workers/settings/toml_tree.hpp"

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
