// The built program and files that are not what they should be: what reaches the terminal, and what runs out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include <cstdint>
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

constexpr const char* time_only = R"(name = "time"
[cluster]
workers = 4
micro_batch_s = 0.01
[network]
kind = "free"
[training]
model = "none"
parameters = 10
[budget]
steps = 5
[[methods]]
algorithm = "sync-sgd"
)";

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

// A limit on the process's memory stands for a machine that has no more.
TEST_F(HostileInput, MemoryThatDoesNotSufficeIsSaid) {
  std::string trace = "worker,step,micro_batch,duration_s\n";
  for (int step = 0; step < 100'000; ++step) trace += "0," + std::to_string(step) + ",0,0.01\n";
  gzFile file = gzopen((directory / "t.csv.gz").c_str(), "wb");
  for (int i = 0; i < 200; ++i) gzwrite(file, trace.data(), static_cast<unsigned>(trace.size()));
  gzclose(file);
  write("e.toml", time_only);
  const std::string command =
      "cd '" + directory.string() +
      "' && ulimit -v 1500000 && OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 '" SYNCOPATE_PROGRAM
      "' check e.toml 'delays=[{kind=\"trace\", file=\"t.csv.gz\", end=\"wrap\"}]' >out.txt 2>err.txt";
  const int status = std::system(command.c_str());
  EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 2);
  EXPECT_THAT(read("err.txt"),
              AllOf(HasSubstr("delays.0.file = \"t.csv.gz\"; the memory does not suffice"), HasSubstr("bytes")));
}

// On fibers, in lockstep, and where nothing is run. No model takes part.
TEST_F(HostileInput, WorkersThatTheMemoryDoesNotHoldAreRefusedBeforeItIsTaken) {
  write("e.toml", std::string(time_only) + "label = \"method\"\n");
  const auto limited = [&](const std::string& command, int megabytes) {
    return shell("(ulimit -v " + std::to_string(megabytes * 1000) +
                 " && OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 '" SYNCOPATE_PROGRAM "' " + command +
                 " cluster.workers=16000000)");
  };
  const std::string run = "run e.toml --results results --rerun ";
  const Outcome lockstep = limited(run, 4000), fibers = limited(run + "methods.method.algorithm=async-sgd", 64000),
                predicted = limited("predict e.toml", 4000);
  EXPECT_THAT(lockstep.out, HasSubstr("the memory does not suffice: 16000000 simulated workers take at least 4 GB, "));
  EXPECT_THAT(fibers.out, HasSubstr("the memory does not suffice: 16000000 simulated workers take at least 80 GB, "));
  for (const Outcome& outcome : {lockstep, fibers, predicted}) {
    EXPECT_EQ(outcome.status, 1) << outcome.err;
    EXPECT_THAT(outcome.out + outcome.err, AllOf(HasSubstr(" GB are free"), Not(HasSubstr("model"))));
  }
}

// Of the program's whole life.
std::int64_t peak_bytes(const std::filesystem::path& directory, const std::string& arguments) {
  const std::string command =
      "cd '" + directory.string() + "' && exec '" SYNCOPATE_PROGRAM "' " + arguments + " >out.txt 2>err.txt";
  const pid_t child = fork();
  if (child == 0) {
    execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    _exit(127);
  }
  int status = -1;
  rusage usage{};
  EXPECT_EQ(wait4(child, &status, 0, &usage), child);
  EXPECT_EQ(status, 0);
  return 1024 * usage.ru_maxrss;
}

// Else runs that would come to their end were refused.
TEST_F(HostileInput, WorkersTakeNoLessMemoryThanIsAskedForThem) {
  write("e.toml", std::string(time_only) + "label = \"method\"\n");
  const auto bytes_per_worker = [&](const std::string& override, int workers) {
    const std::string run = "run e.toml --results results --rerun " + override + " cluster.workers=";
    return (peak_bytes(directory, run + std::to_string(workers + 1)) - peak_bytes(directory, run + "1")) / workers;
  };
  EXPECT_GT(bytes_per_worker("", 400'000), 250) << "in lockstep";
  EXPECT_GT(bytes_per_worker("methods.method.algorithm=async-sgd", 100'000), 5000) << "on fibers";
}

// A copy of the list of all values at each of them would take 4 GB.
TEST_F(HostileInput, AnAxisOfThousandsOfValuesTakesMemoryByTheirNumberNotItsSquare) {
  std::string values;
  for (int i = 1; i <= 5000; ++i) values += std::to_string(i) + ",";
  write("e.toml", std::string(time_only) + "[sweep]\n\"budget.steps\" = [" + values + "]\n");
  const std::string command = "cd '" + directory.string() +
                              "' && ulimit -v 2500000 && OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 '" SYNCOPATE_PROGRAM
                              "' check e.toml >out.txt 2>err.txt";
  const int status = std::system(command.c_str());
  EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0) << read("err.txt");
}

}  // namespace
}  // namespace syncopate
