// Sleeps and trailing work as an experiment file declares them.
#include <gmock/gmock.h>

#include "experiments/execution/execution.hpp"
#include "tests/experiments/experiment_file.hpp"
#include "workers/time/compute_time.hpp"
#include "workers/time/distributions.hpp"

namespace syncopate {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const std::string sleep = "delays=[{kind='constant',value=0.001},{kind='uniform',low=0,high=1,sleep=true}]";

TEST_F(ExperimentFile, DelaysAreSleepsWhereTheySaySo) {
  EXPECT_EQ(load().runs.at(0).cluster.pauses, nullptr);
  const auto run = load({sleep, "cluster.trailing_s=0.25"}).runs.at(0);
  ASSERT_TRUE(run.cluster.pauses);
  EXPECT_EQ(run.cluster.pauses->trailing(), from_seconds(0.25));
  EXPECT_DOUBLE_EQ(run.cluster.compute_time->step_law(Rank{0}, 1).mean_s, 0.01 + 0.001);
  // A sleep draws from its own place in the list, so that the other entry's draws stay what they are.
  const Pauses apart(run.seed, 0, {uniform_delay(0, 1)}, 1);
  EXPECT_EQ(run.cluster.pauses->sleep(Rank{1}, Step{2}, 1), apart.sleep(Rank{1}, Step{2}, 1));
  EXPECT_EQ(load({sleep}).runs.at(0).cluster.pauses->trailing(), Duration{});
  EXPECT_TRUE(load({"cluster.trailing_s=0"}).runs.at(0).cluster.pauses);
  EXPECT_EQ(load({"delays=[{kind='constant',value=0.001,sleep=false}]"}).runs.at(0).cluster.pauses, nullptr);
  EXPECT_NE(load({sleep}).runs.at(0).hash, load({sleep, "cluster.trailing_s=0.25"}).runs.at(0).hash);
}

// Runs that an experiment file declares: three micro-batches of 1 s, sleeps of 2 s after each, 0.25 s of trailing work.
TEST_F(ExperimentFile, RunsHaveTheirSleeps) {
  const Overrides run = {"cluster={workers=2,micro_batches=3,micro_batch_s=1,trailing_s=0.25}",
                         "delays=[{kind='constant',value=2,sleep=true}]", "training={model='none',parameters=10}",
                         "datasets={}", "budget={steps=2}"};
  for (const auto& [method, second_step_s] :
       {std::pair{"{algorithm='sync-sgd'}", 9.75}, {"{algorithm='dropcompute',threshold_s=3.5}", 4.0}}) {
    Overrides overrides = run;
    overrides.push_back(std::string("methods=[") + method + "]");
    const Experiment experiment = load(overrides);
    Progress progress(Progress::Style::silent, 1, 1);
    progress.begin_run(1, experiment.runs.at(0));
    const Outcome outcome = execute(experiment.runs.at(0), {.threads = 1}, progress, [](const Outcome&) {});
    ASSERT_EQ(outcome.failure, "");
    // With the sleep that follows the all-reduce of the first; under the threshold that is cut to nothing.
    EXPECT_NEAR(to_seconds(outcome.recording.rows.at(1).duration), second_step_s, 1e-8) << method;
  }
}

TEST_F(ExperimentFile, FaultsOfPausesAreToldWithTheirPlace) {
  EXPECT_THAT(faults({"cluster.trailing_s=-1"}), HasSubstr("cluster.trailing_s = -1"));
  EXPECT_THAT(faults({"delays=[{kind='constant',value=0.001,sleep=1}]"}), HasSubstr("delays.0.sleep = 1"));
  const std::string with_server = "methods=[{label='late',algorithm='async-sgd'}]";
  EXPECT_EQ(faults({with_server}), "");
  EXPECT_THAT(faults({with_server, sleep}), AllOf(HasSubstr("\"late\" has a server"), HasSubstr("trailing_s")));
  EXPECT_THAT(faults({sleep, "outages=[{workers=[1],at_s=3,duration_s=1}]"}), HasSubstr("outages"));
}

}  // namespace
}  // namespace syncopate
