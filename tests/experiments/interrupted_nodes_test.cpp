// An interruption of ranks on two nodes, which share no memory: one of them says it. Both are this machine, where the
// launcher's daemon of each believes to be on a node of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/experiments/program.hpp"
#include "tests/experiments/program_processes.hpp"

namespace syncopate {
namespace {

// The second run takes days, nearly all of which ranks sleep.
constexpr const char* experiment = R"(name = "nodes"
[cluster]
workers = 4
micro_batch_s = 0.05
pace = "emulate"
[network]
kind = "free"
[training]
model = "quadratic"
[training.learning_rate]
schedule = "constant"
peak = 0.1
[training.optimizer]
name = "sgd"
[budget]
steps = 10
[evaluation]
every_steps = 5
[[methods]]
algorithm = "sync-sgd"
[sweep]
"budget.steps" = [10, 10_000_000]
)";

class InterruptedNodes : public ProgramTest {
 protected:
  // Open MPI starts a node's daemon by a command like ssh's. What the ranks of a node share lies in a directory of its
  // own, since its name is the host's.
  std::string launch_command() const {
    const std::string ssh = write("ssh.sh",
                                  "#!/bin/bash\n"
                                  "while [[ $1 == -* ]]; do shift; done\n"
                                  "export OMPI_MCA_osc_sm_backing_directory='" +
                                      directory.string() +
                                      "'/$1\n"
                                      "mkdir -p \"$OMPI_MCA_osc_sm_backing_directory\"\n"
                                      "shift\n"
                                      "exec bash -c \"$*\"\n");
    std::filesystem::permissions(ssh, std::filesystem::perms::owner_all);
    // Of Open MPI 4, and of 5, whose launcher is PRRTE.
    return SYNCOPATE_QUIET_MPI
           " OMPI_MCA_odls_base_sigkill_timeout=5 PRTE_MCA_odls_base_sigkill_timeout=5"
           " OMPI_MCA_plm_rsh_no_tree_spawn=1 PRTE_MCA_plm_ssh_no_tree_spawn=1 OMPI_MCA_plm_rsh_agent='" +
           ssh + "' PRTE_MCA_plm_ssh_agent='" + ssh +
           "' OMPI_MCA_btl=tcp,self OMPI_MCA_btl_tcp_if_include=lo timeout 300 " SYNCOPATE_MPIEXEC
           " --oversubscribe --host node-a:2,node-b:2 -n 4 '" SYNCOPATE_PROGRAM
           "' run e.toml --quiet --results results";
  }

  bool a_run_is_there() const {
    std::error_code none;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory / "results", none))
      if (entry.path().filename() == "summary.json") return true;
    return false;
  }
};

// Without what the launcher has to say.
std::string lines_of_the_program(const std::string& text) {
  std::string lines, line;
  for (std::istringstream all(text); std::getline(all, line);)
    if (line.starts_with("syncopate:")) lines += line + "\n";
  return lines;
}

// Two daemons on one machine sometimes do not come to start their ranks, which then say nothing: another try.
TEST_F(InterruptedNodes, SayItOnce) {
  write("e.toml", experiment);
  ProgramOutcome outcome;
  for (int tries = 0; tries < 4 && !a_run_is_there(); ++tries) {
    std::thread launcher([&] { outcome = shell(launch_command()); });
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!a_run_is_there() && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    const std::vector<pid_t> launchers = launchers_in(directory);
    EXPECT_EQ(launchers.size(), 1U);
    for (const pid_t process : launchers) kill(process, SIGINT);
    launcher.join();
  }
  EXPECT_TRUE(a_run_is_there());
  EXPECT_NE(outcome.status, 0);
  EXPECT_EQ(processes_in(directory, SYNCOPATE_PROGRAM).size(), 0U);
  if (launcher_shows_all) {
    EXPECT_THAT(lines_of_the_program(outcome.err),
                testing::MatchesRegex("syncopate: rank [01]: ended by the launcher: interrupted, or a rank on "
                                      "another host was lost; finished runs stay[^\n]*\n"));
  }
}

}  // namespace
}  // namespace syncopate
