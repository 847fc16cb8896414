// When computing stops: deadlines, and what becomes of the micro-batch that one meets.
#pragma once

#include "workers/units/units.hpp"

namespace syncopate {

// What becomes of a micro-batch that is running when the deadline passes.
// Source: Giladi et al. 2023, Algorithm 1, and the two trainers of its reference repository (dropcompute); `layer` is
// what the paper leaves to future work.
enum class Preempt {
  discard,     // stops at the deadline and is lost (Algorithm 1 of the paper; the default)
  microbatch,  // finishes and counts; only the next one is not started (reference code, BERT-Large)
  backward,    // finishes if its backward pass has begun, else is lost after its forward pass (BERT-1.5B)
  layer,       // stops at the deadline: the tensors count whose gradients exist by then
};

// Preempt::layer. A micro-batch is its forward pass, for `forward_share` of its duration, and then its backward pass,
// which goes through the model's tensors from the last to the first (BackwardOrder, workers/training/last_layers.hpp),
// each for a part of the time by its number of elements. That is an approximation, since only a run on the machine in
// question could tell: convolutions take longer than dense layers of as many elements, and embeddings less; and how
// long layers without parameters take is not looked at.
// - A tensor counts if its part ends at the deadline or before it. All have ended: the micro-batch is a whole one.
// - Else it is one that has been dropped, though the gradients of its last tensors are part of the sum. It stands in no
//   count of kept micro-batches, samples or losses, gives no normalisation statistics (as one that Preempt::backward
//   throws away after its forward pass), and its time is booked as discarded.
// - Time passes as with Preempt::discard, but for what ends exactly at the deadline. Without a model nothing is left of
//   it.
// - Under MPI it is the time that counts too: a measured backward pass, which LibTorch does not stop, runs to its end,
//   and what was done by the deadline follows from its duration.

struct Deadline {
  Deadline(Time at = never, Preempt preempt = Preempt::discard, double forward_share = 1.0 / 3)  // NOLINT
      : at(at), preempt(preempt), forward_share(forward_share) {}
  // The arrival of a message, at once if one is there already: how a server cancels late work.
  static Deadline until_message() {
    Deadline deadline;
    deadline.at_message = true;
    return deadline;
  }
  // That, or this time, whichever is first.
  static Deadline until_message_or(Time at) {
    Deadline deadline(at);
    deadline.at_message = true;
    return deadline;
  }
  Time at;
  Preempt preempt;
  double forward_share;     // of a micro-batch's duration, for Preempt::backward and Preempt::layer
  bool at_message = false;  // what is in flight is lost then, whatever `preempt` says, and has been dropped
};

// When a micro-batch that starts at `start` and would take `duration` ends, and whether it counts.
// Strictness as in the sources: discard keeps what ends before the deadline; the code's checks stop
// what is past it, and layer does what they do.
struct MicroBatchEnd {
  Time at;
  bool kept;
};
MicroBatchEnd end_of_micro_batch(Time start, Duration duration, const Deadline& deadline);
// The part of a micro-batch's duration that is its forward pass, for Preempt::backward and Preempt::layer.
Duration forward_pass(Duration duration, const Deadline& deadline);
// Preempt::layer: the share of its backward pass that a micro-batch of `duration` has behind it after so much work, in
// [0, 1]. Of the other kinds, and until a message: 0.
double backward_share(Duration worked, Duration duration, const Deadline& deadline);

}  // namespace syncopate
