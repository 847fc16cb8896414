// The calls between a method and its cluster: collectives with their results, messages, and the servers of a method.
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

// Micro-batches that a worker has computed and whose fate is decided: they are in a model, or dropped.
struct BookedTime {
  Rank worker{};
  std::int64_t micro_batches = 0;
  Duration time{};  // computation time of the micro-batches
};

// A worker's part of a row of steps.csv, passed with a collective.
struct Contribution {
  std::int64_t kept = 0;     // micro-batches in the reduction
  std::int64_t planned = 0;  // micro-batches if none were dropped
  Step step{};               // optimizer steps done at the end of the round
  Step period{};             // optimizer steps since the last synchronisation
  Duration compute_time{};   // time of the kept micro-batches; for report_steps

  std::int64_t dropped() const { return planned - kept; }
};

// When a partial all-reduce takes place: once `quorum` workers have arrived, or once `rank` has arrived. All workers
// must give the same activation for a round. Workers that have ended are not waited for.
struct Activation {
  int quorum = 1;
  std::optional<Rank> rank{};  // replaces the quorum
  bool operator==(const Activation&) const = default;
};

// The fate of a gradient that arrives after its round has taken place.
enum class LateGradient {
  drop,        // the gradient is lost
  accumulate,  // it is added to this worker's contribution to the next round, even while the worker computes again
};

// How to average models, and this worker's part in the average.
struct Averaging {
  AveragePolicy policy{};
  // The weight of this worker's model, relative to the sum of all weights. If the sum is 0, all weights are equal: a
  // worker with nothing to contribute cannot know whether others have something.
  double weight = 1;
  std::optional<int> group_size{};  // average within groups of this many consecutive ranks; empty: over all workers
  // The parameters to average; slice 0 includes the buffers. Workers keep all other values of their own, and if there
  // are several slices also their moments.
  Slice slice{};
  // Only for compressed averages: the common model that is subtracted from the worker's. If null, Worker::start takes
  // the model's values as differences, and Worker::average_model subtracts the model at which local steps began.
  ModelStatePtr from{};
  // False: no worker uses the model outside the slice. Values there are then undefined, and all workers may share one
  // model.
  bool rest_is_needed = true;
};

// Totals after a collective. They are the same on every participant, so that all take the same decisions.
struct AgreedProgress {
  Time time{};                     // end of the collective (simulated) or last arrival (MPI)
  std::int64_t micro_batches = 0;  // kept so far, over all workers
  Bytes bytes{};                   // sent so far, over all workers
};

// Shared by all workers of the process that gathered them.
using SharedNumbers = std::shared_ptr<const std::vector<double>>;

// A worker's packet in an exchange of a compressed sum or average: words of four bytes, which may not be computed yet.
struct Packet {
  CellPtr words{};  // null in time-only runs
  Bytes size{};     // counted by the network: the words, and in averages also the statistics after them
  std::vector<MicroBatch> carried{};  // micro-batches in the packet, if a caller needs them
};
// All packets by rank, or only their sum. Shared by all workers of the process that received them.
using SharedPackets = std::shared_ptr<const std::vector<Packet>>;

// A collective as one worker describes it, including the worker's part. All members must give the same terms().
struct Collective {
  enum class Kind : std::int32_t {
    all_reduce,
    first_part,  // an early sum of some of a step's gradients; the step's all_reduce sums the rest, and books both
    // Does not wait for all workers. A worker enters the round after the last one whose result it has received, and
    // takes part in one round at a time. If that round has not taken place yet, it includes the worker's gradient, and
    // its sum is returned. Otherwise the gradient is late (LateGradient), and the sums of all missed rounds are
    // returned, oldest first.
    partial_all_reduce,
    average,
    all_gather,
    barrier,
    // Exchanges of a compressed sum. All packets have one size, except in gather_packets. `gradient` holds only counts.
    sum_packets,     // packets are summed as numbers, in single precision
    gather_packets,  // packets are gathered unchanged
    // First exchanges, each followed by another exchange that completes the sum.
    sum_first_packets,  // as sum_packets
    broadcast_packet,   // all get the root's packet
    exchange_chunks,    // a packet has one chunk per member, all equally long; a member gets its chunk of each packet
    // Exchanges of a compressed average. Their packets contain differences between models.
    sum_differences,     // packets are summed as numbers, in single precision
    gather_differences,  // packets are gathered unchanged
  };
  Kind kind = Kind::barrier;
  Gradient gradient{};    // all-reduces: the sum is returned, undefined outside the slice
  ModelStatePtr model{};  // average: the mean is returned
  Packet packet{};        // exchanges: all packets, their sum, or the root's packet are returned
  Bytes all_packets{};    // gathered packets: total size, once known; 0: all have one size
  // Equally many on all workers. all_gather returns them by rank; sums of gradients also sum the numbers.
  std::vector<double> numbers{};
  AveragePolicy policy{};
  double weight = 1;
  std::optional<int> group_size{};        // see Averaging; only averages and all-reduces may have groups
  Rank root{};                            // for broadcast_packet
  Slice slice{};                          // for all-reduces and averages
  bool rest_is_needed = true;             // see Averaging
  ModelStatePtr from{};                   // see Averaging; may differ between workers
  Activation activation{};                // for partial all-reduces
  LateGradient late{};                    // for partial all-reduces
  std::optional<std::int64_t> planned{};  // for all-reduces: as in SumOptions
  Gradient known{};  // for all-reduces: a sum that all members know already, and that is added to the result

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
  static Collective all_gather(std::span<const double> numbers) {
    return {.kind = Kind::all_gather, .numbers = {numbers.begin(), numbers.end()}};
  }
  static Collective barrier() { return {}; }
  // The kind of the first of two exchanges, by its operation on the network.
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
  bool sums_gradients() const { return kind == Kind::all_reduce || kind == Kind::first_part; }
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
  Operation operation;
  bool sums_gradients;  // an optimizer step follows each sum
  bool makes_row;       // in steps.csv; other kinds make one only if a worker contributes
};
inline constexpr KindOfCollective kinds_of_collectives[] = {
    {Collective::Kind::all_reduce, "all_reduce_sum", Operation::all_reduce, true, true},
    {Collective::Kind::first_part, "all_reduce_sum of a first part", Operation::all_reduce, false, false},
    {Collective::Kind::partial_all_reduce, "partial_all_reduce_sum", Operation::all_reduce, true, true},
    {Collective::Kind::average, "average_model", Operation::all_reduce, false, true},
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

// The bytes that the network moves for a collective. `members`: for gathered packets. For an all-gather of numbers
// `collective.numbers` must contain those of all members.
Bytes payload_of(const Collective& collective, const Training& training, int members = 1);

// The workers that take part in a collective with `self`.
struct Members {
  Rank first{};
  int count = 1;
  auto operator<=>(const Members&) const = default;

  Ranks ranks() const { return Ranks(first, count); }
  std::size_t size() const { return static_cast<std::size_t>(count); }
  // The member's index, from 0. Parts of members are in this order.
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
  std::optional<Members> group;  // empty: all workers
  std::int64_t number;  // index among the collectives of its members; partial all-reduces are counted separately
  Step step;            // step of the worker's contribution

  static constexpr std::int64_t finished = -1;  // number of a moved-from handle
};

// One round of partial all-reduces, as every worker receives it.
struct PartialSum {
  Gradient sum{};
  int contributors = 0;  // workers whose gradients are in the sum
  int arrived = 0;       // number of these that arrived in time
  AgreedProgress agreement{};
};

// The results of a collective. The result from the workers' `gradient`, `model` or `numbers` has the same name.
struct CollectiveResult {
  Gradient gradient{};
  ModelStatePtr model{};
  SharedNumbers numbers{};  // null: no numbers
  SharedPackets packets{};  // null: not an exchange
  int chunk = 0;            // exchange_chunks: this worker's chunk of each packet
  std::vector<PartialSum> sums{};
  AgreedProgress agreement{};  // in groups: only the time
};

// A packet that a message carries instead of a gradient or difference (workers/compression). Its words may not be
// computed yet. It is stored in place of a model, so that messages do not get longer. The parameters are the four-byte
// words, followed by normalisation statistics; null in time-only runs.
struct SentPacket : ModelState {
  Bytes size{};                       // the words only
  std::vector<MicroBatch> carried{};  // micro-batches in the packet, if a caller needs them
};

// A message between participants. Create it with the function for its kind. The sender sets `from`, `kept` and `slice`.
struct Message {
  enum class Kind : std::uint8_t {
    note,           // only a step and numbers
    gradient,       // computed at version `step`
    model,          // version `step`
    last_model,     // the final model; the last message of this sender
    difference,     // between models, at version `step`
    request,        // asks for the current model
    request_after,  // asks for a model newer than `step`
    farewell,       // the last message of a sender that sends no model
  };

  Step step{};            // version of the model
  Gradient gradient{};    // for a difference: only its computation, without values
  ModelStatePtr model{};  // the model or difference; null in time-only runs
  Kind kind = Kind::note;
  bool is_packed = false;     // `model` is a packet of a gradient or difference, until a server decodes it
  std::uint16_t answers = 0;  // how many of the last numbers report on the receiver's packets (CompressedMessages)
  Rank from{};
  std::vector<double> numbers{};  // sent along, 8 bytes each
  std::int64_t kept = 0;  // from a server: micro-batches in its model; for a packet: the sender's number of the packet
  Slice slice{};          // parameters in the gradient or model

  static Message of_gradient(Step version, Gradient gradient) {
    return {.step = version, .gradient = std::move(gradient), .kind = Kind::gradient};
  }
  static Message of_model(Step version, ModelStatePtr model, std::vector<double> numbers = {}) {
    return {.step = version, .model = std::move(model), .kind = Kind::model, .numbers = std::move(numbers)};
  }
  static Message of_last_model(Step version, ModelStatePtr model, std::vector<double> numbers = {}) {
    return {.step = version, .model = std::move(model), .kind = Kind::last_model, .numbers = std::move(numbers)};
  }
  // `work`: the computation of the difference, for a server that books it (Server::accept).
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

// Keeps messages for reuse, because thousands of workers send millions of messages.
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

// A message's bytes on the network: 4 per parameter of its slice (8 for a gradient in double precision) or the packet's
// size, plus 8 per number. A message without values costs only its latency.
inline Bytes message_bytes(const Message& message, Bytes parameter_bytes) {
  Bytes::Rep bytes = 8 * static_cast<Bytes::Rep>(message.numbers.size());
  if (message.is_packed)
    bytes += message.packet().size.value();
  else if (message.has_values())
    bytes += (message.gradient.wide() ? 2 : 1) * message.slice.bytes_of(parameter_bytes).value();
  return Bytes{bytes};
}

// How long a micro-batch takes on a cluster that really computes it. (The simulated cluster takes the drawn duration.)
enum class Pace {
  inject,   // real computation, then a sleep for the added delay and (factor - 1) x the measured time
  emulate,  // real computation, then a sleep until the whole drawn duration has passed
};

// Where in an algorithm a participant waits, to explain deadlocks.
struct Place {
  const char* operation = "";
  SourceLine at;
};

// The servers of a method, and the workers that each serves. Servers' ranks follow the workers'.
struct Servers {
  // Without regions: each server holds one slice of the model and serves all workers.
  constexpr Servers(int count = 0) : count(count) {}  // NOLINT: numbers read naturally, as in `.servers = 1`

  // Regional servers: the first one is the global server, and each region has its own server. All hold whole models.
  // Regions are equal ranges of consecutive workers, so `regions` must divide the number of workers.
  static constexpr Servers of_regions(int regions) {
    Servers servers(regions + 1);
    servers.regions = regions;
    return servers;
  }

  int count = 0;
  int regions = 0;  // 0: no regions

  constexpr operator int() const { return count; }  // NOLINT: as above
  constexpr bool hold_slices() const { return count > 1 && regions == 0; }

  // The server of a worker (the first, if several hold slices) or of a region's server; for any other rank `rank`.
  constexpr Rank server_of(Rank rank, int workers) const {
    const bool is_worker = rank.value < workers;
    if (regions == 0) return is_worker ? Rank{workers} : rank;
    return Rank{workers + (is_worker ? 1 + rank.value / (workers / regions) : 0)};
  }
  constexpr Ranks served_by(Rank server, int workers) const {
    const int number = number_served_by(server, workers);
    if (regions == 0) return Ranks(number);
    return Ranks(Rank{server.value == workers ? workers + 1 : (server.value - workers - 1) * number}, number);
  }
  constexpr int number_served_by(Rank server, int workers) const {
    if (regions == 0) return workers;
    return server.value == workers ? regions : workers / regions;
  }

  // "worker 3", "the server", "server 1", "the global server", or "the server of region 0".
  std::string name_of(Rank rank, int workers) const;
};

// Formats ascending ranks as ranges, for example "0-3, 7".
std::string rank_ranges(const std::vector<int>& ranks);

}  // namespace syncopate
