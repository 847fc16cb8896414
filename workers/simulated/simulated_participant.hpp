// A worker or server of the simulated cluster: its fiber, what it waits for, what has arrived, and its book.
#pragma once

#include <cstdint>
#include <optional>

#include "workers/cluster/book.hpp"
#include "workers/cluster/message.hpp"
#include "workers/cluster/place.hpp"
#include "workers/network/network.hpp"
#include "workers/simulated/fiber.hpp"
#include "workers/simulated/inbox.hpp"
#include "workers/units/units.hpp"

namespace syncopate {

// How far something has come on its way over links.
struct Transit {
  TransferTimes progress{};
  Bytes payload{};
  std::size_t stages = 0;                   // of its way, that it has entered
  std::int64_t number = 0;                  // among its sender's messages, where costs vary
  std::optional<Duration> last_occupied{};  // of its last stage, the receiver's way in, where that alone is left
};

// A message on its way. Two cache lines, and a third one where links are shared.
struct alignas(64) Delivery : Message {
  union {
    Time sent{};
    Delivery* next;  // once it is in an inbox
  };
  Transit transit{};
};
static_assert(sizeof(Delivery) == 192);

// Whether a participant waits for a message, and whose.
enum class Receiving : std::uint8_t { nothing, of_anybody, of_one };

// With thousands of workers the cost of a step is that of fetching their memory, so what is touched together stands
// in one cache line.
struct alignas(64) SimulatedParticipant {
  std::optional<Fiber> fiber;
  std::optional<Place> waits_for{};  // none: it runs
  Rank from{};                       // of_one: of whom
  Receiving receiving = Receiving::nothing;
  bool computing : 1 = false;      // waits for its own end of a micro-batch, or of an outage,
  bool interruptible : 1 = false;  // or for a message that comes before
  bool ended : 1 = false;          // its program has
  bool left : 1 = false;           // and the clock has come to that
  bool lost : 1 = false;           // in a micro-batch that never ends
  std::uint16_t awaits = 0;        // the collective whose end it waits for (Gathering::id); 0: none
  Time last_arrival{};             // of what it has sent: it leaves after that
  Inbox<Delivery> inbox;           // in (time, number) order
  int in_flight = 0;               // messages sent to it, not yet arrived
  int awaited = 0;                 // who waits for a message from here alone
  int leaves_told = 0;             // a server: of those that have left
  int started = 0;                 // collectives of all workers
  int collectives_under_way = 0;   // of any, that it has started and not finished, without waiting in them since
  Book book;
  std::uint64_t wake = 0;  // number of the event that ends its present wait; 0: none

  bool awaits_message_of(Rank sender) const {
    return receiving == Receiving::of_anybody || (receiving == Receiving::of_one && from == sender);
  }
};

}  // namespace syncopate
