// Collectives and messages on the network of the simulated cluster. Where links are shared, whatever comes to one
// does so in an event of its own: fibers run ahead of each other in virtual time, and a link serves in its order.
#include <algorithm>
#include <cassert>
#include <utility>

#include "workers/simulated/simulated_cluster.hpp"

namespace syncopate {

// The event `end` comes once a collective that begins at `at` is over.
void SimulatedCluster::begin_collective(Time at, const CollectiveCall& call, Event::Kind end, Assembly* assembly) {
  bytes_ += collective_bytes(call);
  Route route = options_.network.route(call);
  if (route.empty())
    schedule_end(later(at, options_.network.collective(call)), end, assembly);
  else
    cross(at, {.route = std::move(route), .then = end, .assembly = assembly});
}

// Where the network is not plain: messages may wait on links, and their costs may vary.
void SimulatedCluster::send_in_order(Rank from, Rank to, Bytes bytes, Delivery* delivery) {
  Sender& sender = senders_[index(from)];
  const MessageCall call{.from = from, .to = to, .payload = bytes, .number = sender.sent++};
  Route route = options_.network.route(call);
  if (route.empty()) {
    const Time arrival = in_order(from, to, 0, later(delivery->sent, options_.network.message(call)));
    self(from).last_arrival = std::max(self(from).last_arrival, arrival);
    schedule(arrival, Event::Kind::deliver, to, delivery);
    return;
  }
  ++sender.on_links;
  cross(delivery->sent, {.route = std::move(route), .then = Event::Kind::deliver, .rank = to, .delivery = delivery});
}

// On one connection nothing overtakes what was sent before it, however costs vary.
Time SimulatedCluster::in_order(Rank from, Rank to, std::size_t stage, Time at) {
  if (!options_.network.varies()) return at;
  Time& last = sent_until_[{from.value, to.value, stage}];
  return last = std::max(last, at);
}

void SimulatedCluster::cross(Time at, Crossing crossing) {
  assert(at >= global_);  // a fiber that runs is never behind everybody's time, or links would serve out of order
  const std::uint64_t number = schedule(at, Event::Kind::enter_link, crossing.rank);
  crossings_.emplace_hint(crossings_.end(), number, std::move(crossing));
}

// Takes the link for the next hop of the crossing with this number.
void SimulatedCluster::enter_link(std::uint64_t number) {
  const auto found = crossings_.find(number);
  Crossing crossing = std::move(found->second);
  crossings_.erase(found);
  const Hop& hop = crossing.route[crossing.passed++];
  const auto link = static_cast<std::size_t>(hop.link);
  if (link_free_.size() <= link) link_free_.resize(link + 1);
  link_free_[link] = later(std::max(link_free_[link], global_), hop.occupied);
  Time through = later(link_free_[link], hop.latency);
  Delivery* const delivery = crossing.delivery;
  if (delivery) through = in_order(delivery->from, crossing.rank, crossing.passed, through);
  if (crossing.passed < crossing.route.size()) return cross(through, std::move(crossing));
  if (!delivery) return schedule_end(through, crossing.then, crossing.assembly);
  schedule(through, crossing.then, crossing.rank, delivery);
  const Rank from = delivery->from;
  Participant& sender = self(from);
  sender.last_arrival = std::max(sender.last_arrival, through);
  if (--senders_[index(from)].on_links == 0 && sender.ended) schedule_leave(from);
}

}  // namespace syncopate
