// A recording stretched to any number of workers and steps: each worker puts its own run together from whole blocks of
// recorded steps. Times within a block, and so how they hang together from step to step, stay as they were.
// Source:  Politis and Romano 1992, the circular block bootstrap: a block may begin at any recorded step, and the
//          recording's first step follows its last, so that every step is as likely as any other.
// Shapes:  steps b L to b L + L - 1 of a worker are block b.
#pragma once

#include "workers/random/random.hpp"
#include "workers/units/units.hpp"

namespace syncopate {

struct TraceStretch {
  Step block_steps{1};         // L, at least 1 and at most what the recording has
  bool redraw_worker = false;  // true: every block may be of another recorded worker; false: all of a worker's are of
                               // one, so that who is slow stays slow
  bool together = false;       // all workers take the same recorded steps at a time: what hits all at once still does
  bool is_base = false;        // of the base times, whose draws are none of those of [[delays]]
};

struct RecordedPlace {
  int worker = 0;
  Step step{};
};

// The recorded worker that this one follows in this step, each as likely as any other; without redraw_worker the same
// in all steps.
int followed_worker(const TraceStretch& stretch, int recorded_workers, const RandomStream& stream);

// Where its durations of this step stand, in a recording of so many workers and steps. A pure function of the stream.
RecordedPlace place_in_recording(const TraceStretch& stretch, int recorded_workers, Step recorded_steps,
                                 const RandomStream& stream);

}  // namespace syncopate
