// What participants send each other.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "workers/cluster/work.hpp"
#include "workers/training/gradient.hpp"
#include "workers/training/training.hpp"
#include "workers/units/units.hpp"

namespace syncopate {

// What travels instead of the values of a gradient, or of a difference (workers/compression): a promise like these. It
// stands where a model does, so that messages do not become longer: its words of four bytes, and normalisation
// statistics behind them, are the parameters; null in time-only runs.
struct SentPacket : ModelState {
  Bytes size{};                       // of the words
  std::vector<MicroBatch> carried{};  // what has flowed into it, where somebody wants to know
};

// Made by the functions of its kind; `from`, `kept` and `slice` are filled in by who sends it.
struct Message {
  enum class Kind : std::uint8_t {
    note,           // its step and numbers alone
    gradient,       // computed at version `step`
    model,          // version `step`
    last_model,     // the same, for the result alone, and the last that its receiver gets from there
    difference,     // between models, at version `step`
    request,        // asks for the model as it is
    request_after,  // asks for a model of a version after `step`
    farewell,       // the last message of a sender that has no model to give
  };

  Step step{};            // a version of the model
  Gradient gradient{};    // else empty; of a difference its work alone, without values
  ModelStatePtr model{};  // or the difference; else null; null in time-only runs too
  Kind kind = Kind::note;
  bool is_packed = false;  // a gradient or difference comes as a packet, which is in the model's place until a server
                           // has opened it
  std::uint16_t answers = 0;  // of the numbers so many, the last, are of the receiver's packets (CompressedMessages)
  Rank from{};
  std::vector<double> numbers{};  // travel along, 8 bytes each
  std::int64_t kept = 0;          // from a server: micro-batches in its model; of a packet: its sender's number for it
  Slice slice{};                  // which part of the parameters the gradient or the model stands for

  static Message of_gradient(Step version, Gradient gradient) {
    return {.step = version, .gradient = std::move(gradient), .kind = Kind::gradient};
  }
  static Message of_model(Step version, ModelStatePtr model, std::vector<double> numbers = {}) {
    return {.step = version, .model = std::move(model), .kind = Kind::model, .numbers = std::move(numbers)};
  }
  static Message of_last_model(Step version, ModelStatePtr model, std::vector<double> numbers = {}) {
    return {.step = version, .model = std::move(model), .kind = Kind::last_model, .numbers = std::move(numbers)};
  }
  // `work`: how much has been computed for it, for a server that books that (Server::accept).
  static Message of_difference(Step version, ModelStatePtr difference, const Work& work = {}) {
    return {.step = version,
            .gradient = Gradient(nullptr, work.micro_batches, work.time),
            .model = std::move(difference),
            .kind = Kind::difference};
  }
  static Message note(Step step, std::vector<double> numbers = {}) {
    return {.step = step, .kind = Kind::note, .numbers = std::move(numbers)};
  }
  static Message request() { return {.kind = Kind::request}; }
  static Message request_after(Step version) { return {.step = version, .kind = Kind::request_after}; }
  static Message farewell() { return {.kind = Kind::farewell}; }

  bool has_model() const { return kind == Kind::model || kind == Kind::last_model || kind == Kind::difference; }
  // A gradient of no micro-batches has none.
  bool has_values() const { return has_model() || gradient.micro_batches() > 0; }
  const SentPacket& packet() const { return static_cast<const SentPacket&>(*model); }
  // Of its gradient or difference.
  Work work() const { return {from, gradient.micro_batches(), gradient.compute_time()}; }
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

// Bytes that the message takes on the network: 4 per parameter of its slice (8 for a wide gradient), or its packet's,
// and 8 per number. A message without values costs its latency alone.
inline Bytes message_bytes(const Message& message, Bytes parameter_bytes) {
  Bytes::Rep bytes = 8 * static_cast<Bytes::Rep>(message.numbers.size());
  if (message.is_packed)
    bytes += message.packet().size.value();
  else if (message.has_values())
    bytes += (message.gradient.wide() ? 2 : 1) * message.slice.bytes_of(parameter_bytes).value();
  return Bytes{bytes};
}

}  // namespace syncopate
