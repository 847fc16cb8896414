// Runs the built program in a directory of its own, as its users do.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace syncopate {

// Virtual time alone: takes milliseconds.
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

  // Runs the program through the shell, so `arguments` are quoted as a user would; with `ranks` under mpirun.
  ProgramOutcome syncopate(const std::string& arguments, int ranks = 0) const {
    const std::string command = "'" SYNCOPATE_PROGRAM "' " + arguments;
    return ranks > 0 ? mpirun({{ranks, command}}) : shell(command);
  }

  // One launch of several commands, each by so many ranks.
  ProgramOutcome mpirun(const std::vector<std::pair<int, std::string>>& parts) const {
    std::string command = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 300 " SYNCOPATE_MPIEXEC
                          " --quiet --oversubscribe";
    for (std::size_t i = 0; i < parts.size(); ++i)
      command += (i > 0 ? " : -n " : " -n ") + std::to_string(parts[i].first) + " " + parts[i].second;
    return shell(command);
  }

  ProgramOutcome shell(const std::string& what) const {
    const std::string command = "cd '" + directory.string() + "' && " + what + " >out.txt 2>err.txt </dev/null";
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read("out.txt"), read("err.txt")};
  }

  std::filesystem::path directory;
};

}  // namespace syncopate
