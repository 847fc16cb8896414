#include "experiments/commands/mpi_launcher.hpp"

#include <fmt/format.h>
#include <mpi.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "workers/process/child_process.hpp"
#include "workers/process/interrupt.hpp"

namespace syncopate {
namespace {

using Clock = std::chrono::steady_clock;

// It ends its ranks first, which takes Open MPI's two seconds; but it may hang.
constexpr std::chrono::seconds time_for_launcher{10};

#ifdef OPEN_MPI
constexpr bool is_open_mpi = true;
#else
constexpr bool is_open_mpi = false;
#endif

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

bool is_executable(const std::filesystem::path& path) {
  return std::filesystem::is_regular_file(path) && access(path.c_str(), X_OK) == 0;
}

bool can_be_found(const std::string& program) {
  if (program.find('/') != std::string::npos) return is_executable(program);
  const char* path = std::getenv("PATH");
  std::istringstream folders(path ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (is_executable(std::filesystem::path(folder) / program)) return true;
  return false;
}

}  // namespace

std::vector<std::string> mpi_launcher(const std::string& chosen) {
  const char* from_environment = std::getenv("MPIEXEC");
  std::string text = chosen;
  if (text.empty()) text = from_environment && *from_environment ? from_environment : SYNCOPATE_MPIEXEC;
  std::vector<std::string> launcher = words_of(text);
  if (launcher.empty() || !can_be_found(launcher.front()))
    throw std::runtime_error(
        fmt::format("{}: no such program to start MPI with; name one with --mpiexec or MPIEXEC, or install Open MPI",
                    launcher.empty() ? text : launcher.front()));
  const std::string name = std::filesystem::path(launcher.front()).filename();
  if (!is_open_mpi || (name.find("mpirun") == std::string::npos && name.find("mpiexec") == std::string::npos &&
                       name.find("orterun") == std::string::npos))
    return launcher;
  for (const char* option : {"--bind-to", "none", "--oversubscribe"}) launcher.emplace_back(option);
  // No word about ranks that ended with a status other than 0, which say why themselves. (That of Open MPI 5 stays.)
  setenv("OMPI_MCA_orte_execute_quiet", "1", 1);
  if (geteuid() == 0) {  // Open MPI refuses root, the usual user of a container, unless told twice
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  }
  return launcher;
}

int run_under_mpi(const std::vector<std::string>& launcher, int ranks, const std::vector<std::string>& arguments) {
  using namespace std::chrono_literals;
  std::vector<std::string> command = launcher;
  command.insert(command.end(), {"-n", std::to_string(ranks), own_program()});
  command.insert(command.end(), arguments.begin(), arguments.end());
  const auto held = hold_off_end();  // this process looks at the flag, and does not end before the launcher
  const pid_t child = start_child(std::move(command));
  int status = 0;
  std::optional<Clock::time_point> killed_at;  // once it is interrupted
  while (true) {
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child) break;
    if (ended < 0 && errno != EINTR)
      throw std::runtime_error(
          fmt::format("cannot wait for {}: {}", launcher.front(), std::generic_category().message(errno)));
    if (interrupted() && !killed_at) {
      kill(child, SIGINT);
      killed_at = Clock::now() + time_for_launcher;
    }
    if (killed_at && Clock::now() > *killed_at) kill(child, SIGKILL);
    std::this_thread::sleep_for(20ms);
  }
  if (killed_at) throw Interrupted();
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace syncopate
