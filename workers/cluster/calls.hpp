// Calls between a method and its cluster: collectives with their results, messages, and the servers of a method.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "workers/base/units.hpp"
#include "workers/time/network.hpp"
#include "workers/training/gradient.hpp"
#include "workers/training/training.hpp"

namespace syncopate {

// Micro-batches that a worker has computed, with a decided fate: they are in a model, or dropped.
struct BookedTime {
  Rank worker{};
  std::int64_t micro_batches = 0;
  Duration time{};  // the worker's time for them
};

// A worker's part of a row of steps.csv, which it brings to a collective.
struct Contribution {
  std::int64_t kept = 0;     // micro-batches that are reduced
  std::int64_t planned = 0;  // micro-batches without any dropping
  Step step{};               // optimizer steps done when the round ends
  Step period{};             // optimizer steps since the last synchronisation
  Duration compute_time{};   // for the kept micro-batches; for report_steps

  std::int64_t dropped() const { return planned - kept; }
};

// When a partial all-reduce takes place: once `quorum` workers have arrived, or once `rank` has. All workers give the
// same activation for a round. It does not wait for workers that have ended.
struct Activation {
  int quorum = 1;
  std::optional<Rank> rank{};  // instead of the quorum
};

// The fate of a gradient that arrives after its round has taken place.
enum class LateGradient {
  drop,        // it is lost
  accumulate,  // it is added to this worker's contribution to the next round, even while the worker computes again
};

// How to take an average, and this worker's part in it.
struct Averaging {
  AveragePolicy policy{};
  // The weight of this worker's model, relative to the sum of all weights. If the sum is 0, all are equal: a worker
  // with nothing to contribute cannot know whether others have something.
  double weight = 1;
  std::optional<int> group_size{};  // average within groups of this many workers of consecutive ranks; none: over all
  // The parameters to average; slice 0 brings the buffers along. Workers keep the rest; with a slice their moments,
  // too.
  Slice slice{};
  // For runs that compress averages: the common model to which differences are taken. Null: the differences themselves
  // are averaged (for average_model: the differences to the model at which the worker's local steps began).
  ModelStatePtr from{};
  // False: nobody uses the model outside the slice, so its values there are undefined and all workers may share one
  // model.
  bool rest_is_needed = true;
};

// Totals after a collective, the same on every participant, so that all decide alike.
struct AgreedProgress {
  Time time{};                     // completion (simulated) or last arrival (MPI)
  std::int64_t micro_batches = 0;  // kept so far, over all workers
  Bytes bytes{};                   // sent so far, over all workers
};

// Shared by all workers of a process that gathered it.
using SharedNumbers = std::shared_ptr<const std::vector<double>>;

// A worker's part in an exchange of a compressed sum or average: a promise of words of four bytes.
struct Packet {
  CellPtr words{};                    // null in time-only runs
  Bytes size{};                       // the words only; numbers after them travel as in a dense sum
  std::vector<MicroBatch> carried{};  // the micro-batches in it, if anything needs them
};
// All packets by rank, or only their sum. Shared by all workers of a process that receive it.
using SharedPackets = std::shared_ptr<const std::vector<Packet>>;

// A collective as one worker describes it, with its part. All members give the same terms.
struct Collective {
  enum class Kind : std::int32_t {
    all_reduce,
    // Does not wait for all workers. A worker enters the round after the last one whose result it has received, and has
    // one round in progress at a time. If that round has not taken place yet, the worker's gradient is part of it, and
    // the round's sum comes back. Otherwise the gradient is late (LateGradient), and the sums of all rounds since come
    // back, oldest first.
    partial_all_reduce,
    average,
    broadcast,
    all_gather,
    barrier,
    // Exchanges of a compressed sum. All packets have one size, except when they are gathered. `gradient` sums counts
    // only.
    sum_packets,     // packets are summed as numbers, in single precision
    gather_packets,  // packets are gathered unchanged
    // First exchanges, each followed by another one that ends the sum.
    sum_first_packets,  // as sum_packets
    broadcast_packet,   // all get the root's packet
    exchange_chunks,  // packets have one chunk of equal size per member; each member gets its own chunk of all packets
    // Exchanges of a compressed average, whose packets hold differences between models.
    sum_differences,     // packets are summed as numbers, in single precision
    gather_differences,  // packets are gathered unchanged
  };
  Kind kind = Kind::barrier;
  Gradient gradient{};    // all-reduces: the sum comes back, undefined outside the slice
  ModelStatePtr model{};  // average: the mean comes back; broadcast: the root's parameters and buffers
  Packet packet{};        // exchanges: all packets or their sum come back; broadcast: the root's
  Bytes all_packets{};    // gathered packets: their total size, once known; 0: all have one size
  // One length on all workers. all_gather returns them by rank; sums of gradients sum them too.
  std::vector<double> numbers{};
  AveragePolicy policy{};
  double weight = 1;
  std::optional<int> group_size{};  // see Averaging; only averages can be over groups
  Rank root{};                      // for broadcasts, also of a packet
  Slice slice{};                    // for all-reduces and averages
  bool rest_is_needed = true;       // see Averaging
  ModelStatePtr from{};             // see Averaging; may differ between workers
  Activation activation{};          // for partial all-reduces
  LateGradient late{};              // for partial all-reduces

  static Collective all_reduce(Gradient gradient, std::span<const double> numbers = {}, Slice slice = {}) {
    return {.kind = Kind::all_reduce,
            .gradient = std::move(gradient),
            .numbers = {numbers.begin(), numbers.end()},
            .slice = slice};
  }
  static Collective partial_all_reduce(Gradient gradient, const Activation& activation, LateGradient late) {
    return {.kind = Kind::partial_all_reduce, .gradient = std::move(gradient), .activation = activation, .late = late};
  }
  static Collective average(ModelStatePtr model, const Averaging& averaging) {
    return {.kind = Kind::average,
            .model = std::move(model),
            .policy = averaging.policy,
            .weight = averaging.weight,
            .group_size = averaging.group_size,
            .slice = averaging.slice,
            .rest_is_needed = averaging.rest_is_needed,
            .from = averaging.from};
  }
  static Collective broadcast(ModelStatePtr model, Rank root) {
    return {.kind = Kind::broadcast, .model = std::move(model), .root = root};
  }
  static Collective all_gather(std::span<const double> numbers) {
    return {.kind = Kind::all_gather, .numbers = {numbers.begin(), numbers.end()}};
  }
  static Collective barrier() { return {}; }
  // The kind of the first exchange of packets for an operation on the network.
  static Kind first_exchange(Operation operation) {
    if (operation == Operation::broadcast) return Kind::broadcast_packet;
    return operation == Operation::all_to_all ? Kind::exchange_chunks : Kind::sum_first_packets;
  }
  static Kind last_exchange(Operation operation) {
    return operation == Operation::all_gather ? Kind::gather_packets : Kind::sum_packets;
  }
  static Kind last_of_average(Operation operation) {
    return operation == Operation::all_gather ? Kind::gather_differences : Kind::sum_differences;
  }

  struct Terms {
    Kind kind = Kind::barrier;
    AveragePolicy policy{};
    Rank root{};
    Slice slice{};
    std::int64_t numbers = 0;
    bool operator==(const Terms&) const = default;
  };
  bool is_first_exchange() const {
    return kind == Kind::sum_first_packets || kind == Kind::broadcast_packet || kind == Kind::exchange_chunks;
  }
  bool gathers_packets() const { return kind == Kind::gather_packets || kind == Kind::gather_differences; }
  bool sums_packets() const {
    return kind == Kind::sum_packets || kind == Kind::sum_first_packets || kind == Kind::sum_differences;
  }
  bool is_exchange() const { return sums_packets() || gathers_packets() || is_first_exchange(); }
  Terms terms() const { return {kind, policy, root, slice, std::ssize(numbers)}; }
};
// For example "all_gather with 3 numbers".
std::string describe(const Collective::Terms& terms);

struct KindOfCollective {
  Collective::Kind kind;
  const char* name;
  Operation operation;  // network operation
  bool sums_gradients;  // each sum is followed by a step, which belongs to it
  bool makes_row;       // in steps.csv; other kinds make one if a worker contributes
};
inline constexpr KindOfCollective kinds_of_collectives[] = {
    {Collective::Kind::all_reduce, "all_reduce_sum", Operation::all_reduce, true, true},
    {Collective::Kind::partial_all_reduce, "partial_all_reduce_sum", Operation::all_reduce, true, true},
    {Collective::Kind::average, "average_model", Operation::all_reduce, false, true},
    {Collective::Kind::broadcast, "broadcast_model", Operation::broadcast, false, false},
    {Collective::Kind::all_gather, "all_gather", Operation::all_gather, false, false},
    {Collective::Kind::barrier, "barrier", Operation::all_reduce, false, false},
    {Collective::Kind::sum_packets, "sum_packets", Operation::all_reduce, true, true},
    {Collective::Kind::gather_packets, "gather_packets", Operation::all_gather, true, true},
    {Collective::Kind::sum_first_packets, "sum_first_packets", Operation::all_reduce, false, false},
    {Collective::Kind::broadcast_packet, "broadcast_packet", Operation::broadcast, false, false},
    {Collective::Kind::exchange_chunks, "exchange_chunks", Operation::all_to_all, false, false},
    {Collective::Kind::sum_differences, "sum_differences", Operation::all_reduce, false, true},
    {Collective::Kind::gather_differences, "gather_differences", Operation::all_gather, false, true},
};
static_assert(std::size(kinds_of_collectives) == static_cast<std::size_t>(Collective::Kind::gather_differences) + 1);

constexpr const KindOfCollective& properties_of(Collective::Kind kind) {
  return *std::ranges::find(kinds_of_collectives, kind, &KindOfCollective::kind);
}

// The bytes that the network moves for the collective. `members`: for gathered packets. An all-gather has everybody's
// numbers.
Bytes payload_of(const Collective& collective, const Training& training, int members = 1);

// The workers that take part in a collective with `self`.
struct Members {
  Rank first{};
  int count = 1;
  auto operator<=>(const Members&) const = default;

  Ranks ranks() const { return Ranks(first, count); }
  std::size_t size() const { return static_cast<std::size_t>(count); }
  // The member's index among them, from 0; parts of members are in this order.
  std::size_t place_of(Rank member) const { return static_cast<std::size_t>(member.value - first.value); }
};
Members members_of(const Collective& collective, Rank self, int workers);

// One worker's handle of a collective in progress. The worker finishes it at most once.
class StartedCollective {
 public:
  StartedCollective(Collective::Kind kind, std::optional<Members> group, std::int64_t number, Step step)
      : kind(kind), group(group), number(number), step(step) {}
  StartedCollective(StartedCollective&& other) noexcept
      : kind(other.kind), group(other.group), number(std::exchange(other.number, finished)), step(other.step) {}
  StartedCollective& operator=(StartedCollective&& other) noexcept {
    kind = other.kind;
    group = other.group;
    number = std::exchange(other.number, finished);
    step = other.step;
    return *this;
  }

  Collective::Kind kind;
  std::optional<Members> group;  // none: all workers
  std::int64_t number;           // among those that its members have started; partial ones are counted separately
  Step step;                     // step of the worker's contribution

  static constexpr std::int64_t finished = -1;  // the number of a moved-from handle
};

// One round of partial all-reduces, as every worker receives it.
struct PartialSum {
  Gradient sum{};
  int contributors = 0;  // workers whose gradients are in it
  int arrived = 0;       // how many of these arrived in time
  AgreedProgress agreement{};
};

// The results of a collective, in the same fields as the workers' parts.
struct CollectiveResult {
  Gradient gradient{};
  ModelStatePtr model{};
  SharedNumbers numbers{};  // null: no numbers
  SharedPackets packets{};  // null: not an exchange
  int chunk = 0;            // exchange_chunks: this worker's chunk of each packet
  std::vector<PartialSum> sums{};
  AgreedProgress agreement{};  // a group's has only the time
};

// A promise of packed values that travels instead of a gradient or a difference (workers/compression). It takes the
// place of a model, so that messages do not get longer. Its parameters are the four-byte words, followed by
// normalisation statistics; null in time-only runs.
struct SentPacket : ModelState {
  Bytes size{};                       // the words only
  std::vector<MicroBatch> carried{};  // the micro-batches in it, if anything needs them
};

// A message between participants. Create it with the function for its kind; the sender fills in `from`, `kept` and
// `slice`.
struct Message {
  enum class Kind : std::uint8_t {
    note,           // only a step and numbers
    gradient,       // computed at version `step`
    model,          // version `step`
    last_model,     // the final model; the last message from that sender
    difference,     // between models, at version `step`
    request,        // asks for the current model
    request_after,  // asks for a model newer than `step`
    farewell,       // the last message of a sender without a model to give
  };

  Step step{};            // a version of the model
  Gradient gradient{};    // for a difference only its work, without values
  ModelStatePtr model{};  // the model or difference; null in time-only runs
  Kind kind = Kind::note;
  bool is_packed = false;     // `model` holds a packet of a gradient or difference, until a server has opened it
  std::uint16_t answers = 0;  // how many of the last numbers are about the receiver's packets (CompressedMessages)
  Rank from{};
  std::vector<double> numbers{};  // travel along, 8 bytes each
  std::int64_t kept = 0;          // from a server: micro-batches in its model; for a packet: the sender's number of it
  Slice slice{};                  // the parameters in the gradient or model

  static Message of_gradient(Step version, Gradient gradient) {
    return {.step = version, .gradient = std::move(gradient), .kind = Kind::gradient};
  }
  static Message of_model(Step version, ModelStatePtr model, std::vector<double> numbers = {}) {
    return {.step = version, .model = std::move(model), .kind = Kind::model, .numbers = std::move(numbers)};
  }
  static Message of_last_model(Step version, ModelStatePtr model, std::vector<double> numbers = {}) {
    return {.step = version, .model = std::move(model), .kind = Kind::last_model, .numbers = std::move(numbers)};
  }
  // `work`: the computation behind it, for a server that books it (Server::accept).
  static Message of_difference(Step version, ModelStatePtr difference, const BookedTime& work = {}) {
    return {.step = version,
            .gradient = Gradient(nullptr, work.micro_batches, work.time),
            .model = std::move(difference),
            .kind = Kind::difference};
  }
  static Message note(Step step, std::vector<double> numbers = {}) {
    return {.step = step, .kind = Kind::note, .numbers = std::move(numbers)};
  }
  static Message request() { return {.kind = Kind::request}; }
  static Message request_after(Step version) { return {.step = version, .kind = Kind::request_after}; }
  static Message farewell() { return {.kind = Kind::farewell}; }

  bool has_model() const { return kind == Kind::model || kind == Kind::last_model || kind == Kind::difference; }
  bool has_values() const { return has_model() || gradient.micro_batches() > 0; }
  const SentPacket& packet() const { return static_cast<const SentPacket&>(*model); }
  BookedTime work() const { return {from, gradient.micro_batches(), gradient.compute_time()}; }
};

// A pool of received messages: thousands of workers send millions of them.
class MessagePool {
 public:
  virtual void take_back(Message* message) = 0;

 protected:
  ~MessagePool() = default;
};
struct GiveBack {
  MessagePool* pool = nullptr;  // null: delete the message
  void operator()(Message* message) const { pool ? pool->take_back(message) : delete message; }
};
// A message, or null. It must not outlive the run.
using ReceivedMessage = std::unique_ptr<Message, GiveBack>;

// The message's bytes on the network: 4 per parameter of its slice (8 for a wide gradient) or the packet's size, plus 8
// per number. A message without values costs only its latency.
inline Bytes message_bytes(const Message& message, Bytes parameter_bytes) {
  Bytes::Rep bytes = 8 * static_cast<Bytes::Rep>(message.numbers.size());
  if (message.is_packed)
    bytes += message.packet().size.value();
  else if (message.has_values())
    bytes += (message.gradient.wide() ? 2 : 1) * message.slice.bytes_of(parameter_bytes).value();
  return Bytes{bytes};
}

// How long a micro-batch takes on a cluster that computes it for real. (The simulated cluster takes the drawn
// duration.)
enum class Pace {
  inject,   // real computation, then a sleep of the added delay and (factor - 1) x the measured time
  emulate,  // real computation, then a sleep until the whole drawn duration has passed
};

// Where in an algorithm a participant waits; explains deadlocks.
struct Place {
  const char* operation = "";
  SourceLine at;
};

// The servers of a method, and which workers each serves. Their ranks follow the workers'.
struct Servers {
  // Several servers hold one slice of the model each and serve all workers.
  constexpr Servers(int count = 0) : count(count) {}  // NOLINT: numbers read naturally, as in `.servers = 1`

  // Regional servers: the first one is the global server, and each region has one of its own. All hold whole models.
  // Regions are of equal size, with workers of consecutive ranks: `regions` must divide the number of workers.
  static constexpr Servers of_regions(int regions) {
    Servers servers(regions + 1);
    servers.regions = regions;
    return servers;
  }

  int count = 0;
  int regions = 0;  // 0: no regions

  constexpr operator int() const { return count; }  // NOLINT: as above
  constexpr bool hold_slices() const { return count > 1 && regions == 0; }

  // The server of a worker (the first, if several hold slices) or of a region's server; else the rank itself.
  constexpr Rank server_of(Rank rank, int workers) const {
    const bool is_worker = rank.value < workers;
    if (regions == 0) return is_worker ? Rank{workers} : rank;
    return Rank{workers + (is_worker ? 1 + rank.value / (workers / regions) : 0)};
  }
  constexpr Ranks served_by(Rank server, int workers) const {
    return Ranks(first_served_by(server, workers), number_served_by(server, workers));
  }
  constexpr int number_served_by(Rank server, int workers) const {
    if (regions == 0) return workers;
    return server.value == workers ? regions : workers / regions;
  }
  constexpr Rank first_served_by(Rank server, int workers) const {
    if (regions == 0) return Rank{0};
    return Rank{server.value == workers ? workers + 1 : (server.value - workers - 1) * (workers / regions)};
  }

  // "worker 3", "the server", "server 1", "the global server", or "the server of region 0".
  std::string name_of(Rank rank, int workers) const;
};

// "0-3, 7": ranks in ascending order as ranges.
std::string rank_ranges(const std::vector<int>& ranks);

}  // namespace syncopate
