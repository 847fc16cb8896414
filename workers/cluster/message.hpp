// What participants send each other.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "workers/training/gradient.hpp"
#include "workers/training/training.hpp"
#include "workers/units/units.hpp"

namespace syncopate {

struct Message {
  Step step{};            // version of the model that this message carries or was computed from
  Gradient gradient{};    // empty, or
  ModelStatePtr model{};  // null in time-only runs too
  bool carries_model = false;
  Rank from{};
  std::vector<double> numbers{};  // travel along, 8 bytes each
  std::int64_t kept = 0;          // from a server: micro-batches in its model
  Slice slice{};                  // which part of the parameters the gradient or the model stands for
};

// Where received messages come from, and go back to: thousands of workers send millions of them.
class MessagePool {
 public:
  virtual void take_back(Message* message) = 0;

 protected:
  ~MessagePool() = default;
};
struct GiveBack {
  MessagePool* pool = nullptr;  // null: the message stands alone
  void operator()(Message* message) const { pool ? pool->take_back(message) : delete message; }
};
// A message that has come, or null. It does not outlive the run.
using ReceivedMessage = std::unique_ptr<Message, GiveBack>;

// Bytes that the message takes on the network: 4 per parameter of its slice (8 for a wide gradient), 8 per
// number. A message without values costs its latency alone.
inline Bytes message_bytes(const Message& message, Bytes parameter_bytes) {
  const bool has_values = message.carries_model || message.gradient.micro_batches() > 0;
  Bytes::Rep bytes = 8 * static_cast<Bytes::Rep>(message.numbers.size());
  if (has_values) {
    const Bytes::Rep floats = parameter_bytes.value() / 4;
    bytes += (message.gradient.wide() ? 8 : 4) * (message.slice.end(floats) - message.slice.begin(floats));
  }
  return Bytes{bytes};
}

}  // namespace syncopate
