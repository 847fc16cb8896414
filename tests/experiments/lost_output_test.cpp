// The built program where what it says cannot be written: a full device, a closed stream, a reader that goes away.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/experiments/program.hpp"

namespace syncopate {
namespace {

using testing::HasSubstr;

class LostOutput : public ProgramTest {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    file_ = write("e.toml", std::string("seeds = [1, 2, 3]\n") + time_only);
  }

  // Directories of runs that are whole.
  std::ptrdiff_t finished() const {
    namespace fs = std::filesystem;
    const auto is_summary = [](const fs::directory_entry& entry) { return entry.path().filename() == "summary.json"; };
    return std::count_if(fs::recursive_directory_iterator(directory / "results"), {}, is_summary);
  }

  // With a stream of its own in the shell's words; the other one goes to out.txt or err.txt as usual.
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
  // The status stands in a file: the pipeline's is its reader's, which ends at once and has read nothing.
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

}  // namespace
}  // namespace syncopate
