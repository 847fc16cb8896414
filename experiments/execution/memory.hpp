// How much memory a process takes to make a run: said before it begins, so that a run that does not fit is refused and
// not killed.
// Units:   bytes of resident memory at its peak.
// Checks:  against the peaks of real runs (tests/experiments/memory_test.cpp says within which bounds).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "results/run.hpp"

namespace syncopate {

struct MemoryNeed {
  double program = 0;  // the process as it is, and the libraries that train networks
  double data = 0;     // the data set
  double models = 0;   // models, optimizer states, gradients, residuals
  double passes = 0;   // what threads hold while they compute gradients
  double workers = 0;  // of simulated ones what is not a model: stacks, books
  double records = 0;  // rows and what else is recorded
  double vectors = 0;  // so many of the model's length are in `models`
  // False: a part is not known, such as the activations of a module of the user's own; it counts as nothing.
  bool is_complete = true;

  double total() const { return program + data + models + passes + workers + records; }
};

struct MemoryOptions {
  int threads = 1;
  int dividing = 1;          // so many processes divide the simulated workers, whose models and gradients each holds
  bool is_mpi_rank = false;  // one worker of an MPI cluster; threads do not count
  std::int64_t worker_steps = 10'000;  // of the rehearsal; 0: none
};

// Without a rehearsal (more than 1,024 workers, a micro-batch that is still to be measured, an allocator that does not
// tell, `worker_steps` of 0) each worker counts as having a model and an optimizer's state of its own, unless its
// method sums gradients. So it does where the rehearsal does not come to the end of the run, in which it may be about
// to begin.
MemoryNeed memory_need(const Run& run, const MemoryOptions& options);

// The run that takes most, of each method one at most being looked into: its largest by workers and model. No runs:
// null.
struct LargestNeed {
  const Run* run = nullptr;
  MemoryNeed need{};
};
LargestNeed largest_need(std::span<const Run* const> runs, const MemoryOptions& options);

// What a process maps beside, and hardly touches: stacks of the workers that one of these runs simulates.
double stack_room(std::span<const Run> runs);

// "0.51 GiB", and of what: "models, optimizer states and gradients (34 times 1.86e+06 parameters) 0.24 GiB, ...".
std::string memory_text(double bytes, int digits = 2);
std::string parts_text(const Run& run, const MemoryNeed& need, int threads);

// How many vectors as long as the model a run holds at once, found by a rehearsal: the run's own method, cluster and
// delays with a small stand-in for the model, for some first steps. What grows with the stand-in's size is counted, so
// that a method says nothing of its memory, and cannot be wrong about it.
//
// The stand-in's gradients are the same small numbers everywhere: nothing diverges. Tasks run one by one, so that what
// is held is what the method holds; what threads hold besides is for the caller to add.
struct Rehearsed {
  double vectors = 0;     // at most at once: models, moments, gradients, residuals; of P floats each
  bool is_whole = false;  // to the end of the run's budget; false: its first steps
};

// Of a run with a model, whose micro-batch's time is known, on the simulated cluster. `worker_steps`: about how many
// steps of single workers are made, a few microseconds each. Throws what the run itself would.
Rehearsed rehearse(const Run& run, std::int64_t worker_steps);

}  // namespace syncopate
