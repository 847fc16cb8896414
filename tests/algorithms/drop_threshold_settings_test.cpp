// Thresholds of DropCompute as they are written in experiment files.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "algorithms/synchronous/drop_threshold.hpp"
#include "workers/config/settings.hpp"
#include "workers/config/toml.hpp"

namespace syncopate {
namespace {

using testing::HasSubstr;

struct Reading {
  std::shared_ptr<const DropThreshold> threshold;
  std::string faults;
  std::string resolved;
};

Reading read(const std::string& keys, const DropThresholdContext& context = {.total_steps = 1000}) {
  SettingsDocument document(parse_toml(keys, "test.toml"));
  Settings settings = document.root();
  Reading reading;
  reading.threshold = read_drop_threshold(settings, context);
  reading.faults = document.check().report();
  reading.resolved = write_toml(document.resolved());
  return reading;
}

TEST(DropThresholdSettings, AFixedThresholdIsANumberOrATable) {
  for (const char* keys : {"threshold_s = 0.05", R"(threshold = { rule = "fixed", threshold_s = 0.05 })"}) {
    const auto reading = read(keys);
    EXPECT_EQ(reading.faults, "");
    EXPECT_EQ(reading.threshold->begin()->current(), from_seconds(0.05));
  }
  EXPECT_EQ(read("threshold_s = inf").threshold->begin()->current(), longest_duration);
}

TEST(DropThresholdSettings, ExactlyOneOfBothFormsIsWritten) {
  EXPECT_THAT(read("").faults, HasSubstr("threshold_s"));
  EXPECT_THAT(read(R"(
threshold_s = 1
threshold = { rule = "automatic" })")
                  .faults,
              HasSubstr("threshold_s = 1"));
}

TEST(DropThresholdSettings, ThresholdsAreAboveZero) {
  for (const char* value : {"0", "-1", "nan", "\"auto\""})
    EXPECT_THAT(read(std::string("threshold_s = ") + value).faults, HasSubstr("threshold_s"));
}

TEST(DropThresholdSettings, TheAutomaticRuleRecordsAsManyStepsAsTheReferenceCodeByDefault) {
  const auto reading = read(R"(threshold = { rule = "automatic" })");
  EXPECT_EQ(reading.faults, "");
  EXPECT_THAT(reading.resolved, testing::AllOf(HasSubstr("search = \"throughput\""), HasSubstr("warmup_steps = 6"),
                                               HasSubstr("calibration_steps = 44")));
}

TEST(DropThresholdSettings, EverySearchOfTheAutomaticRuleIsRead) {
  for (const char* search : {"throughput", "s-eff", "reference"}) {
    const auto reading = read(fmt::format(R"(threshold = {{ rule = "automatic", search = "{}" }})", search));
    EXPECT_EQ(reading.faults, "");
    EXPECT_THAT(reading.resolved, HasSubstr(fmt::format("search = \"{}\"", search)));
  }
}

TEST(DropThresholdSettings, FaultsOfTheAutomaticRule) {
  const auto faults = read(R"(threshold = { rule = "automatic", search = "best", calibration_steps = 0, )"
                           R"(warmup_steps = -1, maximum_drop_rate = 1 })")
                          .faults;
  for (const char* key : {"search = \"best\"", "calibration_steps = 0", "warmup_steps = -1", "maximum_drop_rate = 1"})
    EXPECT_THAT(faults, HasSubstr(key));
  EXPECT_THAT(read(R"(threshold = { rule = "automatic", maximum_drop_rate = 0 })").faults,
              HasSubstr("maximum_drop_rate = 0"));
}

TEST(DropThresholdSettings, TheCalibrationHasAClock) {
  for (const char* clock : {"step", "micro-batch"}) {
    const auto reading =
        read(std::string(R"(threshold = { rule = "automatic", calibration_clock = ")") + clock + R"(" })");
    EXPECT_EQ(reading.faults, "");
    EXPECT_EQ(reading.threshold->begin()->times_micro_batches(), clock == std::string("micro-batch"));
  }
  EXPECT_FALSE(read(R"(threshold = { rule = "automatic" })").threshold->begin()->times_micro_batches());
  EXPECT_THAT(read(R"(threshold = { rule = "automatic", calibration_clock = "device" })").faults,
              HasSubstr("calibration_clock = \"device\""));
}

TEST(DropThresholdSettings, TheCalibrationEndsBeforeTheBudget) {
  const std::string keys = R"(threshold = { rule = "automatic" })";
  EXPECT_THAT(read(keys, {.total_steps = 50}).faults, HasSubstr("calibration_steps = 44"));
  EXPECT_EQ(read(keys, {.total_steps = 51}).faults, "");
  EXPECT_EQ(read(keys, {}).faults, "");
}

TEST(DropThresholdSettings, FaultsOfTheAdaptiveRules) {
  for (const char* quantile : {"0", "1", "-0.5", "2"})
    EXPECT_THAT(read(std::string(R"(threshold = { rule = "adaptive-quantile", quantile = )") + quantile + " }").faults,
                HasSubstr("quantile"));
  EXPECT_THAT(read(R"(threshold = { rule = "adaptive-mad", deviations = -1 })").faults, HasSubstr("deviations = -1"));
  EXPECT_THAT(read(R"(threshold = { rule = "adaptive-mad", window_steps = 0 })").faults, HasSubstr("window_steps = 0"));
  EXPECT_THAT(read(R"(threshold = { rule = "adaptive-mad", window_steps = 5, update_every_steps = 6 })").faults,
              HasSubstr("update_every_steps = 6"));
}

TEST(DropThresholdSettings, EveryRuleOfTheTableCanBeWritten) {
  for (const auto& row : drop_thresholds()) {
    const std::string more = row.name == "fixed" ? ", threshold_s = 1" : "";
    EXPECT_EQ(read("threshold = { rule = \"" + std::string(row.name) + "\"" + more + " }").faults, "") << row.name;
  }
  EXPECT_THAT(read(R"(threshold = { rule = "adaptive" })").faults, HasSubstr("adaptive-mad"));
}

}  // namespace
}  // namespace syncopate
