// When computing stops: deadlines, and what becomes of the micro-batch that one meets.
#pragma once

#include "workers/units/units.hpp"

namespace syncopate {

// What becomes of a micro-batch that is running when the deadline passes.
// Source: Giladi et al. 2023, Algorithm 1, and the two trainers of its reference repository (dropcompute).
enum class Preempt {
  discard,     // stops at the deadline and is lost (Algorithm 1 of the paper; the default)
  microbatch,  // finishes and counts; only the next one is not started (reference code, BERT-Large)
  backward,    // finishes if its backward pass has begun, else is lost after its forward pass (BERT-1.5B)
};

struct Deadline {
  Deadline(Time at = never, Preempt preempt = Preempt::discard, double forward_share = 1.0 / 3)  // NOLINT
      : at(at), preempt(preempt), forward_share(forward_share) {}
  // The arrival of a message, at once if one is there already: how a server cancels late work.
  static Deadline until_message() {
    Deadline deadline;
    deadline.at_message = true;
    return deadline;
  }
  Time at;
  Preempt preempt;
  double forward_share;     // of a micro-batch's duration, for Preempt::backward
  bool at_message = false;  // what is in flight is lost then, whatever `preempt` says
};

// When a micro-batch that starts at `start` and would take `duration` ends, and whether it counts.
// Strictness as in the sources: discard keeps what ends before the deadline; the code's checks stop
// what is past it.
struct MicroBatchEnd {
  Time at;
  bool kept;
};
MicroBatchEnd end_of_micro_batch(Time start, Duration duration, const Deadline& deadline);
// The part of a micro-batch's duration that is its forward pass, for Preempt::backward.
Duration forward_pass(Duration duration, const Deadline& deadline);

}  // namespace syncopate
