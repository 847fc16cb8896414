// The network and the messages of the simulated cluster.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "workers/simulated/simulation_state.hpp"

namespace syncopate {

// Collectives and messages on the network. A shared link serves transfers in the order of time, but fibers run ahead of
// each other in virtual time. So each arrival at a link is an event. A message's entry to its sender's outgoing link
// needs no event, since a fiber sends in order. The exception is a message sent during a collective of its sender: it
// may reach the link only after the collective.
class Traffic {
 public:
  explicit Traffic(SimulationState& state);

  // Begins a collective at time `at` and schedules the event `finish_collective`. A group has one collective at a time.
  // Partial sums (`group` null) also come one at a time. `buckets`: the arrivals at an exchange that overlaps the
  // backward pass and begins at `free_from` or later; null: no overlap.
  void begin_collective(Time at, const CollectiveCall& call, CollectiveGroup* group, const BucketArrivals* buckets,
                        Time free_from);

  // Schedules the event `deliver` at the message's arrival.
  void send(Rank from, Rank to, Bytes bytes, Delivery* delivery) {
    if (!is_plain_) return send_in_order(from, to, bytes, delivery);
    SimulatedParticipant& sender = state_[from];
    Time arrival =
        later(delivery->sent,
              state_.options.network.message({.from = from, .to = to, .payload = bytes, .regions = regions_}));
    // A message without values does not overtake earlier ones of its sender.
    if (!delivery->has_values()) arrival = std::max(arrival, sender.last_arrival);
    sender.last_arrival = std::max(sender.last_arrival, arrival);
    state_.schedule(arrival, Event::Kind::deliver, to, delivery);
  }

  // Arrival time of the participant's last message so far; `never` while that is unknown.
  Time last_arrival(Rank of) const {
    if (own_.empty()) return state_[of].last_arrival;
    const ParticipantLinks& own = own_[static_cast<std::size_t>(of.value)];
    return own.on_way > 0 ? never : own.last_arrival;
  }

  // Event handlers: a message, or a collective, has reached the next stage of its route.
  void enter_link(Rank to, Delivery* delivery) { advance(to, delivery, state_.now()); }
  void enter_links(CollectiveGroup* group);

  // Schedules the leave of a participant that has ended, after its last message. Does nothing while any of its messages
  // is on links; the last of these schedules the leave.
  void schedule_leave(Rank rank);

 private:
  // A participant's own links and messages. Half a cache line, because fetching it is a link event's main cost.
  struct ParticipantLinks {
    Time free[2] = {};        // from when on the outgoing and the incoming link are free
    Time last_arrival{};      // arrival of its last message
    std::int32_t on_way = 0;  // messages whose arrival is not known yet
  };
  struct Ends {
    Rank from{}, to{};
  };
  // A collective that crosses links.
  struct Crossing {
    CollectiveCall call;
    Duration length{};
    Transit transit{};
  };

  // A star's collectives use the links of the first server's rank even in methods without servers.
  void make_links() {
    if (own_.empty()) own_.resize(static_cast<std::size_t>(std::max(state_.size(), state_.options.workers + 1)));
  }
  [[gnu::noinline]] void send_in_order(Rank from, Rank to, Bytes bytes, Delivery* delivery);
  MessageCall call_of(Rank to, const Delivery& delivery) const {
    MessageCall call{.from = delivery.from, .to = to, .payload = delivery.transit.payload, .regions = regions_};
    if (varies_) call.number = delivery.transit.number;
    return call;
  }
  // Takes a transfer through the next stage of its route, entered at time `at`. Returns whether it was the last stage.
  bool pass(Transit& transit, const Route& route, Time at, std::optional<Ends> ends = std::nullopt);
  void advance(Rank to, Delivery* delivery, Time at);
  Time in_order(Rank from, Rank to, std::size_t stages, Time at);
  // Occupy the links of a stage. Return the begin of that use: `at`, or later if links are busy. `ends`: sender and
  // receiver of a message; none for a collective.
  Time occupy(const Hop& hop, Time at);
  Time occupy_own(int link, Duration occupied, Time at, std::optional<Ends> ends);

  SimulationState& state_;
  const int regions_;
  const bool has_links_;
  const bool varies_;
  const bool is_plain_;                // a message's cost depends only on its ends and size
  const bool has_one_source_;          // a worker receives messages from only one server
  std::vector<ParticipantLinks> own_;  // by rank; empty until the first transfer over links
  std::vector<Time> uplinks_;          // by group: from when on its uplink is free, up and down
  Time latest_{};                      // from when on all links of workers and groups are free
  Time all_until_{};                   // end of the last transfer that occupies all links together
  std::vector<std::int64_t> sent_;     // number of messages sent, by rank; empty if costs do not vary
  std::map<CollectiveGroup*, Crossing> crossings_;
  std::map<std::tuple<Rank, Rank, std::size_t>, Time> sent_until_;  // latest time by connection (from, to, hop)
};

// A message arrives at its send time plus the network's cost, in (time, number) order. Sending does not block.
class SimulatedMessages final : private MessagePool {
 public:
  SimulatedMessages(SimulationState& state, Traffic& traffic, DurationPrefetch& durations)
      : state_(state), traffic_(traffic), durations_(durations) {}

  // Inline, like all functions that every message passes through: calls would use deeper, uncached parts of the stack.
  void send(Rank from, Rank to, Message&& message, const Place& place) {
    if (to.value < 0 || to.value >= state_.size()) fail_for_rank(from, to, place);
    message.from = from;
    const Bytes bytes = message_bytes(message, state_.options.training.parameter_bytes());
    // Only a server's message is counted here. A worker's clock may be ahead of the queue's, so its message is counted
    // on arrival.
    if (state_.is_server(from)) {
      state_.bytes += bytes;
      ++state_.messages;
    }
    ++state_[to].in_flight;
    // Models for the final result alone are sent after the run, like evaluations, so their transfer takes no time.
    const Bytes transferred = message.kind == Message::Kind::last_model ? Bytes{} : bytes;
    traffic_.send(from, to, transferred, make_delivery(std::move(message), state_[from].book.now()));
  }
  // See Cluster::receive.
  ReceivedMessage receive(Rank self, std::optional<Rank> from, Time until, const Place& place);

  // Event handlers: a message has arrived; a receiver's time limit has passed.
  void deliver(Rank to, Delivery* delivery);
  void give_up(Rank rank) {
    book_wait(rank, state_.now());
    state_.resume(rank);
  }
  // Wakes servers to notify them of the leave, and participants that wait for a message that nobody can send any more.
  void notify_of_leave(Rank left);

 private:
  Delivery* make_delivery(Message&& message, Time sent) {
    if (free_.empty()) free_.push_back(&deliveries_.emplace_back());
    Delivery* const delivery = free_.back();
    free_.pop_back();
    static_cast<Message&>(*delivery) = std::move(message);
    delivery->sent = sent;
    return delivery;
  }
  void take_back(Message* message) override;
  ReceivedMessage take_first(SimulatedParticipant& participant, std::optional<Rank> from);
  bool nobody_can_send_to(Rank rank, std::optional<Rank> from) const;
  void wake_if_in_vain(Rank rank);
  void book_wait(Rank rank, Time sent) const;
  [[noreturn, gnu::cold]] void fail_for_rank(Rank from, Rank to, const Place& place) const;

  SimulationState& state_;
  Traffic& traffic_;
  DurationPrefetch& durations_;
  std::deque<Delivery> deliveries_;  // a pool: its elements do not move
  std::vector<Delivery*> free_;
};

}  // namespace syncopate
