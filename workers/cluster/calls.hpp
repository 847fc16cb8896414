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

// Micro-batches that a worker has computed and whose fate is decided: they are in a model, or dropped.
struct BookedTime {
  Rank worker{};
  std::int64_t micro_batches = 0;
  Duration time{};  // that the worker took for them
};

// A worker's part of a row of steps.csv, which it brings to a collective.
struct Contribution {
  std::int64_t kept = 0;     // micro-batches that are reduced
  std::int64_t planned = 0;  // micro-batches without any dropping
  Step step{};               // optimizer steps done when the round ends
  Step period{};             // optimizer steps since the last synchronisation
  Duration compute_time{};   // of the kept ones, for report_steps

  std::int64_t dropped() const { return planned - kept; }
};

// When a partial all-reduce takes place: once `quorum` workers have arrived, or once `rank` has. All workers give the
// same for one round. It does not wait for workers that have ended.
struct Activation {
  int quorum = 1;
  std::optional<Rank> rank{};  // instead of the quorum
};

// The fate of a gradient that comes after its round has taken place.
enum class LateGradient {
  drop,        // it is lost
  accumulate,  // it is added to this worker's contribution to the next round, also while the worker computes again
};

// How an average is taken, and this worker's part in it.
struct Averaging {
  AveragePolicy policy{};
  // The weight of this worker's model, divided by the sum of all weights. If that sum is 0, all are equal: a worker
  // without anything to bring cannot know whether others have.
  double weight = 1;
  std::optional<int> group_size{};  // average within groups of so many workers of consecutive ranks; none: over all
  // The parameters to average, the first with the buffers. Workers keep the rest; with a slice their moments, too.
  Slice slice{};
  // Where the run compresses averages: the common model to which differences are taken. Null: the average is of
  // differences (for average_model: the model that the worker's local steps began at).
  ModelStatePtr from{};
  // False: nobody looks at the model outside the slice, which may then be anything. One model serves all workers then.
  bool rest_is_needed = true;
};

// Totals after a collective, the same on every participant, so that all decide alike.
struct AgreedProgress {
  Time time{};                     // completion (simulated) or last arrival (MPI)
  std::int64_t micro_batches = 0;  // kept so far, over all workers
  Bytes bytes{};                   // sent so far, over all workers
};

// One copy for all who gathered it.
using SharedNumbers = std::shared_ptr<const std::vector<double>>;

// A worker's part in an exchange of a compressed sum or average: words of four bytes, a promise like a gradient.
struct Packet {
  CellPtr words{};                    // null in time-only runs
  Bytes size{};                       // of the words; numbers behind them travel as they do in a dense sum
  std::vector<MicroBatch> carried{};  // the micro-batches in it, where somebody wants to know
};
// Everybody's by rank, or their sum alone. One copy for all who get it.
using SharedPackets = std::shared_ptr<const std::vector<Packet>>;

// A collective as one worker describes it, with its part. All who take part give the same terms.
struct Collective {
  enum class Kind : std::int32_t {
    all_reduce,
    // Does not wait for everybody. A worker comes to the round after the last one whose result it has got, and has one
    // under way at a time. If that round has not taken place yet, its gradient is part of it, and the round's sum comes
    // back. Else the gradient is late (LateGradient), and the sums of all rounds since come back, oldest first.
    partial_all_reduce,
    average,
    broadcast,
    all_gather,
    barrier,
    // Exchanges of a compressed sum. Packets have one size, unless all come back. Gradients sum counts only.
    sum_packets,     // as numbers, in single precision
    gather_packets,  // as they are
    // Exchanges before another one, which ends the sum.
    sum_first_packets,  // as sum_packets
    broadcast_packet,   // the root's packet to all
    exchange_chunks,    // packets have one chunk per member, all of one size; each member gets its chunk of all packets
    // Exchanges of a compressed average, whose packets hold differences between models.
    sum_differences,     // as numbers, in single precision
    gather_differences,  // as they are
  };
  Kind kind = Kind::barrier;
  Gradient gradient{};            // all-reduces: the sum comes back, undefined outside the slice
  ModelStatePtr model{};          // average: the mean comes back; broadcast: the root's parameters and buffers
  Packet packet{};                // exchange: all packets or their sum come back; broadcast: the root's
  Bytes all_packets{};            // where all come back: their size, once it is known; 0: all have one size
  std::vector<double> numbers{};  // of one length on all workers. all_gather: by rank; sums of gradients: summed along
  AveragePolicy policy{};
  double weight = 1;
  std::optional<int> group_size{};  // see Averaging; averages alone can be one over groups
  Rank root{};                      // of a broadcast, of a packet too
  Slice slice{};                    // of an all-reduce or average
  bool rest_is_needed = true;       // see Averaging
  ModelStatePtr from{};             // see Averaging; workers may differ
  Activation activation{};          // of a partial all-reduce
  LateGradient late{};              // of a partial all-reduce

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
  // The kind of an exchange of packets, by its operation on the network.
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
// "all_gather with 3 numbers".
std::string describe(const Collective::Terms& terms);

struct KindOfCollective {
  Collective::Kind kind;
  const char* name;
  Operation operation;  // on the network
  bool sums_gradients;  // a step follows along each sum, and belongs to it
  bool makes_row;       // of steps.csv; other kinds do if somebody contributes
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

// The bytes that the network moves for it. `members`: of a gathering of packets. An all-gather has everybody's numbers.
Bytes payload_of(const Collective& collective, const Training& training, int members = 1);

// The workers that take part where `self` does.
struct Members {
  Rank first{};
  int count = 1;
  auto operator<=>(const Members&) const = default;

  Ranks ranks() const { return Ranks(first, count); }
  std::size_t size() const { return static_cast<std::size_t>(count); }
  // The member's place among them, from 0; parts of members are in this order.
  std::size_t place_of(Rank member) const { return static_cast<std::size_t>(member.value - first.value); }
};
Members members_of(const Collective& collective, Rank self, int workers);

// One worker's handle of a collective under way, which it finishes at most once.
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
  std::optional<Members> group;  // none: of all workers
  std::int64_t number;           // among those that its members have started; partial ones count separately
  Step step;                     // of its worker's contribution

  static constexpr std::int64_t finished = -1;  // the number of a handle that was moved from
};

// One round of partial all-reduces, as every worker gets it.
struct PartialSum {
  Gradient sum{};
  int contributors = 0;  // workers whose gradients are in it
  int arrived = 0;       // of these, in time
  AgreedProgress agreement{};
};

// The results of a collective, in the place of the parts.
struct CollectiveResult {
  Gradient gradient{};
  ModelStatePtr model{};
  SharedNumbers numbers{};  // null: there were none
  SharedPackets packets{};  // null: it was no exchange
  int chunk = 0;            // of exchange_chunks: this worker's chunk of each packet
  std::vector<PartialSum> sums{};
  AgreedProgress agreement{};  // that of a group is on its time alone
};

// A promise of packed values, which travels instead of a gradient or a difference (workers/compression). It takes the
// place of a model, so that messages do not become longer: its words of four bytes, and normalisation statistics behind
// them, are the parameters; null in time-only runs.
struct SentPacket : ModelState {
  Bytes size{};                       // of the words
  std::vector<MicroBatch> carried{};  // the micro-batches in it, where somebody wants to know
};

// A message between participants. Make it by the function of its kind; the sender fills in `from`, `kept` and `slice`.
struct Message {
  enum class Kind : std::uint8_t {
    note,           // a step and numbers alone
    gradient,       // computed at version `step`
    model,          // version `step`
    last_model,     // the same, for the result alone; the last message from there
    difference,     // between models, at version `step`
    request,        // asks for the model as it is
    request_after,  // asks for a model of a version after `step`
    farewell,       // the last message of a sender that has no model to give
  };

  Step step{};            // a version of the model
  Gradient gradient{};    // for a difference its work alone, without values
  ModelStatePtr model{};  // or the difference; null in time-only runs
  Kind kind = Kind::note;
  bool is_packed = false;     // a gradient or difference comes as a packet in `model`, until a server has opened it
  std::uint16_t answers = 0;  // how many of the last numbers are about the receiver's packets (CompressedMessages)
  Rank from{};
  std::vector<double> numbers{};  // travel along, 8 bytes each
  std::int64_t kept = 0;          // from a server: micro-batches in its model; for a packet: its sender's number of it
  Slice slice{};                  // of the parameters, for the gradient or model

  static Message of_gradient(Step version, Gradient gradient) {
    return {.step = version, .gradient = std::move(gradient), .kind = Kind::gradient};
  }
  static Message of_model(Step version, ModelStatePtr model, std::vector<double> numbers = {}) {
    return {.step = version, .model = std::move(model), .kind = Kind::model, .numbers = std::move(numbers)};
  }
  static Message of_last_model(Step version, ModelStatePtr model, std::vector<double> numbers = {}) {
    return {.step = version, .model = std::move(model), .kind = Kind::last_model, .numbers = std::move(numbers)};
  }
  // `work`: computed for it, for a server that books that (Server::accept).
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

// Received messages come from a pool, and go back to it: thousands of workers send millions of them.
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
// A message, or null. It does not outlive the run.
using ReceivedMessage = std::unique_ptr<Message, GiveBack>;

// The message's bytes on the network: 4 per parameter of its slice (8 for a wide gradient), or its packet's, and 8 per
// number. A message without values costs its latency alone.
inline Bytes message_bytes(const Message& message, Bytes parameter_bytes) {
  Bytes::Rep bytes = 8 * static_cast<Bytes::Rep>(message.numbers.size());
  if (message.is_packed)
    bytes += message.packet().size.value();
  else if (message.has_values())
    bytes += (message.gradient.wide() ? 2 : 1) * message.slice.bytes_of(parameter_bytes).value();
  return Bytes{bytes};
}

// How long a micro-batch takes on a cluster that computes it for real. (The simulated one takes the drawn duration.)
enum class Pace {
  inject,   // real computation, then a sleep of the added delay and (factor - 1) x the measured time
  emulate,  // real computation inside, then a sleep until the whole drawn duration has passed
};

// Where in an algorithm a participant waits, for explanations of a deadlock.
struct Place {
  const char* operation = "";
  SourceLine at;
};

// The servers of a method, and who serves whom. Their ranks come after the workers'.
struct Servers {
  // With several servers each holds a slice of the model and serves all workers.
  constexpr Servers(int count = 0) : count(count) {}  // NOLINT: numbers read naturally, as in `.servers = 1`

  // Servers of servers: the first one is the global server, and each region has one of its own. All hold whole models.
  // Regions are of equal size, with workers of consecutive ranks: `regions` must divide the number of workers.
  static constexpr Servers of_regions(int regions) {
    Servers servers(regions + 1);
    servers.regions = regions;
    return servers;
  }

  int count = 0;
  int regions = 0;  // 0: there are none

  constexpr operator int() const { return count; }  // NOLINT: as above
  constexpr bool hold_slices() const { return count > 1 && regions == 0; }

  // The server of a worker (of several with slices the first), or of a region's server; else the rank itself.
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
