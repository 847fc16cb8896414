// Messages as letters: what a message says is the letter's contents, its gradient or model the body.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "workers/cluster/message.hpp"
#include "workers/mpi/mpi_post.hpp"
#include "workers/mpi/value_layout.hpp"

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

}  // namespace syncopate
