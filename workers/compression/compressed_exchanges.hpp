// One worker's part in compressed exchanges: its residuals (values that it has not sent yet) and its packets. Like
// gradients, packets may not be computed yet. Worker performs the exchanges themselves. Compression takes no time on
// the virtual clock. Under MPI its cost is real and occurs between computing and sending.
//
// A residual belongs to its worker. A worker that loses its state in an outage continues with residuals of zeros,
// including the residual of a chunk that it owns (two phases). Packets sent before the outage are still delivered.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "workers/cluster/calls.hpp"
#include "workers/compression/compressor.hpp"
#include "workers/training/training.hpp"

namespace syncopate {

// Compressed sums of gradients.
// - If a step drops some or all micro-batches of a worker, the worker still takes part and sends from its residual.
//   Dropped work is lost and never enters a residual. With `dropped = "fold"` its computed part is added to the
//   residual after the exchange. Later steps send it, at their learning rates. So, over all steps, sums of sent values
//   + residuals at the end = gradients that counted + gradients that were folded in.
// - After an outage a worker gets the shared state (PowerSGD's factor) with the newest model.
// - If a worker has left, a sum fails as a whole, and a sum waits for late workers. So no packet is rejected.
// - Sums of normalisation statistics are sent with a step's last packet, after its words.
// - With compressed moments (CompressionOptions::of_moments) a worker compresses m_i = beta1 m + (1 - beta1) g_i.
//   Here m is the shared first moment, and g_i the mean of the worker's micro-batches. The mean of the sent values
//   becomes the new m. So the step's gradient is (mean - beta1 m) / (1 - beta1), times all workers' micro-batches.
// - With estimates (EF21, CompressionOptions::estimates) worker i's estimate g_i is the sum of all that it has sent. It
//   compresses gradient - g_i. The sum of the estimates, which all workers know, is the step's gradient. Nobody
//   could give a worker its estimate back after an outage, so experiment files refuse outages that lose the state.
class CompressedSum {
 public:
  CompressedSum(std::shared_ptr<const Compressor> compressor, Training& training, Rank worker)
      : compressor_(std::move(compressor)), training_(training), worker_(worker) {}

  std::vector<Exchange> exchanges(Step step) const { return compressor_->exchanges(step); }
  Rank root(Step step) const { return compressor_->root(step); }

  // Returns the packet of the first exchange. The next step of `model` must have the learning rate `rate` and use this
  // sum. Call Training::begin_held before reading the packet.
  Packet first_packet(const Gradient& gradient, Step step, double rate, const ModelStatePtr& model);
  // Only for two exchanges: the prepared sum of the first one, and the second packet.
  CellPtr between(const SharedPackets& first) const;
  Packet second_packet(std::vector<MicroBatch> carried, Step step, const CellPtr& between);
  // The second packet after an all-to-all, in which this worker received chunk number `chunk` of every packet.
  Packet reduced_packet(std::vector<MicroBatch> carried, Step step, const SharedPackets& first, int chunk);

  // The step's gradient after the last exchange. It is the same for all workers, so only one worker per process
  // computes it.
  struct Exchanged {
    SharedPackets packets{};
    CellPtr between{};  // null: only one exchange
    std::int64_t micro_batches = 0;
    Step step{};
  };
  struct Summed {
    Gradient gradient{};
    CellPtr estimates{};  // the sum of all workers' estimates; null: no estimates
  };
  Summed sum(const Exchanged& exchanged, int workers) const;
  // Each worker calls this after the last exchange.
  void end(const Exchanged& exchanged, const Summed& summed, int workers);
  // May be called after end(). If gradients that the step has left out are folded in, adds `dropped` to the residual.
  void fold(const Gradient& dropped);

  // Call it when the worker has lost its state.
  void forget() { memory_ = owned_ = nullptr; }

 private:
  CellPtr common_cell() const { return common_ ? common_->front().words : nullptr; }

  std::shared_ptr<const Compressor> compressor_;
  Training& training_;
  Rank worker_;
  // The compressor's vectors: the residual, or a moving average of gradients. With estimates they are followed by the
  // worker's estimate, what the last step compressed, and the moving average. Null: zeros.
  CellPtr memory_;
  CellPtr estimates_;     // the sum of all workers' estimates, shared by all; null: zeros
  CellPtr owned_;         // the residual of the chunk that this worker owns; null: zeros
  CellPtr statistics_;    // normalisation statistics of the current step, if it has two exchanges
  double rate_ = 0;       // learning rate of the last step
  float of_memory_ = 0;   // factor by which the current step multiplies residuals
  SharedPackets common_;  // packets of the last exchange; null if the next step does not read them
  CellPtr moment_;        // for compressed moments: the model's first moment, shared by all; null: zeros
};

// A worker's part in a compressed average that is not finished.
struct SentDifference {
  Collective average{};
  Step round{};
};

// Compressed averages of models. A worker compresses the difference between its model and one that all workers share,
// because values of models differ in size by orders of magnitude. All workers compute the same result: the shared model
// + the mean of the sent values.
// Source:  Basu et al. 2019, "Qsparse-local-SGD": a worker sends a part of residual + difference, and the rest becomes
//          its next residual. The residual does not change between averages.
// Units:   residuals are in units of the model. There is one for each kind of average and each slice that is averaged
//          separately.
// Differs: each average counts all workers equally. A worker that has taken fewer steps, or none, takes part. Optimizer
//          moments are not sent; averaged BatchNorm statistics travel uncompressed. An average fails as a whole if a
//          worker has left, so nothing that was sent is rejected.
class CompressedAverage {
 public:
  // `compressors`: one per slice of the model.
  CompressedAverage(const std::vector<std::shared_ptr<const Compressor>>& compressors, Training& training, Rank worker)
      : training_(training), worker_(worker) {
    for (const auto& compressor : compressors) slices_.push_back({.compressor = compressor});
  }

  int slices() const { return static_cast<int>(slices_.size()); }

  // The exchange that replaces this average. With two phases: first `exchange`, then `second_exchange`.
  Collective exchange(Collective&& average);
  Collective second_exchange(const SentDifference& sent, const SharedPackets& first, int chunk);
  // Returns the newest exchange; call it once. If its collective is only started, remember() stores it by number.
  SentDifference newest() { return std::move(newest_); }
  void remember(std::int64_t collective) { under_way_[collective] = newest(); }
  SentDifference recall(std::int64_t collective) { return std::move(under_way_.extract(collective).mapped()); }

  // The mean parameters, and statistics if they are averaged. They are the same for all workers, so only one worker per
  // process calls it.
  ModelStatePtr mean(const SentDifference& sent, const SharedPackets& packets, int workers) const;
  // The worker's own model after the average.
  ModelStatePtr model_with(const SentDifference& sent, const ModelStatePtr& mean) const;

  // Call it when the worker has lost its state.
  void forget() {
    for (OfSlice& own : slices_) own.residual = own.owned = nullptr;
  }

 private:
  struct OfSlice {
    std::shared_ptr<const Compressor> compressor;
    CellPtr residual{};  // null: zeros
    CellPtr owned{};     // residual of the chunk that this worker owns; null: zeros
  };

  OfSlice& own(Slice slice) { return slices_[static_cast<std::size_t>(slice.index)]; }
  std::size_t buffers(const Collective& average) const;
  // The last exchange. Statistics follow the words of its packets.
  Collective last_exchange(const Exchange& exchange, const Collective& average) const;

  Training& training_;
  Rank worker_;
  std::vector<OfSlice> slices_;
  Step rounds_{};  // number of averages so far, of any slice; the same on all workers
  SentDifference newest_;
  std::map<std::int64_t, SentDifference> under_way_;  // by the collective's number
};

// Compressed messages to servers: packets instead of gradients or differences between models. The server decodes a
// packet and treats the result like any other message.
// Source:  error feedback as in compressed sums. A server steps along each worker's packet on arrival, as in the
//          asynchronous form of Qsparse-local-SGD (Basu et al. 2019).
// Units:   a worker has one residual per slice of the model that is sent separately (a server's slice, or a fragment).
//          A residual has the units of the sent values: sums of gradients over the worker's micro-batches, or the
//          model.
// Cost:    the bytes of the packet to the server; models are returned uncompressed.
// Differs: each worker must be able to compress alone. Kinds that need an exchange among all workers are refused:
//          PowerSGD, ScaleCom, a majority, two phases. The number of packets that a worker has sent to a server selects
//          the random indices.
// - Work that is cancelled or never sent does not change a residual. Work that is sent has always been computed, even
//   if the server rejects it.
// - A packet that a server rejects (too late, too old, not needed) is lost, with its share of the residual. With
//   `rejected = "return"` the server's next model carries a report (8 bytes, and 8 per rejected packet) that names it.
//   The worker adds it to its residual for a later packet. So, over all messages, sums of accepted values + residuals
//   at the end + packets in flight = gradients that were sent.
// - After an outage a worker ignores reports about its earlier packets.
// - Packets in flight when the run or its server ends are lost, as uncompressed messages are.
class CompressedMessages {
 public:
  // `compressors`: one per slice of the model.
  CompressedMessages(const std::vector<std::shared_ptr<const Compressor>>& compressors, Training& training,
                     Rank worker);

  // Replaces the gradient or difference of a message to a server by a packet. Other messages do not change.
  void compress(Rank server, Message& message);
  // Takes the server's report off the end of `from_server.numbers`, and adds rejected packets to their residuals again.
  // The report lists the rejected packets by number. Then it says how many packets the server has received.
  void receive_answers(Message& from_server);
  // Call it when the worker has lost its state.
  void forget();

 private:
  struct OfSlice {
    std::shared_ptr<const Compressor> compressor;
    std::shared_ptr<const SentPacket> without_values{};  // shared by all messages in time-only runs
    CellPtr residual{};                                  // null: zeros
  };
  struct Unanswered {
    int slice = 0;
    CellPtr words;
  };
  struct OfServer {
    Step sent{};                              // number of packets sent
    std::map<Step, Unanswered> unanswered{};  // by packet number, if rejected packets are returned
  };

  void encode(OfSlice& own, const Message& message, Step number, SentPacket& packet);
  void put_back(Step number, const Unanswered& packet);

  Training& training_;
  Rank worker_;
  std::vector<OfSlice> slices_;
  std::map<Rank, OfServer> servers_;
};

// On the server: replaces the packet in a message by the gradient or difference that it encodes. Without values in
// time-only runs.
void open_packet(Message& message, const std::shared_ptr<const Compressor>& compressor, Training& training);

}  // namespace syncopate
