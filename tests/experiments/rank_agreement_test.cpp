// One rank under mpirun cannot run, or would run something different from the other ranks. Then all ranks end with
// status 2 within seconds, without running anything. One message names this rank, its host and the reason. Each rank
// may be the one that differs, and at any point before the run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "experiments/execution/ranks.hpp"
#include "experiments/sections/experiment.hpp"
#include "tests/experiments/program.hpp"
#include "workers/base/machine.hpp"

namespace syncopate {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* experiment = R"(name = "agreed"
[cluster]
workers = 3
micro_batch_s = 0.001
[network]
kind = "free"
[training]
model = "quadratic"
[training.learning_rate]
schedule = "constant"
peak = 0.1
[training.optimizer]
name = "sgd"
[budget]
steps = 2
[evaluation]
every_steps = 1
[[methods]]
algorithm = "sync-sgd"
[[methods]]
algorithm = "local-sgd"
label = "Local SGD"
period = { rule = "constant", steps = 2 }
)";

class RankAgreement : public ProgramTest {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    write("e.toml", experiment);
  }

  // Starts three ranks: rank `odd` executes `other`, and the other two execute `usual`.
  ProgramOutcome launch(const std::string& usual, int odd, const std::string& other,
                        const std::string& environment_of_odd = "") const {
    std::vector<std::pair<int, std::string>> parts;
    const std::string program = "'" SYNCOPATE_PROGRAM "' ";
    for (int rank = 0; rank < 3; ++rank)
      parts.emplace_back(1, rank == odd ? environment_of_odd + program + other : program + usual);
    const auto begin = std::chrono::steady_clock::now();
    const ProgramOutcome outcome = mpirun(parts);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
    return outcome;
  }

  void expect_nothing_run(const ProgramOutcome& outcome) const {
    EXPECT_EQ(outcome.status, 2) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    EXPECT_EQ(count(outcome.err, "nothing was run"), 1) << outcome.err;
    EXPECT_FALSE(std::filesystem::exists(directory / "results"));
  }

  static int count(const std::string& text, const std::string& part) {
    int found = 0;
    for (auto at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
    return found;
  }

  std::string at(const std::string& ranks) const { return ranks + " (host " + host_name() + ")"; }
  const std::string run = "run e.toml --quiet --results results ";
};

TEST_F(RankAgreement, AFaultOfOneRankIsThatRanksMessageWhicheverItIs) {
  for (const int odd : {0, 2}) {
    const auto outcome = launch(run, odd, run + "cluster.wrokers=4");
    expect_nothing_run(outcome);
    EXPECT_THAT(outcome.err, HasSubstr(at("rank " + std::to_string(odd)) + ":\n"));
    EXPECT_EQ(count(outcome.err, "cluster.wrokers"), 1) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("workers"));
    EXPECT_THAT(outcome.err, HasSubstr(at(odd == 0 ? "ranks 1-2" : "ranks 0-1") + " found no fault"));
  }
}

TEST_F(RankAgreement, WhatOneRankCannotReadOrUnderstandIsItsMessageToo) {
  const auto unread = launch(run, 1, "run nowhere.toml --results results");
  expect_nothing_run(unread);
  EXPECT_THAT(unread.err, HasSubstr(at("rank 1") + ":\n  nowhere.toml: cannot be read: No such file or directory\n"));

  const auto unknown = launch(run, 1, run + "--fast");
  expect_nothing_run(unknown);
  EXPECT_THAT(unknown.err, AllOf(HasSubstr(at("rank 1") + ":\n"), HasSubstr("--fast")));
}

TEST_F(RankAgreement, AFaultOfAllRanksIsSaidOnceAndAsWithoutMpi) {
  const std::string faulty = "run e.toml --results results cluster.wrokers=4";
  const auto alone = syncopate(faulty);
  const auto together = syncopate(faulty, 3);
  EXPECT_EQ(together.status, 2);
  EXPECT_EQ(alone.err, together.err);
}

TEST_F(RankAgreement, AnOverrideOfOneRankAloneIsNamedWithItsValues) {
  const auto outcome = launch(run, 2, run + "training.learning_rate.peak=0.2 'methods.\"Local SGD\".period.steps=1'");
  expect_nothing_run(outcome);
  EXPECT_THAT(outcome.err, HasSubstr("\n  training.learning_rate.peak: 0.1 on " + at("ranks 0-1") + ", 0.2 on " +
                                     at("rank 2") + "\n"));
  EXPECT_THAT(outcome.err, HasSubstr("\n  methods.\"Local SGD\".period.steps: 2 on " + at("ranks 0-1") + ", 1 on " +
                                     at("rank 2") + "\n"));
}

// If the run began with one of these differences, this rank or the others would wait for ever.
TEST_F(RankAgreement, WhatOneRankAloneWouldDoIsNamed) {
  for (const auto& [other, line] : std::vector<std::pair<std::string, std::string>>{
           {"check e.toml", "command: run on " + at("ranks 0-1") + ", check on " + at("rank 2")},
           {"--help", "command: run on " + at("ranks 0-1") + ", --help or --version on " + at("rank 2")},
           {run + "--cluster simulated", "--cluster: mpi on " + at("ranks 0-1") + ", simulated on " + at("rank 2")},
           {"run e.toml --quiet --results elsewhere",
            "--results: results on " + at("ranks 0-1") + ", elsewhere on " + at("rank 2")},
           {run + "--rerun", "--rerun: no on " + at("ranks 0-1") + ", yes on " + at("rank 2")},
           {run + "recording.trace=true",
            "recording.trace: not set on " + at("ranks 0-1") + ", true on " + at("rank 2")},
           {run + "seeds=[2]", "seeds: [1] on " + at("ranks 0-1") + ", [2] on " + at("rank 2")},
           {run + "cluster.workers=4", "cluster.workers: 3 on " + at("ranks 0-1") + ", 4 on " + at("rank 2")}}) {
    const auto outcome = launch(run, 2, other);
    expect_nothing_run(outcome);
    EXPECT_THAT(outcome.err, HasSubstr("\n  " + line + "\n")) << other;
  }
}

TEST_F(RankAgreement, TheChoiceOfRunsIsPartOfIt) {
  const auto checked = syncopate("check e.toml");
  const auto hash = [&](const std::string& method) {
    const std::string mark = method + ", seed=1, ";
    return checked.out.substr(checked.out.find(mark) + mark.size(), 16);
  };
  const auto fewer = launch(run, 1, run + "--only " + hash("Local SGD"));
  expect_nothing_run(fewer);
  EXPECT_THAT(fewer.err, HasSubstr("\n  number of runs: 2 on " + at("ranks 0, 2") + ", 1 on " + at("rank 1") + "\n"));
  const auto another = launch(run + "--only " + hash("sync-sgd"), 1, run + "--only " + hash("Local SGD"));
  expect_nothing_run(another);
  EXPECT_THAT(another.err, HasSubstr("\n  digest of the runs"));
}

TEST_F(RankAgreement, RanksThatMeasureMeetThoseThatDoNot) {
  const std::string measured = run + "cluster.micro_batch_s=measured";
  const auto declared = launch(measured, 1, run);
  expect_nothing_run(declared);
  EXPECT_THAT(declared.err, AllOf(HasSubstr("\n  cluster.micro_batch_s: to be measured, for "),
                                  HasSubstr(", 0.001 on " + at("rank 1"))));
  const auto faulty = launch(measured, 1, run + "cluster.wrokers=4");
  expect_nothing_run(faulty);
  EXPECT_THAT(faulty.err, HasSubstr(at("rank 1") + ":\n"));
}

TEST_F(RankAgreement, DescriptionsAndWhatOnlyRank0SaysMayDiffer) {
  const auto outcome = launch(run, 2, "run e.toml --threads 1 --results results description=other");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("Local SGD"));
}

TEST_F(RankAgreement, OneResultsDirectoryMayBeWrittenInSeveralWays) {
  const auto outcome = launch(run, 2, "run e.toml --results ./other/..//results/");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_FALSE(std::filesystem::exists(directory / "other"));
}

TEST_F(RankAgreement, RanksThatDivideSimulationsDoNotRunOthers) {
  const auto outcome = launch(run + "--cluster simulated", 1, run + "--cluster simulated seeds=[2,3]");
  EXPECT_EQ(outcome.status, 2) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("seeds"));
  EXPECT_FALSE(std::filesystem::exists(directory / "results"));
}

// Each rank's own directory has three images of 2 x 2 pixels. One rank's file is empty, or has a label without a class,
// which only ranks that read the files notice.
class DataOfRanks : public RankAgreement {
 protected:
  void SetUp() override {
    RankAgreement::SetUp();
    for (const char* place : {"usual", "odd"})
      for (const char* part : {"train", "t10k"}) write_split(place, part, 1);
  }
  void write_split(const std::string& place, const std::string& part, char label) const {
    const std::filesystem::path folder = directory / place / "fashion-mnist";
    std::filesystem::create_directories(folder);
    using namespace std::string_literals;
    write(folder / (part + "-images-idx3-ubyte"), "\0\0\x08\x03\0\0\0\x03\0\0\0\x02\0\0\0\x02"s + "abcdefghijkl");
    write(folder / (part + "-labels-idx1-ubyte"), "\0\0\x08\x01\0\0\0\x03\0\0"s + std::string(1, label));
  }
  ProgramOutcome launch_with_own_data(int odd) const {
    ::setenv("SYNCOPATE_DATA", (directory / "usual").c_str(), 1);
    const auto outcome =
        launch(on_images, odd, on_images, "env SYNCOPATE_DATA='" + (directory / "odd").string() + "' ");
    ::unsetenv("SYNCOPATE_DATA");
    return outcome;
  }
  const std::string on_images =
      run + "training.model=linear training.dataset=fashion-mnist training.micro_batch_size=1 budget.steps=1";
};

TEST_F(DataOfRanks, AreFoundMissingOnOneRankAlone) {
  for (const int odd : {0, 1}) {
    std::filesystem::remove(directory / "odd" / "fashion-mnist" / "train-images-idx3-ubyte");
    const auto outcome = launch_with_own_data(odd);
    expect_nothing_run(outcome);
    EXPECT_THAT(outcome.err, AllOf(HasSubstr(at("rank " + std::to_string(odd)) + ":\n"),
                                   HasSubstr("no file train-images-idx3-ubyte")));
  }
}

TEST_F(DataOfRanks, OfAnotherContentOnOneRankAloneAreNamed) {
  write_split("odd", "t10k", 2);
  for (const int odd : {0, 1}) {
    const auto outcome = launch_with_own_data(odd);
    expect_nothing_run(outcome);
    EXPECT_THAT(outcome.err, HasSubstr("datasets.fashion-mnist.directory_hash: "));
    EXPECT_THAT(outcome.err, HasSubstr(" on " + at("rank " + std::to_string(odd))));
  }
}

TEST_F(DataOfRanks, AreReadBeforeTheFirstRun) {
  write_split("usual", "t10k", 77);
  write_split("odd", "t10k", 77);
  const auto outcome = launch_with_own_data(1);
  expect_nothing_run(outcome);
  EXPECT_THAT(outcome.err, HasSubstr("label 2 = 77"));
}

TEST_F(DataOfRanks, OfOneContentMayLieInDifferentPlaces) {
  const auto outcome = launch_with_own_data(1);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
}

RankReport with_fault(const std::string& host, const std::string& fault) {
  return {.host = host, .handshake = {.fault = fault, .identity = {}, .plan = {}}};
}

TEST(ExplainDisagreement, RanksAreGroupedByWhatTheySayWithTheirHosts) {
  EXPECT_EQ(explain_disagreement({with_fault("a", ""), with_fault("b", "")}), "");
  EXPECT_EQ(explain_disagreement({with_fault("a", "broken"), with_fault("b", "broken")}), "broken");
  EXPECT_EQ(explain_disagreement({with_fault("a", "one\ntwo"), with_fault("a", ""), with_fault("b", "one\ntwo"),
                                  with_fault("b", ""), with_fault("c", "other")}),
            "ranks 0, 2 (hosts a, b):\n  one\n  two\n"
            "rank 4 (host c):\n  other\n"
            "nothing was run; ranks 1, 3 (hosts a, b) found no fault");
}

TEST(ExplainDisagreement, OfHundredsOfRanksAFewAreNamed) {
  std::vector<RankReport> faults, keys(2);
  for (int rank = 0; rank < 300; ++rank)
    faults.push_back(with_fault("host" + std::to_string(rank), "fault " + std::to_string(rank)));
  const std::string text = explain_disagreement(faults);
  EXPECT_THAT(text, AllOf(HasSubstr("fault 9\n"), Not(HasSubstr("fault 10\n")), HasSubstr("290 other faults")));
  for (RankReport& report : faults) report.handshake.fault = "one";
  faults.front().handshake.fault = "";
  EXPECT_THAT(explain_disagreement(faults),
              HasSubstr("ranks 1-299 (hosts host1, host10, host100, host101, ... and 295 more)"));
  for (int key = 0; key < 30; ++key)
    for (int rank : {0, 1})
      keys[static_cast<std::size_t>(rank)].handshake.plan.emplace_back("key" + std::to_string(key),
                                                                       std::to_string(rank));
  keys[0].handshake.identity = "other";
  EXPECT_THAT(explain_disagreement(keys),
              AllOf(HasSubstr("key9: 0 on"), Not(HasSubstr("key10")), HasSubstr("... and 20 other keys")));
}

// The text about what a rank would run. It is equal on two ranks exactly if they may run together.

Experiment stated_experiment() {
  Experiment stated_experiment;
  stated_experiment.resolved_toml = "name = \"e\"\n";
  stated_experiment.runs.emplace_back().hash = "0123456789abcdef";
  return stated_experiment;
}

std::string identity(const Experiment& stated_experiment, bool on_mpi = true, bool rerun = false) {
  return handshake_of({.command = "run", .experiment = &stated_experiment, .on_mpi = on_mpi, .rerun = rerun}).identity;
}

// The keys of [recording] are no part of a run's hash, but ranks must exchange the same records.
TEST(RankHandshake, IsAnotherOneWithAnythingThatRanksMustDoAlike) {
  const Experiment same = stated_experiment();
  EXPECT_EQ(identity(same), identity(stated_experiment()));
  const auto expect_differs = [&](auto change) {
    Experiment other = stated_experiment();
    change(other.runs.front());
    EXPECT_NE(identity(same), identity(other));
    EXPECT_EQ(identity(same, false), identity(other, false)) << "on clusters of their own";
  };
  expect_differs([](syncopate::Run& run) { run.hash = "1123456789abcdef"; });
  expect_differs([](syncopate::Run& run) { run.recording.trace = true; });
  expect_differs([](syncopate::Run& run) { run.recording.trace_seconds = 2; });
  expect_differs([](syncopate::Run& run) { run.recording.trace_events = 7; });
  expect_differs([](syncopate::Run& run) { run.recording.durations = false; });  // the default under MPI is true
  expect_differs([](syncopate::Run& run) { run.recording.parameters = true; });
  expect_differs([](syncopate::Run& run) { run.recording.arrivals = true; });
  expect_differs([](syncopate::Run& run) { run.recording.samples = true; });
  expect_differs([](syncopate::Run& run) { run.cluster.to_be_measured = true; });
  EXPECT_NE(identity(same), identity(same, false));
  EXPECT_NE(identity(same), identity(same, true, true));
  Experiment longer = stated_experiment();
  longer.runs.push_back(longer.runs.front());
  EXPECT_NE(identity(same), identity(longer));
}

}  // namespace
}  // namespace syncopate
