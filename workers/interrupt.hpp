// Ctrl-C as a flag that clusters poll, so that a run ends between two events and not within a file.
#pragma once

#include <atomic>
#include <stdexcept>

namespace syncopate {

// The user interrupted the run (Ctrl-C).
struct Interrupted : std::runtime_error {
  Interrupted() : std::runtime_error("interrupted") {}
};

// From now on the first SIGINT or SIGTERM raises the flag and the second ends the process at once
// with status 130. Call it once, from the main thread.
void install_interrupt_handlers();

// `word` (null: none) becomes `value` when the flag is raised by a signal, so that other processes that see it know.
void tell_of_interrupt(std::atomic<int>* word, int value);

// True once the flag is raised. Costs one relaxed load, so it may be polled at every event.
bool interrupted();

// For loops whose length a configuration decides: polled often enough, a first Ctrl-C takes effect within a second.
inline void throw_if_interrupted() {
  if (interrupted()) throw Interrupted();
}

// Raises the flag (the handlers and tests) or lowers it again (tests).
void set_interrupted(bool value);

}  // namespace syncopate
