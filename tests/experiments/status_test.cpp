// `status` of a file and of directories: nothing on the disk is left out silently.
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "experiments/commands/commands.hpp"
#include "experiments/sections/experiment.hpp"
#include "results/lease.hpp"
#include "tests/experiments/program.hpp"

namespace syncopate {
namespace {

namespace fs = std::filesystem;

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class Status : public ProgramTest {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    write("e.toml", time_only);
  }
  nlohmann::json of(const std::string& what) const {
    const ProgramOutcome outcome = syncopate("status " + what + " --json");
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out);
  }
  void run(const std::string& how) const {
    const ProgramOutcome outcome = syncopate("run e.toml --quiet " + how);
    ASSERT_EQ(outcome.status, 0) << outcome.err;
  }
  // Returns the directory that the run with this seed has or will have.
  fs::path place(const std::string& experiment, int seed) const {
    const ProgramOutcome check = syncopate("check e.toml name=" + experiment + " seeds=[" + std::to_string(seed) + "]");
    const std::string label = "seed=" + std::to_string(seed);
    const auto at = check.out.find(label);
    const auto hash = check.out.rfind(' ', check.out.find('\n', at)) + 1;
    return directory / "results/runs" / experiment / "sync-sgd" / (label + "-" + check.out.substr(hash, 8));
  }
  void touch(const fs::path& file) const {
    fs::create_directories(file.parent_path());
    write(file.lexically_relative(directory).string(), "x");
  }
};

TEST_F(Status, NoneOfSeveralExperimentsIsLeftOut) {
  run("name=shared seeds=[1,2] --share");
  run("name=plain seeds=[1,2,3]");
  run("name=torn seeds=[1]");
  fs::create_directories(directory / "results/runs/begun");
  touch(place("left", 1).string() + ".checkpoint");
  write("results/runs/torn/sync-sgd/" + place("torn", 1).filename().string() + "/summary.json", "{}");
  const auto told = of("results/runs");
  ASSERT_EQ(told.size(), 5u) << told;
  const char* const names[] = {"begun", "left", "plain", "shared", "torn"};
  const int finished[] = {0, 0, 3, 2, 0};
  for (std::size_t i = 0; i < told.size(); ++i) {
    EXPECT_EQ(told[i]["experiment"], names[i]);
    EXPECT_EQ(told[i]["finished"], finished[i]) << names[i];
  }
  EXPECT_EQ(of("results/runs/").size(), 5u);
  EXPECT_EQ(of("results/runs/plain/")[0]["experiment"], "plain");
  const auto from_further_above = of("results");
  ASSERT_EQ(from_further_above.size(), 5u);
  EXPECT_EQ(from_further_above[2]["experiment"], "runs/plain");
  fs::remove_all(directory / "results/runs/shared");
  EXPECT_EQ(of("results/runs").size(), 4u) << "not added up where none was shared";
}

TEST_F(Status, WhatIsLeftOfAnUnfinishedRunIsShown) {
  const fs::path first = place("time", 1), second = place("time", 2);
  run("seeds=[1]");
  touch(first.string() + ".checkpoint");
  fs::last_write_time(first.string() + ".checkpoint", fs::last_write_time(first) - std::chrono::seconds(9));
  touch(second.string() + ".checkpoint");
  fs::last_write_time(second.string() + ".checkpoint", fs::file_time_type::clock::now() - std::chrono::seconds(100));
  touch(second.string() + "-mpi.checkpoint.3.1");
  touch(second.parent_path() / ("." + place("time", 3).filename().string() + ".partial.1.node") / "summary.json");
  for (const char* const what : {"e.toml seeds=[1,2,3]", "results/runs/time"}) {
    const auto told = of(what)[0];
    EXPECT_EQ(told["finished"], 1);
    ASSERT_EQ(told["unfinished"].size(), 3u) << told;
    EXPECT_EQ(told["unfinished"][0]["label"], "sync-sgd");
    EXPECT_EQ(told["unfinished"][0]["seed"], 2);
    EXPECT_EQ(told["unfinished"][0]["checkpoint"], true);
    EXPECT_GE(double(told["unfinished"][0]["written_s_ago"]), 100);
    EXPECT_EQ(told["unfinished"][1]["label"], "sync-sgd, under MPI");
    EXPECT_EQ(told["unfinished"][2]["seed"], 3);
    EXPECT_EQ(told["unfinished"][2]["checkpoint"], false);
  }
  EXPECT_EQ(of("e.toml")[0]["unfinished"].size(), 0u) << "of other seeds";
  EXPECT_EQ(of("e.toml seeds=[1,2,3]")[0]["remaining"], 2);
  EXPECT_THAT(syncopate("status e.toml seeds=[1,2]").out,
              AllOf(Not(HasSubstr("nobody is at work")),
                    ContainsRegex("  unfinished      sync-sgd, seed 2: running or interrupted; its checkpoint was "
                                  "written [0-9:]+ ago\n")));
}

TEST_F(Status, AllThatIsInADirectoryCountsWhoeverMadeIt) {
  run("seeds=[1,2] --share");
  run("seeds=[1,2,3,4,5]");
  const auto told = of("results/runs/time")[0];
  EXPECT_EQ(told["runs"], 5);
  EXPECT_EQ(told["finished"], 5);
  EXPECT_EQ(told["of_other_launches"], 3);
  EXPECT_THAT(syncopate("status results/runs/time").out,
              StartsWith("time: 5 runs (3 of earlier launches): 5 finished, 0 running, 0 failed, 0 remaining"));
  Leases leases(directory / "results/runs/time/.shared/leases", std::chrono::seconds(100));
  const auto lease = leases.take("0123456789abcdef");
  ASSERT_TRUE(lease);
  EXPECT_THAT(syncopate("status results/runs/time").out,
              HasSubstr("  running    0 %  01234567, a run of another launch or a common phase: "));
}

TEST_F(Status, OfAFileHowManyHaveFinishedUnderMpiIsSaidBesides) {
  run("seeds=[1]");
  EXPECT_EQ(of("e.toml seeds=[1,2]")[0]["finished_under_mpi"], 0);
  fs::copy(place("time", 1), place("time", 1).string() + "-mpi", fs::copy_options::recursive);
  const auto told = of("e.toml seeds=[1,2]")[0];
  EXPECT_EQ(told["finished"], 1);
  EXPECT_EQ(told["finished_under_mpi"], 1);
  EXPECT_THAT(syncopate("status e.toml seeds=[1,2]").out, HasSubstr("\n  under MPI       1 of 2 finished\n"));
}

TEST_F(Status, TrialsAndRunsAreApart) {
  write("e.toml", R"(name = "time"
[cluster]
workers = 2
micro_batch_s = 0.01
[network]
kind = "free"
[training]
model = "quadratic"
optimizer.name = "sgd"
learning_rate = { schedule = "constant", peak = 0.1 }
[budget]
steps = 20
[[methods]]
algorithm = "sync-sgd"
[tune]
seeds = [7, 8]
measure = "final_train_loss"
extend = 2
"training.learning_rate.peak" = [0.001, 0.002]
)");
  const ProgramOutcome outcome = syncopate("run e.toml --quiet --share");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  std::size_t trials = 0;
  for (const auto& entry : fs::recursive_directory_iterator(directory / "results/runs/time/Trials"))
    trials += entry.path().filename() == "summary.json" ? 1 : 0;
  const auto told = of("results/runs/time");
  ASSERT_EQ(told.size(), 2u) << told;
  EXPECT_EQ(told[0]["experiment"], "time, trials");
  EXPECT_EQ(told[0]["finished"], trials);
  EXPECT_GT(told[0]["of_other_launches"], 0) << "the grid was extended";
  EXPECT_EQ(told[1]["finished"], 1);
}

// The file determines how many runs follow the trials. Only the trials' results determine which runs these are.
TEST_F(Status, OfATunedFileCountsTheRunsAfterTheTrials) {
  write("t.toml", R"(name = "tuned"
seeds = [1, 2, 3]
[cluster]
workers = 2
micro_batch_s = 0.01
[network]
kind = "free"
[training]
model = "quadratic"
optimizer.name = "sgd"
learning_rate = { schedule = "constant", peak = 0.1 }
[budget]
steps = 20
[[methods]]
algorithm = "sync-sgd"
[tune]
seeds = [7, 8]
measure = "final_train_loss"
extend = 1
"training.learning_rate.peak" = [0.001, 0.002]
)");
  const auto before = of("t.toml");
  ASSERT_EQ(before.size(), 2u) << before;
  EXPECT_EQ(before[0]["runs"], 4);
  EXPECT_EQ(before[1]["experiment"], "tuned");
  EXPECT_EQ(before[1]["runs"], 3);
  EXPECT_EQ(before[1]["remaining"], 3);
  const ProgramOutcome outcome = syncopate("run t.toml --quiet");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto after = of("t.toml");
  EXPECT_EQ(after[0]["runs"], 6) << "the rate was extended once, with two seeds";
  EXPECT_EQ(after[0]["finished"], 6);
  EXPECT_EQ(after[1]["runs"], 3);
  EXPECT_EQ(after[1]["finished"], 3);
  EXPECT_EQ(after[1]["remaining"], 0);
  for (const auto& run : fs::directory_iterator(directory / "results/runs/tuned/sync-sgd"))
    if (run.path().filename().string().starts_with("seed=2-")) fs::remove_all(run.path());
  EXPECT_EQ(of("t.toml")[1]["remaining"], 1);
}

TEST_F(Status, WhatIsDamagedIsSaidBesideTheOthers) {
  run("seeds=[1,2,3]");
  write("results/runs/time/sync-sgd/" + place("time", 2).filename().string() + "/metrics.csv", "");
  const auto told = of("results/runs/time")[0];
  EXPECT_EQ(told["finished"], 2);
  ASSERT_EQ(told["faults"].size(), 1u);
  EXPECT_THAT(std::string(told["faults"][0]), HasSubstr("metrics.csv"));
  fs::create_directories(directory / "results/runs/time/.shared");
  for (const char* const plan : {"{}", "null", "[1]", ""}) {
    write("results/runs/time/.shared/runs.json", plan);
    const auto without = of("results/runs/time")[0];
    EXPECT_EQ(without["finished"], 2) << plan;
    EXPECT_TRUE(without["runs"].is_null()) << plan;
    EXPECT_EQ(without["faults"].size(), 2u) << plan;
  }
  EXPECT_THAT(syncopate("status results/runs/time").out, HasSubstr("/runs.json: is not a list of runs"));
}

// Root may read every folder, so a child process executes the command as nobody.
TEST_F(Status, AFolderThatCannotBeLookedIntoIsSaid) {
  run("seeds=[1]");
  const fs::path results = directory / "results/runs", closed = results / "time/sync-sgd";
  const Experiment experiment = load_experiment((directory / "e.toml").string(), {"seeds=[1]"});
  fs::permissions(directory, fs::perms::all);
  fs::permissions(closed, fs::perms::none);
  const pid_t child = fork();
  if (child == 0) {
    if (getuid() == 0 && setuid(65534) != 0) _exit(3);
    const std::string problem = "  problem         " + closed.string() + ": Permission denied\n";
    const auto says_it = [&](const std::vector<ExperimentStatus>& all) { return status_text(all).ends_with(problem); };
    _exit(says_it(status_of(experiment, results)) ? says_it(status_of_directory(results)) ? 0 : 1 : 2);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  fs::permissions(closed, fs::perms::owner_all);
}

TEST_F(Status, APlanThatIsNotAsItWasWrittenIsNone) {
  run("seeds=[1,2,3] --share");
  EXPECT_EQ(of("results/runs/time")[0]["runs"], 3);
  const std::string plan = "results/runs/time/.shared/runs.json";
  std::string text = read(plan);
  const auto at = text.find("\"seed\": 2");
  ASSERT_NE(at, text.npos) << text;
  text[at + 8] = '7';
  write(plan, text);
  const auto told = of("results/runs/time")[0];
  EXPECT_TRUE(told["runs"].is_null()) << told;
  EXPECT_EQ(told["finished"], 3);
  ASSERT_EQ(told["faults"].size(), 1u);
  EXPECT_THAT(std::string(told["faults"][0]), HasSubstr("runs.json: is not a list of runs, or was changed"));
  run("seeds=[1,2,3,4] --share");
  EXPECT_EQ(of("results/runs/time")[0]["runs"], 4);
}

// In place of the files are a pipe, which would block a reader, and a file of 3 GB, which would not fit into memory.
TEST_F(Status, WhatIsPutInThePlaceOfOurFilesIsNamed) {
  run("seeds=[1,2] --share 'claim=[{sentence=\"it takes time\",measure=\"step_time_s\",method=\"sync-sgd\",above=0}]'");
  for (const char* const name : {".shared/runs.json", "claims.json"}) {
    const fs::path file = directory / "results/runs/time" / name;
    const std::string command = name[0] == '.' ? "status" : "claims";
    for (const bool is_pipe : {true, false}) {
      fs::remove(file);
      if (is_pipe) {
        ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
      } else {
        std::ofstream(file) << "";
        fs::resize_file(file, 3'000'000'000);
      }
      const ProgramOutcome outcome =
          shell("(ulimit -v 1500000; timeout 60 '" SYNCOPATE_PROGRAM "' " + command + " results/runs/time)");
      EXPECT_EQ(outcome.status, command == "status" ? 0 : 2) << name << outcome.err;
      EXPECT_THAT(outcome.out + outcome.err, HasSubstr(file.lexically_relative(directory).string() + ": ")) << name;
    }
    fs::remove(file);
  }
}

TEST_F(Status, OfADirectoryWhatChoosesRunsIsRefused) {
  run("seeds=[1]");
  for (const char* const what : {"--only zzz", "'seeds=[1]'", "stray", "--profile p", "--limit 7", "--results here"}) {
    const ProgramOutcome outcome = syncopate(std::string("status results/runs/time ") + what);
    EXPECT_EQ(outcome.status, 2) << what;
    EXPECT_EQ(outcome.out, "") << what;
    EXPECT_THAT(outcome.err, HasSubstr(" only for experiment files, and must be left out")) << what;
  }
  fs::create_directories(directory / "results/other");
  write("results/other/notes.txt", "no runs");
  EXPECT_EQ(syncopate("status results/other").status, 2);
}

}  // namespace
}  // namespace syncopate
