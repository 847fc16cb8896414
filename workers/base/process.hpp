// This process and others: children, exit statuses, interruption by Ctrl-C, identities.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

namespace syncopate {

// Starts another program as a child that does not outlive this process. It has no input, and writes to standard error
// alone. It has its own process group, so that Ctrl-C reaches it only through this process. However this process ends,
// the child gets SIGTERM. (The kernel sends it when the calling thread ends: call it from the main thread.) Throws
// std::runtime_error if the program cannot be started.
pid_t start_child(std::vector<std::string> command);

// The path of this program, to start it again as a child.
std::string own_program();

// Exit statuses.
inline constexpr int exit_success = 0;
inline constexpr int exit_failure = 1;        // something failed while running
inline constexpr int exit_usage = 2;          // wrong usage, configuration or data: nothing was run
inline constexpr int exit_interrupted = 130;  // the shells' status of SIGINT

// The user interrupted the run (Ctrl-C).
struct Interrupted : std::runtime_error {
  Interrupted() : std::runtime_error("interrupted") {}
};

// After the first signal the program has so long to end by itself, and all last acts together have so long.
inline constexpr std::chrono::milliseconds time_to_end{300};
inline constexpr std::chrono::milliseconds time_for_last_acts{500};

// From now on the first SIGINT or SIGTERM raises a flag that clusters poll, so that a run ends between two events and
// not within a file. The second signal ends the process at once with status 130. One step of a large model can keep a
// cluster from polling for minutes: after time_to_end an ending thread does the last acts and exits with status 130.
// Later calls change nothing.
void install_interrupt_handlers();

// An act of the ending thread, done while other threads go on: it must read only what they do not change. The newest
// comes first. Once acts have begun, making, doing or destroying one waits for the end.
class LastAct {
 public:
  explicit LastAct(std::function<void()> act);
  ~LastAct();
  // For a thread that sees the flag before the process has ended: does the act now, in the time for last acts, while
  // the ending thread waits. An act is done once.
  void do_now();
  LastAct(const LastAct&) = delete;
  LastAct& operator=(const LastAct&) = delete;

 private:
  friend void end_after_signal();
  std::function<void()> act_;
  bool done_ = false;
  LastAct* before_ = nullptr;
};

// The ending thread waits while this is held. For work that must be done wholly or not at all, and is short or polls
// the flag itself. Make, do and destroy no last acts meanwhile.
[[nodiscard]] std::unique_lock<std::mutex> hold_off_end();

// When a signal raises the flag, `word` (null: none) becomes `value`, for other processes that see it.
void notify_of_interrupt(std::atomic<int>* word, int value);

// True once the flag is raised. Costs one relaxed load, so it may be polled at every event.
bool interrupted();

// For loops whose length depends on a configuration.
inline void throw_if_interrupted() {
  if (interrupted()) throw Interrupted();
}

// Raises the flag or lowers it again (tests).
void set_interrupted(bool value);

// A process of a machine, so that another one can check whether it still runs.
struct ProcessIdentity {
  std::string machine;      // the system's start and the namespace of process numbers; empty: not known
  pid_t number = 0;         // within that namespace
  std::uint64_t start = 0;  // in ticks since the system's start; tells processes with the same number apart

  bool operator==(const ProcessIdentity&) const = default;
};

ProcessIdentity this_process();

enum class ProcessState {
  running,  // or stopped
  gone,     // or ended without being waited for
  unknown,  // on another machine, or in another container
};

ProcessState state_of(const ProcessIdentity& process);

// A run that cannot go on: what, which worker, when. Exit status 1.
struct RunFailure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A token that only one of this process and its children can take: a pipe that holds one byte, as in make's jobserver.
class SharedToken {
 public:
  // A free token. Children inherit it, also those that are other programs. Throws std::system_error.
  SharedToken();
  // The token of the parent process, by its descriptor there.
  explicit SharedToken(int descriptor) : descriptor_(descriptor) {}
  ~SharedToken();
  SharedToken(const SharedToken&) = delete;
  SharedToken& operator=(const SharedToken&) = delete;

  // True for the first caller. Never waits.
  bool take();
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

}  // namespace syncopate
