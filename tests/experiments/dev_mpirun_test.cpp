// `dev mpirun` where what the ranks say cannot be written: they write into a pipe of mpirun's, and cannot know.
#include <gmock/gmock.h>

#include <filesystem>
#include <string>

#include "tests/experiments/program.hpp"

namespace syncopate {
namespace {

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
  // A build folder that is complete: CMake and Ninja find nothing to do.
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

  // With redirections in the shell's words.
  ProgramOutcome dev(const std::string& words, const std::string& limit = "300") const {
    return shell("{ PATH=\"$PWD/tools:$PATH\" BUILD_DIR=\"$PWD/build\" SYNCOPATE_INSTALL=0 timeout " + limit + " '" +
                 std::string(SYNCOPATE_SOURCE_DIR) + "/dev' " + words + "; }");
  }
  ProgramOutcome mpirun_with(const std::string& redirections) const {
    return dev("mpirun e.toml --results results " + redirections);
  }
  bool has_results() const {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory / "results"))
      if (entry.path().filename() == "summary.json") return true;
    return false;
  }
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
  // Its status stands in a file: the pipeline's is its reader's, which ends at once and has read nothing.
  program("launcher", "sleep 0.5; echo the table");
  mpirun_with("2>said.txt; echo $? >status.txt; } | { true");
  EXPECT_EQ(read("status.txt"), "1\n");
  EXPECT_EQ(read("said.txt"), "dev: standard output could not be written: Broken pipe\n");
}

// Every rank writes until it has said all, whoever listens.
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

// After Ctrl-C mpirun of Open MPI 5 shows nothing any more of what the ranks say.
TEST_F(DevMpirun, SpeaksForTheRanksWhereTheLauncherDoesNot) {
  for (const auto& [version, is_said] : {std::pair("5.0.7", true), std::pair("4.1.4", false)}) {
    program("launcher",
            "[ \"$1\" = --version ] || exec sleep 60\necho 'mpirun (Open MPI) " + std::string(version) + "'");
    const ProgramOutcome outcome = dev("mpirun e.toml --results results", "--signal=INT 5");
    EXPECT_EQ(outcome.err.find("dev: interrupted; finished runs stay\n") != std::string::npos, is_said) << outcome.err;
  }
}

// Benchmarks take minutes to build and to run: not for a word that was meant otherwise.
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
