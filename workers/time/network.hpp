// Network models: how long communication takes on the virtual clock, which links it occupies and how many bytes it
// moves.
//
// Every participant has its own outgoing and incoming link, each with a latency L and a bandwidth B. A link serves
// messages in the order of arrival. A message of P bytes occupies the sender's outgoing and the receiver's incoming
// link for P / B each. Routing is cut-through: the first byte enters the next link at once. An undisturbed message
// takes L + P / B. If N messages reach a link at once, the k-th has arrived after L + k P / B.
//
// A collective takes the time of its network's formula, which is affine in the payload. Its transfer time is the part
// that depends on the payload. It occupies the outgoing and incoming links of all members for the transfer time; the
// latencies follow. It begins once all these links are free, and other traffic on them waits until the transfer has
// ended.
//
// Formulas, for N members, latency L, payload P, and the slowest member's bandwidth B:
//   ring         all-reduce  2 (N - 1) L + 2 (N - 1) / N x P / B   (a reduce-scatter, then an all-gather)
//                all-gather    (N - 1) L +   (N - 1) / N x P / B
//                all-to-all    (N - 1) L +   (N - 1) / N x P / B   (in round r each sends to the member r places on)
//                broadcast   ceil(log2 N) (L + P / B)              (a binomial tree of messages)
//                Patarasuk & Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of workstations".
//   tree         all-reduce  2 ceil(log2 N) (L + P / B)            (a reduce, then a broadcast)
//                all-gather  ceil(log2 N) L + (N - 1) / N x P / B + ceil(log2 N) (L + P / B)
//                all-to-all  ceil(log2 N) L + (bits set in 1 ... N - 1) / N x P / B
//                            (a part for the member r places on takes one hop per bit that is set in r)
//                broadcast   ceil(log2 N) (L + P / B)
//                Thakur, Rabenseifner & Gropp 2005, "Optimization of collective communication operations in MPICH".
//   two-level    S groups of g consecutive ranks. Traffic between groups passes each group's uplink, one link up and
//                one link down. A worker's own link has l and b, an uplink L and B; r = ceil(log2 g):
//                all-reduce  2 r (l + P / b) + all-reduce of P by the leaders, one of each group
//                all-gather  r l + (g - 1) / N x P / b + all-gather of S g / N x P by the leaders + r (l + P / b)
//                broadcast   r (l + P / b) + broadcast of P by the leaders
//                all-to-all  2 (r l + (g - 1) P / b) + all-to-all of g P by the leaders
//                message     l + P / b in a group, max(l, L) + P / min(b, B) between two
//                The leaders form a ring or a tree. Smaller groups wait for the largest. Goyal et al. 2017, "Accurate,
//                Large Minibatch SGD", section 4.
//   parameter-server   a star: collectives and messages between workers use the first server's link, in the order of
//                arrival. The workers' links have the same bandwidth:
//                all-reduce  2 L + 2 N P / B     (N vectors in, N sums out)
//                all-gather  2 L + (N + 1) P / B (N parts in, all of P out to each)
//                all-to-all  2 L + 2 N P / B
//                broadcast   2 L + N P / B       (one vector in, one out to each of the other members)
//                message     2 (L + P / B) between workers, L + P / B to or from a server
//   fixed        everything takes L, whatever its size and also with one worker: T^c of Giladi et al. 2023
//                (DropCompute). No link is occupied.
// Workers of a ring or a tree may be in racks, which are groups with an uplink. A collective across racks runs at the
// uplink's bandwidth and latency if these are worse. In an all-to-all an uplink carries all parts that its g members
// send to the N - g others, which takes at least g (N - g) / N x P / B. A server is outside of groups. Its link is like
// a worker's, or with two levels like an uplink. A region's server (Servers::of_regions) is in the group of its first
// worker. A collective of one member takes no time, except under `fixed` and with serial_s. Links and their queues are
// this project's model; t = L + P / B is Hockney's (1994).
#pragma once

#include <array>
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

// all_reduce: all members get the sum. all_gather: all members get the numbers of all members. broadcast: all members
// get one member's vector. all_to_all: each of N members gets its own Nth of each member's vector.
enum class Operation { all_reduce, all_gather, broadcast, all_to_all };

// One collective among workers of consecutive ranks.
struct CollectiveCall {
  Operation operation = Operation::all_reduce;
  int members = 1;
  // The size of the vector that is reduced or broadcast, of the vector that each member divides (all_to_all), or of all
  // members' parts together (all_gather).
  Bytes payload{};
  Rank first{};                          // lowest member
  std::optional<std::int64_t> number{};  // selects the random cost of a collective; empty: mean cost
};

// One message between two workers, a worker and a server, or two servers.
struct MessageCall {
  Rank from{};
  Rank to{};
  Bytes payload{};
  std::optional<std::int64_t> number{};  // counts the sender's messages; selects the random cost; empty: mean cost
  int regions = 0;                       // regions with their own servers (Servers::of_regions); 0: none
};

// One stage of a route: the links that a transfer passes at the same time. A message passes one link per stage, a
// collective the links of all members. A participant's own links have the numbers 2 x rank (outgoing) and 2 x rank + 1
// (incoming); uplinks are numbered in the same way by group.
struct Hop {
  int link = 0, links = 0;      // first participant's link, and number of links
  int uplink = 0, uplinks = 0;  // first group's uplink, and number of uplinks
  Duration occupied{};          // time for which all these links are occupied
  Duration latency{};           // until the next stage, or the arrival
  bool is_stored = false;       // store-and-forward: the next stage waits for the last byte
};

// The stages of a transfer, in order. If there are none, the transfer occupies no links and only takes its cost.
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

// Progress of a transfer.
struct TransferTimes {
  Time head{};  // when its first byte reaches the next stage
  Time tail{};  // earliest time at which its last byte reaches the next stage, given the stages so far
};
// Returns the progress after a stage whose links the transfer enters at `begin`.
TransferTimes passed(const TransferTimes& before, const Hop& hop, Time begin);
// Returns the time from the first stage to the arrival on an idle network.
Duration length_of(const Route& route);

// Gradient buckets: the exchange begins during the backward pass of a step's last micro-batch. The gradient is divided
// into K buckets of equal size, summed by K consecutive collectives, each as soon as all members have the bucket.
// Source:  Li et al. 2020, "PyTorch Distributed", section 3.2.3. Equal buckets and an even backward pass are
//          assumptions of this model.
// Formula: worker i ends its step's last micro-batch at t_i. That micro-batch takes d_i, and the share f of it is the
//          backward pass. The worker has bucket b = 1 ... K at t_i - f d_i (K - b) / K. The sum of the bucket ends at
//          e_b = max(e_(b - 1), max over i of these times) + c(P / K), where a sum of P bytes takes c(P). If all
//          workers are alike, with t_i = t: e_K - t = max(c(P / K), K c(P / K) - f d (K - 1) / K). If a worker's last
//          micro-batch was not the last planned one, or was not kept, it has all buckets at t_i.
struct Overlap {
  int buckets = 1;
  double backward_share = 0.66;  // share of a micro-batch
};

// The times at which all members have each bucket.
class BucketArrivals {
 public:
  // Adds a worker that ends its step at `at` with a last micro-batch of this duration. 0: it has all buckets only at
  // `at`.
  void arrive(const Overlap& overlap, Time at, Duration last_micro_batch);
  // The end of the last bucket's sum, if no sum begins before `free_from`. `call`: the sum of the whole gradient.
  Time end(const class NetworkModel& network, const CollectiveCall& call, Time free_from) const;

 private:
  std::vector<Time> ready_;  // by bucket; empty: no worker yet
};

// Indices of the links of a participant, or of a group's uplinks.
constexpr int way_out(int of) { return 2 * of; }
constexpr int way_in(int of) { return 2 * of + 1; }

// All functions are pure.
class NetworkModel {
 public:
  virtual ~NetworkModel() = default;

  // On an idle network: the time from the last member's arrival until all have the result, or from sending to arrival.
  virtual Duration collective(const CollectiveCall& call) const = 0;
  virtual Duration message(const MessageCall& call) const = 0;

  // Whether collectives and messages wait for each other on links. A transfer whose route has stages takes at least the
  // time of collective() or message(). A transfer whose route has no stages takes exactly this time and never waits.
  virtual bool has_shared_links() const { return false; }
  // Whether the experiment file has switched off waiting for links. Results then say so.
  virtual bool has_unshared_links() const { return false; }
  virtual Route route(const CollectiveCall&) const { return {}; }
  virtual Route route(const MessageCall&) const { return {}; }

  // The number of workers of consecutive ranks that share an uplink (a node or a rack); 0: no worker does.
  virtual int group_size() const { return 0; }

  // Empty: an exchange begins when all members have their whole gradient.
  virtual std::optional<Overlap> overlap() const { return std::nullopt; }

  // Whether costs depend on the `number` of a collective or message.
  virtual bool varies() const { return false; }

  // Mean cost for ranks 0 to workers - 1.
  Duration all_reduce(int workers, Bytes payload) const {
    return collective({.operation = Operation::all_reduce, .members = workers, .payload = payload});
  }
};

// The bytes that all members of a collective send together. This measure compares methods under any network model. An
// all-reduce moves 2 (N - 1) x payload on a ring, a binomial tree or two levels of these. A ring has 2 (N - 1) rounds,
// in which each of N members sends one Nth; a tree has N - 1 messages up and N - 1 down. Only a star moves more, 2 N x
// payload, because every member sends its vector to the centre and gets the sum from it.
constexpr Bytes all_reduce_bytes(int members, Bytes payload) { return Bytes{2 * (members - 1) * payload.value()}; }
// Each of N members gets the other N - 1 parts: (N - 1) x the size of all parts. Trees move more: they forward parts.
constexpr Bytes all_gather_bytes(int members, Bytes payload) { return Bytes{(members - 1) * payload.value()}; }
// An all-to-all and a broadcast move as many bytes as an all-gather. In an all-to-all, each member sends all parts of
// its vector except its own.
constexpr Bytes collective_bytes(const CollectiveCall& call) {
  return call.operation == Operation::all_reduce ? all_reduce_bytes(call.members, call.payload)
                                                 : all_gather_bytes(call.members, call.payload);
}

struct Link {
  double latency_s = 0;
  double bandwidth_bytes_per_s = 1;

  double transfer_s(Bytes payload) const { return static_cast<double>(payload.value()) / bandwidth_bytes_per_s; }
  double message_s(Bytes payload) const { return latency_s + transfer_s(payload); }
};

// A worker whose link differs from the usual one.
struct OwnLink {
  Rank worker{};
  Link link{};
};

// Options shared by all models with links.
struct LinkOptions {
  int workers = most_workers;    // number of workers; higher ranks are servers
  std::optional<Link> server{};  // a server's link; empty: like a worker's, or with two levels like an uplink
  int group_size = 0;            // number of consecutive ranks that share an uplink; the last group may be smaller
  Link uplink{};                 // unused if group_size is 0
  std::vector<OwnLink> own{};    // at most one per worker
  std::optional<Overlap> overlap{};
  bool contention = true;  // false: messages and collectives take the same time as on an idle network
};

// The shape of a network's collectives, or of those between the groups' leaders.
enum class CollectiveShape { ring, tree };

// Latencies are at least 0, bandwidths above 0; both may be infinite.
std::unique_ptr<NetworkModel> make_ring_network(double latency_s, double bandwidth_bytes_per_s,
                                                const LinkOptions& options = {});
std::unique_ptr<NetworkModel> make_tree_network(double latency_s, double bandwidth_bytes_per_s,
                                                const LinkOptions& options = {});
// `inside`: a worker's own link. group_size must be at least 1.
std::unique_ptr<NetworkModel> make_two_level_network(const Link& inside, CollectiveShape leaders,
                                                     const LinkOptions& options);
// `workers` overrides the option.
std::unique_ptr<NetworkModel> make_parameter_server_network(int workers, const Link& server_link,
                                                            LinkOptions options = {});
// With a latency of 0, communication is free.
std::unique_ptr<NetworkModel> make_fixed_network(double latency_s);

// Jitter: each collective and each message takes its cost x (1 + jitter x E), where E is exponential with mean 1. So
// the cost of the wrapped model becomes the minimum, and the mean is (1 + jitter) times as large. Times on links and
// latencies grow by the same factor. This is the project's choice: delays in queues add up and have no upper bound, but
// nothing is faster than an idle network. E is drawn once per collective and once per message. A collective is
// identified by its first member, its size and its number among the collectives of the same members, a message by its
// sender and number. So all methods of an experiment get the same draws. jitter >= 0. serial_s is added to the time of
// every collective and does not vary: T^c of Giladi et al. 2023.
std::unique_ptr<NetworkModel> with_jitter(std::unique_ptr<NetworkModel> network, double jitter, std::uint64_t seed,
                                          double serial_s = 0);

struct NetworkContext {
  std::optional<int> workers{};  // empty: the file's number is faulty, and checks against it are skipped
  std::uint64_t seed = 0;        // for the jitter
};

// A network model that an experiment file can name: its name, one sentence for `syncopate list` and messages, and the
// factory that reads its keys.
struct NetworkRow {
  std::string_view name;
  std::string_view sentence;
  std::unique_ptr<NetworkModel> (*make)(Settings& settings, const NetworkContext& context);
};
std::span<const NetworkRow> networks();

// Reads the table [network]: `kind` and the keys of that model. Never null; `settings` collects faults.
std::unique_ptr<NetworkModel> make_network(Settings& settings, const NetworkContext& context);

}  // namespace syncopate
