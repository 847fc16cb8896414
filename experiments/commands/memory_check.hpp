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
  double share_of_workers = 1;   // of a simulation that several processes divide
  std::int64_t limit_bytes = 0;  // of --memory; 0: none
};
MemoryUse memory_use(const CommandLine& line, bool under_mpi);

// "memory of a process: about 0.51 GiB, most of all for "Local SGD": ...". Of all runs and trials; empty where there is
// none.
std::string memory_line(const Experiment& experiment, const MemoryUse& use);

// Throws ConfigurationFault where a run or trial that is still to be made needs more than the limit leaves a process.
void refuse_beyond_memory(const Experiment& experiment, const CommandLine& line, const MemoryUse& use);

}  // namespace syncopate
