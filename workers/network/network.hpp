// What communication costs on the virtual clock, and how many bytes it moves.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "workers/cluster/operation.hpp"
#include "workers/units/units.hpp"

namespace syncopate {

// One collective among workers of consecutive ranks.
struct CollectiveCall {
  Operation operation = Operation::all_reduce;
  int members = 1;
  Bytes payload{};  // the vector that is reduced or sent, or one member's that is shared out; of an all-gather, all
                    // members' together
  Rank first{};     // of the members
  std::optional<std::int64_t> number{};  // of the collective, where costs vary at random; none: the mean cost
};

// One message between two workers, a worker and a server, or two servers.
struct MessageCall {
  Rank from{};
  Rank to{};
  Bytes payload{};
  std::optional<std::int64_t> number{};  // of the sender's messages, where costs vary at random; none: the mean cost
  int regions = 0;                       // whose servers stand among their workers (Servers::of_regions); 0: none
};

// One shared link on the way: it serves in the order in which transfers come to it, one at a time.
struct Hop {
  int link = 0;
  Duration occupied{};  // how long a transfer holds it
  Duration latency{};   // from the end of that to the arrival
};
using Route = std::vector<Hop>;

// Contract: pure functions. A collective of one member costs nothing, except under a model that says so.
class NetworkModel {
 public:
  virtual ~NetworkModel() = default;

  // From the last arrival to the result everywhere, where nothing else is on the network.
  virtual Duration collective(const CollectiveCall& call) const = 0;
  // From sending to arrival, where nothing else is on the network.
  virtual Duration message(const MessageCall& call) const = 0;

  // Whether collectives and messages wait for each other on links. Where a route has hops, the costs above are their
  // sums; what has none meets nobody.
  virtual bool has_shared_links() const { return false; }
  virtual Route route(const CollectiveCall&) const { return {}; }
  virtual Route route(const MessageCall&) const { return {}; }

  // Whether costs depend on the numbers of collectives and messages.
  virtual bool varies() const { return false; }

  // Mean costs of collectives of the first workers.
  Duration all_reduce(int workers, Bytes payload) const {
    return collective({.operation = Operation::all_reduce, .members = workers, .payload = payload});
  }
  Duration all_gather(int workers, Bytes payload) const {
    return collective({.operation = Operation::all_gather, .members = workers, .payload = payload});
  }
};

// The ruler by which all methods are compared, whatever the network model: bytes that the members of a collective
// send, all together. A ring (2 (N - 1) rounds in which each of N members passes on one Nth), a binomial tree (N - 1
// messages up, N - 1 down) and two levels of them all move 2 (N - 1) x payload in an all-reduce. Only a star with the
// sum at its centre moves more, 2 N x payload: every member's vector goes in, and every member gets the sum.
constexpr Bytes all_reduce_bytes(int members, Bytes payload) { return Bytes{2 * (members - 1) * payload.value()}; }
// N - 1 of N parts come to each of N members: (N - 1) x all parts together. Trees, which pass parts on, move more.
constexpr Bytes all_gather_bytes(int members, Bytes payload) { return Bytes{(members - 1) * payload.value()}; }
// Of each member's vector all parts but its own.
constexpr Bytes all_to_all_bytes(int members, Bytes payload) { return Bytes{(members - 1) * payload.value()}; }
constexpr Bytes broadcast_bytes(int members, Bytes payload) { return Bytes{(members - 1) * payload.value()}; }
constexpr Bytes collective_bytes(const CollectiveCall& call) {
  switch (call.operation) {
    case Operation::all_reduce:
      return all_reduce_bytes(call.members, call.payload);
    case Operation::all_gather:
      return all_gather_bytes(call.members, call.payload);
    case Operation::broadcast:
      return broadcast_bytes(call.members, call.payload);
    case Operation::all_to_all:
      return all_to_all_bytes(call.members, call.payload);
  }
  return {};
}

}  // namespace syncopate
