// Messages as letters: what a message says is the letter's contents, its gradient or model the body.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "workers/cluster/calls.hpp"
#include "workers/mpi/mpi_collectives.hpp"
#include "workers/mpi/mpi_post.hpp"
#include "workers/mpi/mpi_waiting.hpp"

namespace syncopate {

class MpiMailbox {
 public:
  MpiMailbox(MpiPost& post, Training& training) : post_(post), training_(training) {}

  // A letter without its values.
  struct Slip {
    Rank from{};
    std::vector<std::byte> contents;
    bool has_values = false;

    template <typename Archive>
    void keep(Archive& archive) {
      archive(from, contents, has_values);
    }
  };
  struct Delivery {
    Message message;
    Time sent;
    Time heard;   // when the sender had last taken a message from here
    Bytes bytes;  // what the sender said
    Slip slip;
  };

  // Starts a send and returns. Gradients are evaluated here, models copied, so the caller may go on.
  // What travels along: when it is sent, when this rank has last taken a message from there, and what has been sent so
  // far, as the sender knows it.
  struct Stamps {
    Time sent{};
    Time heard{};
    Bytes bytes{};
  };
  void send(Rank to, const Message& message, const Stamps& stamps);

  // The first message that is complete, in order of arrival, or the first from one sender.
  std::optional<Delivery> take(std::optional<Rank> from);
  // Of a letter with these values, or, where the course is gone through anew, without.
  Delivery open(Slip&& slip, FlatVector&& values);

 private:
  ValueLayout layout_of(bool wide) const;
  std::shared_ptr<const FlatVector> body_of(const Message& message);

  MpiPost& post_;
  Training& training_;
  // A server sends one model to many workers: its body is written once.
  std::uint64_t last_model_id_ = 0;
  Slice last_slice_;
  std::shared_ptr<const FlatVector> last_body_;
};

// Messages of an MPI rank, who can still send any, and how they count.
class MpiMail {
 public:
  MpiMail(MpiStage& stage, MpiWaiting& waiting)
      : stage_(stage),
        waiting_(waiting),
        mailbox_(stage.post, stage.options.training),
        bytes_received_(stage.participants(), Bytes{0}),
        heard_(stage.participants(), start_time) {}

  // See Cluster.
  void send(Rank to, Message&& message);
  ReceivedMessage receive(std::optional<Rank> from, Time until, const Place& place);
  // Of what was received last, unless it was nothing, its slip; and the message to which it belongs, in another process.
  const MpiMailbox::Slip& last_slip() const { return last_slip_; }
  ReceivedMessage received_before(MpiMailbox::Slip&& slip);
  int workers_left();
  bool has_left(Rank other) const;

  bool nobody_can_send(std::optional<Rank> from) const;

  template <typename Archive>
  void keep(Archive& archive) {
    archive(bytes_received_, heard_, bytes_to_servers_, bytes_from_workers_, messages_, gone_told_);
  }

  // Messages count where the simulated cluster counts them: those to a server once it has taken them, others when sent.
  std::int64_t messages() const { return messages_; }
  Bytes counted_bytes() const { return stage_.sent_bytes - bytes_to_servers_ + bytes_from_workers_; }
  // Sent by this worker, and to it by servers.
  Bytes bytes_to_and_fro() const {
    Bytes bytes = stage_.sent_bytes;
    for (const Bytes received : bytes_received_) bytes += received;
    return bytes;
  }

 private:
  int gone(Ranks ranks) const;
  Bytes known_bytes(Rank receiver) const;

  MpiStage& stage_;
  MpiWaiting& waiting_;
  MpiMailbox mailbox_;
  ByRank<Bytes> bytes_received_;  // from each server
  ByRank<Time> heard_;            // when the last message of each was taken
  Bytes bytes_to_servers_{};      // of what this rank has sent: as a worker
  Bytes bytes_from_workers_{};    // taken as a server
  std::int64_t messages_ = 0;
  int gone_told_ = 0;  // a server: of those that have ended
  MpiMailbox::Slip last_slip_;
};

}  // namespace syncopate
