#include "workers/simulated/messages.hpp"

#include <fmt/format.h>

#include <cassert>
#include <stdexcept>

namespace syncopate {

void SimulatedMessages::fail_for_rank(Rank from, Rank to, const Place& place) const {
  throw RunFailure(fmt::format("{} sends to rank {} in {}: the ranks are 0 to {}", state_.name(from), to.value,
                               place.operation, state_.size() - 1));
}

ReceivedMessage SimulatedMessages::receive(Rank self, std::optional<Rank> from, Time until, const Place& place) {
  SimulatedParticipant& receiver = state_[self];
  if (auto message = take_first(receiver, from)) return message;
  if (state_.is_server(self) && receiver.leaves_notified != state_.leaves_to_notify()) {
    receiver.leaves_notified = state_.leaves_to_notify();
    return nullptr;
  }
  if (nobody_can_send_to(self, from)) return nullptr;
  // Other participants may be behind in virtual time. Let them catch up, at least to the receiver's time.
  receiver.receiving = from ? Receiving::of_one : Receiving::of_anybody;
  receiver.from = from.value_or(Rank{});
  if (from) ++state_[*from].awaited;
  if (until == never)
    SimulationState::suspend(receiver, place);
  else
    state_.suspend_until(self, std::max(until, receiver.book.now()), place);
  receiver.receiving = Receiving::nothing;
  if (from) --state_[*from].awaited;
  receiver.leaves_notified = state_.leaves_to_notify();
  return take_first(receiver, from);
}

// The message's models are released at once, so that optimizer steps can update them in place.
void SimulatedMessages::take_back(Message* message) {
  message->model = nullptr;
  if (!message->gradient.terms().empty()) message->gradient = {};
  free_.push_back(static_cast<Delivery*>(message));
}

ReceivedMessage SimulatedMessages::take_first(SimulatedParticipant& participant, std::optional<Rank> from) {
  Delivery* const first =
      participant.inbox.take_first([&](const Delivery* item) { return !from || item->from == *from; });
  return {first, GiveBack{this}};
}

void SimulatedMessages::deliver(Rank to, Delivery* delivery) {
  SimulatedParticipant& receiver = state_[to];
  const Message& message = *delivery;
  --receiver.in_flight;
  // A message to a server that has ended is not counted: its sender had run ahead of the end of the run.
  const bool in_time = !(state_.is_server(to) && receiver.ended);
  if (in_time && !state_.is_server(message.from)) {
    state_.bytes += message_bytes(message, state_.options.training.parameter_bytes());
    ++state_.messages;
  }
  const bool awaited = receiver.awaits_message_of(message.from);
  if (awaited) book_wait(to, delivery->sent);
  receiver.inbox.put(delivery);
  if (!awaited && !receiver.interruptible) return;
  if (!state_.is_server(to)) durations_.draw_before_asked(to);
  state_.resume(to);
}

// In a method with servers, workers receive nothing more once the servers have left.
bool SimulatedMessages::nobody_can_send_to(Rank rank, std::optional<Rank> from) const {
  if (from) return state_[*from].left;  // a participant leaves only after its messages have arrived
  if (state_[rank].in_flight > 0) return false;
  const bool from_servers_alone = state_.options.servers > 0 && !state_.is_server(rank);
  for (const Rank other : from_servers_alone ? state_.servers() : state_.everybody())
    if (other != rank && !state_[other].left) return false;
  return true;
}

// Checks all participants only if this leave may concern all of them. To check all at each of thousands of leaves would
// take millions of checks.
void SimulatedMessages::notify_of_leave(Rank left) {
  const bool concerns_all =
      state_.is_server(left) || state_[left].awaited > 0 || state_.leaves + state_.servers_left >= state_.size() - 1;
  for (const Rank rank : concerns_all ? state_.everybody() : state_.servers()) wake_if_in_vain(rank);
}

void SimulatedMessages::wake_if_in_vain(Rank rank) {
  SimulatedParticipant& participant = state_[rank];
  if (participant.receiving == Receiving::nothing) return;
  const bool has_news = state_.is_server(rank) && participant.leaves_notified != state_.leaves_to_notify();
  const auto from = participant.receiving == Receiving::of_one ? std::optional(participant.from) : std::nullopt;
  if (!has_news && !nobody_can_send_to(rank, from)) return;
  book_wait(rank, state_.now());
  state_.resume(rank);  // if the wait has a time limit, its timer event is then ignored
}

// Books a receiver's time until now. It communicates while messages that it sent are in flight or wait for a link, and
// from the time at which its new message was sent. In between it waits. Time after the end of the run is not booked.
void SimulatedMessages::book_wait(Rank rank, Time sent) const {
  SimulatedParticipant& receiver = state_[rank];
  if (state_.now() <= receiver.book.now()) return;
  const SpanLabel label{receiver.waits_for->operation};
  const Time until = std::min(state_.now(), state_.run_ended_at);
  receiver.book.pass(Activity::communicate, std::min({traffic_.last_arrival(rank), sent, until}), label);
  receiver.book.pass(Activity::wait, std::min(sent, until), label);
  receiver.book.pass(Activity::communicate, until, label);
  if (until == state_.now())
    receiver.book.meet();
  else
    receiver.book.pass_unbooked(state_.now());
}

Traffic::Traffic(SimulationState& state)
    : state_(state),
      regions_(state.options.servers.regions),
      has_links_(state.options.network.has_shared_links()),
      varies_(state.options.network.varies()),
      is_plain_(!has_links_ && !varies_),
      has_one_source_(state.options.only_servers_send_to_workers && !state.options.servers.hold_slices()) {
  if (varies_) sent_.resize(static_cast<std::size_t>(state.size()));
}

void Traffic::begin_collective(Time at, const CollectiveCall& call, CollectiveGroup* group,
                               const BucketArrivals* buckets, Time free_from) {
  if (state_.options.only_servers_send_to_workers)
    throw std::logic_error("the method starts a collective, but its traits say that only its servers send to workers");
  const NetworkModel& network = state_.options.network;
  const bool overlaps = buckets && call.members > 1;
  const Duration length = overlaps ? buckets->end(network, call, free_from) - at : network.collective(call);
  state_.bytes += collective_bytes(call);
  if (!has_links_ || call.members == 1)
    return state_.schedule(later(at, length), Event::Kind::finish_collective, group);
  crossings_[group] = {.call = call, .length = length, .transit = {.progress = {.head = at, .tail = at}}};
  state_.schedule(at, Event::Kind::enter_links, group);
}

void Traffic::enter_links(CollectiveGroup* group) {
  Crossing& crossing = crossings_[group];
  Route route = state_.options.network.route(crossing.call);
  // If only a part of the collective remains, it occupies the links for the same share of their time.
  if (const Duration whole = length_of(route); crossing.length != whole && whole > Duration{}) {
    const double part = static_cast<double>(crossing.length.count()) / static_cast<double>(whole.count());
    for (Hop& hop : route) {
      hop.occupied = from_seconds(part * to_seconds(hop.occupied));
      hop.latency = from_seconds(part * to_seconds(hop.latency));
    }
    route.back().latency += std::max(crossing.length - length_of(route), -route.back().latency);
  }
  if (pass(crossing.transit, route, state_.now()))
    state_.schedule(crossing.transit.progress.tail, Event::Kind::finish_collective, group);
  else
    state_.schedule(crossing.transit.progress.head, Event::Kind::enter_links, group);
}

// Sends over a network with shared links or with costs that vary.
void Traffic::send_in_order(Rank from, Rank to, Bytes bytes, Delivery* delivery) {
  Transit& transit = delivery->transit = {.payload = bytes};
  transit.progress.tail = delivery->sent;
  if (varies_) transit.number = sent_[static_cast<std::size_t>(from.value)]++;
  if (!has_links_) {
    const Time arrival =
        in_order(from, to, 0, later(delivery->sent, state_.options.network.message(call_of(to, *delivery))));
    state_[from].last_arrival = std::max(state_[from].last_arrival, arrival);
    state_.schedule(arrival, Event::Kind::deliver, to, delivery);
    return;
  }
  if (state_.options.only_servers_send_to_workers && !state_.is_server(from) && !state_.is_server(to))
    throw std::logic_error(
        "the method sends messages between workers, but its traits say that only its servers send to workers");
  assert(delivery->sent >= state_.now());  // a running fiber is never behind the events
  make_links();
  ++own_[static_cast<std::size_t>(from.value)].on_way;
  if (state_[from].collectives_under_way > 0)
    state_.schedule(delivery->sent, Event::Kind::enter_link, to, delivery);
  else
    advance(to, delivery, delivery->sent);
}

void Traffic::advance(Rank to, Delivery* delivery, Time at) {
  Transit& transit = delivery->transit;
  const Ends ends{delivery->from, to};
  bool is_through = false;
  if (transit.last_occupied) {
    transit.progress = passed(transit.progress, {.occupied = *transit.last_occupied},
                              occupy_own(way_in(to.value), *transit.last_occupied, at, ends));
    is_through = true;
  } else {
    const Route route = state_.options.network.route(call_of(to, *delivery));
    is_through = pass(transit, route, at, ends);
    if (varies_) {
      Time& next = is_through ? transit.progress.tail : transit.progress.head;
      next = in_order(delivery->from, to, transit.stages, next);
    } else if (transit.stages + 1 == route.size()) {
      // A worker that receives only one server's messages gets them in the order of sending, so no event is needed.
      if (has_one_source_ && !state_.is_server(to))
        is_through = pass(transit, route, transit.progress.head, ends);
      else
        transit.last_occupied = route.back().occupied;
    }
  }
  if (!is_through) {
    state_.schedule(transit.progress.head, Event::Kind::enter_link, to, delivery);
    return;
  }
  ParticipantLinks& sender = own_[static_cast<std::size_t>(delivery->from.value)];
  sender.last_arrival = std::max(sender.last_arrival, transit.progress.tail);
  state_.schedule(transit.progress.tail, Event::Kind::deliver, to, delivery);
  if (--sender.on_way == 0 && state_[delivery->from].ended) schedule_leave(delivery->from);
}

bool Traffic::pass(Transit& transit, const Route& route, Time at, std::optional<Ends> ends) {
  const Hop& hop = route[transit.stages++];
  const bool is_own = hop.links == 1 && hop.uplinks == 0;
  transit.progress =
      passed(transit.progress, hop, is_own ? occupy_own(hop.link, hop.occupied, at, ends) : occupy(hop, at));
  return transit.stages == route.size();
}

// Between the same two participants no message overtakes an earlier one, even if costs vary.
Time Traffic::in_order(Rank from, Rank to, std::size_t stages, Time at) {
  Time& last = sent_until_[{from, to, stages}];
  return last = std::max(last, at);
}

Time Traffic::occupy_own(int link, Duration occupied, Time at, std::optional<Ends> ends) {
  make_links();
  const Rank of{link / 2};
  const bool is_of_server = state_.is_server(of), is_in = link % 2 == 1;
  Time& free = own_[static_cast<std::size_t>(of.value)].free[is_in];
  const Time begin = std::max({at, free, is_of_server ? Time{} : all_until_});
  free = later(begin, occupied);
  if (!is_of_server)
    latest_ = std::max(latest_, free);
  else if (state_.spans)
    state_.spans->add_use(of, is_in, {begin, free, ends ? std::optional(is_in ? ends->from : ends->to) : std::nullopt});
  return begin;
}

Time Traffic::occupy(const Hop& hop, Time at) {
  Time begin = std::max(at, all_until_);
  if (hop.links == 2 * state_.options.workers) {  // links of all workers, and so of all groups
    begin = std::max(begin, latest_);
    latest_ = all_until_ = later(begin, hop.occupied);
    return begin;
  }
  make_links();
  if (const auto end = static_cast<std::size_t>(hop.uplink + hop.uplinks); uplinks_.size() < end) uplinks_.resize(end);
  const auto each = [&](auto&& of_link) {
    for (int i = hop.link; i < hop.link + hop.links; ++i) of_link(own_[static_cast<std::size_t>(i / 2)].free[i % 2]);
    for (int i = hop.uplink; i < hop.uplink + hop.uplinks; ++i) of_link(uplinks_[static_cast<std::size_t>(i)]);
  };
  each([&](Time free) { begin = std::max(begin, free); });
  const Time end = later(begin, hop.occupied);
  each([&](Time& free) { free = end; });
  latest_ = std::max(latest_, end);
  return begin;
}

void Traffic::schedule_leave(Rank rank) {
  const SimulatedParticipant& participant = state_[rank];
  const Time arrival = last_arrival(rank);
  if (arrival == never) return;
  state_.schedule(std::max(participant.book.now(), arrival), Event::Kind::leave, rank);
}

}  // namespace syncopate
