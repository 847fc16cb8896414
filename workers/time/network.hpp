// Network models: how long communication takes on the virtual clock, which links it occupies, how many bytes it moves.
//
// Every participant has its own link, one way out and one way in, each with a latency L and a bandwidth B. A link
// passes messages in the order in which they come. A message of P bytes occupies the sender's way out and the
// receiver's way in for P / B each. It is cut through: its first byte goes on to the next link at once. It takes L + P
// / B if nothing else is under way; of N messages that come to a link at once the k-th has arrived after L + k P / B.
//
// A collective takes the time of its kind's formula, which is affine in the payload. Its transfer is the time beyond
// the same collective of nothing. For so long it occupies the links of all members, both ways; the latencies follow. It
// begins once all these links are free, and what comes to them meanwhile waits.
//
// Formulas, for N members, latency L, payload P, and the slowest member's bandwidth B:
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
//   two-level   S groups of g consecutive ranks. Traffic between groups passes each one's uplink, one way up and
//               one way down. l, b are those of a worker's own link, L, B those of an uplink; r = ceil(log2 g):
//               all-reduce  2 r (l + P / b) + all-reduce of P by the leaders, one of each group
//               all-gather  r l + (g - 1) / N x P / b + all-gather of S g / N x P by the leaders + r (l + P / b)
//               broadcast   r (l + P / b) + broadcast of P by the leaders
//               all-to-all  2 (r l + (g - 1) P / b) + all-to-all of g P by the leaders
//               message     l + P / b in a group, max(l, L) + P / min(b, B) between two
//               The leaders form a ring or a tree. Groups with fewer members wait for the fullest. Goyal et al. 2017,
//               "Accurate, Large Minibatch SGD", section 4.
//   parameter-server   a star: collectives and messages between workers go over the link of the first server, and wait
//               there in their order. The workers' links have the same bandwidth:
//               all-reduce  2 L + 2 N P / B     (N vectors in, N sums out)
//               all-gather  2 L + (N + 1) P / B (N parts in, all of P out to each)
//               all-to-all  2 L + 2 N P / B
//               broadcast   2 L + N P / B       (one vector in, one out to each of the others)
//               message     2 (L + P / B) between workers, else L + P / B
//   fixed       everything takes L, whatever its size, also with one worker: T^c of Giladi et al. 2023 (DropCompute).
//               Nothing is occupied.
// Workers of a ring or a tree can stand in racks, which are groups with an uplink. A collective of several racks goes
// at the uplink's bandwidth and latency where these are worse. In an all-to-all an uplink carries what each of g
// members has for the N - g outside: at least g (N - g) / N x P / B. A server stands outside of groups, with a link
// like a worker's, or like an uplink under two-level. A region's server (Servers::of_regions) stands in its first
// worker's group. A collective of one member takes no time, except under `fixed` and serial_s. Links and their queues
// are this project's model; t = L + P / B is Hockney's (1994).
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

// all_reduce: all get the sum. all_gather: all get everybody's numbers. broadcast: all get one member's vector.
// all_to_all: each of N members gets its own Nth of everybody's vector.
enum class Operation { all_reduce, all_gather, broadcast, all_to_all };

// One collective among workers of consecutive ranks.
struct CollectiveCall {
  Operation operation = Operation::all_reduce;
  int members = 1;
  Bytes
      payload{};  // of the vector that is reduced, broadcast, or divided by one member; of an all-gather: all members'
  Rank first{};   // lowest member
  std::optional<std::int64_t> number{};  // selects the random cost of a collective; none: the mean cost
};

// One message between two workers, a worker and a server, or two servers.
struct MessageCall {
  Rank from{};
  Rank to{};
  Bytes payload{};
  std::optional<std::int64_t> number{};  // among the sender's, selects the random cost; none: the mean cost
  int regions = 0;                       // with servers among their workers (Servers::of_regions); 0: none
};

// One stage of a route: the links that are passed at the same time: one of a message, all members' of a collective.
// Participants' own links are 2 x rank, the way out, and 2 x rank + 1, the way in. Uplinks are numbered so by group.
struct Hop {
  int link = 0, links = 0;      // the first of the participants' own, and how many
  int uplink = 0, uplinks = 0;  // the first of the groups', and how many
  Duration occupied{};          // of all these links
  Duration latency{};           // to the next stage, or to the arrival
  bool is_stored = false;       // the next stage waits for the last byte, not for the first
};

// The stages of a transfer, in order. Empty: it occupies no links, and only takes its cost.
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
  Time head{};  // when its first byte comes to the next stage
  Time tail{};  // when its last byte comes there at the earliest, by the stages so far
};
// After a stage whose links it enters at `begin`.
TransferTimes passed(const TransferTimes& before, const Hop& hop, Time begin);
// Time from the first stage to the arrival if nothing else is under way.
Duration length_of(const Route& route);

// Gradient buckets: the exchange begins during the backward pass of a step's last micro-batch. The gradient is K
// buckets of equal size, summed by K collectives one after the other, each as soon as all members have the bucket.
// Source:  Li et al. 2020, "PyTorch Distributed", section 3.2.3. Equal buckets and an even backward pass are this
//          model's.
// Formula: worker i is done at t_i. The backward pass is the share f of its last micro-batch, which takes d_i. It has
//          bucket b = 1 ... K at t_i - f d_i (K - b) / K. The sum of the bucket ends at
//          e_b = max(e_(b - 1), max over i of that) + c(P / K), where a sum of P bytes takes c(P).
//          All workers alike: e_K - t = max(c(P / K), K c(P / K) - f d (K - 1) / K).
//          A worker whose last micro-batch was not the last one planned, or was not kept, has all buckets at t_i.
struct Overlap {
  int buckets = 1;
  double backward_share = 0.66;  // of a micro-batch
};

// The times at which all members have each bucket.
class BucketArrivals {
 public:
  // Adds a worker that is done at `at` with a last micro-batch of this length; 0: it has all buckets at that time.
  void arrive(const Overlap& overlap, Time at, Duration last_micro_batch);
  // The end of the last bucket's sum, if none begins before `free_from`. `call` is a sum of the whole gradient.
  Time end(const class NetworkModel& network, const CollectiveCall& call, Time free_from) const;

 private:
  std::vector<Time> ready_;  // by bucket; empty: no worker yet
};

// The links of a participant, or of a group.
constexpr int way_out(int of) { return 2 * of; }
constexpr int way_in(int of) { return 2 * of + 1; }

// All functions are pure.
class NetworkModel {
 public:
  virtual ~NetworkModel() = default;

  // Costs if nothing else is on the network: from the last member's arrival to the result everywhere, and from sending
  // to arrival.
  virtual Duration collective(const CollectiveCall& call) const = 0;
  virtual Duration message(const MessageCall& call) const = 0;

  // Whether collectives and messages wait for each other on links. The costs above are the lengths of routes that have
  // stages; transfers without any wait for nothing.
  virtual bool has_shared_links() const { return false; }
  // Whether links are never waited for, by the experiment's choice. Results then say so.
  virtual bool has_unshared_links() const { return false; }
  virtual Route route(const CollectiveCall&) const { return {}; }
  virtual Route route(const MessageCall&) const { return {}; }

  // None: an exchange begins when all members have their whole gradient.
  virtual std::optional<Overlap> overlap() const { return std::nullopt; }

  // Whether costs depend on the numbers of collectives and messages.
  virtual bool varies() const { return false; }

  // Mean costs of collectives of ranks 0 to workers - 1.
  Duration all_reduce(int workers, Bytes payload) const {
    return collective({.operation = Operation::all_reduce, .members = workers, .payload = payload});
  }
  Duration all_gather(int workers, Bytes payload) const {
    return collective({.operation = Operation::all_gather, .members = workers, .payload = payload});
  }
};

// The bytes that all members of a collective send together, a measure that compares methods under any network model. In
// an all-reduce a ring (2 (N - 1) rounds in which each of N members passes on one Nth), a binomial tree (N - 1 messages
// up, N - 1 down) and two levels of these all move 2 (N - 1) x payload. Only a star with the sum at its centre moves
// more, 2 N x payload: every member's vector goes in, and every member gets the sum.
constexpr Bytes all_reduce_bytes(int members, Bytes payload) { return Bytes{2 * (members - 1) * payload.value()}; }
// Each of N members gets the N - 1 other parts: (N - 1) x all parts together. Trees, which pass parts on, move more.
constexpr Bytes all_gather_bytes(int members, Bytes payload) { return Bytes{(members - 1) * payload.value()}; }
// All parts of each member's vector but its own.
constexpr Bytes all_to_all_bytes(int members, Bytes payload) { return Bytes{(members - 1) * payload.value()}; }
constexpr Bytes broadcast_bytes(int members, Bytes payload) { return Bytes{(members - 1) * payload.value()}; }
constexpr Bytes collective_bytes(const CollectiveCall& call) {  // only an all-reduce moves more than an all-gather
  return call.operation == Operation::all_reduce ? all_reduce_bytes(call.members, call.payload)
                                                 : all_gather_bytes(call.members, call.payload);
}

struct Link {
  double latency_s = 0;
  double bandwidth_bytes_per_s = 1;

  double transfer_s(Bytes payload) const { return static_cast<double>(payload.value()) / bandwidth_bytes_per_s; }
  double message_s(Bytes payload) const { return latency_s + transfer_s(payload); }
};

// Seconds of a collective on a ring of such links.
double ring_s(const Link& link, Operation operation, int members, Bytes payload);

// A worker's link that differs from the others'.
struct OwnLink {
  Rank worker{};
  Link link{};
};

// Options of all models with links.
struct LinkOptions {
  int workers = most_workers;    // ranks from here on are servers
  std::optional<Link> server{};  // of a server; none: like a worker's, with two levels like an uplink
  int group_size = 0;            // workers of consecutive ranks that share an uplink, the last group can have fewer
  Link uplink{};                 // unused if group_size is 0
  std::vector<OwnLink> own{};    // at most one per worker
  std::optional<Overlap> overlap{};
  bool contention = true;  // false: messages and collectives take the time they take alone
};

struct TwoLevelOptions {
  enum class Between { ring, tree };
  int group_size = 2;
  Link inside{};   // a worker's own link
  Link between{};  // a group's uplink
  Between leaders = Between::ring;
};

// All throw std::invalid_argument for a latency below 0 or a bandwidth that is not above 0; infinity is allowed for
// both. The other arguments of two levels and a star replace the options' values.
std::unique_ptr<NetworkModel> make_ring_network(double latency_s, double bandwidth_bytes_per_s,
                                                const LinkOptions& options = {});
std::unique_ptr<NetworkModel> make_tree_network(double latency_s, double bandwidth_bytes_per_s,
                                                const LinkOptions& options = {});
// Throws also for a group_size below 1.
std::unique_ptr<NetworkModel> make_two_level_network(int workers, const TwoLevelOptions& levels,
                                                     LinkOptions options = {});
std::unique_ptr<NetworkModel> make_parameter_server_network(int workers, const Link& server_link,
                                                            LinkOptions options = {});
// With a latency of 0 communication is free.
std::unique_ptr<NetworkModel> make_fixed_network(double latency_s);

// Jitter: each collective and each message takes its cost x (1 + jitter x E), with E exponential of mean 1. The cost of
// the model below is the least, and (1 + jitter) times it the mean. Times on links and latencies grow by the same
// factor. This project's choice: delays in queues add up and have no upper bound, but nothing is faster than a free
// network. E is drawn once per collective, addressed by its first member, its size and its number among those of these
// members, and once per message, addressed by its sender and its number among the sender's. So all methods of an
// experiment meet the same draws. Throws std::invalid_argument for a jitter that is negative or infinite.
std::unique_ptr<NetworkModel> with_jitter(std::unique_ptr<NetworkModel> network, double jitter, std::uint64_t seed);

// Adds serial_s to every collective: T^c of Giladi et al. 2023.
std::unique_ptr<NetworkModel> with_serial_latency(std::unique_ptr<NetworkModel> network, double serial_s);

struct NetworkContext {
  std::optional<int> workers{};  // none: the number in the file is faulty, and checks against it are left out
  std::uint64_t seed = 0;        // of the jitter
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
