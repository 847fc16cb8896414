// A rank is killed in the middle of a run. The launcher ends the other ranks in the same way as Ctrl-C does, and they
// still report what happened.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/experiments/emulated_cluster.hpp"
#include "tests/experiments/program.hpp"
#include "tests/experiments/program_processes.hpp"
#include "workers/base/machine.hpp"

namespace syncopate {
namespace {

using testing::HasSubstr;
using testing::Not;

// Returns an experiment of two runs on three ranks, without its training.
std::string on_three_ranks(const std::string& name) {
  return fmt::format("name = \"{}\"\n{}{}[network]\nkind = \"free\"\n[[methods]]\nalgorithm = \"sync-sgd\"\n", name,
                     emulated_cluster(3, 0.05), plain_sgd);
}

// The second run takes days. Ranks spend this time almost entirely sleeping, so they are not killed during a reduction.
const std::string long_sleeps = on_three_ranks("lost") + R"([training]
model = "quadratic"
[evaluation]
every_steps = 5
[sweep]
"budget.steps" = [10, 10_000_000]
)";

// The second run's first gradient takes very long, and no rank can interrupt it.
const std::string long_steps = on_three_ranks("long") + R"([training]
model = "mlp"
dataset = "gaussian-mixture"
[models.mlp]
hidden = [4000, 4000]
[datasets.gaussian-mixture]
train = 12000
test = 10
[evaluation]
train_samples = 10
[budget]
steps = 1
[sweep]
"training.micro_batch_size" = [1, 4000]
)";

class LostRank : public ProgramTest {
 protected:
  // Executes the experiment on three ranks. Once the first run exists, passes the ranks' processes to `disturb`.
  template <typename Disturb>
  ProgramOutcome launch(Disturb disturb, const std::string& what = long_sleeps) {
    write("e.toml", what);
    // By default Open MPI kills surviving processes one second after it has told them to end. On a busy machine they
    // need longer to report. Open MPI always waits for the whole time.
    for (const char* const name : {"OMPI_MCA_odls_base_sigkill_timeout", "PRTE_MCA_odls_base_sigkill_timeout"})
      ::setenv(name, "5", 1);  // one variable is for Open MPI 4, the other for 5
    ProgramOutcome outcome;
    std::thread launcher([&] { outcome = syncopate("run e.toml --quiet --results results", 3); });
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(100);
    while (!a_run_is_there() && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    const std::vector<pid_t> ranks = processes_in(directory, SYNCOPATE_PROGRAM);
    EXPECT_EQ(ranks.size(), 3U);
    if (!ranks.empty()) disturb(ranks);
    launcher.join();
    return outcome;
  }

  bool a_run_is_there() const { return has_file_below("results", "summary.json"); }
};

pid_t launcher_of(pid_t rank) {
  std::ifstream status("/proc/" + std::to_string(rank) + "/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("PPid:")) return std::stoi(line.substr(5));
  return 0;
}

TEST_F(LostRank, IsNamedByTheSurvivorsAndNotCalledAnInterruption) {
  for (const std::size_t victim : {std::size_t{0}, std::size_t{2}}) {
    const auto outcome = launch([&](const std::vector<pid_t>& ranks) { kill(ranks[victim], SIGKILL); });
    EXPECT_NE(outcome.status, 0);
    EXPECT_NE(outcome.status, 130);
    EXPECT_THAT(outcome.err, testing::ContainsRegex(a_rank_was_lost()));
    if (launcher_shows_all) {
      EXPECT_THAT(outcome.err, HasSubstr("finished runs stay"));
    }
    EXPECT_THAT(outcome.err, Not(HasSubstr("interrupted")));
    EXPECT_TRUE(a_run_is_there());
    std::filesystem::remove_all(directory / "results");
  }
}

TEST_F(LostRank, IsNotClaimedWhereTheUserInterruptsALongStepEither) {
  const auto outcome =
      launch([](const std::vector<pid_t>& ranks) { kill(launcher_of(ranks.front()), SIGINT); }, long_steps);
  if (launcher_shows_all) {
    EXPECT_THAT(outcome.err, HasSubstr("interrupted; finished runs stay"));
  }
  EXPECT_NE(outcome.status, 0);
  EXPECT_THAT(outcome.err, Not(HasSubstr("lost")));
}

TEST_F(LostRank, IsNotClaimedWhereTheUserInterrupts) {
  const auto outcome = launch([](const std::vector<pid_t>& ranks) { kill(launcher_of(ranks.front()), SIGINT); });
  if (launcher_shows_all) {
    EXPECT_THAT(outcome.err, HasSubstr("interrupted; finished runs stay"));
  }
  EXPECT_NE(outcome.status, 0);
  EXPECT_THAT(outcome.err, Not(HasSubstr("lost")));
}

// `dev mpirun` when its output cannot be written. Ranks write into a pipe of mpirun, so they do not notice.

using testing::HasSubstr;

constexpr const char* one_run = R"(name = "time"
[cluster]
workers = 2
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

class DevMpirun : public ProgramTest {
 protected:
  // Makes a complete build folder, in which CMake and Ninja find nothing to do.
  void SetUp() override {
    ProgramTest::SetUp();
    write("e.toml", one_run);
    std::filesystem::create_directories(directory / "build/bin");
    std::filesystem::create_directories(directory / "tools");
    std::filesystem::create_symlink(SYNCOPATE_PROGRAM, directory / "build/bin/syncopate");
    program("tools/cmake",
            "touch build/build.ninja; echo MPIEXEC_EXECUTABLE:FILEPATH=$PWD/launcher >build/CMakeCache.txt");
    program("tools/ninja", "exit 0");
    ASSERT_EQ(dev("build").status, 0);
  }
  void program(const std::string& name, const std::string& text) const {
    std::filesystem::permissions(write(name, "#!/bin/sh\n" + text + "\n"), std::filesystem::perms::owner_all);
  }

  // Executes `dev` with these words, which may contain redirections in the shell's syntax.
  ProgramOutcome dev(const std::string& words, const std::string& limit = "300") const {
    return shell("{ PATH=\"$PWD/tools:$PATH\" BUILD_DIR=\"$PWD/build\" SYNCOPATE_INSTALL=0 timeout " + limit + " '" +
                 std::string(SYNCOPATE_SOURCE_DIR) + "/dev' " + words + "; }");
  }
  ProgramOutcome mpirun_with(const std::string& redirections) const {
    return dev("mpirun e.toml --results results " + redirections);
  }
  bool has_results() const { return has_file_below("results", "summary.json"); }
};

constexpr const char* mpiexec = "exec " SYNCOPATE_MPIEXEC " \"$@\"";

TEST_F(DevMpirun, PrintsTheTable) {
  program("launcher", mpiexec);
  const ProgramOutcome outcome = mpirun_with("");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("\nsync-sgd "));
}

TEST_F(DevMpirun, FailsWhereTheTableIsLost) {
  program("launcher", mpiexec);
  const ProgramOutcome full = mpirun_with(">/dev/full");
  EXPECT_EQ(full.status, 1);
  EXPECT_THAT(full.err, HasSubstr("dev: standard output could not be written: No space left on device\n"));
  EXPECT_TRUE(has_results()) << "which matter more than messages";
}

TEST_F(DevMpirun, SaysWhyItsOutputIsLost) {
  program("launcher", "echo the table");
  EXPECT_THAT(mpirun_with(">/dev/full").err, HasSubstr("could not be written: No space left on device\n"));
  const ProgramOutcome closed = mpirun_with(">&-");
  EXPECT_EQ(closed.status, 1);
  EXPECT_EQ(closed.err, "dev: standard output could not be written: Bad file descriptor\n");
  // The status goes to a file, because the shell returns the status of `true`, which ends at once without reading.
  program("launcher", "sleep 0.5; echo the table");
  mpirun_with("2>said.txt; echo $? >status.txt; } | { true");
  EXPECT_EQ(read("status.txt"), "1\n");
  EXPECT_EQ(read("said.txt"), "dev: standard output could not be written: Broken pipe\n");
}

TEST_F(DevMpirun, LetsTheRanksGoOnWhereNobodyReads) {
  program("launcher", "yes | head -c 1000000; echo all >said.txt");
  EXPECT_EQ(mpirun_with(">/dev/full").status, 1);
  EXPECT_EQ(read("said.txt"), "all\n");
}

TEST_F(DevMpirun, HasTheLaunchersStatus) {
  for (const int status : {0, 1, 2, 130}) {
    program("launcher", "echo the table; exit " + std::to_string(status));
    const ProgramOutcome outcome = mpirun_with("");
    EXPECT_EQ(outcome.status, status);
    EXPECT_EQ(outcome.out, "the table\n");
    EXPECT_EQ(outcome.err, "");
    EXPECT_EQ(mpirun_with(">/dev/full").status, status == 0 ? 1 : status);
  }
}

// After Ctrl-C, the mpirun of Open MPI 5 no longer shows the ranks' output.
TEST_F(DevMpirun, SpeaksForTheRanksWhereTheLauncherDoesNot) {
  for (const auto& [version, is_said] : {std::pair("5.0.7", true), std::pair("4.1.4", false)}) {
    program("launcher",
            "[ \"$1\" = --version ] || exec sleep 60\necho 'mpirun (Open MPI) " + std::string(version) + "'");
    const ProgramOutcome outcome = dev("mpirun e.toml --results results", "--signal=INT 5");
    EXPECT_EQ(outcome.err.find("dev: interrupted; finished runs stay\n") != std::string::npos, is_said) << outcome.err;
  }
}

// A mistyped word must not start the benchmarks, because building and running them takes minutes.
TEST_F(DevMpirun, BenchBuildsNothingForOtherWordsThanAFilter) {
  program("tools/ninja", "touch built");
  const auto help = dev("bench --help");
  EXPECT_EQ(help.status, 0);
  EXPECT_THAT(help.out, HasSubstr("bench [filter]"));
  for (const std::string words : {"bench --fast", "bench -x", "bench one two"})
    EXPECT_EQ(dev(words).status, 2) << words;
  EXPECT_FALSE(std::filesystem::exists(directory / "built"));
}

}  // namespace
}  // namespace syncopate
