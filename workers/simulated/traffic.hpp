// Collectives and messages on the network of the simulated cluster. Where links are shared, whatever comes to one
// does so in an event of its own: fibers run ahead of each other in virtual time, and a link serves in its order.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "workers/network/network.hpp"
#include "workers/simulated/stage.hpp"

namespace syncopate {

class Traffic {
 public:
  explicit Traffic(Stage& stage);

  // The event `end` comes once a collective that begins at `at` is over.
  void begin_collective(Time at, const CollectiveCall& call, Event::Kind end, Assembly* assembly);
  // The number of the next collective of all workers: costs may vary by it.
  std::int64_t next_collective() { return collectives_begun_++; }

  // The event `deliver` comes once the message has arrived.
  void send(Rank from, Rank to, Bytes bytes, Delivery* delivery) {
    if (!is_plain_) return send_in_order(from, to, bytes, delivery);
    SimulatedParticipant& sender = stage_[from];
    Time arrival =
        later(delivery->sent,
              stage_.options.network.message({.from = from, .to = to, .payload = bytes, .regions = regions_}));
    // A message without values does not overtake those that its sender has sent before it.
    if (!delivery->has_values()) arrival = std::max(arrival, sender.last_arrival);
    sender.last_arrival = std::max(sender.last_arrival, arrival);
    stage_.schedule(arrival, Event::Kind::deliver, to, delivery);
  }

  // Takes the link for the next hop of the crossing whose event has this number.
  void enter_link(std::uint64_t number);

  // Of who has ended: after the last of its messages has arrived; while some are on links, that is not known.
  void schedule_leave(Rank rank);

 private:
  // What a participant has sent where the network is not plain.
  struct Sender {
    std::int64_t sent = 0;  // messages
    int on_links = 0;       // of these: on shared links, so that their arrival is not known yet
  };
  // A collective or message on its way over shared links, and the event at its end.
  struct Crossing {
    Route route;
    Event::Kind then{};
    Rank rank{};                   // of that event
    Delivery* delivery = nullptr;  // null: a collective
    Assembly* assembly = nullptr;  // null: a partial all-reduce, or a message
    std::size_t passed = 0;        // hops
  };

  [[gnu::noinline]] void send_in_order(Rank from, Rank to, Bytes bytes, Delivery* delivery);
  Time in_order(Rank from, Rank to, std::size_t hop, Time at);
  void cross(Time at, Crossing crossing);

  Stage& stage_;
  const int regions_;
  const bool is_plain_;                          // the cost of a message depends on nothing but its ends and size
  ByRank<Sender> senders_;                       // none where the network is plain
  std::vector<Time> link_free_;                  // by link: the end of what it has taken on
  std::map<std::uint64_t, Crossing> crossings_;  // by the number of their next event
  std::map<std::tuple<Rank, Rank, std::size_t>, Time> sent_until_;  // from, to, hop: the latest on this connection
  std::int64_t collectives_begun_ = 0;                              // of all workers
};

}  // namespace syncopate
