// How much memory the built program takes, and what it says where that is not there. Not built with sanitizers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "tests/experiments/peak_memory.hpp"
#include "tests/experiments/program.hpp"

namespace syncopate {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Outcome = ProgramOutcome;
using MemoryLimits = ProgramTest;

// A limit on the process's memory stands for a machine that has no more.
TEST_F(MemoryLimits, MemoryThatDoesNotSufficeIsSaid) {
  std::string trace = "worker,step,micro_batch,duration_s\n";
  for (int step = 0; step < 100'000; ++step) trace += "0," + std::to_string(step) + ",0,0.01\n";
  gzFile file = gzopen((directory / "t.csv.gz").c_str(), "wb");
  for (int i = 0; i < 200; ++i) gzwrite(file, trace.data(), static_cast<unsigned>(trace.size()));
  gzclose(file);
  write("e.toml", time_only);
  const std::string command =
      "cd '" + directory.string() +
      "' && ulimit -v 300000 && OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 '" SYNCOPATE_PROGRAM
      "' check e.toml 'delays=[{kind=\"trace\", file=\"t.csv.gz\", end=\"wrap\"}]' >out.txt 2>err.txt";
  const int status = std::system(command.c_str());
  EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 2);
  EXPECT_THAT(read("err.txt"),
              AllOf(HasSubstr("delays.0.file = \"t.csv.gz\"; the memory does not suffice"), HasSubstr("bytes")));
}

// On fibers, in lockstep, and where nothing is run. No model takes part.
TEST_F(MemoryLimits, WorkersThatTheMemoryDoesNotHoldAreRefusedBeforeItIsTaken) {
  write("e.toml", std::string(time_only) + "label = \"method\"\n");
  const auto limited = [&](const std::string& command, int megabytes) {
    return shell("(ulimit -v " + std::to_string(megabytes * 1000) +
                 " && OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 '" SYNCOPATE_PROGRAM "' " + command +
                 " cluster.workers=16000000)");
  };
  const std::string run = "run e.toml --results results --rerun ";
  const Outcome lockstep = limited(run, 3500), fibers = limited(run + "methods.method.algorithm=async-sgd", 64000),
                predicted = limited("predict e.toml", 3500);
  EXPECT_THAT(lockstep.out, HasSubstr("the memory does not suffice: 16000000 simulated workers take at least 4 GB, "));
  EXPECT_THAT(fibers.out, HasSubstr("the memory does not suffice: 16000000 simulated workers take at least 32 GB, "));
  for (const Outcome& outcome : {lockstep, fibers, predicted}) {
    EXPECT_EQ(outcome.status, 1) << outcome.err;
    EXPECT_THAT(outcome.out + outcome.err, AllOf(HasSubstr(" GB are free"), Not(HasSubstr("model"))));
  }
}

// Else runs that would come to their end were refused.
TEST_F(MemoryLimits, WorkersTakeNoLessMemoryThanIsAskedForThem) {
  write("e.toml", std::string(time_only) + "label = \"method\"\n");
  const auto bytes_per_worker = [&](const std::string& override, int workers) {
    const std::string run = "run e.toml --results results --rerun " + override + " cluster.workers=";
    return (peak_bytes(directory, run + std::to_string(workers + 1)) - peak_bytes(directory, run + "1")) / workers;
  };
  EXPECT_GT(bytes_per_worker("", 400'000), 250) << "in lockstep";
  EXPECT_GT(bytes_per_worker("methods.method.algorithm=async-sgd", 100'000), 2000) << "on one stack in turn";
  EXPECT_GT(bytes_per_worker("methods.method.algorithm=async-sgd", 8'000), 5000) << "on stacks of their own";
}

// Of 24 workers' models with momentum, each of which takes 12 MB, a process has those of its own workers.
TEST_F(MemoryLimits, ProcessesThatDivideASimulationHoldTheModelsOfTheirOwnWorkers) {
  write("e.toml", R"(name = "replicas"
[cluster]
workers = 24
micro_batch_s = 0.01
[network]
kind = "free"
[training]
model = "mlp"
dataset = "gaussian-mixture"
micro_batch_size = 1
learning_rate = { schedule = "constant", peak = 0.01 }
optimizer = { name = "sgd", momentum = 0.9 }
[models.mlp]
hidden = [1200, 1200]
[datasets.gaussian-mixture]
train = 480
test = 20
[budget]
steps = 8
[evaluation]
every_steps = 8
train_samples = 20
[[methods]]
algorithm = "local-sgd"
period = { rule = "constant", steps = 4 }
)");
  const std::string run = "run e.toml --quiet --threads 1 --rerun --results results";
  const std::int64_t one = peak_bytes(directory, run);
  const std::int64_t four = peak_bytes_of(directory, "env " SYNCOPATE_QUIET_MPI " " SYNCOPATE_MPIEXEC
                                                     " --oversubscribe -n 4 '" SYNCOPATE_PROGRAM "' " +
                                                         run + " --cluster simulated");
  constexpr std::int64_t model = 2 * 4 * 1'490'000;
  // Of 24 and of 6: the rest is the programs', and what goes between processes.
  EXPECT_GT(one - four, 12 * model) << one << " " << four;
}

constexpr const char* two_small_networks = R"(name = "n"
[cluster]
workers = 4
micro_batch_s = 0.01
[network]
kind = "free"
[training]
model = "linear"
dataset = "gaussian-mixture"
micro_batch_size = 4
learning_rate = { schedule = "constant", peak = 0.05 }
optimizer.name = "sgd"
[budget]
steps = 20
[[methods]]
algorithm = "sync-sgd"
[[methods]]
label = "other"
algorithm = "sync-sgd"
)";

// What LibTorch takes counts alike, though one process may have loaded it by then.
TEST_F(MemoryLimits, APartThatIsTooSmallForOneOfSeveralProcessesIsRefusedAsItIsForOne) {
  write("n.toml", two_small_networks);
  const auto limited = [&](const std::string& options) {
    return shell("timeout 60 '" SYNCOPATE_PROGRAM "' run n.toml " + options);
  };
  const Outcome one = limited("--threads 1 --memory 150MiB"), two = limited("--threads 2 --jobs 2 --memory 300MiB");
  for (const Outcome& outcome : {one, two}) {
    EXPECT_EQ(outcome.status, 2) << outcome.err;
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("\" needs about "), HasSubstr("--memory leaves a process 0.15 GiB")));
  }
  EXPECT_THAT(two.err, HasSubstr("0.15 GiB of 0.29 GiB that 2 processes divide"));
  EXPECT_FALSE(std::filesystem::exists(directory / "results"));
  const Outcome as_many_as_fit = limited("--threads 2 --jobs auto --memory 300MiB");
  EXPECT_EQ(as_many_as_fit.status, 0) << as_many_as_fit.err;
  EXPECT_THAT(as_many_as_fit.err, Not(HasSubstr("processes")));
}

// BLAS maps 128 MiB for each thread, and a simulated worker's stack is 128 KiB: hardly any of it is held.
TEST_F(MemoryLimits, APartThatSufficesIsEnoughForWhatIsMappedAndHardlyHeld) {
  write("n.toml", two_small_networks);
  write("e.toml", std::string(time_only) + "[[methods]]\nlabel = \"other\"\nalgorithm = \"async-sgd\"\n");
  for (const char* const arguments :
       {"n.toml --threads 2 --jobs 2 --memory 420MiB", "n.toml --threads 6 --jobs 2 --memory 420MiB",
        "e.toml --threads 2 --jobs 2 --memory 80MiB cluster.workers=1000"}) {
    const Outcome outcome = shell("timeout 60 '" SYNCOPATE_PROGRAM "' run --rerun " + std::string(arguments));
    EXPECT_EQ(outcome.status, 0) << arguments << "\n" << outcome.out << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("in 2 processes")) << arguments;
  }
}

// OpenBLAS tries for ever to map what it does not get.
TEST_F(MemoryLimits, AProcessInWhichBlasGetsNoBufferEnds) {
  write("n.toml", two_small_networks);
  const Outcome child = shell("(ulimit -d 300000 && timeout 60 '" SYNCOPATE_PROGRAM
                              "' run n.toml --share --job-of 1 --threads 1 --memory-part 200000000 --quiet)");
  EXPECT_LE(child.status, 1) << child.err;
}

// From what does not suffice for the libraries to what suffices for all: each ends, with the reason where it is no good
// end.
TEST_F(MemoryLimits, ALimitOnWhatIsMappedEndsARunWithTheReason) {
  write("n.toml", two_small_networks);
  bool is_enough = false;
  for (int megabytes = 500; megabytes <= 1500; megabytes += 100) {
    const Outcome run =
        shell("(ulimit -v " + std::to_string(1000 * megabytes) +
              " && timeout 60 '" SYNCOPATE_PROGRAM "' run n.toml --rerun --threads 2 --results results)");
    is_enough = run.status == 0;
    if (is_enough) continue;
    EXPECT_EQ(run.status, 1) << megabytes << run.out << run.err;
    EXPECT_THAT(run.out + run.err, HasSubstr("the memory does not suffice")) << megabytes;
  }
  EXPECT_TRUE(is_enough) << "at last";
}

// A copy of the list of all values at each of them would take 4 GB.
TEST_F(MemoryLimits, AnAxisOfThousandsOfValuesTakesMemoryByTheirNumberNotItsSquare) {
  std::string values;
  for (int i = 1; i <= 5000; ++i) values += std::to_string(i) + ",";
  write("e.toml", std::string(time_only) + "[sweep]\n\"budget.steps\" = [" + values + "]\n");
  const std::string command = "cd '" + directory.string() +
                              "' && ulimit -v 2500000 && OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 '" SYNCOPATE_PROGRAM
                              "' check e.toml >out.txt 2>err.txt";
  const int status = std::system(command.c_str());
  EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0) << read("err.txt");
}

// 10 MB of them take 2 GB, and these half of it.
TEST_F(MemoryLimits, AListThatTheMemoryDoesNotHoldIsAFaultOfItsFile) {
  std::string seeds;
  for (int i = 0; i < 2'500'000; ++i) seeds += "11,";
  write("e.toml", "seeds = [" + seeds + "1]\n" + time_only);
  const Outcome outcome = shell("(ulimit -v 700000 && timeout 60 '" SYNCOPATE_PROGRAM "' check e.toml)");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, testing::ContainsRegex(
                               "^e.toml: holds about 25000[0-9][0-9] values; the memory does not suffice: they take "));
}

// Whoever reads the experiment needs LibTorch for the module's sizes.
TEST_F(MemoryLimits, ALibraryThatFindsNoRoomIsNoFaultOfTheModulesFile) {
  for (const char* const limit : {"500000", "700000"}) {
    const Outcome outcome = shell("(ulimit -v " + std::string(limit) +
                                  " && timeout 60 '" SYNCOPATE_PROGRAM "' check '" SYNCOPATE_SOURCE_DIR
                                  "/experiments/examples/own_module.toml')");
    EXPECT_EQ(outcome.status, 1) << limit;
    EXPECT_THAT(outcome.out + outcome.err,
                AllOf(HasSubstr("the memory does not suffice"), Not(HasSubstr("small_cnn.pt"))));
  }
}

// Before any of them is listed.
TEST_F(MemoryLimits, RunsThatTheMemoryDoesNotHoldAreRefusedBeforeTheyAreListed) {
  write("e.toml", time_only);
  for (const std::string what : {"seeds=9000000000000000000",
                                 "seeds=[1] sweep.budget.steps={from=1,to=3000,step=1} "
                                 "sweep.cluster.workers={from=1,to=3000,step=1}"}) {
    const Outcome outcome =
        shell("(ulimit -v 1000000 && timeout 60 '" SYNCOPATE_PROGRAM "' check e.toml --limit 9000000000000000000 " +
              what + ")");
    EXPECT_EQ(outcome.status, 2) << what;
    EXPECT_THAT(outcome.err, HasSubstr("; the memory does not suffice to list them: it takes at least ")) << what;
  }
}

}  // namespace
}  // namespace syncopate
