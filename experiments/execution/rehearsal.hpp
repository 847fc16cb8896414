// How many vectors as long as the model a run holds at once, found by a rehearsal: the run's own method, cluster and
// delays with a small stand-in for the model, for some first steps. What grows with the stand-in's size is counted, so
// that a method says nothing of its memory, and cannot be wrong about it.
//
// The stand-in's gradients are the same small numbers everywhere: nothing diverges. Tasks run one by one, so that what
// is held is what the method holds; what threads hold besides is for the caller to add.
#pragma once

#include <cstdint>

#include "results/run/run.hpp"

namespace syncopate {

struct Rehearsed {
  double vectors = 0;     // at most at once: models, moments, gradients, residuals; of P floats each
  bool is_whole = false;  // to the end of the run's budget; false: its first steps
};

// Of a run with a model, whose micro-batch's time is known, on the simulated cluster. `worker_steps`: about how many
// steps of single workers are made, a few microseconds each. Throws what the run itself would.
Rehearsed rehearse(const Run& run, std::int64_t worker_steps);

}  // namespace syncopate
