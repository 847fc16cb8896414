// Numbers that are a thousand or eight times what was meant are noted, and others are not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "experiments/execution/time_simulation.hpp"
#include "tests/experiments/program.hpp"

namespace syncopate {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// A step of 4 micro-batches of 10 ms takes 40 ms. The ring of 4 workers sends 6 messages of a quarter of 4 MB: at
// 1.25e9 bytes per second (10 Gbit/s) 4.8 ms beside latencies of 0.3 ms.
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
  // What `check` says as a comment, and `run` below its table.
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

// 4 MB at 1.25e9 bytes per second take 3.2 ms, so that four workers' gradients take 12.8 ms of the way in, and models as
// much of the way out, of steps of at least 40 ms; at a tenth of that 128 ms.
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
  // Two racks, each with an uplink for two workers: as busy as a server's link of their bandwidth for half as many.
  const std::string racks =
      server + " network.racks.group_size=2 network.racks.latency_s=0 network.racks.bandwidth_bytes_per_s=";
  EXPECT_THAT(notes(racks + "1.25e9"), Not(HasSubstr("busy for")));
  EXPECT_THAT(notes(racks + "1e8"), AllOf(HasSubstr("# async-sgd: its groups' uplinks are busy for "),
                                          HasSubstr("\nasync-sgd: its groups' uplinks are busy for ")));
}

// Without other delays each round is 4 x 10 ms and 5.1 ms of communication: 45.1 ms.
TEST_F(MagnitudeNotes, AThresholdBeyondAllRoundsIsNoted) {
  const std::string constant = "delays.0.mean=0 methods.drop.threshold_s=";
  EXPECT_THAT(notes(constant + "0.050"), Not(HasSubstr("drops nothing"))) << "1.1 times a round";
  EXPECT_THAT(notes(constant + "0.056"),
              AllOf(HasSubstr("# drop: threshold_s = 0.056 drops nothing in 40 simulated steps"),
                    HasSubstr("\ndrop: threshold_s = 0.056 drops nothing in 40 steps")));
}

// A step of 40 to 60 ms of computing, and messages of 5000 s, or of 50 ms, which are slow and no mistake.
TEST_F(MagnitudeNotes, ALatencyThatServersAndGossipWaitForIsNoted) {
  for (const std::string algorithm : {"async-sgd", "ad-psgd"}) {
    const std::string one =
        "'network={kind=\"fixed\",latency_s=LATENCY}' 'methods=[{algorithm=\"" + algorithm + "\"}]'";
    const auto with = [&](const std::string& latency) {
      return std::string(one).replace(one.find("LATENCY"), 7, latency);
    };
    EXPECT_THAT(notes(with("5000")),
                AllOf(HasSubstr("# " + algorithm), HasSubstr("\n" + algorithm), HasSubstr("latencies are in seconds")));
    EXPECT_THAT(notes(with("0.05")), Not(HasSubstr("latencies are in seconds"))) << algorithm;
  }
}

TEST_F(MagnitudeNotes, ALatencyInMillisecondsOrABandwidthInOtherUnitsIsMostOfTheTime) {
  const std::string slow = notes("network.latency_s=50 methods.drop.threshold_s=0.05");  // 6 x 50 s beside 0.05 s
  EXPECT_THAT(slow, AllOf(HasSubstr("# sync-sgd: communication takes 100.0 % of the time in 40 simulated steps; "),
                          HasSubstr("\nsync-sgd: communication takes 100.0 % of the time in 40 steps; "),
                          HasSubstr("latencies"), HasSubstr("bytes per second")));
  EXPECT_THAT(notes("network.bandwidth_bytes_per_s=10"), HasSubstr("sync-sgd: communication takes 100.0 %"));
  // 1 Gbit/s, and a tenth of it, are slow and no mistake: 48 and 480 ms of 90 and 530.
  EXPECT_THAT(notes("network.bandwidth_bytes_per_s=125e6,12.5e6"), Not(HasSubstr("communication takes")));
}

TEST_F(MagnitudeNotes, OfACheckReadBackToItself) {
  const ProgramOutcome check = syncopate("check " + file + " methods.drop.threshold_s=50");
  EXPECT_EQ(syncopate("check " + write("again.toml", check.out)).out, check.out);
}

}  // namespace
}  // namespace syncopate
