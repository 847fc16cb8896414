// Runs the built program in a separate directory, as users do.
#pragma once

#include <gtest/gtest.h>
#include <mpi.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

// In this environment, mpirun accepts root and uses only shared memory for messages. Open MPI 4 prints nothing about
// ranks that end with a status other than 0.
#define SYNCOPATE_QUIET_MPI                                    \
  "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 " \
  "OMPI_MCA_orte_execute_quiet=1 OMPI_MCA_btl=^tcp"

namespace syncopate {

// After an interruption, the mpirun of Open MPI 5 no longer shows the output of ranks (./dev prints a message instead).
// If it ends the ranks because one was killed, it shows only a part of their output.
#if defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5
inline constexpr bool launcher_shows_all = false;
#else
inline constexpr bool launcher_shows_all = true;
#endif

// Returns a regular expression for the message after one of three ranks was killed.
inline std::string a_rank_was_lost() {
  const std::string by_ranks = "rank [0-2] on host [^ ]+ was lost", by_launcher = "that process rank [0-2] with";
  return launcher_shows_all ? by_ranks : by_ranks + "|" + by_launcher;
}

// An experiment without a model, which takes milliseconds.
inline constexpr const char* time_only = R"(name = "time"
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

struct ProgramOutcome {
  int status = -1;
  std::string out;
  std::string err;
};

class ProgramTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* const test = testing::UnitTest::GetInstance()->current_test_info();
    directory = std::filesystem::temp_directory_path() /
                (std::string("syncopate_") + test->test_suite_name() + test->name() + std::to_string(getpid()));
    std::filesystem::remove_all(directory);
    std::filesystem::create_directories(directory);
  }
  void TearDown() override { std::filesystem::remove_all(directory); }

  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(directory / name, std::ios::binary) << text;
    return (directory / name).string();
  }

  std::string read(const std::filesystem::path& name) const {
    std::ostringstream text;
    text << std::ifstream(directory / name).rdbuf();
    return text.str();
  }

  // Returns the files and folders below this folder, even while the program adds, renames and removes some. The list
  // may end early at an entry that the program has just removed.
  std::vector<std::filesystem::path> paths_below(const std::string& folder) const {
    std::vector<std::filesystem::path> paths;
    std::error_code gone;
    for (std::filesystem::recursive_directory_iterator at(directory / folder, gone), end; !gone && at != end;
         at.increment(gone))
      paths.push_back(at->path());
    return paths;
  }
  bool has_file_below(const std::string& folder, const std::string& name) const {
    return std::ranges::any_of(paths_below(folder), [&](const auto& path) { return path.filename() == name; });
  }

  // Runs the program in the shell, so `arguments` are quoted as a user would quote them. If `ranks` is above 0, runs it
  // under mpirun.
  ProgramOutcome syncopate(const std::string& arguments, int ranks = 0) const {
    const std::string command = "'" SYNCOPATE_PROGRAM "' " + arguments;
    return ranks > 0 ? mpirun({{ranks, command}}) : shell(command);
  }

  // Runs several commands in one launch, each with its number of ranks. A script selects a rank's command by the rank's
  // number, because mpirun of Open MPI 5.0.7 crashes if it is given several commands.
  ProgramOutcome mpirun(const std::vector<std::pair<int, std::string>>& parts) const {
    std::string script = "#!/bin/sh\n";
    int ranks = 0;
    for (const auto& [count, command] : parts) {
      ranks += count;
      script += "[ $OMPI_COMM_WORLD_RANK -ge " + std::to_string(ranks) + " ] || exec " + command + "\n";
    }
    write("ranks.sh", script);
    ProgramOutcome outcome = shell(SYNCOPATE_QUIET_MPI " timeout 300 " SYNCOPATE_MPIEXEC " --oversubscribe -n " +
                                   std::to_string(ranks) + " sh ranks.sh");
    outcome.err = without_launcher(outcome.err);
    return outcome;
  }

  // Removes the text that mpirun of Open MPI 5 prints about failed ranks: a NUL, and text between two lines of dashes.
  // Keeps the line about the killed rank, because mpirun may end before it has shown the other ranks' messages about
  // it.
  static std::string without_launcher(std::string text) {
    std::erase(text, '\0');
    std::istringstream lines(text);
    std::string rest;
    bool is_launchers = false;
    for (std::string line; std::getline(lines, line);) {
      if (line.size() > 70 && line.find_first_not_of('-') == line.npos)
        is_launchers = !is_launchers;
      else if (!is_launchers || line.starts_with("prterun noticed that process rank"))
        rest += line + "\n";
    }
    return rest;
  }

  ProgramOutcome shell(const std::string& what) const {
    const std::string command = "cd '" + directory.string() + "' && " + what + " >out.txt 2>err.txt </dev/null";
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read("out.txt"), read("err.txt")};
  }

  std::filesystem::path directory;
};

}  // namespace syncopate
