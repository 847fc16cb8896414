// Ctrl-C as a flag that clusters poll, so that a run ends between two events and not within a file; and as the end of
// the process where nobody comes to look at the flag, which one step of a large model keeps from happening for minutes.
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

// Starts another program as a child that does not outlive this process.
// Without input and with its output on standard error alone. In a process group of its own, so that Ctrl-C reaches it
// only through this process; however this process ends, it gets SIGTERM. (The kernel sends it at the end of the thread
// that calls this, so that must be the main one.) Throws std::runtime_error if it cannot be started.
pid_t start_child(std::vector<std::string> command);

// This program, for children that are to be the same.
std::string own_program();

// With what the program ends.
inline constexpr int exit_success = 0;
inline constexpr int exit_failure = 1;        // something failed while running
inline constexpr int exit_usage = 2;          // wrong usage, configuration or data: nothing was run
inline constexpr int exit_interrupted = 130;  // as shells say of SIGINT

// The user interrupted the run (Ctrl-C).
struct Interrupted : std::runtime_error {
  Interrupted() : std::runtime_error("interrupted") {}
};

// From the first signal on the program has so long to end by itself, and last acts so long in all.
inline constexpr std::chrono::milliseconds time_to_end{300};
inline constexpr std::chrono::milliseconds time_for_last_acts{500};

// From now on the first SIGINT or SIGTERM raises the flag, and the second ends the process at once with status 130.
// A process that is still there after time_to_end is ended by a thread of its own: it does the last acts and exits with
// status 130. Later calls change nothing.
void install_interrupt_handlers();

// What is still done when that thread ends the process, whatever the others are doing meanwhile: it reads only what no
// other thread changes. The one made last comes first. Once acts have begun none can be made, done or destroyed:
// whoever tries waits for the end.
class LastAct {
 public:
  explicit LastAct(std::function<void()> act);
  ~LastAct();
  // For who has come to the flag before that thread has ended the process: does it now, in the time that last acts
  // have, while that thread waits. Done once, whoever is first.
  void do_now();
  LastAct(const LastAct&) = delete;
  LastAct& operator=(const LastAct&) = delete;

 private:
  friend void end_after_signal();
  std::function<void()> act_;
  bool done_ = false;
  LastAct* before_ = nullptr;
};

// While it is held that thread waits, for what has to be done wholly or not at all and takes moments, or looks at the
// flag itself. Whoever holds it makes, does and destroys no last acts.
[[nodiscard]] std::unique_lock<std::mutex> hold_off_end();

// `word` (null: none) becomes `value` when the flag is raised by a signal, so that other processes that see it know.
void tell_of_interrupt(std::atomic<int>* word, int value);

// True once the flag is raised. Costs one relaxed load, so it may be polled at every event.
bool interrupted();

// For loops whose length a configuration decides.
inline void throw_if_interrupted() {
  if (interrupted()) throw Interrupted();
}

// Raises the flag or lowers it again (tests).
void set_interrupted(bool value);

// Which process of which machine this is, so that another one can tell whether it is still there.
struct ProcessIdentity {
  std::string machine;      // the system's start and the space that process numbers belong to; empty: not known
  pid_t number = 0;         // within that space
  std::uint64_t start = 0;  // in ticks since the system's start, so that a number that is used again is another process

  bool operator==(const ProcessIdentity&) const = default;
};

ProcessIdentity this_process();

enum class ProcessState {
  running,  // also one that is stopped
  gone,     // also one that has ended and has not been waited for
  unknown,  // of another machine, or of another container
};

ProcessState state_of(const ProcessIdentity& process);

// The end of a run that cannot go on.
// A run that cannot go on: what, which worker, when. Exit status 1.
struct RunFailure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A token that one alone of this process and its children can take: a pipe that holds one byte, as that of make's
// jobserver.
class SharedToken {
 public:
  // Nobody has it. Children inherit it, also other programs. Throws std::system_error.
  SharedToken();
  // That of the process which started this one, by its number there.
  explicit SharedToken(int descriptor) : descriptor_(descriptor) {}
  ~SharedToken();
  SharedToken(const SharedToken&) = delete;
  SharedToken& operator=(const SharedToken&) = delete;

  // True for the first who asks. Never waits.
  bool take();
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

}  // namespace syncopate
