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

}  // namespace syncopate
