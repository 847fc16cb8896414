#include "workers/simulated/traffic.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

namespace syncopate {

Traffic::Traffic(Stage& stage)
    : stage_(stage),
      regions_(stage.options.servers.regions),
      is_plain_(!stage.options.network.has_shared_links() && !stage.options.network.varies()) {
  if (!is_plain_) senders_ = ByRank<Sender>(stage.size());
}

void Traffic::begin_collective(Time at, const CollectiveCall& call, Event::Kind end, Assembly* assembly) {
  stage_.bytes += collective_bytes(call);
  Route route = stage_.options.network.route(call);
  if (route.empty())
    stage_.schedule_end(later(at, stage_.options.network.collective(call)), end, assembly);
  else
    cross(at, {.route = std::move(route), .then = end, .assembly = assembly});
}

// Where the network is not plain: messages may wait on links, and their costs may vary.
void Traffic::send_in_order(Rank from, Rank to, Bytes bytes, Delivery* delivery) {
  Sender& sender = senders_[from];
  const MessageCall call{.from = from, .to = to, .payload = bytes, .number = sender.sent++, .regions = regions_};
  Route route = stage_.options.network.route(call);
  if (route.empty()) {
    const Time arrival = in_order(from, to, 0, later(delivery->sent, stage_.options.network.message(call)));
    stage_[from].last_arrival = std::max(stage_[from].last_arrival, arrival);
    stage_.schedule(arrival, Event::Kind::deliver, to, delivery);
    return;
  }
  ++sender.on_links;
  cross(delivery->sent, {.route = std::move(route), .then = Event::Kind::deliver, .rank = to, .delivery = delivery});
}

// On one connection nothing overtakes what was sent before it, however costs vary.
Time Traffic::in_order(Rank from, Rank to, std::size_t hop, Time at) {
  if (!stage_.options.network.varies()) return at;
  Time& last = sent_until_[{from, to, hop}];
  return last = std::max(last, at);
}

void Traffic::cross(Time at, Crossing crossing) {
  assert(at >= stage_.now());  // a fiber that runs is never behind the events, or links would serve out of order
  const std::uint64_t number = stage_.schedule(at, Event::Kind::enter_link, crossing.rank);
  crossings_.emplace_hint(crossings_.end(), number, std::move(crossing));
}

void Traffic::enter_link(std::uint64_t number) {
  const auto found = crossings_.find(number);
  Crossing crossing = std::move(found->second);
  crossings_.erase(found);
  const Hop& hop = crossing.route[crossing.passed++];
  const auto link = static_cast<std::size_t>(hop.link);
  if (link_free_.size() <= link) link_free_.resize(link + 1);
  link_free_[link] = later(std::max(link_free_[link], stage_.now()), hop.occupied);
  Time through = later(link_free_[link], hop.latency);
  Delivery* const delivery = crossing.delivery;
  if (delivery) through = in_order(delivery->from, crossing.rank, crossing.passed, through);
  if (crossing.passed < crossing.route.size()) return cross(through, std::move(crossing));
  if (!delivery) return stage_.schedule_end(through, crossing.then, crossing.assembly);
  stage_.schedule(through, crossing.then, crossing.rank, delivery);
  const Rank from = delivery->from;
  SimulatedParticipant& sender = stage_[from];
  sender.last_arrival = std::max(sender.last_arrival, through);
  if (--senders_[from].on_links == 0 && sender.ended) schedule_leave(from);
}

void Traffic::schedule_leave(Rank rank) {
  const SimulatedParticipant& participant = stage_[rank];
  if (is_plain_ || senders_[rank].on_links == 0)
    stage_.schedule(std::max(participant.book.now(), participant.last_arrival), Event::Kind::leave, rank);
}

}  // namespace syncopate
