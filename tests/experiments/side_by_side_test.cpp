// `run --jobs`, `run --share` and `status`, as users see them. Killed and stopped processes are tested in
// tests/faults/.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>

#include "results/lease.hpp"
#include "tests/experiments/program.hpp"

namespace syncopate {
namespace {

namespace fs = std::filesystem;

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

constexpr const char* sweep = R"(name = "e"
seeds = [1, 2]
[cluster]
workers = 4
micro_batch_s = 0.01
micro_batches = 4
[[delays]]
kind = "exponential"
mean = 0.01
[network]
kind = "free"
[training]
model = "quadratic"
optimizer.name = "sgd"
learning_rate = { schedule = "constant", peak = 0.1 }
[budget]
steps = 40
[[methods]]
algorithm = "sync-sgd"
[[methods]]
algorithm = "dropcompute"
threshold_s = 0.06
[sweep]
"cluster.workers" = [2, 3, 4]
[[claim]]
sentence = "Dropping makes steps shorter"
measure = "step_time_s"
method = "dropcompute"
against = "sync-sgd"
as = "ratio"
everywhere = true
below = 1.0
)";

// Removes the last number but one of each row: samples per second of host time, which vary.
std::string without_host_speed(const std::string& table) {
  return std::regex_replace(table, std::regex(" +[0-9.]+[kM]?(  [0-9]+\n)"), "$1");
}

class SideBySide : public ProgramTest {
 protected:
  // Returns the contents of files with these names, by their paths. Leaves out hidden files.
  std::map<std::string, std::string> files(const std::string& results,
                                           std::vector<std::string> names = {"metrics.csv", "steps.csv"}) const {
    std::map<std::string, std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(directory / results)) {
      const fs::path relative = entry.path().lexically_relative(directory / results);
      if (std::ranges::find(names, relative.filename().string()) != names.end() &&
          relative.string().find("/.") == std::string::npos)
        found[relative.string()] = read(entry.path());
    }
    return found;
  }
  std::vector<std::string> leases(const std::string& experiment = "e") const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(directory / "results/runs" / experiment / ".shared/leases"))
      found.push_back(entry.path().filename().string());
    return found;
  }
  nlohmann::json status(const std::string& of) const {
    const ProgramOutcome outcome = syncopate("status " + of + " --json");
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out);
  }
  // Writes an experiment with a run that fails, because its recorded times end before its steps do.
  std::string failing(const std::string& more = "") const {
    write("t.csv", "worker,step,micro_batch,duration_s\n0,0,0,0.01\n");
    return write("f.toml", std::string(R"(name = "f"
[network]
kind = "free"
[training]
model = "none"
parameters = 10
[budget]
seconds = 0.05
[cluster]
workers = 1
[cluster.trace]
file = "t.csv"
[[methods]]
algorithm = "sync-sgd"
[sweep]
"cluster.trace.end" = ["error", "wrap"]
)") + more);
  }
};

TEST_F(SideBySide, JobsLeaveWhatOneProcessLeaves) {
  write("e.toml", sweep);
  const ProgramOutcome alone = syncopate("run e.toml --results alone");
  const ProgramOutcome jobs = syncopate("run e.toml --jobs 3 --threads 3");
  ASSERT_EQ(alone.status, 0) << alone.err;
  EXPECT_EQ(jobs.status, 0) << jobs.err;
  EXPECT_EQ(files("alone"), files("results/runs"));
  EXPECT_EQ(files("alone").size(), 24u);
  EXPECT_EQ(without_host_speed(jobs.out), without_host_speed(alone.out));
  const auto verdicts = [&](const std::string& file) { return nlohmann::json::parse(read(file))["claims"]; };
  EXPECT_EQ(verdicts("results/runs/e/claims.json"), verdicts("alone/e/claims.json"));
  EXPECT_THAT(jobs.err, AllOf(StartsWith("12 runs, in 3 processes of 1 thread and at most "), HasSubstr(" GB each"),
                              HasSubstr("run 12 of 12: dropcompute, workers = 4, seed 2: finished after")));
  EXPECT_THAT(leases(), IsEmpty());
  const ProgramOutcome again = syncopate("run e.toml --jobs 3");
  EXPECT_THAT(again.err, HasSubstr("12 of 12 runs already exist"));
  EXPECT_EQ(again.out, jobs.out);
}

TEST_F(SideBySide, AutoIsBoundedByThreadsAndRuns) {
  write("e.toml", sweep);
  const ProgramOutcome outcome = syncopate("run e.toml --jobs auto --threads 2 --only 'dropcompute' seeds=[1]");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.err, StartsWith("3 runs, in 2 processes of 1 thread and"));
  const ProgramOutcome one = syncopate("run e.toml --jobs auto --threads 1");
  EXPECT_EQ(one.status, 0) << one.err;
  EXPECT_THAT(one.err, Not(HasSubstr("processes")));
}

TEST_F(SideBySide, SeveralProcessesShareAnExperiment) {
  write("e.toml", sweep);
  ASSERT_EQ(syncopate("run e.toml --results alone").status, 0);
  const std::string run = "'" SYNCOPATE_PROGRAM "' run e.toml --share --threads 1 ";
  const ProgramOutcome outcome = shell("(" + run + ">out1.txt 2>err1.txt & " + run + ">out2.txt 2>err2.txt & " + run +
                                       ">out3.txt 2>err3.txt & wait)");
  const std::string err = read("err1.txt") + read("err2.txt") + read("err3.txt");
  EXPECT_EQ(files("alone"), files("results/runs")) << err;
  for (int number = 1; number <= 12; ++number) {
    const std::string ended = "run " + std::to_string(number) + " of 12: ";
    std::size_t count = 0;
    for (std::size_t at = err.find(ended); at != err.npos; at = err.find(ended, at + 1))
      if (err.substr(at, err.find('\n', at) - at).find(": finished after") != err.npos) ++count;
    EXPECT_LE(count, 1u) << err;
  }
  EXPECT_EQ(read("out1.txt"), read("out2.txt"));
  EXPECT_THAT(read("out3.txt"), HasSubstr("Dropping makes steps shorter"));
  EXPECT_THAT(leases(), IsEmpty());
}

TEST_F(SideBySide, UnderMpirunEachRankIsOneOfThemAndRank0Speaks) {
  write("e.toml", sweep);
  ASSERT_EQ(syncopate("run e.toml --results alone").status, 0);
  const ProgramOutcome outcome = syncopate("run e.toml --share --threads 1", 3);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(files("alone"), files("results/runs"));
  EXPECT_THAT(outcome.out, HasSubstr("Dropping makes steps shorter"));
  EXPECT_EQ(outcome.out.find("Dropping makes steps shorter"), outcome.out.rfind("Dropping makes steps shorter"));
  EXPECT_EQ(syncopate("run e.toml --share --cluster simulated --results more", 2).status, 0);
}

TEST_F(SideBySide, WhatDoesNotGoTogetherIsRefused) {
  write("e.toml", sweep);
  const auto refused = [&](const std::string& options, const std::string& why, int ranks = 0) {
    const ProgramOutcome outcome = syncopate("run e.toml " + options, ranks);
    EXPECT_EQ(outcome.status, 2) << options << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(why)) << options;
    EXPECT_FALSE(fs::exists(directory / "results")) << options;
  };
  refused("--jobs 0", "must be a number from 1 to 9999, or auto; found 0");
  refused("--jobs many", "must be a number from 1 to 9999, or auto; found many");
  refused("--jobs -1", "must be a number from 1 to 9999, or auto; found -1");
  refused("--share --lease-timeout 0", "--lease-timeout");
  refused("--retry -1", "--retry");
  refused("--share --rerun", "--rerun cannot be combined with --share");
  refused("--share --cluster mpi", "--share cannot be combined with --cluster mpi");
  refused("--jobs 2 --cluster mpi", "--jobs cannot be combined with --cluster mpi");
  refused("--jobs 2", "--jobs cannot be used under mpirun", 2);
  refused("--no-wait", "--no-wait needs --share");
  refused("--lease-timeout 5", "--lease-timeout needs --share or --jobs");
  refused("--share --no-wait --jobs 2", "--no-wait cannot be combined with --jobs");
  refused("--share --no-wait", "--no-wait cannot be used with a launcher", 2);
  refused("--retry 1 cluster.workers=2", "--retry needs the simulated cluster", 2);
  refused("--share cluster.micro_batch_s=measured", "must be a number with --share");
}

TEST_F(SideBySide, RerunRepeatsAllOnce) {
  write("e.toml", sweep);
  ASSERT_EQ(syncopate("run e.toml").status, 0);
  const auto before = files("results/runs", {"metadata.json"});
  const auto rows = files("results/runs");
  const ProgramOutcome outcome = syncopate("run e.toml --jobs 2 --threads 2 --rerun");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(files("results/runs"), rows);
  std::string call;
  for (const auto& [file, text] : files("results/runs", {"metadata.json"})) {
    const auto json = nlohmann::json::parse(text);
    ASSERT_TRUE(json.contains("call")) << file;
    if (call.empty()) call = json["call"];
    EXPECT_EQ(json["call"], call);
    EXPECT_NE(text, before.at(file));
  }
}

TEST_F(SideBySide, TunedExperimentsChooseTheSame) {
  const std::string tuned = std::string(sweep) + R"([tune]
seeds = [7, 8]
measure = "step_time_s"
extend = 1
"training.learning_rate.peak" = [0.05, 0.1, 0.2]
)";
  write("e.toml", tuned);
  const ProgramOutcome alone = syncopate("run e.toml --results alone '~sweep' '~claim'");
  ASSERT_EQ(alone.status, 0) << alone.err;
  const ProgramOutcome jobs = syncopate("run e.toml --jobs 2 --threads 2 '~sweep' '~claim'");
  EXPECT_EQ(jobs.status, 0) << jobs.err;
  EXPECT_EQ(without_host_speed(jobs.out), without_host_speed(alone.out));
  EXPECT_EQ(files("alone"), files("results/runs"));
  EXPECT_EQ(read("results/runs/e/tuning.json"), read("alone/e/tuning.json"));
  const auto told = status("results/runs/e");
  EXPECT_EQ(told[0]["finished"], told[0]["runs"]);
  EXPECT_EQ(syncopate("run e.toml --share --no-wait '~sweep' '~claim'").status, 2);
}

TEST_F(SideBySide, ACommonPhaseIsMadeOnce) {
  write("e.toml", std::string(sweep) + "[training.common]\nsteps = 30\n");
  const ProgramOutcome alone = syncopate("run e.toml --results alone '~sweep' '~claim'");
  ASSERT_EQ(alone.status, 0) << alone.err;
  const std::string run = "'" SYNCOPATE_PROGRAM "' run e.toml '~sweep' '~claim' --share --threads 1 ";
  shell("(" + run + ">out1.txt 2>err1.txt & " + run + ">out2.txt 2>err2.txt & wait)");
  const std::string err = read("err1.txt") + read("err2.txt");
  EXPECT_EQ(files("alone"), files("results/runs")) << err;
  std::size_t phases = 0;
  for (std::size_t at = err.find("before run"); at != err.npos; at = err.find("before run", at + 1)) ++phases;
  EXPECT_EQ(phases, 2u) << "one for each seed: " << err;
  EXPECT_EQ(without_host_speed(read("out1.txt")), without_host_speed(alone.out));
}

TEST_F(SideBySide, RunsOfOtherExperimentsAreCopied) {
  write("e.toml", sweep);
  ASSERT_EQ(syncopate("run e.toml name=first").status, 0);
  const ProgramOutcome outcome = syncopate("run e.toml --jobs 2 --threads 2");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  for (const auto& [file, text] : files("results/runs/e", {"metadata.json"}))
    EXPECT_THAT(text, HasSubstr("\"copied_from\": \"first/")) << file;
}

TEST_F(SideBySide, AFailedRunIsTriedAgainListedAndStopsNoOther) {
  const std::string file = failing();
  for (const std::string how : {"", "--share", "--jobs 2 --threads 2"}) {
    fs::remove_all(directory / "results");
    const ProgramOutcome outcome = syncopate("run " + file + " --retry 2 " + how);
    EXPECT_EQ(outcome.status, 1) << outcome.err;
    EXPECT_THAT(outcome.out, AllOf(HasSubstr("Runs that did not finish"), HasSubstr("t.csv"))) << how << outcome.err;
    EXPECT_THAT(outcome.err, testing::ContainsRegex("run [12] of 2: .*: failed")) << how;
    const auto told = status("results/runs/f").at(0);
    EXPECT_EQ(told["finished"], 1) << how;
    EXPECT_EQ(told["failed"].size(), 1u) << how;
    EXPECT_THAT(std::string(told["failed"][0]["reason"]), HasSubstr("t.csv"));
  }
  const ProgramOutcome shared = syncopate("run " + file + " --retry 2 --share");
  std::size_t tries = 0;
  for (std::size_t at = shared.err.find(": failed"); at != shared.err.npos; at = shared.err.find(": failed", at + 1))
    ++tries;
  EXPECT_EQ(tries, 3u) << "a later call begins to count anew: " << shared.err;
}

TEST_F(SideBySide, StatusSaysWhoRunsWhatAndWhatIsLeft) {
  write("e.toml", sweep);
  EXPECT_EQ(syncopate("status nowhere").status, 2);
  EXPECT_EQ(status("e.toml")[0]["remaining"], 12);
  ASSERT_EQ(syncopate("run e.toml --share --only dropcompute").status, 0);
  const auto before = status("e.toml")[0];
  EXPECT_EQ(before["finished"], 6);
  EXPECT_EQ(before["remaining"], 6);
  EXPECT_GT(double(before["left_s"]), 0);
  EXPECT_EQ(status("results/runs/e")[0]["runs"], 6) << "what was shared last";
  EXPECT_EQ(status("results/runs").size(), 1u);

  // This process has the lease of one remaining run, and a process that has ended has the lease of another.
  const ProgramOutcome check = syncopate("check e.toml");
  const auto hash_of = [&](const std::string& label) {
    const auto at = check.out.find(label);
    return check.out.substr(check.out.rfind(' ', check.out.find('\n', at)) + 1, 16);
  };
  Leases leases(directory / "results/runs/e/.shared/leases", std::chrono::seconds(100));
  const auto lease = leases.take(hash_of("sync-sgd, cluster.workers=2, seed=1"));
  const pid_t child = fork();
  if (child == 0) {
    const auto its = leases.take(hash_of("sync-sgd, cluster.workers=3, seed=1"));
    _exit(its ? 0 : 1);
  }
  waitpid(child, nullptr, 0);
  const auto now = status("e.toml")[0];
  ASSERT_EQ(now["running"].size(), 2u) << now;
  EXPECT_EQ(now["remaining"], 4);
  EXPECT_EQ(now["running"][0]["process"], getpid());
  EXPECT_EQ(now["running"][0]["lost"], false);
  EXPECT_EQ(now["running"][1]["lost"], true);
  EXPECT_THAT(syncopate("status e.toml").out,
              AllOf(StartsWith("e: 12 runs: 6 finished, 2 running, 0 failed, 4 remaining; about 0:0"),
                    HasSubstr("  running    0 %  sync-sgd, workers = 2, seed 1: "),
                    HasSubstr("; it has ended, and the next process takes over the run\n")));
}

TEST_F(SideBySide, StatusOfRunsThatNobodyShared) {
  write("e.toml", sweep);
  ASSERT_EQ(syncopate("run e.toml seeds=[1] --only dropcompute").status, 0);
  const auto told = status("results/runs/e")[0];
  EXPECT_EQ(told["finished"], 3);
  EXPECT_TRUE(told["runs"].is_null());
  EXPECT_THAT(syncopate("status results/runs/e").out, EndsWith("use the file: syncopate status FILE\n"));
}

TEST_F(SideBySide, NoWaitEndsWhenAllIsTaken) {
  write("e.toml", sweep);
  ASSERT_EQ(syncopate("run e.toml --share --only dropcompute").status, 0);
  const ProgramOutcome check = syncopate("check e.toml");
  const auto at = check.out.find("sync-sgd, cluster.workers=2, seed=1");
  Leases leases(directory / "results/runs/e/.shared/leases", std::chrono::seconds(100));
  const auto lease = leases.take(check.out.substr(check.out.rfind(' ', check.out.find('\n', at)) + 1, 16));
  ASSERT_TRUE(lease);
  const ProgramOutcome outcome = syncopate("run e.toml --share --no-wait");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, EndsWith("no run is left to start; 1 run is still running in other processes\n"));
}

TEST_F(SideBySide, HowFarARunIsStandsInItsLeaseWithoutATerminalToo) {
  write("e.toml", std::string(sweep));
  shell("{ '" SYNCOPATE_PROGRAM
        "' run e.toml --share --lease-timeout 1 --threads 1 budget.steps=10000000 'seeds=[1]' "
        "checkpoint.write=false '~claim' '~sweep' --only sync-sgd >out.txt 2>err.txt & made=$!; "
        "for try in $(seq 500); do kill -0 $made || break; sleep 0.02; "
        "grep -q 'share_done.:0[.]0*[1-9]' results/runs/e/.shared/leases/* && echo found && break; "
        "done >found.txt 2>none.txt; kill -9 $made; wait; }");
  EXPECT_EQ(read("found.txt"), "found\n") << read("err.txt");
  // The owner of this lease has ended, and no other process has its run.
  EXPECT_EQ(syncopate("run e.toml --share '~claim'").status, 0);
  EXPECT_TRUE(std::filesystem::is_empty(directory / "results/runs/e/.shared/leases"));
}

TEST_F(SideBySide, ResultsThatAreRemovedMeanwhileAreSaid) {
  write("e.toml", std::string(sweep));
  const std::string run = "'" SYNCOPATE_PROGRAM "' run e.toml --share --threads 1 cluster.micro_batches=2000 '~claim'";
  shell("{ (" + run +
        " >out1.txt 2>err1.txt; echo $? >status.txt) & until [ -e results/runs/e/.shared/runs.json ]; do "
        "sleep 0.01; done; sleep 0.1; rm -rf results; wait; }");
  EXPECT_EQ(read("status.txt"), "1\n") << read("err1.txt");
  EXPECT_THAT(read("err1.txt"), HasSubstr("the results directory was removed while runs were made"));
}

}  // namespace
}  // namespace syncopate
