// What `check` says of memory, and what --memory refuses.
#pragma once

#include <cstdint>
#include <string>

#include "experiments/sections/experiment.hpp"

namespace syncopate {

struct CommandLine;

// How many processes make the runs, and with how many threads each.
struct MemoryUse {
  int threads = 1;
  int processes = 1;             // of `--jobs`, among which --memory is divided
  bool is_mpi_rank = false;      // one worker of an MPI cluster
  int dividing = 1;              // so many processes divide each simulation
  std::int64_t limit_bytes = 0;  // of --memory; 0: none
};
// `ranks`: that a launcher has started, which are workers of an MPI cluster or divide simulations; 0: there is none.
MemoryUse memory_use(const CommandLine& line, int ranks);

// "memory of a process: about 0.51 GiB, most of all for "Local SGD": ...". Of all runs and trials; empty where there is
// none.
std::string memory_line(const Experiment& experiment, const MemoryUse& use);

// Throws ConfigurationFault where a run or trial that is still to be made needs more than the limit leaves a process.
void refuse_beyond_memory(const Experiment& experiment, const CommandLine& line, const MemoryUse& use);

}  // namespace syncopate
