// One worker's part in compressed messages to servers: its residual, and the packets that it sends instead of
// gradients, or of differences between models. Its server makes of a packet what it stands for, and goes on as with any
// other.
// Source:  error feedback as in compressed sums; that a server steps along each worker's packet by itself, as it comes,
//          after the asynchronous form of Qsparse-local-SGD (Basu et al. 2019).
// Cost:    as many bytes as the packet has to the server; models come back as they are.
// Differs: a compression must be one worker's alone: what needs an exchange of all (PowerSGD, ScaleCom, a majority, two
//          phases) is refused. Random places are drawn by how many packets the worker has sent.
//
// A worker has a residual for each server that holds a slice of the model, in units of what it sends: of sums of
// gradients over its micro-batches, or of the model. What becomes of it:
// - Work that is cancelled, or never sent, changes no residual. What is sent has been computed, whatever comes of it.
// - What a server does not take (too late, too old, not needed) is lost, with what it held of the residual; with
//   `rejected = "return"` the server's next model says so (8 bytes, and 8 for each such packet), and the worker puts it
//   back into its residual, so that it goes with a later packet. So, over all messages,
//   sums of what was accepted + residuals at the end + what is under way = gradients that were sent.
// - A worker that loses its state in an outage loses its residual with it, and begins with none. Packets from before
//   are on their way, and count if they come in time; of those that do not it knows nothing any more.
// - What is under way when the run ends, or when its server has ended, is lost, as a dense message is.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "workers/cluster/message.hpp"
#include "workers/compression/compressor.hpp"
#include "workers/training/training.hpp"

namespace syncopate {

class CompressedMessages {
 public:
  // By slice of the model.
  CompressedMessages(const std::vector<std::shared_ptr<const Compressor>>& compressors, Training& training,
                     Rank worker);

  // Puts a packet in the place of the message's gradient or difference; others stay as they are.
  void compress(Message& message);
  // Of a message with answers, which it takes out of the numbers: of a model's receiver the rejected packets, and last
  // how many the server has had.
  void hear(Message& from_server);
  // Its state is lost.
  void forget();

 private:
  struct OfSlice {
    std::shared_ptr<const Compressor> compressor;
    std::shared_ptr<const SentPacket> without_values{};  // that of all messages in time-only runs
    Step sent{};                                         // packets so far
    CellPtr residual{};                                  // null: zeros
    std::map<Step, CellPtr> unanswered{};                // words by number, where rejected packets come back
  };

  void encode_gradient(OfSlice& own, const Message& message, Step number, SentPacket& packet);
  void encode_difference(OfSlice& own, const Message& message, Step number, SentPacket& packet);
  void put_back(OfSlice& own, Step number, const CellPtr& words);

  Training& training_;
  Rank worker_;
  std::vector<OfSlice> slices_;
};

// On the server: the gradient or difference that the packet stands for, in the message. In time-only runs nothing.
void open_packet(Message& message, const std::shared_ptr<const Compressor>& compressor, Training& training);

}  // namespace syncopate
