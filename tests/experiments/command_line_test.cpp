// The built program as its users see it: output, messages and exit status.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "experiments/sections/experiment.hpp"
#include "results/run_directory.hpp"
#include "results/text_table.hpp"
#include "tests/experiments/program.hpp"
#include "tests/workers/script_files.hpp"

namespace syncopate {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using Outcome = ProgramOutcome;
using CommandLine = ProgramTest;

TEST_F(CommandLine, RunsAnExperimentAndEndsWithStatus0) {
  const Outcome run = syncopate("run " + write("e.toml", time_only) + " --results results --quiet");
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("sync-sgd"));
  EXPECT_TRUE(std::filesystem::is_directory(directory / "results"));
}

TEST_F(CommandLine, AnotherDescriptionDoesNotRepeatRuns) {
  const std::string command = "run " + write("e.toml", time_only) + " --results results";
  ASSERT_EQ(syncopate(command).status, 0);
  const Outcome again = syncopate(command + " 'description=\"under another title\"'");
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("1 of 1 runs already exist"));
}

// Images of one pixel in MNIST's format, without the last training image.
TEST_F(CommandLine, TruncatedDataEndWithStatus2AndOneMessage) {
  const auto header = [](char kind, std::initializer_list<char> dimensions) {
    std::string bytes{0, 0, 8, kind};
    for (const char dimension : dimensions) bytes += std::string{0, 0, 0, dimension};
    return bytes;
  };
  write("train-images-idx3-ubyte", header(3, {64, 1, 1}) + std::string(63, 1));
  write("train-labels-idx1-ubyte", header(1, {64}) + std::string(64, 1));
  write("t10k-images-idx3-ubyte", header(3, {2, 1, 1}) + std::string(2, 1));
  write("t10k-labels-idx1-ubyte", header(1, {2}) + std::string(2, 1));
  const std::string file = SYNCOPATE_SOURCE_DIR "/experiments/quickstart.toml";
  const Outcome run = syncopate("run '" + file + "' training.micro_batch_size=1 budget.epochs=60 --results results " +
                                "datasets.fashion-mnist.directory='" + directory.string() + "'");
  EXPECT_EQ(run.status, 2);
  EXPECT_EQ(run.out, "");
  EXPECT_THAT(run.err, HasSubstr((directory / "train-images-idx3-ubyte").string() + ": "));
  EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
  EXPECT_FALSE(std::filesystem::exists(directory / "results"));
}

TEST_F(CommandLine, CheckPrintsAnExperimentThatChecksToItselfAndRunsNothing) {
  const Outcome first = syncopate("check " + write("e.toml", time_only) + " 'seeds=[4,7]'");
  ASSERT_EQ(first.status, 0) << first.err;
  EXPECT_THAT(first.out, HasSubstr("seeds = [4, 7]"));
  EXPECT_THAT(first.out, HasSubstr("# 2 runs:"));
  const Outcome second = syncopate("check " + write("resolved.toml", first.out));
  EXPECT_EQ(second.status, 0) << second.err;
  EXPECT_EQ(second.out, first.out);
  EXPECT_FALSE(std::filesystem::exists(directory / "results"));
}

TEST_F(CommandLine, PredictsWithoutRunning) {
  const std::string file = write("e.toml", time_only);
  const Outcome table = syncopate("predict " + file);
  EXPECT_EQ(table.status, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("sampled E[T]"));
  const Outcome json = syncopate("predict --json " + file + " budget.steps=7");
  EXPECT_EQ(json.status, 0) << json.err;
  EXPECT_THAT(json.out, HasSubstr("\"total_time_s\": 0.07"));  // constant micro-batches of 0.01 s, a free network
  EXPECT_EQ(syncopate("predict " + file + " cluster.workers=0").status, 2);
  // Collectives cannot continue once a worker has left.
  const Outcome stuck =
      syncopate("predict " + write("leave.toml", std::string(time_only) + "[[cluster.leave]]\nworkers = [1]\n"
                                                                          "after_steps = 2\n"));
  EXPECT_EQ(stuck.status, 1) << stuck.out;
  EXPECT_THAT(stuck.err, HasSubstr("sync-sgd: "));
  EXPECT_FALSE(std::filesystem::exists(directory / "results"));
}

TEST_F(CommandLine, PredictComparesWithAMethodThatIsNamed) {
  const std::string file = write("e.toml", std::string(time_only) +
                                               "[[methods]]\nlabel = \"local\"\nalgorithm = \"local-sgd\"\n"
                                               "period = { rule = \"constant\", steps = 5 }\n");
  const Outcome local = syncopate("predict " + file + " --against local");
  EXPECT_EQ(local.status, 0) << local.err;
  EXPECT_THAT(local.out, HasSubstr("S_eff: relative to \"local\"\n"));
  const Outcome unknown = syncopate("predict " + file + " --against locla");
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(unknown.err, HasSubstr("did you mean \"local\"?"));
  EXPECT_EQ(syncopate("predict " + file + " --against ''").status, 2);
}

// In five steps, a period of H = 2 makes 3 rounds, and H = 1 makes 5.
TEST_F(CommandLine, CheckSaysWhatANumberWasSolvedFor) {
  const auto with = [&](const char* rounds) {
    return write("e.toml", std::string(time_only) +
                               "[[methods]]\nalgorithm = \"local-sgd\"\n"
                               "period = { rule = \"constant\", steps = { rounds = " +
                               rounds + " } }\n");
  };
  const Outcome check = syncopate("check " + with("3"));
  ASSERT_EQ(check.status, 0) << check.err;
  EXPECT_THAT(check.out, HasSubstr("\n# local-sgd: period.steps = 2 makes 3 rounds\n"));
  EXPECT_EQ(syncopate("check " + write("resolved.toml", check.out)).out, check.out);
  EXPECT_THAT(syncopate("check " + with("4")).out,
              HasSubstr("\n# local-sgd: period.steps = 2 makes 3 rounds, the nearest possible number to 4\n"));
  const Outcome fault = syncopate("check " + with("6"));
  EXPECT_EQ(fault.status, 2);
  EXPECT_THAT(fault.err, HasSubstr("methods.1.period.steps.rounds = 6; must be at most the run's 5 steps"));
}

TEST_F(CommandLine, CheckSaysHowManyProcessesItNeeds) {
  const std::string file = write("e.toml", std::string(time_only) +
                                               "[[methods]]\nalgorithm = \"backup-workers\"\n"
                                               "backups = 1\n");
  EXPECT_EQ(syncopate("check --ranks " + file).out, "5\n") << "four workers and a server";
}

TEST_F(CommandLine, OverridesChangeTheExperiment) {
  const Outcome check =
      syncopate("check " + write("e.toml", time_only) +
                " budget.steps=9 methods.sync-sgd.label='all together' training.optimizer.name=adamw");
  ASSERT_EQ(check.status, 0) << check.err;
  EXPECT_THAT(check.out, HasSubstr("steps = 9"));
  EXPECT_THAT(check.out, HasSubstr("label = \"all together\""));
  EXPECT_THAT(check.out, HasSubstr("name = \"adamw\""));
}

TEST_F(CommandLine, ReportsAllFaultsAtOnceWithPlacesAndSuggestions) {
  std::string text = time_only;
  text += "[evaluation]\nevery_step = 5\ntrain_samples = \"all\"\n[[methods]]\nalgorithm = \"dropcomput\"\n";
  const Outcome run = syncopate("run " + write("e.toml", text) + " cluster.workers=0 cluster.micro_batchs=2");
  const std::string file = (directory / "e.toml").string();
  EXPECT_EQ(run.status, 2);
  EXPECT_EQ(run.out, "");
  EXPECT_THAT(run.err,
              HasSubstr(file + ":15:1: evaluation.every_step = 5; unknown key; did you mean \"every_steps\"?"));
  EXPECT_THAT(run.err, HasSubstr(file + ":16:17: evaluation.train_samples = \"all\"; must be an integer"));
  EXPECT_THAT(run.err, HasSubstr(file + ":18:13: methods.1.algorithm = \"dropcomput\"; did you mean \"dropcompute\"? "
                                        "must be one of \"dropcompute\", "));
  EXPECT_THAT(run.err, HasSubstr("command line: cluster.workers = 0; must be an integer from 1"));
  EXPECT_THAT(run.err, HasSubstr("command line: cluster.micro_batchs = 2; unknown key; did you mean"));
  EXPECT_FALSE(std::filesystem::exists(directory / "results"));
}

TEST_F(CommandLine, AMissingFileIsBadUsage) {
  const Outcome run = syncopate("run nowhere.toml");
  EXPECT_EQ(run.status, 2);
  EXPECT_EQ(run.err, "nowhere.toml: cannot be read: No such file or directory\n");
}

TEST_F(CommandLine, ADirectoryIsBadUsage) {
  const Outcome run = syncopate("check " + directory.string());
  EXPECT_EQ(run.status, 2);
  EXPECT_EQ(run.err, directory.string() + ": is a directory; must be an experiment file\n");
}

TEST_F(CommandLine, TomlThatCannotBeReadIsReportedWithItsPlace) {
  const std::string file = write("bad.toml", "name = \"x\"\n[cluster\nworkers = 3\n");
  const Outcome broken = syncopate("check " + file);
  EXPECT_EQ(broken.status, 2);
  EXPECT_THAT(broken.err, StartsWith(file + ":2:"));
  const std::string binary = write("binary.toml", std::string("\xff\xfe\x00\x01", 4));
  EXPECT_EQ(syncopate("check " + binary).status, 2);
  const std::string twice = write("twice.toml", "a = 1\na = 2\n");
  EXPECT_THAT(syncopate("check " + twice).err, StartsWith(twice + ":2:"));
}

TEST_F(CommandLine, ListsWhatAFileMayNameWithASentenceEach) {
  const Outcome all = syncopate("list");
  EXPECT_EQ(all.status, 0);
  for (const char* name : {"sync-sgd", "dropcompute", "backup-workers", "local-sgd", "bounded-lognormal", "ring", "mlp",
                           "fashion-mnist", "power", "cosine"}) {
    EXPECT_THAT(all.out, HasSubstr(std::string("  ") + name));
  }
  const Outcome algorithms = syncopate("list algorithms");
  EXPECT_EQ(algorithms.status, 0);
  EXPECT_THAT(algorithms.out, HasSubstr("\n  synchronous:\n    sync-sgd  "));
  const Outcome models = syncopate("list models");
  EXPECT_EQ(models.status, 0);
  EXPECT_THAT(models.out, HasSubstr("quadratic"));
  EXPECT_THAT(models.out, testing::Not(HasSubstr("dropcompute")));
  const Outcome misspelt = syncopate("list modles");
  EXPECT_EQ(misspelt.status, 2);
  EXPECT_THAT(misspelt.err, HasSubstr("did you mean \"models\"?"));
}

TEST_F(CommandLine, ListsTheKeysOfAName) {
  const Outcome method = syncopate("list dropcompute");
  EXPECT_EQ(method.status, 0);
  EXPECT_THAT(method.out, HasSubstr("threshold_s: a number above 0, in s"));
  const Outcome misspelt = syncopate("list dropcompte");
  EXPECT_EQ(misspelt.status, 2);
  EXPECT_THAT(misspelt.err, HasSubstr("did you mean \"dropcompute\"?"));
  EXPECT_EQ(misspelt.out, "");
}

TEST_F(CommandLine, VersionNamesEveryPart) {
  const Outcome version = syncopate("--version");
  EXPECT_EQ(version.status, 0);
  EXPECT_THAT(version.out, StartsWith("Syncopate "));
  for (const char* part : {"LibTorch", "compiler", "MPI", "toml++", "Boost", "BLAS kernel"}) {
    EXPECT_THAT(version.out, HasSubstr(part));
  }
}

TEST_F(CommandLine, HelpHasExamplesAndTheExitStatuses) {
  const Outcome help = syncopate("--help");
  EXPECT_EQ(help.status, 0);
  EXPECT_THAT(help.out, HasSubstr("syncopate run experiments/quickstart.toml"));
  EXPECT_THAT(help.out, HasSubstr("Exit status"));
  EXPECT_THAT(help.out, HasSubstr("130"));
}

TEST_F(CommandLine, BadUsageEndsWithStatus2) {
  for (const char* arguments : {"", "rum e.toml", "run", "run e.toml --threads -1", "run e.toml --cluster cloud",
                                "check e.toml --no-such-option", "run e.toml --results ''"}) {
    const Outcome outcome = syncopate(arguments);
    EXPECT_EQ(outcome.status, 2) << arguments;
    EXPECT_NE(outcome.err, "") << arguments;
    EXPECT_EQ(outcome.out, "") << arguments;
  }
}

TEST_F(CommandLine, AnOptionWithoutItsNumberSaysSo) {
  for (const std::string option : {"--threads", "--limit"})
    EXPECT_THAT(syncopate("run e.toml " + option + " --results d").err,
                testing::StartsWith(option + ": needs a number\n"));
  EXPECT_THAT(syncopate("run e.toml --threads -1").err, testing::Not(HasSubstr("needs a number")));
  for (const std::string command :
       {"run e.toml --threads", "run e.toml --jobs", "run e.toml --profile", "table d --rank"}) {
    const std::string option = command.substr(command.rfind("--"));
    EXPECT_THAT(syncopate(command).err, testing::StartsWith(option + ": needs a value\n"));
  }
  EXPECT_THAT(
      syncopate("run e.toml --limit 9e18").err,
      testing::StartsWith("--limit: must be a whole number in digits, from 1 to 9223372036854775807; found 9e18"));
}

TEST_F(CommandLine, AnUnknownCommandIsNamedWithTheNearest) {
  const std::string needed =
      "unknown command; must be one of run, status, check, predict, compare, thresholds, trace, data, table, export, "
      "claims, list";
  EXPECT_EQ(syncopate("rum e.toml").err, "rum: " + needed + "; did you mean \"run\"?\n");
  EXPECT_EQ(syncopate("frobnicate").err, "frobnicate: " + needed + "\n");
  EXPECT_THAT(syncopate("--frob").err, testing::Not(HasSubstr("unknown command")));
}

// The sweeps of wandb write overrides as --key=value.
TEST_F(CommandLine, AnUnknownOptionIsNamedWithTheNearestOrAsAKey) {
  const std::string run = "run " + write("e.toml", time_only) + " ";
  const auto refusal = [&](const std::string& arguments) {
    const Outcome outcome = syncopate(arguments);
    EXPECT_EQ(outcome.status, 2) << arguments;
    return outcome.err;
  };
  EXPECT_EQ(refusal(run + "--job 4"), "--job: unknown option of run; did you mean \"--jobs\"?\n");
  EXPECT_EQ(refusal(run + "-jobs 4"), "-jobs: unknown option of run; did you mean \"--jobs\"?\n");
  EXPECT_EQ(refusal(run + "--budget.steps=3"),
            "--budget.steps=3: unknown option of run; keys of the file are written without dashes: budget.steps=3\n");
  EXPECT_EQ(refusal(run + "--budget.steps 3"),
            "--budget.steps: unknown option of run; keys of the file are written without dashes: "
            "budget.steps=VALUE\n");
  EXPECT_EQ(refusal(run + "--seeds=3 --quite"),
            "--seeds=3: unknown option of run; keys of the file are written without dashes: seeds=3\n"
            "--quite: unknown option of run; did you mean \"--quiet\"?\n");
  EXPECT_EQ(refusal("table results --messure steps"),
            "--messure: unknown option of table; did you mean \"--measure\"?\n");
  EXPECT_THAT(refusal("table results --xqzwvjk=1"),
              testing::AllOf(HasSubstr("must be one of --"), HasSubstr("--against"), testing::Not(HasSubstr("keys"))));
  EXPECT_EQ(syncopate(run + "--quiet --results results budget.steps=2").status, 0);
}

TEST_F(CommandLine, ACommandOfTheScriptIsFoundThere) {
  for (const std::string command : {"report", "plot", "paper", "mpirun"}) {
    const Outcome outcome = syncopate(command + " results/runs");
    EXPECT_EQ(outcome.status, 2);
    EXPECT_EQ(
        outcome.err,
        command + ": is not a command of this program, but of the script `dev` in a checkout: ./dev " + command + "\n");
  }
}

TEST_F(CommandLine, FaultsSayWhatWouldBeRight) {
  const std::string file = write("e.toml", std::string(time_only) + "[[methods]]\nalgorithm = \"sync-sgd\"\n");
  EXPECT_THAT(syncopate("check " + file + " name=..").err,
              HasSubstr("name = \"..\"; must be a directory name: not empty, not \".\" or \"..\""));
  const std::string pareto = syncopate("check " + file + " 'delays=[{kind=\"pareto\", shape=2, scale=1}]'").err;
  EXPECT_THAT(
      pareto,
      HasSubstr("delays.0.scale = 1; must be left out: a Pareto distribution has no scale besides its minimum"));
  EXPECT_THAT(pareto, HasSubstr("delays.0.minimum is missing"));
  EXPECT_THAT(pareto, testing::Not(HasSubstr("did you mean")));
}

// The built program's output to a terminal when it reads faulty or hostile files.

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using HostileInput = ProgramTest;

const auto has_no_control = AllOf(Not(HasSubstr("\x1b")), Not(HasSubstr("\a")));

TEST_F(HostileInput, ControlCharactersOfLabelsNeverReachTheTerminal) {
  const std::string file = write("e.toml", std::string(time_only) + "label = \"\\u001b[2J\\u0007red\\nline\"\n");
  const Outcome check = syncopate("check " + file), run = syncopate("run " + file + " --results results"),
                predict = syncopate("predict " + file);
  for (const Outcome& outcome : {check, run, predict}) {
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_THAT(outcome.out + outcome.err, has_no_control);
    EXPECT_THAT(outcome.out, HasSubstr("\\u001B[2J\\u0007red\\n"));
  }
  EXPECT_THAT(run.err, HasSubstr("\\u001B[2J\\u0007red\\nline, seed 1: finished"));
  // The output of `check` is a valid experiment file.
  EXPECT_EQ(syncopate("check " + write("again.toml", check.out)).out, check.out);
}

TEST_F(HostileInput, NorThoseOfFaultsAndFailures) {
  const Outcome unknown = syncopate("check " + write("e.toml", time_only) + " \"$(printf 'cluster.\"\\033[2J\"=1')\"");
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(unknown.err, AllOf(has_no_control, HasSubstr("\\u001B[2J")));
  // The message about a failing run contains the label of its method.
  const Outcome failed = syncopate(
      "run e.toml --results results 'methods.0.label=\"\\u001b[2J\"' "
      "'delays=[{kind=\"pareto\", shape=0.1, minimum=1e8}]'");
  EXPECT_EQ(failed.status, 1);
  EXPECT_THAT(failed.out + failed.err, AllOf(has_no_control, HasSubstr("\\u001B[2J")));
}

TEST_F(HostileInput, ADelayWithoutEndIsNoDeadlock) {
  const Outcome failed = syncopate("run " + write("e.toml", time_only) +
                                   " --results results "
                                   "'delays=[{kind=\"pareto\", shape=0.1, minimum=1e8}]'");
  EXPECT_EQ(failed.status, 1);
  EXPECT_THAT(failed.out, AllOf(Not(HasSubstr("deadlock")), HasSubstr("a micro-batch that takes more than 146 years")));
}

TEST_F(HostileInput, AnEmptyFileNameIsSaid) {
  const Outcome outcome = syncopate("check ''");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(outcome.err, "the name of the experiment file is empty\n");
}

TEST_F(HostileInput, TheLimitOfRunsIsAnOption) {
  const std::string file = write("e.toml", time_only);
  const Outcome refused = syncopate("check " + file + " --limit 2 seeds=[1,2,3]");
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, HasSubstr("are 3 runs; must be at most 2"));
  EXPECT_EQ(syncopate("check " + file + " --limit 3 seeds=[1,2,3]").status, 0);
  EXPECT_EQ(syncopate("check " + file + " --limit 0").status, 2);
}

// Images of one pixel in MNIST's format.
TEST_F(HostileInput, FaultyDataNameTheLineThatNamesThem) {
  const auto header = [](char kind, std::initializer_list<char> dimensions) {
    std::string bytes{0, 0, 8, kind};
    for (const char dimension : dimensions) bytes += std::string{0, 0, 0, dimension};
    return bytes;
  };
  write("train-images-idx3-ubyte", header(3, {64, 1, 1}) + std::string(64, 1));
  write("train-labels-idx1-ubyte", header(1, {64}) + std::string(64, 99));
  write("t10k-images-idx3-ubyte", header(3, {2, 1, 1}) + std::string(2, 1));
  write("t10k-labels-idx1-ubyte", header(1, {2}) + std::string(2, 1));
  const std::string file = write("e.toml", R"([cluster]
workers = 2
micro_batch_s = 0.01
[network]
kind = "free"
[training]
model = "linear"
micro_batch_size = 4
optimizer.name = "sgd"
learning_rate = { schedule = "constant", peak = 0.1 }
[datasets.fashion-mnist]
directory = "."
[budget]
steps = 5
[[methods]]
algorithm = "sync-sgd"
)");
  const Outcome outcome = syncopate("run " + file + " --results results");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(outcome.err, file +
                             ":12:13: datasets.fashion-mnist.directory = \".\"; ./train-labels-idx1-ubyte: label 0 "
                             "= 99; must be in 0 .. 9\n");
}

// An experiment in the encoding that PowerShell uses for redirected output.
TEST_F(HostileInput, AnExperimentInUtf16IsNamed) {
  std::string wide = "\xff\xfe";
  for (const char* letter = time_only; *letter != '\0'; ++letter) wide += std::string{*letter, '\0'};
  const Outcome outcome = syncopate("check " + write("e.toml", wide));
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err,
              HasSubstr("e.toml: is UTF-16 (little-endian), which iconv -f UTF-16LE -t UTF-8 converts; must "
                        "be an experiment file in UTF-8"));
}

TEST_F(HostileInput, WhatIsWorthKnowingOfFilesIsNotedOnce) {
  std::string lines = "a\t***\n";
  for (int line = 0; line < 40; ++line) lines += (line % 2 == 0 ? "a\tword" : "b\tword") + std::to_string(line) + "\n";
  write("a.txt", lines);
  write("e.toml", R"(name = "noted"
seeds = [1, 2]
[cluster]
workers = 1
micro_batch_s = 0.01
[network]
kind = "free"
[training]
model = "linear"
dataset = "text-lines"
micro_batch_size = 1
learning_rate = { schedule = "constant", peak = 0.05 }
optimizer = { name = "sgd" }
[datasets.text-lines]
file = "a.txt"
labelled = true
test_share = 0.5
least = 1
[budget]
steps = 1
[[methods]]
algorithm = "sync-sgd"
[[methods]]
algorithm = "sync-sgd"
label = "again"
)");
  const std::string note = "a.txt: 1 line has no word and is left out\n";
  const auto times = [&](const std::string& text) {
    int count = 0;
    for (auto at = text.find(note); at != text.npos; at = text.find(note, at + 1)) ++count;
    return count;
  };
  const Outcome check = syncopate("check e.toml");
  EXPECT_EQ(check.status, 0) << check.err;
  EXPECT_THAT(check.err, testing::StartsWith("note: "));
  EXPECT_EQ(times(check.err), 1);
  EXPECT_EQ(times(check.out), 0);
  EXPECT_EQ(times(syncopate("predict e.toml").err), 1);
  EXPECT_EQ(times(syncopate("run e.toml --results results").err), 1);
  EXPECT_EQ(times(syncopate("run e.toml --results results --quiet").err), 0);
}

// The built program when its output cannot be written: the device is full, the stream is closed, or the reader ends.

using testing::HasSubstr;

class LostOutput : public ProgramTest {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    file_ = write("e.toml", std::string("seeds = [1, 2, 3]\n") + time_only);
  }

  std::ptrdiff_t finished() const {
    namespace fs = std::filesystem;
    const auto is_summary = [](const fs::directory_entry& entry) { return entry.path().filename() == "summary.json"; };
    return std::count_if(fs::recursive_directory_iterator(directory / "results"), {}, is_summary);
  }

  // Calls the program with its streams redirected as `redirection` says in the shell's syntax. A stream that can be
  // written goes to out.txt or err.txt.
  ProgramOutcome with(const std::string& redirection, const std::string& arguments) const {
    return shell("'" SYNCOPATE_PROGRAM "' " + arguments + " </dev/null " + redirection);
  }
  ProgramOutcome shell(const std::string& command) const {
    const int status = std::system(("cd '" + directory.string() + "' && rm -f out.txt err.txt; " + command).c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read("out.txt"), read("err.txt")};
  }

  std::string file_;
};

TEST_F(LostOutput, OfEveryCommandIsAFailureThatStandardErrorNames) {
  for (const std::string& command : {"check " + file_, "predict " + file_, "run --quiet --results results " + file_,
                                     std::string("list"), std::string("--version"), std::string("--help")}) {
    const ProgramOutcome full = with(">/dev/full 2>err.txt", command);
    EXPECT_EQ(full.status, 1) << command;
    EXPECT_EQ(full.err, "syncopate: standard output could not be written: No space left on device\n") << command;
    const ProgramOutcome closed = with(">&- 2>err.txt", command);
    EXPECT_EQ(closed.status, 1) << command;
    EXPECT_EQ(closed.err, "syncopate: standard output could not be written: Bad file descriptor\n") << command;
  }
}

TEST_F(LostOutput, OfStandardErrorDoesNotEndAnExperiment) {
  for (const char* redirection : {"2>/dev/full >out.txt", "2>&- >out.txt"}) {
    std::filesystem::remove_all(directory / "results");
    const ProgramOutcome outcome = with(redirection, "run --results results " + file_);
    EXPECT_EQ(outcome.status, 1) << redirection;
    EXPECT_EQ(finished(), 3) << redirection;
    EXPECT_THAT(outcome.out, HasSubstr("sync-sgd")) << "the table";
    EXPECT_THAT(outcome.out, HasSubstr("syncopate: standard error could not be written: "));
  }
}

TEST_F(LostOutput, OfAReaderThatGoesAwayDoesNotEndAnExperiment) {
  // The program's status goes to a file, because the shell returns the status of `true`, which ends without reading.
  const std::string run = "'" SYNCOPATE_PROGRAM "' run --results results " + file_ + " </dev/null 2>&1";
  shell("{ sleep 0.2; " + run + "; echo $? >status.txt; } | true");
  EXPECT_EQ(read("status.txt"), "1\n");
  EXPECT_EQ(finished(), 3);
}

TEST_F(LostOutput, DoesNotHideWhyTheProgramFailed) {
  EXPECT_EQ(with("2>&- >out.txt", "run nowhere.toml").status, 2);
  EXPECT_EQ(with("2>/dev/full >out.txt", "run").status, 2);
}

TEST_F(LostOutput, DoesNotEndUpInAFileThatIsOpenedLater) {
  ASSERT_EQ(with("2>&- >&-", "run --results results " + file_).status, 1);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory / "results")) {
    if (!entry.is_regular_file()) continue;
    std::ostringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    EXPECT_THAT(text.str(), testing::Not(HasSubstr("run 1 of 3"))) << entry.path();
  }
}

TEST_F(LostOutput, IsNoneWhereNothingWasSaid) {
  EXPECT_EQ(with("2>&- >out.txt", "run --quiet --results results " + file_).status, 0);
}

// Output on a narrow terminal stays within its width.

constexpr const char* experiment = R"(
name = "wide"
seeds = 3
[cluster]
workers = 8
micro_batch_s = 0.01
micro_batches = 2
[network]
kind = "ring"
latency_s = 50e-6
bandwidth_bytes_per_s = 1.25e9
[[delays]]
kind = "exponential"
mean = 0.01
[training]
model = "none"
parameters = 1000
[budget]
steps = 20
[[methods]]
label = "synchronous SGD, which waits for everybody"
algorithm = "sync-sgd"
[[methods]]
label = "DropCompute that drops what comes late"
algorithm = "dropcompute"
threshold_s = 0.03
[[methods]]
label = "backup workers, two of eight"
algorithm = "backup-workers"
backups = 2
[sweep]
"cluster.micro_batches" = [2, 4]
[[claim]]
sentence = "With a fixed threshold and exponential delays of one micro-batch's length DropCompute makes more of its time"
measure = "micro_batches_per_s"
method = "DropCompute that drops what comes late"
against = "synchronous SGD, which waits for everybody"
as = "ratio"
everywhere = true
above = 1.0
)";

class TerminalWidth : public ProgramTest {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    file_ = write("e.toml", experiment);
  }

  // Returns the program's output to a terminal with this number of columns.
  std::string on_terminal(const std::string& arguments, unsigned short columns) {
    const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    EXPECT_GE(terminal, 0);
    EXPECT_EQ(grantpt(terminal), 0);
    EXPECT_EQ(unlockpt(terminal), 0);
    const winsize size{.ws_row = 50, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    EXPECT_EQ(ioctl(terminal, TIOCSWINSZ, &size), 0);
    const std::string name = ptsname(terminal);
    const int held = open(name.c_str(), O_RDWR | O_NOCTTY);  // keeps the terminal open until the program opens it
    std::future<std::string> shown = std::async(std::launch::async, [terminal] {
      std::string text;
      std::array<char, 4096> part{};
      for (ssize_t n = 0; (n = ::read(terminal, part.data(), part.size())) > 0;)
        text.append(part.data(), static_cast<std::size_t>(n));
      std::erase(text, '\r');
      return text;
    });
    const ProgramOutcome outcome = shell("('" SYNCOPATE_PROGRAM "' " + arguments + " >" + name + ")");
    EXPECT_EQ(outcome.status, 0) << arguments << "\n" << outcome.err;
    close(held);
    std::string text = shown.get();
    close(terminal);
    return text;
  }

  std::string file_;
};

std::size_t longest_line(const std::string& text) {
  std::istringstream lines(text);
  std::size_t longest = 0;
  for (std::string line; std::getline(lines, line);) longest = std::max(longest, display_width(line));
  return longest;
}

TEST_F(TerminalWidth, IsThatOfAllTablesNotesAndClaims) {
  const std::string against = " --against 'synchronous SGD, which waits for everybody'";
  for (const std::string& arguments :
       {"run " + file_ + " --quiet", "predict " + file_, "table results/runs/wide --rank micro_batches_per_s" + against,
        std::string("claims results/runs"), "run " + file_ + " --quiet --accept results/runs"}) {
    const std::string narrow = on_terminal(arguments, 80);
    EXPECT_LE(longest_line(narrow), 80u) << arguments << "\n" << narrow;
    EXPECT_GT(longest_line(syncopate(arguments).out), 80u) << arguments << ": without a terminal nothing is folded";
  }
  for (const std::string& arguments : {"predict " + file_, std::string("claims results/runs")})
    EXPECT_EQ(on_terminal(arguments, 1000), syncopate(arguments).out) << arguments;
}

// Only runs that train a network load LibTorch.

using testing::HasSubstr;
using testing::Not;

std::string model_experiment(const std::string& model) {
  return "name = \"one\"\n[cluster]\nworkers = 2\nmicro_batch_s = 0.001\n[network]\nkind = \"free\"\n[training]\nmodel "
         "= \"" +
         model +
         "\"\nmicro_batch_size = 4\ndataset = \"gaussian-mixture\"\n[datasets.gaussian-mixture]\ntrain = 64\ntest = 8\n"
         "[training.learning_rate]\nschedule = \"constant\"\npeak = 0.1\n[training.optimizer]\nname = \"sgd\"\n"
         "[budget]\nsteps = 1\n[[methods]]\nalgorithm = \"sync-sgd\"\n";
}

class TorchLibrary : public ProgramTest {
 protected:
  // Copies the program to a folder without its library, and returns the command.
  std::string lone_program() const {
    std::filesystem::copy_file(SYNCOPATE_PROGRAM, directory / "lone");
    return "./lone ";
  }
  nlohmann::json metadata() const {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory / "results"))
      if (entry.path().filename() == "metadata.json") return nlohmann::json::parse(read(entry.path()));
    return {};
  }
};

TEST_F(TorchLibrary, IsNotNeededByWhatTrainsNoNetwork) {
  const std::string program = lone_program();
  EXPECT_EQ(shell(program + "list algorithms").status, 0);
  write("network.toml", model_experiment("linear"));
  EXPECT_EQ(shell(program + "check network.toml").status, 0);
  EXPECT_EQ(shell(program + "predict network.toml").status, 0);
  write("quadratic.toml", model_experiment("quadratic"));
  const auto run = shell(program + "run quadratic.toml");
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(metadata()["blas_kernel"], "none loaded");
  EXPECT_EQ(metadata()["torch_kernels"], "none loaded");
  EXPECT_EQ(metadata()["device"], "cpu");
  EXPECT_EQ(metadata()["precision"], "float32");
}

TEST_F(TorchLibrary, MetadataNameTheDeviceAndThePrecision) {
  write("network.toml", model_experiment("linear"));
  const auto run = syncopate("run network.toml training.device=cpu:copy");
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(metadata()["device"], "cpu:copy");
  EXPECT_EQ(metadata()["precision"], "float32");
  std::filesystem::remove_all(directory / "results");
  if (syncopate("run network.toml training.precision=bfloat16").status != 0)
    GTEST_SKIP() << "LibTorch has no bfloat16 on this processor";
  EXPECT_EQ(metadata()["device"], "cpu");
  EXPECT_EQ(metadata()["precision"], "bfloat16");
}

// No machine has a GPU with these numbers.
TEST_F(TorchLibrary, AMissingDeviceIsAFaultAtItsKey) {
  write("e.toml", model_experiment("linear") +
                      "[[methods]]\nlabel = \"b\"\nalgorithm = \"sync-sgd\"\ntraining.device = \"cuda:99\"\n"
                      "[profiles.gpu]\n\"training.device\" = \"cuda:98\"\n");
  const std::string of_method =
      "e.toml:26:19: methods.1.training.device = \"cuda:99\"; must be a device of this machine: ";
  const std::string of_profile =
      "e.toml:28:21: profile \"gpu\": training.device = \"cuda:98\"; must be a device of this machine: ";
  const std::string of_command_line = "command line: training.device = \"cuda:97\"; must be a device of this machine: ";
  for (const std::string command : {"run e.toml", "compare e.toml"}) {
    const auto refused = syncopate(command);
    EXPECT_EQ(refused.status, 2) << command;
    EXPECT_THAT(refused.err, StartsWith(of_method)) << command;
    EXPECT_THAT(syncopate(command + " --profile gpu").err,
                testing::AllOf(HasSubstr(of_method), HasSubstr("\n" + of_profile)));
    EXPECT_THAT(syncopate(command + " training.device=cuda:97").err,
                testing::AllOf(HasSubstr(of_method), HasSubstr("\n" + of_command_line)));
  }
  EXPECT_THAT(syncopate("run e.toml ~methods.b training.device=cpu:copy,cuda:96").err,
              StartsWith("command line: training.device = \"cuda:96\"; must be a device of this machine: "));
  EXPECT_FALSE(std::filesystem::exists(directory / "results"));
  EXPECT_EQ(syncopate("run e.toml --only sync-sgd").status, 0) << "these runs do not need the device";
}

TEST_F(TorchLibrary, CheckSaysWhichDeviceIsMissingBesidesAllElse) {
  write("e.toml", model_experiment("linear"));
  for (const std::string measured : {"", " --measure"}) {
    const auto check = syncopate("check e.toml training.device=cuda:99" + measured);
    EXPECT_EQ(check.status, 0) << check.err;
    EXPECT_THAT(check.out,
                testing::AllOf(HasSubstr("\n# 1 run; the time is unknown until some are finished; about "),
                               HasSubstr("\n# memory of the device \"cuda:99\": about "),
                               HasSubstr("\n# cannot start here: command line: training.device = \"cuda:99\"; must "
                                         "be a device of this machine: ")));
  }
}

TEST_F(TorchLibrary, AMissingDeviceOfATrialIsAFault) {
  write("e.toml", model_experiment("linear") + "[tune]\nseeds = [7]\n\"training.device\" = [\"cpu\", \"cuda:99\"]\n");
  const std::string arguments = " e.toml training.validation_samples=20";
  const auto refused = syncopate("run" + arguments);
  EXPECT_EQ(refused.status, 2) << refused.out;
  EXPECT_THAT(refused.err, HasSubstr("training.device = \"cuda:99\"; must be a device of this machine: "));
  EXPECT_FALSE(std::filesystem::exists(directory / "results"));
  EXPECT_THAT(
      syncopate("check" + arguments).out,
      testing::AllOf(HasSubstr("\n# memory of the device \"cuda:99\": about "), HasSubstr("\n# cannot start here: ")));
}

// The test computes results on the processor and stores them under the hash of the run on a GPU.
TEST_F(TorchLibrary, FinishedRunsNeedNoDevice) {
  namespace fs = std::filesystem;
  const std::string file = write("e.toml", model_experiment("linear")), device = "training.device=cuda:99";
  ASSERT_EQ(syncopate("run e.toml --results results").status, 0);
  const syncopate::Run made = load_experiment(file, {}).runs.front();
  const syncopate::Run wanted = load_experiment(file, {device}).runs.front();
  FileContents files;
  for (const auto& entry : fs::directory_iterator(run_directory(directory / "results", made, false))) {
    std::string text = read(entry.path());
    if (const auto at = text.find(made.hash); at != text.npos) text.replace(at, made.hash.size(), wanted.hash);
    if (entry.path().filename() != list_of_files) files[entry.path().filename()] = text;
  }
  files[list_of_files] = listed(files);
  const fs::path finished = run_directory(directory / "results", wanted, false);
  fs::create_directories(finished.parent_path());
  write_directory(finished, files);
  const auto run = syncopate("run e.toml --results results " + device);
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("sync-sgd"));
  for (const std::string more : {" --rerun", " seeds=2"})
    EXPECT_EQ(syncopate("run e.toml --results results " + device + more).status, 2) << more;
}

TEST_F(TorchLibrary, WithoutItThereIsStillAVersion) {
  const auto version = shell(lone_program() + "--version");
  EXPECT_EQ(version.status, 0) << version.err;
  EXPECT_THAT(version.out, HasSubstr("unknown: cannot load syncopate_torch.so"));
  EXPECT_THAT(version.out, HasSubstr("Boost"));
}

TEST_F(TorchLibrary, IsMissedBeforeAnythingIsRun) {
  write("network.toml", model_experiment("linear"));
  const auto run = shell(lone_program() + "run network.toml");
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("cannot load syncopate_torch.so, which is built with the program"));
  EXPECT_FALSE(std::filesystem::exists(directory / "results"));
}

TEST_F(TorchLibrary, IsLoadedForANetwork) {
  write("network.toml", model_experiment("linear"));
  const auto run = syncopate("run network.toml");
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(metadata()["blas_kernel"].get<std::string>(), Not(HasSubstr("none")));
}

// LibTorch warns about a transpose of three dimensions.
TEST_F(TorchLibrary, ItsWarningsDoNotStandAmongTheProgramsLines) {
  save_script((directory / "model.pt").string(), {{.name = "weight", .shape = {10, 32}}},
              "return torch.linear(x.unsqueeze(2).numpy_T().squeeze(0).t(), self.weight)");
  write("network.toml", model_experiment("torchscript") + "[models.torchscript]\nfile = \"model.pt\"\n");
  const auto run = syncopate("run network.toml");
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.err, Not(HasSubstr("Warning")));
  EXPECT_THAT(run.err, Not(HasSubstr("WARNING")));
  EXPECT_THAT(shell("GLOG_minloglevel=0 TORCH_CPP_LOG_LEVEL=0 " SYNCOPATE_PROGRAM " check network.toml").err,
              HasSubstr("deprecated"))
      << "there is one";
}

}  // namespace
}  // namespace syncopate
