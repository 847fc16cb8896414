// One worker's part in compressed sums: its residual, and its packets, all of them promises like gradients. The
// exchanges themselves are Worker's.
//
// A residual belongs to its worker. What becomes of it:
// - A worker all or some of whose micro-batches a step has dropped takes part all the same: it sends of its residual.
//   What was dropped is lost, and is in no residual; with `dropped = "fold"` what was computed of it is added to the
//   residual after the exchange, and is sent later, at the rate of then. So, over all steps,
//   sums of what was sent + residuals at the end = gradients that counted + gradients that were folded in.
// - A worker that loses its state in an outage loses its residual with it, and begins with none: the model lacks what
//   the residual held. So it does with the owner's residual of two phases. What all hold in common (PowerSGD's factor)
//   it gets with the newest model.
// - A sum fails as a whole where a worker has left; nobody is late in it. So nothing that was sent is rejected.
// The sums of normalisation statistics go with a step's last packet, behind its words.
// Where moments are compressed (CompressionOptions::of_moments), a worker sends of m_i = beta1 m + (1 - beta1) g_i,
// with m the first moment of all and g_i the mean of its micro-batches; what all step along is the gradient that makes
// the mean of what was sent of m: (mean - beta1 m) / (1 - beta1), times the number of all micro-batches. Compressing
// takes no time on the virtual clock; under MPI it takes what it takes, between computing and sending.
#pragma once

#include <memory>
#include <vector>

#include "workers/cluster/collective.hpp"
#include "workers/compression/compressor.hpp"
#include "workers/training/training.hpp"

namespace syncopate {

class CompressedSum {
 public:
  CompressedSum(std::shared_ptr<const Compressor> compressor, Training& training, Rank worker)
      : compressor_(std::move(compressor)), training_(training), worker_(worker) {}

  std::vector<Exchange> exchanges(Step step) const { return compressor_->exchanges(step); }
  Rank root(Step step) const { return compressor_->root(step); }

  // The packet of the first exchange, from a gradient that a step of this model with this rate follows. Whoever looks
  // at packets calls Training::begin_held before.
  Packet first_packet(const Gradient& gradient, Step step, double rate, const ModelStatePtr& model);
  // What all make of what the first exchange gives to all, where another follows, and the packet of that.
  CellPtr between(const SharedPackets& first) const;
  Packet second_packet(std::vector<MicroBatch> carried, Step step, const CellPtr& between);
  // The same where it gives each worker a chunk of every packet, of which this one's is the `chunk`-th.
  Packet reduced_packet(std::vector<MicroBatch> carried, Step step, const SharedPackets& first, int chunk);

  // What all step along, once the last exchange is over; the same for all, so that one worker of a process asks for it.
  struct Exchanged {
    SharedPackets packets{};
    CellPtr between{};  // null: there was one exchange
    std::int64_t micro_batches = 0;
    Step step{};
  };
  Gradient sum(const Exchanged& exchanged, int workers) const;
  // Each worker, after the last exchange.
  void end(const Exchanged& exchanged, int workers);
  // After that: a gradient that the step has left out, where these are folded into the residual.
  void fold(const Gradient& dropped);

  // Its state is lost.
  void forget() { memory_ = owned_ = nullptr; }

 private:
  std::shared_ptr<const Compressor> compressor_;
  Training& training_;
  Rank worker_;
  CellPtr memory_;        // the residual, or the average of gradients; null: zeros
  CellPtr owned_;         // the residual of the chunk that this worker owns; likewise
  CellPtr statistics_;    // of the step under way, where it has two exchanges
  double rate_ = 0;       // of the last step
  float of_memory_ = 0;   // how much of the residuals the step under way takes up
  SharedPackets common_;  // of the last exchange of two, where the next step looks at it
  CellPtr moment_;        // where moments are compressed: the model's first, which all share; null: zeros
};

}  // namespace syncopate
