#include "workers/process/child_process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <stdexcept>
#include <system_error>

namespace syncopate {
namespace {

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> result;
  for (std::string& word : words) result.push_back(word.data());
  result.push_back(nullptr);
  return result;
}

[[noreturn]] void fail_to_start(const std::string& program, int error) {
  throw std::runtime_error(fmt::format("cannot start {}: {}", program, std::generic_category().message(error)));
}

void redirect(int descriptor, const char* file, int flags) {
  const int opened = open(file, flags);
  if (opened >= 0) dup2(opened, descriptor);
}

// Between fork and exec: only what signal handlers may do too.
[[noreturn]] void become(char* const* command, pid_t parent, int failed) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(1);
  for (const int ignored : {SIGPIPE, SIGXFSZ}) signal(ignored, SIG_DFL);  // here, which others do not expect
  redirect(STDIN_FILENO, "/dev/null", O_RDONLY);
  redirect(STDOUT_FILENO, "/dev/null", O_WRONLY);
  execvp(command[0], command);
  const int error = errno;
  (void)!write(failed, &error, sizeof error);
  _exit(127);
}

}  // namespace

pid_t start_child(std::vector<std::string> command) {
  int failed[2];
  if (pipe2(failed, O_CLOEXEC) != 0) fail_to_start(command.front(), errno);
  const std::vector<char*> words = pointers(command);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) become(words.data(), parent, failed[1]);
  int error = child < 0 ? errno : 0;
  close(failed[1]);
  if (child > 0) (void)!read(failed[0], &error, sizeof error);  // until it is another program, or cannot become it
  close(failed[0]);
  if (error == 0) return child;
  if (child > 0) waitpid(child, nullptr, 0);
  fail_to_start(command.front(), error);
}

std::string own_program() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

}  // namespace syncopate
