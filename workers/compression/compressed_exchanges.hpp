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

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "workers/cluster/calls.hpp"
#include "workers/compression/compressor.hpp"
#include "workers/training/training.hpp"

namespace syncopate {

// One worker's part in compressed averages of models: its residual, and its packets. What is compressed is the model's
// difference to one that all share, never the model itself, whose values differ in size by orders of magnitude; all
// make the same of the packets: that model + the mean of what was sent.
// Source:  Basu et al. 2019, "Qsparse-local-SGD": residual + difference is what a worker sends of, and what it does not
//          send is its next residual.
// Differs: a worker's residual stays as it is between averages, as there; each average counts all workers alike.
//
// A residual belongs to its worker, to one way of averaging, and to one slice of the model, where slices are averaged
// apart: it is in units of the model. What becomes of it:
// - A worker that has taken fewer steps, or none, sends of its residual all the same.
// - A worker that loses its state in an outage loses its residual with it, and that of the chunk that it owns in two
//   phases, and begins with none: the models lack what they held. What it had sent before is on its way, and is not
//   sent again.
// - An average fails as a whole where a worker has left, so that nothing that was sent is rejected.
// Optimizer moments are not sent. BatchNorm statistics that are averaged travel as they are.
// What of an average is needed when its exchange has come back.
struct SentDifference {
  ModelStatePtr mine{};
  ModelStatePtr from{};
  AveragePolicy policy{};
  Slice slice{};
  bool rest_is_needed = true;
  Step round{};
};

class CompressedAverage {
 public:
  // By slice of the model.
  CompressedAverage(const std::vector<std::shared_ptr<const Compressor>>& compressors, Training& training, Rank worker)
      : training_(training), worker_(worker) {
    for (const auto& compressor : compressors) slices_.push_back({.compressor = compressor});
  }

  int slices() const { return static_cast<int>(slices_.size()); }

  // The exchange that stands for this average, or, of two phases, the first; and then the second.
  Collective exchange(const Collective& average);
  Collective second_exchange(const SentDifference& sent, const SharedPackets& first, int chunk);
  // Of the newest exchange, once; it can be kept with the collective's number meanwhile.
  SentDifference newest() { return std::move(newest_); }
  void remember(std::int64_t collective) { under_way_[collective] = newest(); }
  SentDifference recall(std::int64_t collective) { return std::move(under_way_.extract(collective).mapped()); }

  // Parameters, and statistics where they are averaged: the same for all, so that one worker of a process asks for it.
  ModelStatePtr mean(const SentDifference& average, const SharedPackets& packets, int workers) const;
  // The worker's own model after the average.
  ModelStatePtr taken_up(const SentDifference& average, const ModelStatePtr& mean) const;

  // Its state is lost.
  void forget() {
    for (OfSlice& own : slices_) own.residual = own.owned = nullptr;
  }

 private:
  struct OfSlice {
    std::shared_ptr<const Compressor> compressor;
    CellPtr residual{};  // null: zeros
    CellPtr owned{};     // of the chunk that this worker owns; likewise
  };

  OfSlice& own(const SentDifference& sent) { return slices_[static_cast<std::size_t>(sent.slice.index)]; }
  std::size_t buffers(const SentDifference& sent) const;
  // The last exchange, in whose packets statistics stand behind the words.
  Collective last_exchange(const Exchange& exchange, const SentDifference& sent) const;

  Training& training_;
  Rank worker_;
  std::vector<OfSlice> slices_;
  Step rounds_{};  // averages so far, of any slice, on all workers alike
  SentDifference newest_;
  std::map<std::int64_t, SentDifference> under_way_;  // by the collective's number
};

// One worker's part in compressed messages to servers: its residual, and the packets that it sends instead of
// gradients, or of differences between models. Its server makes of a packet what it stands for, and goes on as with any
// other.
// Source:  error feedback as in compressed sums; that a server steps along each worker's packet by itself, as it comes,
//          after the asynchronous form of Qsparse-local-SGD (Basu et al. 2019).
// Cost:    as many bytes as the packet has to the server; models come back as they are.
// Differs: a compression must be one worker's alone: what needs an exchange of all (PowerSGD, ScaleCom, a majority, two
//          phases) is refused. Random places are drawn by how many packets the worker has sent to that server.
//
// A worker has a residual for each slice of the model that is sent by itself (a server's, or a fragment), in units of
// what it sends: of sums of gradients over its micro-batches, or of the model. What becomes of it:
// - Work that is cancelled, or never sent, changes no residual. What is sent has been computed, whatever comes of it.
// - What a server does not take (too late, too old, not needed) is lost, with what it held of the residual; with
//   `rejected = "return"` the server's next model says so (8 bytes, and 8 for each such packet), and the worker puts it
//   back into its residual, so that it goes with a later packet. So, over all messages,
//   sums of what was accepted + residuals at the end + what is under way = gradients that were sent.
// - A worker that loses its state in an outage loses its residual with it, and begins with none. Packets from before
//   are on their way, and count if they come in time; of those that do not it knows nothing any more.
// - What is under way when the run ends, or when its server has ended, is lost, as a dense message is.
class CompressedMessages {
 public:
  // By slice of the model.
  CompressedMessages(const std::vector<std::shared_ptr<const Compressor>>& compressors, Training& training,
                     Rank worker);

  // Puts a packet in the place of the gradient or difference of a message to a server; others stay as they are.
  void compress(Rank server, Message& message);
  // Of a message with answers, which it takes out of the numbers: of a model's receiver the rejected packets, and last
  // how many the server has had.
  void hear(Message& from_server);
  // Its state is lost.
  void forget();

 private:
  struct OfSlice {
    std::shared_ptr<const Compressor> compressor;
    std::shared_ptr<const SentPacket> without_values{};  // that of all messages in time-only runs
    CellPtr residual{};                                  // null: zeros
  };
  struct Unanswered {
    int slice = 0;
    CellPtr words;
  };
  struct OfServer {
    Step sent{};                              // packets so far
    std::map<Step, Unanswered> unanswered{};  // by number, where rejected packets come back
  };

  void encode_gradient(OfSlice& own, const Message& message, Step number, SentPacket& packet);
  void encode_difference(OfSlice& own, const Message& message, Step number, SentPacket& packet);
  void put_back(Step number, const Unanswered& packet);

  Training& training_;
  Rank worker_;
  std::vector<OfSlice> slices_;
  std::map<Rank, OfServer> servers_;
};

// On the server: the gradient or difference that the packet stands for, in the message. In time-only runs nothing.
void open_packet(Message& message, const std::shared_ptr<const Compressor>& compressor, Training& training);

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
