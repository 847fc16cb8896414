// Messages of the simulated cluster. They arrive at send time plus the network's cost, in (time, number) order; sending
// does not block.
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "workers/simulated/durations_ahead.hpp"
#include "workers/simulated/stage.hpp"
#include "workers/simulated/traffic.hpp"

namespace syncopate {

class Mail final : private MessagePool {
 public:
  Mail(Stage& stage, Traffic& traffic, DurationsAhead& durations)
      : stage_(stage), traffic_(traffic), durations_(durations) {}

  // Inlined, as is all that a message passes: calls would reach deeper into a cold stack.
  void send(Rank from, Rank to, Message&& message, const Place& place) {
    if (to.value < 0 || to.value >= stage_.size()) fail_for_rank(from, to, place);
    message.from = from;
    const Bytes bytes = message_bytes(message, stage_.options.training.parameter_bytes());
    // A worker may have run ahead of everybody's time: its message counts when it arrives.
    if (stage_.is_server(from)) {
      stage_.bytes += bytes;
      ++stage_.messages;
    }
    ++stage_[to].in_flight;
    // Models for the result alone come after the run, as evaluations do: they keep their place on the links, and take
    // no transfer.
    const Bytes transferred = message.kind == Message::Kind::last_model ? Bytes{} : bytes;
    traffic_.send(from, to, transferred, make_delivery(std::move(message), stage_[from].book.now()));
  }
  // See Cluster::receive.
  ReceivedMessage receive(Rank self, std::optional<Rank> from, Time until, const Place& place);

  // An event: what was sent has arrived.
  void deliver(Rank to, Delivery* delivery);
  // An event: nothing came in the time that a receiver would wait.
  void give_up(Rank rank);
  // Somebody has left: those who waited for a message from there, and servers, learn of it now.
  void tell_of_leave(Rank left);

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

  Stage& stage_;
  Traffic& traffic_;
  DurationsAhead& durations_;
  std::deque<Delivery> deliveries_;  // a pool: they do not move
  std::vector<Delivery*> free_;
};

}  // namespace syncopate
