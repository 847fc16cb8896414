// `run --jobs N` and `run --share`: an experiment's runs made by several processes (execution/shared_runs.hpp).
//
// Jobs are processes and not threads: LibTorch's pools and settings are of a whole process, and a crash, or memory that
// does not suffice, then costs one run and not all. They are children that share the runs as processes of `--share` do,
// so that others may join them, and this process shows how far they are, starts one anew that has crashed, and prints
// the tables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "experiments/execution/runner.hpp"
#include "experiments/sections/experiment.hpp"

namespace syncopate {

struct CommandLine;

struct SideBySideOptions {
  std::string jobs{};                  // --jobs: a number, "auto", or empty
  bool shares = false;                 // --share
  bool waits = true;                   // not --no-wait
  double time_out_s = 120;             // --lease-timeout
  std::string job_of{};                // of a child: the call of its parent; empty: it is none
  int token = -1;                      // of a child: the descriptor of its parent's SharedToken
  std::int64_t memory_part_bytes = 0;  // of a child: the most that it may take; 0: no limit
};

// Throws ConfigurationFault for what does not go together. `under_mpi`: this process is one of MPI's.
void check_side_by_side(const CommandLine& line, bool under_mpi);
// Also where micro-batches are to be measured, or something is to be tuned.
void check_side_by_side(const CommandLine& line, const Experiment& experiment);

struct Division {
  int jobs = 1;
  int threads = 1;                // of each
  std::int64_t memory_bytes = 0;  // for each
};
// "auto" is as many as there are threads, runs to do, and room for in memory (execution/memory_need.hpp): what is free,
// or what --memory allows of it (0: no limit).
Division division_of(const Experiment& experiment, std::size_t to_do, const std::string& jobs, int threads,
                     std::int64_t memory_bytes = 0);
std::string division_text(const Division& division);  // "in 4 processes of 1 thread and at most 5.2 GB each"

// Runs the experiment as the command line says, by itself or with others. The exit status.
int run_side_by_side(const Experiment& experiment, const CommandLine& line);

}  // namespace syncopate
