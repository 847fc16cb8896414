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

// Starts another program as a child. The child has no input and writes only to standard error. Its own process group
// ensures that Ctrl-C reaches it only through this process. However this process ends, the child gets SIGTERM. (The
// kernel sends it when the calling thread ends: call it from the main thread.) Throws std::runtime_error if the program
// cannot be started.
pid_t start_child(std::vector<std::string> command);

// The path of this program, to start it again as a child.
std::string own_program();

// Exit statuses.
inline constexpr int exit_success = 0;
inline constexpr int exit_failure = 1;        // something failed while running
inline constexpr int exit_usage = 2;          // wrong usage, configuration or data: nothing ran
inline constexpr int exit_interrupted = 130;  // the shells' status of SIGINT

// The user interrupted the run (Ctrl-C).
struct Interrupted : std::runtime_error {
  Interrupted() : std::runtime_error("interrupted") {}
};

// Time for the program to end by itself after the first signal, and time for all last acts together.
inline constexpr std::chrono::milliseconds time_to_end{300};
inline constexpr std::chrono::milliseconds time_for_last_acts{500};

// After this call the first SIGINT or SIGTERM raises a flag that clusters poll, so that a run ends between two events
// and not within a file. The second signal ends the process at once with status 130. One step of a large model can keep
// a cluster from polling for minutes: after time_to_end an ending thread does the last acts and exits with status 130.
// Later calls have no effect.
void install_interrupt_handlers();

// An action of the ending thread, performed while other threads continue: it may read only what they do not change. The
// newest comes first. Once the acts have begun, creating, doing or destroying one waits for the end.
class LastAct {
 public:
  explicit LastAct(std::function<void()> act);
  ~LastAct();
  // For a thread that sees the flag before the process has ended: performs the act now, within the time for last acts,
  // while the ending thread waits. An act is done only once.
  void do_now();
  LastAct(const LastAct&) = delete;
  LastAct& operator=(const LastAct&) = delete;

 private:
  friend void end_after_signal();
  std::function<void()> act_;
  bool done_ = false;
  LastAct* before_ = nullptr;
};

// The ending thread waits while this lock is held. For work that must be done completely or not at all, and is short or
// polls the flag itself. Do not create, do or destroy last acts meanwhile.
[[nodiscard]] std::unique_lock<std::mutex> hold_off_end();

// When a signal raises the flag, sets `word` (null: none) to `value`, for other processes that see it.
void notify_of_interrupt(std::atomic<int>* word, int value);

// True once the flag is raised. Costs one relaxed load, so it may be polled at every event.
bool interrupted();

// Call it in loops whose length depends on a configuration.
inline void throw_if_interrupted() {
  if (interrupted()) throw Interrupted();
}

// Raises or lowers the flag (tests).
void set_interrupted(bool value);

// Identifies a process of a machine, so that another process can check whether it still runs.
struct ProcessIdentity {
  std::string machine;      // the system's start and the namespace of process numbers; empty: unknown
  pid_t number = 0;         // within that namespace
  std::uint64_t start = 0;  // in ticks since the system's start; distinguishes processes with the same number

  bool operator==(const ProcessIdentity&) const = default;
};

ProcessIdentity this_process();

enum class ProcessState {
  running,  // or stopped
  gone,     // or ended, but not yet waited for
  unknown,  // on another machine, or in another container
};

ProcessState state_of(const ProcessIdentity& process);

// A run that cannot continue: the message says what failed, for which worker, and when. Exit status 1.
struct RunFailure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A token that this process and its children share; only one can take it. A pipe that holds one byte, as in make's
// jobserver.
class SharedToken {
 public:
  // Creates a free token. Children inherit it, also other programs. Throws std::system_error.
  SharedToken();
  // The parent process's token, by its descriptor there.
  explicit SharedToken(int descriptor) : descriptor_(descriptor) {}
  ~SharedToken();
  SharedToken(const SharedToken&) = delete;
  SharedToken& operator=(const SharedToken&) = delete;

  // True for the first caller only. Never waits.
  bool take();
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

}  // namespace syncopate
