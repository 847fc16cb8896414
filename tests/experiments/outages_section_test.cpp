#include <gmock/gmock.h>

#include "tests/experiments/experiment_file.hpp"
#include "workers/time/outages.hpp"

namespace syncopate {
namespace {

using testing::HasSubstr;

std::string entry(const std::string& keys) { return "outages=[{" + keys + "}]"; }

TEST_F(ExperimentFile, OutagesAreScheduledOrRandomAndPartOfTheRun) {
  EXPECT_EQ(load().runs.at(0).cluster.outages, nullptr);
  EXPECT_THAT(load().resolved_toml, testing::Not(HasSubstr("outages")));
  const Experiment planned = load({entry("workers=[1,3], at_s=2, duration_s=0.5, state=\"lost\"")});
  const OutagePlan& plan = *planned.runs.at(0).cluster.outages;
  const Outage first = plan.of(Rank{3}).next(start_time);
  EXPECT_EQ(first.begin, Time{from_seconds(2)});
  EXPECT_EQ(first.end, Time{from_seconds(2.5)});
  EXPECT_TRUE(first.loses_state);
  EXPECT_EQ(plan.of(Rank{0}).next(start_time).begin, never);
  EXPECT_NE(planned.runs.at(0).hash, load().runs.at(0).hash);
  // Twice, and overlapping.
  EXPECT_EQ(faults({"outages=[{workers=[1,1], at_s=0, duration_s=5}, {workers=[1], at_s=1, duration_s=1}]"}), "");

  const Experiment random = load({entry("mean_time_between_s=10, mean_duration_s=1")});
  const Time with_seed_3 = random.runs.at(0).cluster.outages->of(Rank{2}).next(start_time).begin;
  const Time with_seed_5 = random.runs.at(1).cluster.outages->of(Rank{2}).next(start_time).begin;
  EXPECT_NE(with_seed_3, never);
  EXPECT_NE(with_seed_3, with_seed_5);  // as delays, a function of the run's seed
  EXPECT_FALSE(random.runs.at(0).cluster.outages->loses_state(Rank{2}));
  EXPECT_THAT(random.resolved_toml, HasSubstr("state = \"kept\""));
}

TEST_F(ExperimentFile, FaultsOfOutagesAreToldWithTheirPlace) {
  const auto fault = [&](const std::string& keys, const std::string& expected) {
    EXPECT_THAT(faults({entry(keys)}), HasSubstr(expected));
  };
  fault("workers=[4], at_s=1, duration_s=1", "outages.0.workers = 4; each element must be an integer from 0 to 3");
  fault("workers=[], at_s=1, duration_s=1", "outages.0.workers = []; must name at least one worker");
  fault("at_s=1, duration_s=1", "outages.0.workers is missing");
  fault("workers=[1], at_s=-1, duration_s=1", "outages.0.at_s = -1; must be");
  fault("workers=[1], at_s=1, duration_s=0", "outages.0.duration_s = 0; must be");
  fault("workers=[1], at_s=1", "outages.0.duration_s is missing");
  fault("workers=[1], at_s=1, duration_s=inf", "outages.0.duration_s = inf; must be");
  fault("workers=[1], at_s=1, duration_s=1, state=\"gone\"", "outages.0.state = \"gone\"; must be one of");
  fault("mean_time_between_s=0, mean_duration_s=1", "outages.0.mean_time_between_s = 0; must be");
  fault("mean_time_between_s=5", "outages.0.mean_duration_s is missing");
  fault("workers=[1], at_s=1, duration_s=1, mean_duration_s=1", "an outage is scheduled or random");
  fault("workers=[1], at_s=1, duration=1", "did you mean \"duration_s\"?");
  std::string many;
  for (int i = 0; i < 256; ++i) many += "{workers=[1], at_s=1, duration_s=1},";
  EXPECT_THAT(faults({"outages=[" + many + "]"}), HasSubstr("must be at most 255 entries"));
  EXPECT_THAT(faults({"outages=3"}), HasSubstr("must be an array of tables, [[outages]]"));
  // What follows from a fault is none.
  const std::string report = faults({entry("workers=[3], at_s=1, duration_s=1"), "cluster.workers=0"});
  EXPECT_THAT(report, testing::StartsWith("command line: cluster.workers = 0"));
  EXPECT_EQ(std::count(report.begin(), report.end(), '\n'), 0) << report;
}

}  // namespace
}  // namespace syncopate
