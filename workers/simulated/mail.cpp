#include "workers/simulated/mail.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace syncopate {

void Mail::fail_for_rank(Rank from, Rank to, const Place& place) const {
  throw RunFailure(fmt::format("{} sends to rank {} in {}, but there are ranks 0 to {}", stage_.name(from), to.value,
                               place.operation, stage_.size() - 1));
}

ReceivedMessage Mail::receive(Rank self, std::optional<Rank> from, Time until, const Place& place) {
  SimulatedParticipant& receiver = stage_[self];
  if (auto message = take_first(receiver, from)) return message;
  if (stage_.is_server(self) && receiver.leaves_told != stage_.leaves_to_tell()) {
    receiver.leaves_told = stage_.leaves_to_tell();
    return nullptr;
  }
  if (nobody_can_send_to(self, from)) return nullptr;
  // Others may be behind in virtual time: let them catch up, at least to this worker's time.
  receiver.receiving = from ? Receiving::of_one : Receiving::of_anybody;
  receiver.from = from.value_or(Rank{});
  if (from) ++stage_[*from].awaited;
  if (until == never)
    Stage::suspend(receiver, place);
  else
    stage_.suspend_until(self, std::max(until, receiver.book.now()), place);
  receiver.receiving = Receiving::nothing;
  if (from) --stage_[*from].awaited;
  receiver.leaves_told = stage_.leaves_to_tell();
  return take_first(receiver, from);
}

// Models are let go of at once, so that steps may go on in place.
void Mail::take_back(Message* message) {
  message->model = nullptr;
  if (!message->gradient.terms().empty()) message->gradient = {};
  free_.push_back(static_cast<Delivery*>(message));
}

ReceivedMessage Mail::take_first(SimulatedParticipant& participant, std::optional<Rank> from) {
  Delivery* const first =
      participant.inbox.take_first([&](const Delivery* item) { return !from || item->from == *from; });
  return {first, GiveBack{this}};
}

void Mail::deliver(Rank to, Delivery* delivery) {
  SimulatedParticipant& receiver = stage_[to];
  const Message& message = *delivery;
  --receiver.in_flight;
  // Who sends to a server that has ended has run ahead beyond the end of the run.
  const bool in_time = !(stage_.is_server(to) && receiver.ended);
  if (in_time && !stage_.is_server(message.from)) {
    stage_.bytes += message_bytes(message, stage_.options.training.parameter_bytes());
    ++stage_.messages;
  }
  const bool awaited = receiver.awaits_message_of(message.from);
  if (awaited) book_wait(to, delivery->sent);
  receiver.inbox.put(delivery);
  if (!awaited && !receiver.interruptible) return;
  if (!stage_.is_server(to)) durations_.draw_before_asked(to);
  stage_.resume(to);
}

// Workers of a method with servers hear from nobody else once these have ended.
bool Mail::nobody_can_send_to(Rank rank, std::optional<Rank> from) const {
  if (from) return stage_[*from].left;  // after its messages have arrived
  if (stage_[rank].in_flight > 0) return false;
  const bool from_servers_alone = stage_.options.servers > 0 && !stage_.is_server(rank);
  for (const Rank other : from_servers_alone ? stage_.servers() : stage_.everybody())
    if (other != rank && !stage_[other].left) return false;
  return true;
}

// All are asked only where it may concern them: thousands of workers that leave one after another would be millions of
// questions.
void Mail::tell_of_leave(Rank left) {
  const bool concerns_all =
      stage_.is_server(left) || stage_[left].awaited > 0 || stage_.leaves + stage_.servers_left >= stage_.size() - 1;
  for (const Rank rank : concerns_all ? stage_.everybody() : stage_.servers()) wake_if_in_vain(rank);
}

void Mail::wake_if_in_vain(Rank rank) {
  SimulatedParticipant& participant = stage_[rank];
  if (participant.receiving == Receiving::nothing) return;
  const bool has_news = stage_.is_server(rank) && participant.leaves_told != stage_.leaves_to_tell();
  const auto from = participant.receiving == Receiving::of_one ? std::optional(participant.from) : std::nullopt;
  if (!has_news && !nobody_can_send_to(rank, from)) return;
  book_wait(rank, stage_.now());
  stage_.resume(rank);  // also from a timed wait, whose event is then stale
}

void Mail::give_up(Rank rank) {
  book_wait(rank, stage_.now());
  stage_.resume(rank);
}

// Of a receiver until now. While what it has sent itself is under way, or in a queue in front of a link, it communicates,
// and again from the time that what it receives now was sent. After the end of the run time passes without being booked.
void Mail::book_wait(Rank rank, Time sent) const {
  SimulatedParticipant& receiver = stage_[rank];
  if (stage_.now() <= receiver.book.now()) return;
  const SpanLabel label{receiver.waits_for->operation};
  const Time until = std::min(stage_.now(), stage_.run_ended_at);
  receiver.book.pass(Activity::communicate, std::min({traffic_.last_arrival(rank), sent, until}), label);
  receiver.book.pass(Activity::wait, std::min(sent, until), label);
  receiver.book.pass(Activity::communicate, until, label);
  if (until == stage_.now())
    receiver.book.meet();
  else
    receiver.book.pass_unbooked(stage_.now());
}

}  // namespace syncopate
