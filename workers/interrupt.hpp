// Ctrl-C as a flag that clusters poll, so that a run ends between two events and not within a file.
#pragma once

namespace syncopate {

// From now on the first SIGINT or SIGTERM raises the flag and the second ends the process at once
// with status 130. Call it once, from the main thread.
void install_interrupt_handlers();

// True once the flag is raised. Costs one relaxed load, so it may be polled at every event.
bool interrupted();

// Raises the flag (the handlers and tests) or lowers it again (tests).
void set_interrupted(bool value);

}  // namespace syncopate
