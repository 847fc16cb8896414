// The built program and files that are not what they should be: what reaches the terminal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <initializer_list>
#include <string>

#include "tests/experiments/program.hpp"

namespace syncopate {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Outcome = ProgramOutcome;
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
  // What check prints is an experiment file all the same.
  EXPECT_EQ(syncopate("check " + write("again.toml", check.out)).out, check.out);
}

TEST_F(HostileInput, NorThoseOfFaultsAndFailures) {
  const Outcome unknown = syncopate("check " + write("e.toml", time_only) + " \"$(printf 'cluster.\"\\033[2J\"=1')\"");
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(unknown.err, AllOf(has_no_control, HasSubstr("\\u001B[2J")));
  // A failing run names its method.
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

// Images of one pixel in the layout of MNIST.
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

// As PowerShell writes what is sent to a file.
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

}  // namespace
}  // namespace syncopate
