// Starts this program again under MPI, and waits for it.
#pragma once

#include <string>
#include <vector>

namespace syncopate {

// The command that starts MPI programs, split at blanks: `chosen` if it is not empty, else that of the environment's
// MPIEXEC, else that of the MPI this program was built with. Open MPI's gets what it needs to start more
// processes than there are cores, and as root. Throws std::runtime_error if it cannot be found.
std::vector<std::string> mpi_launcher(const std::string& chosen);

// `launcher -n <ranks> <this program> <arguments>`, without input and with its output on standard error alone.
// Passes an interrupt on once, waits for its end, and throws Interrupted. The exit status; 128 + the signal that ended
// it. Throws std::runtime_error if it cannot be started. From the main thread alone, without a lock on the end.
int run_under_mpi(const std::vector<std::string>& launcher, int ranks, const std::vector<std::string>& arguments);

}  // namespace syncopate
