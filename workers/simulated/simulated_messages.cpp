// Messages of the simulated cluster. They arrive at send time plus the network's cost, in (time,
// number) order; sending does not block.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "workers/simulated/simulated_cluster.hpp"

namespace syncopate {

void SimulatedCluster::send(Rank from, Rank to, Message message, Place place) {
  if (to.value < 0 || index(to) >= participants_.size())
    throw RunFailure(fmt::format("{} sends to rank {} in {}, but there are ranks 0 to {}", name(from), to.value,
                                 place.operation, participants_.size() - 1));
  message.from = from;
  const Bytes bytes = options_.training.parameter_bytes();
  const Time sent = self(from).now;
  // A worker may have run ahead of everybody's time: its message counts when it arrives.
  if (options_.has_server && from == server()) bytes_ += bytes;
  ++messages_;
  ++self(to).in_flight;
  schedule(later(sent, options_.network.message(bytes)), Event::Kind::deliver, to,
           std::make_unique<Delivery>(Delivery{std::move(message), sent}));
}

std::optional<Message> SimulatedCluster::receive(Rank rank, Time until, Place place) {
  Participant& participant = self(rank);
  if (participant.inbox.empty()) {
    // Others may be behind in virtual time: let them catch up, at least to this worker's time.
    participant.receiving = true;
    if (until != never) resume_at(rank, std::max(until, participant.now));
    suspend(participant, place);
    participant.receiving = false;
  }
  if (participant.inbox.empty()) return std::nullopt;
  return take_first(participant);
}

Message SimulatedCluster::take_first(Participant& participant) {
  Message message = std::move(participant.inbox.front().message);
  participant.inbox.pop_front();
  return message;
}

void SimulatedCluster::deliver(Rank to, Delivery delivery) {
  Participant& receiver = self(to);
  --receiver.in_flight;
  const bool from_server = options_.has_server && delivery.message.from == server();
  if (!from_server) bytes_ += options_.training.parameter_bytes();
  if (receiver.receiving && global_ > receiver.now) {
    const Time sent = std::clamp(delivery.sent, receiver.now, global_);
    receiver.account[Activity::wait] += sent - receiver.now;
    receiver.account[Activity::communicate] += global_ - sent;
    receiver.now = receiver.met_at = global_;
  }
  receiver.inbox.push_back(std::move(delivery));
  if (receiver.receiving) resume(to);
}

void SimulatedCluster::keep(Rank, const Message& message) {
  Participant& sender = self(message.from);
  sender.kept += message.gradient.micro_batches();
  sender.kept_time += message.gradient.compute_time();
}

// What was computed and not kept counts as discarded in the totals.
void SimulatedCluster::discard(Rank, const Message&) {}

// Workers of a method with a server hear from nobody else once it has ended.
bool SimulatedCluster::nobody_can_send_to(Rank rank) const {
  const Participant& receiver = participants_[index(rank)];
  if (receiver.in_flight > 0 || !receiver.inbox.empty()) return false;
  if (options_.has_server && rank != server()) return participants_.back().ended;
  return std::all_of(participants_.begin(), participants_.end(),
                     [&](const Participant& other) { return &other == &receiver || other.ended; });
}

void SimulatedCluster::wake_who_waits_in_vain() {
  if (!somebody_ended_) return;
  for (std::size_t i = 0; i < participants_.size(); ++i) {
    const Rank rank{static_cast<int>(i)};
    Participant& participant = participants_[i];
    if (!participant.receiving || !nobody_can_send_to(rank)) continue;
    if (global_ > participant.now) {
      participant.account[Activity::wait] += global_ - participant.now;
      participant.now = global_;
    }
    resume(rank);  // also from a timed wait, whose event is then stale
  }
}

}  // namespace syncopate
