// Numbers get a note if they are probably in the wrong unit (a thousand or eight times the intended value).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "experiments/execution/execution.hpp"
#include "experiments/execution/time_simulation.hpp"
#include "tests/experiments/experiment_file.hpp"
#include "tests/experiments/program.hpp"
#include "workers/time/compute_time.hpp"
#include "workers/time/distributions.hpp"
#include "workers/time/outages.hpp"

namespace syncopate {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// A step of 4 micro-batches of 10 ms takes 40 ms. In the ring of 4 workers, each sends 6 messages of 1 MB, a quarter of
// the gradient. These take 4.8 ms at 1.25e9 bytes per second (10 Gbit/s), and their latencies 0.3 ms.
class MagnitudeNotes : public ProgramTest {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    file = write("e.toml", R"(name = "e"
seeds = [1, 2]
[cluster]
workers = 4
micro_batches = 4
micro_batch_s = 0.010
[[delays]]
kind = "exponential"
mean = 0.002
[network]
kind = "ring"
latency_s = 50e-6
bandwidth_bytes_per_s = 1.25e9
[training]
model = "none"
parameters = 1_000_000
[budget]
steps = 40
[[methods]]
algorithm = "sync-sgd"
[[methods]]
label = "drop"
algorithm = "dropcompute"
threshold_s = 0.050
)");
  }
  // Returns the notes. `check` prints them as a comment, and `run` below its table.
  std::string notes(const std::string& changes) const {
    const ProgramOutcome check = syncopate("check " + file + " " + changes);
    EXPECT_EQ(check.status, 0) << check.err;
    const ProgramOutcome run = syncopate("run --quiet " + file + " " + changes);
    EXPECT_EQ(run.status, 0) << run.err;
    return check.out + "=====\n" + run.out;
  }
  std::string file;
};

TEST_F(MagnitudeNotes, AreNotMadeWhereNumbersAreUsual) {
  EXPECT_THAT(notes(""), AllOf(Not(HasSubstr("drops nothing")), Not(HasSubstr("communication takes"))));
  EXPECT_THAT(notes("methods.drop.threshold_s=0.06"), Not(HasSubstr("drops nothing"))) << "it may drop now and then";
  EXPECT_THAT(notes("methods.drop.threshold_s=inf"), Not(HasSubstr("drops nothing"))) << "it is meant";
}

TEST_F(MagnitudeNotes, AThresholdInMillisecondsNeverDrops) {
  const std::string text = notes("methods.drop.threshold_s=50");
  EXPECT_THAT(text, HasSubstr("# drop: threshold_s = 50 drops nothing in 40 simulated steps, where none of the first "
                              "rounds takes more than 0.0"));
  EXPECT_THAT(
      text,
      HasSubstr(
          "\ndrop: threshold_s = 50 drops nothing in 40 steps, where none of the first rounds takes more than 0.0"));
  EXPECT_THAT(text, Not(HasSubstr("sync-sgd: threshold_s")));
  EXPECT_THAT(notes("methods.drop.threshold_s=50,60,70"),
              HasSubstr("drop, threshold_s = 50, and at 2 other points: threshold_s = 50"));
}

// A gradient of 4 MB takes 3.2 ms at 1.25e9 bytes per second. So four gradients occupy the server's link for 12.8 ms,
// and four models occupy its other direction for the same time. A step takes at least 40 ms. At a tenth of the
// bandwidth the link needs 128 ms.
TEST_F(MagnitudeNotes, AServersLinkThatWorkersWaitFor) {
  const std::string server = "'methods=[{algorithm=\"async-sgd\"}]'";
  EXPECT_THAT(notes(server), Not(HasSubstr("server's link")));
  const std::string slow = server + " network.bandwidth_bytes_per_s=1.25e8";
  EXPECT_THAT(notes(slow), AllOf(HasSubstr("# async-sgd: its server's link is busy for "),
                                 HasSubstr("\nasync-sgd: its server's link is busy for ")));
  EXPECT_THAT(notes(slow + " network.server.bandwidth_bytes_per_s=1.25e9"), Not(HasSubstr("server's link")));
  const std::string unshared = notes(slow + " network.contention=false");
  EXPECT_THAT(unshared, Not(HasSubstr("server's link")));
  EXPECT_THAT(unshared, AllOf(HasSubstr("# Links are not shared: "), HasSubstr("\nLinks are not shared: ")));
  // Each of two racks has an uplink for two workers. At equal bandwidth the uplink is half as busy as the server's
  // link, which serves four.
  const std::string racks =
      server + " network.racks.group_size=2 network.racks.latency_s=0 network.racks.bandwidth_bytes_per_s=";
  EXPECT_THAT(notes(racks + "1.25e9"), Not(HasSubstr("busy for")));
  EXPECT_THAT(notes(racks + "1e8"), AllOf(HasSubstr("# async-sgd: its groups' uplinks are busy for "),
                                          HasSubstr("\nasync-sgd: its groups' uplinks are busy for ")));
}

// Without other delays a round takes 4 x 10 ms for micro-batches and 5.1 ms for communication: 45.1 ms.
TEST_F(MagnitudeNotes, AThresholdBeyondAllRoundsIsNoted) {
  const std::string constant = "delays.0.mean=0 methods.drop.threshold_s=";
  EXPECT_THAT(notes(constant + "0.050"), Not(HasSubstr("drops nothing"))) << "1.1 times a round";
  EXPECT_THAT(notes(constant + "0.056"),
              AllOf(HasSubstr("# drop: threshold_s = 0.056 drops nothing in 40 simulated steps"),
                    HasSubstr("\ndrop: threshold_s = 0.056 drops nothing in 40 steps")));
}

// A step computes for 40 to 60 ms. Messages take 5000 s, which gets a note, or 50 ms, which is slow but no mistake.
TEST_F(MagnitudeNotes, ALatencyThatServersAndGossipWaitForIsNoted) {
  for (const std::string algorithm : {"async-sgd", "ad-psgd"}) {
    const std::string one =
        "'network={kind=\"fixed\",latency_s=LATENCY}' 'methods=[{algorithm=\"" + algorithm + "\"}]'";
    const auto with = [&](const std::string& latency) {
      return std::string(one).replace(one.find("LATENCY"), 7, latency);
    };
    EXPECT_THAT(notes(with("5000")),
                AllOf(HasSubstr("# " + algorithm), HasSubstr("\n" + algorithm), HasSubstr("are latencies in seconds")));
    EXPECT_THAT(notes(with("0.05")), Not(HasSubstr("are latencies in seconds"))) << algorithm;
  }
}

TEST_F(MagnitudeNotes, ALatencyInMillisecondsOrABandwidthInOtherUnitsIsMostOfTheTime) {
  const std::string slow = notes("network.latency_s=50 methods.drop.threshold_s=0.05");  // 6 x 50 s after 0.05 s
  EXPECT_THAT(slow, AllOf(HasSubstr("# sync-sgd: communication takes 100.0 % of the time in 40 simulated steps; "),
                          HasSubstr("\nsync-sgd: communication takes 100.0 % of the time in 40 steps; "),
                          HasSubstr("latencies"), HasSubstr("bytes per second")));
  EXPECT_THAT(notes("network.bandwidth_bytes_per_s=10"), HasSubstr("sync-sgd: communication takes 100.0 %"));
  // 1 Gbit/s and 0.1 Gbit/s are slow but no mistake. Communication takes 48 ms of 90 ms and 480 ms of 530 ms.
  EXPECT_THAT(notes("network.bandwidth_bytes_per_s=125e6,12.5e6"), Not(HasSubstr("communication takes")));
}

TEST_F(MagnitudeNotes, OfACheckReadBackToItself) {
  const ProgramOutcome check = syncopate("check " + file + " methods.drop.threshold_s=50");
  EXPECT_EQ(syncopate("check " + write("again.toml", check.out)).out, check.out);
}

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
  EXPECT_EQ(faults({"outages=[{workers=[1,1], at_s=0, duration_s=5}, {workers=[1], at_s=1, duration_s=1}]"}), "");

  const Experiment random = load({entry("mean_time_between_s=10, mean_duration_s=1")});
  const Time with_seed_3 = random.runs.at(0).cluster.outages->of(Rank{2}).next(start_time).begin;
  const Time with_seed_5 = random.runs.at(1).cluster.outages->of(Rank{2}).next(start_time).begin;
  EXPECT_NE(with_seed_3, never);
  EXPECT_NE(with_seed_3, with_seed_5);  // depends on the run's seed, like delays
  EXPECT_FALSE(random.runs.at(0).cluster.outages->loses_state(Rank{2}));
  EXPECT_THAT(random.resolved_toml, HasSubstr("state = \"kept\""));
}

// The recording has nodes 0 to 230. The file has two methods and two seeds.
TEST_F(ExperimentFile, RecordedNodesWithoutFaultsAreNotedOnce) {
  const std::string recorded = "file=\"gpu-cluster-faults\", nodes=";
  EXPECT_THAT(load({entry(recorded + "[0, 230, 1, 2]")}).file_notes, testing::IsEmpty());
  EXPECT_THAT(load({entry(recorded + "[0, 231, 1, 2]")}).file_notes,
              testing::ElementsAre("gpu-cluster-faults: has no fault of 1 of the 4 listed nodes, first of node 231"));
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
  fault("workers=[1], at_s=1, duration_s=1, mean_duration_s=1", "an outage is either scheduled or random");
  fault("workers=[1], at_s=1, duration=1", "did you mean \"duration_s\"?");
  std::string many;
  for (int i = 0; i < 256; ++i) many += "{workers=[1], at_s=1, duration_s=1},";
  EXPECT_THAT(faults({"outages=[" + many + "]"}), HasSubstr("must have at most 255 entries"));
  EXPECT_THAT(faults({"outages=3"}), HasSubstr("must be an array of tables, [[outages]]"));
  // If the number of workers is faulty, the workers of an outage are not checked.
  const std::string report = faults({entry("workers=[3], at_s=1, duration_s=1"), "cluster.workers=0"});
  EXPECT_THAT(report, testing::StartsWith("command line: cluster.workers = 0"));
  EXPECT_EQ(std::count(report.begin(), report.end(), '\n'), 0) << report;
}

TEST_F(ExperimentFile, AMethodThatRestartsStopsAllWorkersAtEachOutage) {
  const std::string outage = entry("workers=[1], at_s=2.5, duration_s=50, state=\"lost\"");
  const std::string restart = "restart={takes_s=0.25, checkpoint_every_s=1, checkpoint_takes_s=0}";
  const std::string method = "methods=[{algorithm=\"sync-sgd\", " + restart + "}]";
  const Experiment restarts = load({outage, method});
  const OutagePlan& plan = *restarts.runs.at(0).cluster.outages;
  for (const int worker : {0, 1}) {
    const Outage met = plan.of(Rank{worker}).next(start_time);
    EXPECT_EQ(met.begin, Time{from_seconds(2.5)});
    EXPECT_EQ(met.end, Time{from_seconds(3.25)});  // a restart of 0.25 s and 0.5 s of repeated work
    EXPECT_FALSE(plan.loses_state(Rank{worker}));
  }
  const std::string saves =
      "methods=[{algorithm=\"sync-sgd\", restart={takes_s=0.25, checkpoint_every_s=1, "
      "checkpoint_takes_s=0.125}}]";
  const Outage checkpoint = load({saves}).runs.at(0).cluster.outages->of(Rank{1}).next(start_time);  // no [[outages]]
  EXPECT_EQ(checkpoint.begin, Time{from_seconds(1)});
  EXPECT_EQ(checkpoint.end, Time{from_seconds(1.125)});
  EXPECT_THAT(faults({outage, "methods=[{algorithm=\"async-sgd\", " + restart + "}]"}),
              HasSubstr("methods.0.restart = a table; must not be given: the method's workers send messages"));
  EXPECT_THAT(
      faults({outage, "methods=[{algorithm=\"sync-sgd\", restart={takes_s=-1, checkpoint_every_s=0}}]"}),
      testing::AllOf(HasSubstr("restart.takes_s = -1; must be"), HasSubstr("restart.checkpoint_every_s = 0; must be"),
                     HasSubstr("restart.checkpoint_takes_s is missing")));
}

// Sleeps and trailing work as declared in an experiment file.

using testing::AllOf;
using testing::HasSubstr;

const std::string sleep = "delays=[{kind='constant',value=0.001},{kind='uniform',low=0,high=1,sleep=true}]";

TEST_F(ExperimentFile, DelaysAreSleepsWhereTheySaySo) {
  EXPECT_EQ(load().runs.at(0).cluster.pauses, nullptr);
  const auto run = load({sleep, "cluster.trailing_s=0.25"}).runs.at(0);
  ASSERT_TRUE(run.cluster.pauses);
  EXPECT_EQ(run.cluster.pauses->trailing(), from_seconds(0.25));
  EXPECT_DOUBLE_EQ(run.cluster.compute_time->step_law(Rank{0}, 1).mean_s, 0.01 + 0.001);
  // The random stream of a sleep depends on its index in the list of delays, so the other entry's draws do not change.
  const Pauses apart(run.seed, 0, {uniform_delay(0, 1)}, 1);
  EXPECT_EQ(run.cluster.pauses->sleep(Rank{1}, Step{2}, 1), apart.sleep(Rank{1}, Step{2}, 1));
  EXPECT_EQ(load({sleep}).runs.at(0).cluster.pauses->trailing(), Duration{});
  EXPECT_TRUE(load({"cluster.trailing_s=0"}).runs.at(0).cluster.pauses);
  EXPECT_EQ(load({"delays=[{kind='constant',value=0.001,sleep=false}]"}).runs.at(0).cluster.pauses, nullptr);
  EXPECT_NE(load({sleep}).runs.at(0).hash, load({sleep, "cluster.trailing_s=0.25"}).runs.at(0).hash);
}

// Each run has three micro-batches of 1 s, a sleep of 2 s after each, and 0.25 s of trailing work.
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
    // The second step includes the sleep after the first step's all-reduce. The threshold cuts this sleep to nothing.
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

// Over these networks a model never arrives. The fault names the key (and its line) that causes most of the time.

using testing::HasSubstr;

TEST_F(ExperimentFile, ANetworkThatTakesForEverIsNamedByItsKey) {
  struct Case {
    const char* network;
    const char* fault;
  };
  // With four workers, a ring has 6 rounds with a latency each, and a tree has 4.
  const Case cases[] = {
      {"kind=\"ring\", latency_s=0, bandwidth_bytes_per_s=1e-9", "network.bandwidth_bytes_per_s = 1e-09; must let a"},
      {"kind=\"ring\", latency_s=5e8, bandwidth_bytes_per_s=1e9", "network.latency_s = 500000000.0; must let a"},
      {"kind=\"tree\", latency_s=1, bandwidth_bytes_per_s=1e9, serial_s=1e9", "network.serial_s = 1000000000.0; must"},
      {"kind=\"ring\", latency_s=1e6, bandwidth_bytes_per_s=1e9, jitter=900", "network.jitter = 900; must let a"},
      {"kind=\"fixed\", latency_s=9e8, jitter=1", "network.jitter = 1; must let a"},
      {"kind=\"two-level\", group_size=2, latency_s=1, bandwidth_bytes_per_s=1e9, "
       "inside={latency_s=1, bandwidth_bytes_per_s=1e-9}",
       "network.inside.bandwidth_bytes_per_s = 1e-09; must let a"},
      {"kind=\"two-level\", group_size=2, latency_s=1, bandwidth_bytes_per_s=1e9, "
       "inside={latency_s=9e8, bandwidth_bytes_per_s=1e9}",
       "network.inside.latency_s = 900000000.0; must let a"},
      {"kind=\"two-level\", group_size=2, latency_s=9e8, bandwidth_bytes_per_s=1e9, "
       "inside={latency_s=1, bandwidth_bytes_per_s=1e9}",
       "network.latency_s = 900000000.0; must let a"},
      {"kind=\"parameter-server\", latency_s=0, bandwidth_bytes_per_s=1e-9", "network.bandwidth_bytes_per_s = 1e-09;"},
  };
  for (const auto& [network, fault] : cases)
    EXPECT_THAT(faults({std::string("network={") + network + "}"}), HasSubstr(fault)) << network;
  EXPECT_EQ(faults({"network={kind=\"ring\", latency_s=1e8, bandwidth_bytes_per_s=1e9}"}), "");
}

}  // namespace
}  // namespace syncopate
