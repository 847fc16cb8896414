#include "experiments/mpi_launcher.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <mpi.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "workers/cluster.hpp"
#include "workers/interrupt.hpp"

namespace syncopate {
namespace {

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

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> result;
  for (std::string& word : words) result.push_back(word.data());
  result.push_back(nullptr);
  return result;
}

[[noreturn]] void fail_to_start(const std::string& program, int error) {
  throw std::runtime_error(fmt::format("cannot start {}: {}", program, std::generic_category().message(error)));
}

// In a process group of its own, so that Ctrl-C reaches the launcher once: at a second one it gives up on the
// processes it has started.
pid_t start(std::vector<std::string> command) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
  sigset_t usual;  // this program ignores it, which others do not expect
  sigemptyset(&usual);
  sigaddset(&usual, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &usual);
  pid_t child = 0;
  const int error =
      posix_spawnp(&child, command.front().c_str(), &files, &attributes, pointers(command).data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) fail_to_start(command.front(), error);
  return child;
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
  for (const char* option : {"--quiet", "--bind-to", "none", "--oversubscribe"}) launcher.emplace_back(option);
  if (geteuid() == 0) {  // Open MPI refuses root, the usual user of a container, unless told twice
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  }
  return launcher;
}

int run_under_mpi(const std::vector<std::string>& launcher, int ranks, const std::vector<std::string>& arguments) {
  using namespace std::chrono_literals;
  std::vector<std::string> command = launcher;
  command.insert(command.end(),
                 {"-n", std::to_string(ranks), std::filesystem::read_symlink("/proc/self/exe").string()});
  command.insert(command.end(), arguments.begin(), arguments.end());
  const pid_t child = start(std::move(command));
  int status = 0;
  bool passed_on = false;
  while (true) {
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child) break;
    if (ended < 0 && errno != EINTR) fail_to_start(launcher.front(), errno);
    if (interrupted() && !passed_on) {
      kill(child, SIGINT);
      passed_on = true;
    }
    std::this_thread::sleep_for(50ms);
  }
  if (passed_on) throw Interrupted();
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace syncopate
