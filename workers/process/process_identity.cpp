#include "workers/process/process_identity.hpp"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <system_error>

namespace syncopate {
namespace {

// The name of a host is not enough: containers may share it, and a file system too.
std::string this_machine() {
  std::string start;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), start);
  std::error_code error;
  const std::string numbers = std::filesystem::read_symlink("/proc/self/ns/pid", error).string();
  return start.empty() || error ? "" : start + " " + numbers;
}

struct Status {
  char state = 0;
  std::uint64_t start = 0;
};

// Of /proc/<number>/stat, behind the name, which may have blanks and brackets: the 3rd and the 22nd field.
std::optional<Status> status_of(pid_t number) {
  std::ifstream file("/proc/" + std::to_string(number) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto name_end = text.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream fields(text.substr(name_end + 1));
  Status status;
  std::string skipped;
  fields >> status.state;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  if (!(fields >> status.start)) return {};
  return status;
}

}  // namespace

ProcessIdentity this_process() {
  const auto status = status_of(getpid());
  return {.machine = this_machine(), .number = getpid(), .start = status ? status->start : 0};
}

ProcessState state_of(const ProcessIdentity& process) {
  static const std::string here = this_machine();
  if (process.machine.empty() || process.machine != here || process.number <= 0) return ProcessState::unknown;
  const auto status = status_of(process.number);
  if (!status) {
    const bool is_gone = kill(process.number, 0) != 0 && errno == ESRCH;
    return is_gone ? ProcessState::gone : ProcessState::unknown;
  }
  const bool has_ended = status->state == 'Z' || status->state == 'X';
  return has_ended || status->start != process.start ? ProcessState::gone : ProcessState::running;
}

}  // namespace syncopate
