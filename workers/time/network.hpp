// What communication takes on the virtual clock, which links it occupies, and how many bytes it moves.
//
// Every participant has a link of its own, one way out and one way in, each with a latency L and a bandwidth B,
// whatever the kind of network says about collectives. What passes a link goes through it in the order in which it
// comes: a message of P bytes occupies the sender's way out for P / B, and the receiver's way in for P / B. It is cut
// through: its first byte goes on to the next link at once, so that it takes L + P / B where nothing else is under way.
// Of N that come to a link at once the k-th has arrived after L + k P / B.
//
// A collective takes what the formula of its kind says, which is affine in the payload. What it takes beyond the same
// collective of nothing is its transfer: so long it occupies the links of all its members, both ways, and the latencies
// follow. It begins once they are all free, and what comes to them meanwhile waits.
//
// Formulas, of N members with latency L, payload P, bandwidth B, the slowest member's:
//   ring        all-reduce  2 (N - 1) L + 2 (N - 1) / N x P / B   (a reduce-scatter, then an all-gather of Nths)
//               all-gather    (N - 1) L +   (N - 1) / N x P / B
//               all-to-all    (N - 1) L +   (N - 1) / N x P / B   (round r: to the member r places on)
//               broadcast   ceil(log2 N) (L + P / B)              (a binomial tree of messages)
//               Patarasuk & Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of workstations".
//   tree        all-reduce  2 ceil(log2 N) (L + P / B)            (a reduce, then a broadcast)
//               all-gather  ceil(log2 N) L + (N - 1) / N x P / B + ceil(log2 N) (L + P / B)
//               all-to-all  ceil(log2 N) L + (bits set in 1 ... N - 1) / N x P / B    (parts are passed on)
//               broadcast   ceil(log2 N) (L + P / B)
//               Thakur, Rabenseifner & Gropp 2005, "Optimization of collective communication operations in MPICH".
//   two-level   groups of g consecutive ranks, each with an uplink, one way up and one way down, that everything
//               between groups passes; l, b of a worker's own link, L, B of an uplink; S groups; r = ceil(log2 g):
//               all-reduce  2 r (l + P / b) + all-reduce of P by the leaders, one of each group
//               all-gather  r l + (g - 1) / N x P / b + all-gather of S g / N x P by the leaders + r (l + P / b)
//               broadcast   r (l + P / b) + broadcast of P by the leaders
//               all-to-all  2 (r l + (g - 1) P / b) + all-to-all of g P by the leaders
//               message     l + P / b in a group, max(l, L) + P / min(b, B) between two
//               The leaders form a ring or a tree. Groups with fewer members than the fullest wait for it. Goyal et al.
//               2017, "Accurate, Large Minibatch SGD", section 4.
//   parameter-server   a star: collectives, and what workers say to each other, go over the link of the first server,
//               and wait there in the order in which they come; the workers' links are as wide:
//               all-reduce  2 L + 2 N P / B     (N vectors in, N sums out)
//               all-gather  2 L + (N + 1) P / B (N parts in, all of P out to each)
//               all-to-all  2 L + 2 N P / B
//               broadcast   2 L + N P / B       (one vector in, one out to each of the others)
//               message     2 (L + P / B) between workers, else L + P / B
//   fixed       everything takes L, whatever its size, one worker alone too: T^c of Giladi et al. 2023 (DropCompute).
//               Nothing is occupied.
// A ring's and a tree's workers may stand in racks, groups with an uplink too: a collective of several racks then goes
// at the uplink's bandwidth and latency where these are worse, and of an all-to-all an uplink carries what each of g
// members has for the N - g outside, g (N - g) / N x P / B at least. A server stands outside of groups, with a link
// like a worker's, or under two-level like an uplink; but a region's (Servers::of_regions) in its first worker's.
// A collective of one member takes nothing, but under `fixed` and serial_s.
// Links and their queues are this project's model; t = L + P / B is Hockney's (1994).
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "workers/base/units.hpp"
#include "workers/config/settings.hpp"
#include "workers/time/compute_time.hpp"

namespace syncopate {

// What a collective is to the network.
// all_reduce: everybody gets the sum. all_gather: everybody gets everybody's numbers. broadcast: everybody gets
// one member's vector. all_to_all: everybody gets a part of its own of everybody's vector, one of as many as members.
enum class Operation { all_reduce, all_gather, broadcast, all_to_all };

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

// One stage of a way: the links that are passed at the same time, of a message one, of a collective all its members'.
// Participants' own links are 2 x rank, the way out, and 2 x rank + 1, the way in; uplinks likewise by group.
struct Hop {
  int link = 0, links = 0;      // the first of the participants' own, and how many
  int uplink = 0, uplinks = 0;  // likewise of the groups'
  Duration occupied{};          // how long they are
  Duration latency{};           // from there to the next stage, or to the arrival
  bool is_stored = false;       // the next stage begins when all has come there, not with the first byte
};

// The stages of a way, in order; empty: nothing is met on it, and the cost is all there is.
class Route {
 public:
  static constexpr int most_hops = 4;
  void add(const Hop& hop) { hops_[static_cast<std::size_t>(count_++)] = hop; }
  bool empty() const { return count_ == 0; }
  std::size_t size() const { return static_cast<std::size_t>(count_); }
  const Hop& operator[](std::size_t index) const { return hops_[index]; }
  Hop& back() { return hops_[size() - 1]; }
  const Hop& back() const { return hops_[size() - 1]; }
  auto begin() const { return hops_.begin(); }
  auto end() const { return hops_.begin() + count_; }
  auto begin() { return hops_.begin(); }
  auto end() { return hops_.begin() + count_; }

 private:
  std::array<Hop, most_hops> hops_;
  int count_ = 0;
};

// How far something is on its way.
struct TransferTimes {
  Time head{};  // when its first byte comes to the next stage
  Time tail{};  // when its last byte may be there, as far as the stages before are concerned
};
// After a stage whose links it could enter at `begin`, and which it then occupies.
TransferTimes passed(const TransferTimes& before, const Hop& hop, Time begin);
// Of a way where nothing else is under way.
Duration length_of(const Route& route);

// The exchange of a step's gradient begins while the last micro-batch is in its backward pass, as data-parallel
// training does it today: the gradient is K buckets of equal size, whose sums are K collectives one after the other,
// each as soon as all members have the bucket.
// Source:  Li et al. 2020, "PyTorch Distributed", section 3.2.3; equal buckets and an even backward pass are of this
//          model.
// Formula: worker i is done at t_i, with a last micro-batch of d_i, of which the backward pass is the share f. It has
//          bucket b = 1 ... K at t_i - f d_i (K - b) / K; the sum of the bucket ends at
//          e_b = max(e_(b - 1), max over i of that) + c(P / K), with c(P) what a sum of P bytes takes.
//          All workers alike: e_K - t = max(c(P / K), K c(P / K) - f d (K - 1) / K).
//          A worker whose last micro-batch was not the last one planned, or was not kept, has all buckets at t_i.
struct Overlap {
  int buckets = 1;
  double backward_share = 0.66;  // of a micro-batch
};

// When all members have each bucket.
class BucketArrivals {
 public:
  // Of a worker that is done at `at` with a last micro-batch of this length; 0: it has all buckets then.
  void arrive(const Overlap& overlap, Time at, Duration last_micro_batch);
  // When the last bucket's sum ends, where none can begin before `free_from`. A sum of the whole is `call`.
  Time end(const class NetworkModel& network, const CollectiveCall& call, Time free_from) const;

 private:
  std::vector<Time> ready_;  // by bucket; empty: nobody has come
};

// The links of a participant, or of a group.
constexpr int way_out(int of) { return 2 * of; }
constexpr int way_in(int of) { return 2 * of + 1; }

// Contract: pure functions.
class NetworkModel {
 public:
  virtual ~NetworkModel() = default;

  // From the last arrival to the result everywhere, where nothing else is on the network.
  virtual Duration collective(const CollectiveCall& call) const = 0;
  // From sending to arrival, where nothing else is on the network.
  virtual Duration message(const MessageCall& call) const = 0;

  // Whether collectives and messages wait for each other on links. Where a route has stages, the costs above are their
  // lengths; what has none meets nobody.
  virtual bool has_shared_links() const { return false; }
  // Whether there are links that nobody waits for, by the experiment's own choice: results then say so.
  virtual bool has_unshared_links() const { return false; }
  virtual Route route(const CollectiveCall&) const { return {}; }
  virtual Route route(const MessageCall&) const { return {}; }

  // None: an exchange begins when all have their whole gradient.
  virtual std::optional<Overlap> overlap() const { return std::nullopt; }

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

struct Link {
  double latency_s = 0;
  double bandwidth_bytes_per_s = 1;

  double transfer_s(Bytes payload) const { return static_cast<double>(payload.value()) / bandwidth_bytes_per_s; }
  double message_s(Bytes payload) const { return latency_s + transfer_s(payload); }
};

// Rounds in which the number of those who know something doubles up to `members`: ceil(log2 members).
constexpr int doubling_rounds(int members) { return std::bit_width(static_cast<unsigned>(members - 1)); }

// What a ring, and a tree, of such links take for a collective, in seconds.
double ring_s(const Link& link, Operation operation, int members, Bytes payload);
double tree_s(const Link& link, Operation operation, int members, Bytes payload);

// A link of some worker's own, unlike the others'.
struct OwnLink {
  Rank worker{};
  Link link{};
};

// What all kinds of links have in common.
struct LinkOptions {
  int workers = most_workers;    // ranks from here on are servers
  std::optional<Link> server{};  // of a server; none: like a worker's, where there are uplinks like these
  int group_size = 0;            // so many workers of consecutive ranks share an uplink, the last group may have fewer
  Link uplink{};                 // 0: there are none
  std::vector<OwnLink> own{};    // no worker stands twice
  std::optional<Overlap> overlap{};
  bool contention = true;  // false: a message takes what it takes alone, and collectives likewise
};

struct TwoLevelOptions {
  enum class Between { ring, tree };
  int group_size = 2;
  Link inside{};   // a worker's own link
  Link between{};  // a group's uplink
  Between leaders = Between::ring;
};

// All throw std::invalid_argument for what is no link: a latency below 0, or a bandwidth not above it. Infinite ones
// are links too. What two levels and a star are given beside the options stands for what these say of it.
std::unique_ptr<NetworkModel> make_ring_network(double latency_s, double bandwidth_bytes_per_s,
                                                const LinkOptions& options = {});
std::unique_ptr<NetworkModel> make_tree_network(double latency_s, double bandwidth_bytes_per_s,
                                                const LinkOptions& options = {});
// Throws also for a group_size below 1.
std::unique_ptr<NetworkModel> make_two_level_network(int workers, const TwoLevelOptions& levels,
                                                     LinkOptions options = {});
std::unique_ptr<NetworkModel> make_parameter_server_network(int workers, const Link& server_link,
                                                            LinkOptions options = {});
// With 0 the network is free.
std::unique_ptr<NetworkModel> make_fixed_network(double latency_s);

// Jitter: each collective and each message takes its cost x (1 + jitter x E), with E exponential of mean 1, so that the
// cost of the model below is the least, and (1 + jitter) times it the mean. It occupies its links, and takes its
// latencies, so many times as long. This project's choice: delays in queues add up and have no upper bound, but nothing
// is faster than a free network. E is drawn once per collective, addressed by its first member, its size and its number
// among those of these members, and once per message, addressed by its sender and its number among the sender's: all
// methods of an experiment meet the same draws. Throws std::invalid_argument for a jitter below 0, or infinite.
std::unique_ptr<NetworkModel> with_jitter(std::unique_ptr<NetworkModel> network, double jitter, std::uint64_t seed);

// Every collective takes so long besides: T^c of Giladi et al. 2023.
std::unique_ptr<NetworkModel> with_serial_latency(std::unique_ptr<NetworkModel> network, double serial_s);

// The network models that an experiment file may name. One row each: its name, one sentence for `syncopate list` and
// the messages, and the factory that reads its keys.
struct NetworkContext {
  std::optional<int> workers{};  // none: what is written is a fault, and checks against it are left out
  std::uint64_t seed = 0;        // of the jitter
};
struct NetworkRow {
  std::string_view name;
  std::string_view sentence;
  std::unique_ptr<NetworkModel> (*make)(Settings& settings, const NetworkContext& context);
};
std::span<const NetworkRow> networks();

// The table [network]: `kind` and the keys of that model. Never null: faults are collected by `settings`.
std::unique_ptr<NetworkModel> make_network(Settings& settings, const NetworkContext& context);

}  // namespace syncopate
