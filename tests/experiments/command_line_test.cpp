// The built program as its users meet it: output, messages and exit status.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <string>

#include "tests/experiments/program.hpp"

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
  EXPECT_THAT(again.err, HasSubstr("1 of 1 runs are there already"));
}

// Images of one pixel in the layout of MNIST; the last training image is missing.
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
  // Nobody can go on in a collective once a worker has left.
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
  EXPECT_THAT(local.out, HasSubstr("S_eff: against \"local\"\n"));
  const Outcome unknown = syncopate("predict " + file + " --against locla");
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(unknown.err, HasSubstr("did you mean \"local\"?"));
  EXPECT_EQ(syncopate("predict " + file + " --against ''").status, 2);
}

// Five steps: H = 2 makes 3 rounds, H = 1 makes 5.
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
              HasSubstr("\n# local-sgd: period.steps = 2 makes 3 rounds, the nearest to 4 that there is\n"));
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
  EXPECT_EQ(syncopate("rum e.toml").err,
            "rum: unknown command; must be one of run, status, check, predict, compare, thresholds, table, export, "
            "claims, list; did "
            "you mean "
            "\"run\"?\n");
  EXPECT_EQ(
      syncopate("frobnicate").err,
      "frobnicate: unknown command; must be one of run, status, check, predict, compare, thresholds, table, export, "
      "claims, list\n");
  EXPECT_THAT(syncopate("--frob").err, testing::Not(HasSubstr("unknown command")));
}

// wandb's sweeps write --key=value.
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
    EXPECT_EQ(outcome.err,
              command + ": a command of the script in a checkout, not of the program: ./dev " + command + "\n");
  }
}

TEST_F(CommandLine, FaultsSayWhatWouldBeRight) {
  const std::string file = write("e.toml", std::string(time_only) + "[[methods]]\nalgorithm = \"sync-sgd\"\n");
  EXPECT_THAT(syncopate("check " + file + " name=..").err,
              HasSubstr("name = \"..\"; must name a directory: not empty, neither \".\" nor \"..\""));
  const std::string pareto = syncopate("check " + file + " 'delays=[{kind=\"pareto\", shape=2, scale=1}]'").err;
  EXPECT_THAT(pareto, HasSubstr("delays.0.scale = 1; must be left out: a Pareto law has shape and minimum, which is"));
  EXPECT_THAT(pareto, HasSubstr("delays.0.minimum is missing"));
  EXPECT_THAT(pareto, testing::Not(HasSubstr("did you mean")));
}

}  // namespace
}  // namespace syncopate
