// Messages of the simulated cluster. They arrive at send time plus the network's cost, in (time,
// number) order; sending does not block.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "workers/simulated/simulated_cluster.hpp"

namespace syncopate {

// Inlined where messages are sent, as is all that a message passes: calls would reach deeper into a cold stack.
inline SimulatedCluster::Delivery* SimulatedCluster::make_delivery(Message&& message, Time sent) {
  if (free_deliveries_.empty()) free_deliveries_.push_back(&deliveries_.emplace_back());
  Delivery* const delivery = free_deliveries_.back();
  free_deliveries_.pop_back();
  static_cast<Message&>(*delivery) = std::move(message);
  delivery->sent = sent;
  return delivery;
}

void SimulatedCluster::send(Rank from, Rank to, Message&& message, Place place) {
  if (to.value < 0 || index(to) >= participants_.size()) fail_for_rank(from, to, place);
  message.from = from;
  const Bytes bytes = message_bytes(message, options_.training.parameter_bytes());
  const Time sent = self(from).book.now();
  // A worker may have run ahead of everybody's time: its message counts when it arrives.
  if (is_server(from)) {
    bytes_ += bytes;
    ++messages_;
  }
  ++self(to).in_flight;
  if (!network_is_plain_) return send_in_order(from, to, bytes, make_delivery(std::move(message), sent));
  Time arrival = later(sent, options_.network.message({.from = from, .to = to, .payload = bytes}));
  // A message without values does not overtake those that its sender has sent before it.
  if (!message.has_values()) arrival = std::max(arrival, self(from).last_arrival);
  self(from).last_arrival = std::max(self(from).last_arrival, arrival);
  schedule(arrival, Event::Kind::deliver, to, make_delivery(std::move(message), sent));
}

void SimulatedCluster::fail_for_rank(Rank from, Rank to, const Place& place) const {
  throw RunFailure(fmt::format("{} sends to rank {} in {}, but there are ranks 0 to {}", name(from), to.value,
                               place.operation, participants_.size() - 1));
}

ReceivedMessage SimulatedCluster::receive(Rank rank, std::optional<Rank> from, Time until, Place place) {
  Participant& participant = self(rank);
  const Rank awaited = from.value_or(anybody);
  if (auto message = take_first(participant, awaited)) return message;
  if (is_server(rank) && participant.leaves_told != leaves_) {
    participant.leaves_told = leaves_;
    return nullptr;
  }
  if (nobody_can_send_to(rank, from)) return nullptr;
  // Others may be behind in virtual time: let them catch up, at least to this worker's time.
  participant.receiving = true;
  participant.from = awaited;
  if (from) ++self(*from).awaited;
  if (until == never)
    suspend(participant, place);
  else
    suspend_until(rank, std::max(until, participant.book.now()), place);
  participant.receiving = false;
  if (from) --self(*from).awaited;
  participant.leaves_told = leaves_;
  return take_first(participant, awaited);
}

// Models are let go of at once, so that steps may go on in place.
void SimulatedCluster::take_back(Message* message) {
  message->model = nullptr;
  if (!message->gradient.terms().empty()) message->gradient = {};
  free_deliveries_.push_back(static_cast<Delivery*>(message));
}

ReceivedMessage SimulatedCluster::take_first(Participant& participant, Rank from) {
  Delivery* first =
      participant.inbox.take_first([from](const Delivery* item) { return from == anybody || item->from == from; });
  return first ? open(first) : nullptr;
}

void SimulatedCluster::deliver(Rank to, Delivery* delivery) {
  Participant& receiver = self(to);
  const Message& message = *delivery;
  --receiver.in_flight;
  // Who sends to a server that has ended has run ahead beyond the end of the run.
  const bool in_time = !(is_server(to) && receiver.ended);
  if (in_time && !is_server(message.from)) {
    bytes_ += message_bytes(message, options_.training.parameter_bytes());
    ++messages_;
  }
  const bool awaited = receiver.receiving && (receiver.from == anybody || receiver.from == message.from);
  if (awaited && global_ > receiver.book.now()) {
    const SpanLabel label{receiver.waits_for->operation};
    receiver.book.pass(Activity::wait, std::min(delivery->sent, global_), label);
    receiver.book.pass(Activity::communicate, global_, label);
    receiver.book.meet();
  }
  receiver.inbox.put(delivery);
  if (!awaited && !receiver.interruptible) return;
  if (!steps_ahead_.empty() && !is_server(to)) draw_ahead_of_time(to);
  resume(to);
}

void SimulatedCluster::keep(Rank, const Work& work, Step staleness) {
  const auto steps = static_cast<std::size_t>(staleness.value());
  if (staleness_.size() <= steps) staleness_.resize(steps + 1);
  ++staleness_[steps];
  Tally& worker = self(work.worker).book.tally;
  worker.kept += work.micro_batches;
  worker.kept_time += work.time;
  if (spans_) spans_->keep(work.worker, work.time);
}

// With servers, what was computed and not kept counts as discarded in the totals.
void SimulatedCluster::discard(Rank, const Work& work) {
  if (options_.servers == 0)
    self(work.worker).book.lose(work.time);
  else if (spans_)
    spans_->lose(work.worker, work.time);
}

// Workers of a method with servers hear from nobody else once these have ended.
bool SimulatedCluster::nobody_can_send_to(Rank rank, std::optional<Rank> from) const {
  const Participant& receiver = participants_[index(rank)];
  if (from) return participants_[index(*from)].left;  // after its messages have arrived
  if (receiver.in_flight > 0) return false;
  const auto first = participants_.begin() + (options_.servers > 0 && !is_server(rank) ? options_.workers : 0);
  return std::all_of(first, participants_.end(),
                     [&](const Participant& other) { return &other == &receiver || other.left; });
}

// Somebody has left: those who waited for a message from there, and servers, learn of it now. All are asked only
// where it may concern them: thousands of workers that leave one after another would be millions of questions.
void SimulatedCluster::wake_who_waits_in_vain(Rank left) {
  const auto participants = static_cast<int>(participants_.size());
  const bool concerns_all = is_server(left) || self(left).awaited > 0 || leaves_ + servers_left_ >= participants - 1;
  for (int i = concerns_all ? 0 : options_.workers; i < participants; ++i) wake_if_in_vain(Rank{i});
}

void SimulatedCluster::wake_if_in_vain(Rank rank) {
  Participant& participant = self(rank);
  if (!participant.receiving) return;
  const bool has_news = is_server(rank) && participant.leaves_told != leaves_;
  const auto from = participant.from == anybody ? std::nullopt : std::optional(participant.from);
  if (!has_news && !nobody_can_send_to(rank, from)) return;
  if (global_ > participant.book.now()) {
    participant.book.pass(Activity::wait, global_, {participant.waits_for->operation});
    participant.book.meet();
  }
  resume(rank);  // also from a timed wait, whose event is then stale
}

void SimulatedCluster::finish_round(Rank rank, const Contribution& contribution) {
  Participant& participant = self(rank);
  Book& book = participant.book;
  book.tally.kept_time += contribution.compute_time;
  if (spans_ && options_.servers > 0) spans_->keep(rank, contribution.compute_time);  // no server says so
  participant.last_row = contribution.step;
  auto& [row, workers] = open_rows_[contribution.step];
  ++workers;
  book.contribute(contribution, row);
  row.end = std::max(row.end, book.now());
  close_rows();
}

// Reports the rows that nobody will add to any more, in the order of the steps.
void SimulatedCluster::close_rows() {
  while (!open_rows_.empty()) {
    const auto& [step, open] = *open_rows_.begin();
    int expected = options_.workers;
    for (const auto& [last, ended] : ended_after_row_)
      if (last < step) expected -= ended;
    if (open.workers < expected) return;
    kept_ += open.row.kept;
    rows_.close(open.row, open.row.end, bytes_);
    open_rows_.erase(open_rows_.begin());
  }
}

}  // namespace syncopate
