// Processes: children, exit statuses, interruption by Ctrl-C, identities.
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

// Starts another program as a child. The child has no input and writes only to standard error. It has its own process
// group, so Ctrl-C does not reach it directly. The kernel sends the child SIGTERM when the thread that called
// start_child ends, for whatever reason. Therefore call it from the main thread, which ends with the process. Throws
// std::runtime_error if the program cannot be started.
pid_t start_child(std::vector<std::string> command);

// Returns the path of this program, for starting it as a child.
std::string own_program();

inline constexpr int exit_success = 0;
inline constexpr int exit_failure = 1;        // something failed while running
inline constexpr int exit_usage = 2;          // wrong usage, configuration or data; nothing was run
inline constexpr int exit_interrupted = 130;  // the shells' status of SIGINT

// Thrown if the user interrupts the run (Ctrl-C).
struct Interrupted : std::runtime_error {
  Interrupted() : std::runtime_error("interrupted") {}
};

// After the first signal the program has time_to_end to end by itself. All LastActs share time_for_last_acts.
inline constexpr std::chrono::milliseconds time_to_end{300};
inline constexpr std::chrono::milliseconds time_for_last_acts{500};

// After this call the first SIGINT or SIGTERM sets a flag. Clusters poll it, so that a run ends between two events and
// not while it writes a file. The second signal ends the process at once with status 130. One step of a large model can
// keep a cluster from polling for minutes. Therefore a separate thread, the ending thread, waits for the first signal.
// If the process still runs after time_to_end, this thread performs the last acts and exits with status 130. Further
// calls of this function have no effect.
void install_interrupt_handlers();

// An action that the ending thread performs before it exits. Other threads continue meanwhile, so the act may read only
// data that they do not change. The newest act is performed first. Once the ending thread has begun the last acts, a
// thread that creates, performs or destroys an act waits until the process ends.
class LastAct {
 public:
  explicit LastAct(std::function<void()> act);
  ~LastAct();
  // Performs the act now, within time_for_last_acts, while the ending thread waits. Call it in a thread that finds
  // interrupted() true before the process has ended. An act is performed only once.
  void do_now();
  LastAct(const LastAct&) = delete;
  LastAct& operator=(const LastAct&) = delete;

 private:
  friend void end_after_signal();
  std::function<void()> act_;
  bool done_ = false;
  LastAct* before_ = nullptr;
};

// The ending thread waits while this lock is held. Use it for work that must be done completely or not at all, and that
// either is short or polls interrupted() itself. Do not create, perform or destroy last acts while you hold the lock.
[[nodiscard]] std::unique_lock<std::mutex> hold_off_end();

// From now on a signal that makes interrupted() true also sets `word` to `value`, so that other processes which share
// the word notice the signal. A null `word` ends this.
void notify_of_interrupt(std::atomic<int>* word, int value);

// Whether the first signal has set the flag. Costs one relaxed load, so it may be polled at every event.
bool interrupted();

// Call this in loops whose length depends on the configuration.
inline void throw_if_interrupted() {
  if (interrupted()) throw Interrupted();
}

// Sets or clears the flag of interrupted(), for tests.
void set_interrupted(bool value);

// Identifies a process, so that another process on the same machine can check whether it still runs.
struct ProcessIdentity {
  std::string machine;      // boot id and namespace of process numbers; empty: unknown
  pid_t number = 0;         // within that namespace
  std::uint64_t start = 0;  // in ticks since boot; distinguishes processes that had the same number

  bool operator==(const ProcessIdentity&) const = default;
};

ProcessIdentity this_process();

enum class ProcessState {
  running,  // or stopped
  gone,     // or a zombie: it has ended, but its parent has not waited for it
  unknown,  // on another machine, or in another container
};

ProcessState state_of(const ProcessIdentity& process);

// Thrown if a run cannot continue. The message says what failed, for which worker, and when. Exit status 1.
struct RunFailure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A token that this process and its children share and that only one of them can take. Implemented as a pipe that holds
// one byte, as in make's jobserver.
class SharedToken {
 public:
  // Creates an untaken token. Children inherit it, even if they run other programs. Throws std::system_error.
  SharedToken();
  // The token that the parent process created, given its descriptor there.
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
