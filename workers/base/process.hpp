// Ctrl-C as a flag that clusters poll, so that a run ends between two events and not within a file; and as the end of
// the process where nobody comes to look at the flag, which one step of a large model keeps from happening for minutes.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <stdexcept>

namespace syncopate {

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

}  // namespace syncopate
