#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "algorithms/asynchronous/staleness.hpp"
#include "workers/config/settings.hpp"
#include "workers/config/toml.hpp"

namespace syncopate {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Reading {
  UpdateRate rate;
  std::string faults;
  std::string resolved;
};

Reading read(const std::string& text) {
  SettingsDocument document(parse_toml(text, "test.toml"));
  Settings settings = document.root();
  Reading reading;
  reading.rate = read_update_rate(settings);
  reading.faults = document.check().report();
  reading.resolved = write_toml(document.resolved());
  return reading;
}

TEST(StalenessWeight, IsOneAtNoStalenessWhateverTheRule) {
  for (const auto rule : {StalenessWeight::none, StalenessWeight::inverse, StalenessWeight::inverse_plus_one,
                          StalenessWeight::beyond_workers})
    EXPECT_EQ(staleness_weight(rule, 0, 4), 1.0);
}

TEST(StalenessWeight, FollowsItsFormula) {
  EXPECT_EQ(staleness_weight(StalenessWeight::none, 8, 4), 1.0);
  EXPECT_EQ(staleness_weight(StalenessWeight::inverse, 1, 4), 1.0);
  EXPECT_EQ(staleness_weight(StalenessWeight::inverse, 8, 4), 0.125);
  EXPECT_EQ(staleness_weight(StalenessWeight::inverse_plus_one, 1, 4), 0.5);
  EXPECT_EQ(staleness_weight(StalenessWeight::inverse_plus_one, 7, 4), 0.125);
  EXPECT_EQ(staleness_weight(StalenessWeight::beyond_workers, 4, 4), 1.0);
  EXPECT_EQ(staleness_weight(StalenessWeight::beyond_workers, 8, 4), 0.5);
}

// N / c updates are one step of the experiment file.
TEST(StalenessWeight, LinearScalingGoesAsFarAlongEqualSamples) {
  const UpdateRate linear{.scaling = RateScaling::linear}, none{.scaling = RateScaling::none};
  for (const int gradients : {1, 2, 4, 8}) {
    EXPECT_EQ(8.0 / gradients * linear.of_update(gradients, 8), 1.0);
    EXPECT_EQ(none.of_update(gradients, 8), 1.0);
  }
}

TEST(StalenessWeight, WithoutKeysTheRateGoesByTheSamplesAlone) {
  const auto reading = read("");
  EXPECT_EQ(reading.faults, "");
  EXPECT_EQ(reading.rate.weight, StalenessWeight::none);
  EXPECT_EQ(reading.rate.scaling, RateScaling::linear);
  EXPECT_THAT(reading.resolved,
              AllOf(HasSubstr("staleness_weight = \"none\""), HasSubstr("rate_scaling = \"linear\"")));
}

TEST(StalenessWeight, AChosenWeightReplacesTheScalingUnlessTold) {
  const auto inverse = read("staleness_weight = \"1/tau\"");
  EXPECT_EQ(inverse.rate.weight, StalenessWeight::inverse);
  EXPECT_EQ(inverse.rate.scaling, RateScaling::none);
  EXPECT_THAT(inverse.resolved, HasSubstr("rate_scaling = \"none\""));
  const auto both = read("staleness_weight = \"1/(tau+1)\"\nrate_scaling = \"linear\"");
  EXPECT_EQ(both.rate.weight, StalenessWeight::inverse_plus_one);
  EXPECT_EQ(both.rate.scaling, RateScaling::linear);
}

TEST(StalenessWeight, AnUnknownRuleIsAFault) {
  EXPECT_THAT(read("staleness_weight = \"1/t\"").faults, AllOf(HasSubstr("staleness_weight"), HasSubstr("1/tau")));
  EXPECT_THAT(read("rate_scaling = \"liner\"").faults, AllOf(HasSubstr("rate_scaling"), HasSubstr("linear")));
}

}  // namespace
}  // namespace syncopate
