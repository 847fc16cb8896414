// Starts another program as a child that does not outlive this process.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace syncopate {

// Without input and with its output on standard error alone. In a process group of its own, so that Ctrl-C reaches it
// only through this process; however this process ends, it gets SIGTERM. (The kernel sends it at the end of the thread
// that calls this, so that must be the main one.) Throws std::runtime_error if it cannot be started.
pid_t start_child(std::vector<std::string> command);

// This program, for children that are to be the same.
std::string own_program();

}  // namespace syncopate
