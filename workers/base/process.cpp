#include "workers/base/process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <system_error>
#include <thread>
#include <utility>

namespace syncopate {

namespace {

[[noreturn]] void fail_to_start(const std::string& program, int error) {
  throw std::runtime_error(fmt::format("cannot start {}: {}", program, std::generic_category().message(error)));
}

void redirect(int descriptor, const char* file, int flags) {
  const int opened = open(file, flags);
  if (opened >= 0) dup2(opened, descriptor);
}

// Runs between fork and exec, where only async-signal-safe functions may be called.
[[noreturn]] void become(char* const* command, pid_t parent, int failed) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(1);
  for (const int ignored : {SIGPIPE, SIGXFSZ}) signal(ignored, SIG_DFL);  // only this program ignores them
  redirect(STDIN_FILENO, "/dev/null", O_RDONLY);
  redirect(STDOUT_FILENO, "/dev/null", O_WRONLY);
  execvp(command[0], command);
  const int error = errno;
  (void)!write(failed, &error, sizeof error);
  _exit(127);
}

std::atomic<bool> flag{false};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<std::atomic<int>*>::is_always_lock_free,
              "a signal handler may only touch lock-free atomics");

std::atomic<std::atomic<int>*> notified_word{nullptr};
std::atomic<int> notified_value{0};

// These objects need no destruction, because the ending thread can still use them after main has returned.
sem_t signalled;
std::mutex ending;             // the ending thread holds it when it ends the process
LastAct* last_made = nullptr;  // guarded by `ending`

void on_signal(int) {
  if (std::atomic<int>* const word = notified_word.load()) word->store(notified_value.load());
  if (flag.exchange(true, std::memory_order_relaxed)) _exit(exit_interrupted);
  sem_post(&signalled);
}

void handle(int signal, int flags) {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = flags;
  sigaction(signal, &action, nullptr);
}

// Limits the time of last acts, which may block, for example on a pipe that nobody reads. Zero removes the limit.
void limit_last_acts(std::chrono::microseconds limit) {
  handle(SIGALRM, 0);
  const itimerval once{.it_interval = {}, .it_value = {.tv_sec = 0, .tv_usec = limit.count()}};
  setitimer(ITIMER_REAL, &once, nullptr);
}

// The host name does not identify a machine, because containers that share a file system can have the same one.
std::string this_machine() {
  std::string start;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), start);
  std::error_code error;
  const std::string numbers = std::filesystem::read_symlink("/proc/self/ns/pid", error).string();
  return start.empty() || error ? "" : start + " " + numbers;
}

struct ProcessStatus {
  char state = 0;
  std::uint64_t start = 0;
};

// Returns fields 3 (state) and 22 (start) of /proc/<number>/stat. Counts them from the end of field 2, the process
// name, because the name may contain blanks and brackets.
std::optional<ProcessStatus> status_of(pid_t number) {
  std::ifstream file("/proc/" + std::to_string(number) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto name_end = text.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream fields(text.substr(name_end + 1));
  ProcessStatus status;
  std::string skipped;
  fields >> status.state;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  if (!(fields >> status.start)) return {};
  return status;
}

}  // namespace

pid_t start_child(std::vector<std::string> command) {
  int failed[2];
  if (pipe2(failed, O_CLOEXEC) != 0) fail_to_start(command.front(), errno);
  std::vector<char*> words;
  for (std::string& word : command) words.push_back(word.data());
  words.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) become(words.data(), parent, failed[1]);
  int error = child < 0 ? errno : 0;
  close(failed[1]);
  // The call returns when exec has closed the pipe, or when the child has written its error.
  if (child > 0) (void)!read(failed[0], &error, sizeof error);
  close(failed[0]);
  if (error == 0) return child;
  if (child > 0) waitpid(child, nullptr, 0);
  fail_to_start(command.front(), error);
}

std::string own_program() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

void end_after_signal() {
  while (sem_wait(&signalled) != 0) {
  }
  std::this_thread::sleep_for(time_to_end);
  const std::lock_guard until_the_end(ending);
  limit_last_acts(time_for_last_acts);
  try {
    for (const LastAct* act = last_made; act; act = act->before_)
      if (!act->done_) act->act_();
  } catch (...) {  // out of memory
  }
  _exit(exit_interrupted);
}

LastAct::LastAct(std::function<void()> act) : act_(std::move(act)) {
  const std::lock_guard lock(ending);
  before_ = std::exchange(last_made, this);
}

LastAct::~LastAct() {
  const std::lock_guard lock(ending);
  LastAct** link = &last_made;
  while (*link != this) link = &(*link)->before_;
  *link = before_;
}

void LastAct::do_now() {
  const std::lock_guard lock(ending);
  if (std::exchange(done_, true)) return;
  limit_last_acts(time_for_last_acts);
  act_();
  limit_last_acts(std::chrono::microseconds(0));
}

std::unique_lock<std::mutex> hold_off_end() { return std::unique_lock(ending); }

void install_interrupt_handlers() {
  static const bool installed = [] {
    sem_init(&signalled, 0, 0);
    std::thread(end_after_signal).detach();
    for (const int signal : {SIGINT, SIGTERM}) handle(signal, SA_RESTART);  // so that no write to a file is cut short
    return true;
  }();
  (void)installed;
}

void notify_of_interrupt(std::atomic<int>* word, int value) {
  notified_word.store(nullptr);
  notified_value.store(value);
  notified_word.store(word);
}

bool interrupted() { return flag.load(std::memory_order_relaxed); }

void set_interrupted(bool value) { flag.store(value, std::memory_order_relaxed); }

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

// Closes the writing end, so that reading an empty pipe returns the end of the file instead of blocking.
SharedToken::SharedToken() {
  int ends[2];
  constexpr char token = 't';
  if (pipe(ends) != 0) throw std::system_error(errno, std::generic_category(), "a pipe");
  descriptor_ = ends[0];
  const bool is_there = write(ends[1], &token, 1) == 1;
  const int error = errno;
  close(ends[1]);
  if (is_there) return;
  close(ends[0]);
  throw std::system_error(error, std::generic_category(), "a pipe");
}

SharedToken::~SharedToken() { close(descriptor_); }

bool SharedToken::take() {
  char token = 0;
  while (true) {
    const ssize_t bytes = read(descriptor_, &token, 1);
    if (bytes >= 0 || errno != EINTR) return bytes == 1;
  }
}

}  // namespace syncopate
