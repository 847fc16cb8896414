// Collectives: what workers do together, what each brings, and what comes back to it.
#pragma once

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

// Micro-batches that a worker has computed and whose fate is decided: they are in a model, or never will be.
struct Work {
  Rank worker{};
  std::int64_t micro_batches = 0;
  Duration time{};  // that the worker took for them
};

// What a worker brings to a collective, for the row of steps.csv that it becomes.
struct Contribution {
  std::int64_t kept = 0;     // micro-batches in what is reduced
  std::int64_t planned = 0;  // micro-batches without any dropping
  Step step{};               // optimizer steps done when the round ends
  Step period{};             // optimizer steps since the last synchronisation
  Duration compute_time{};   // spent on what is kept, for report_steps

  std::int64_t dropped() const { return planned - kept; }
};

// When a partial all-reduce takes place: once `quorum` workers have arrived at it, or once `rank` has. All
// workers give the same for the same round. Workers that have ended are not waited for.
struct Activation {
  int quorum = 1;
  std::optional<Rank> rank{};  // instead of the quorum
};

// What becomes of a gradient that comes after its round has taken place.
enum class LateGradient {
  drop,        // it is lost
  accumulate,  // it is added to what this worker contributes to the next round, also while it computes again
};

// What a worker passes to average: how, and as which part.
struct Averaging {
  AveragePolicy policy{};
  // Of this worker's model; the weights are divided by their sum. Where that is 0 all have equal ones: a worker without
  // anything to bring cannot know whether others have.
  double weight = 1;
  std::optional<int> group_size{};  // average within groups of so many workers of consecutive ranks; none: over all
  // Of the parameters; the rest of each model stays as it was brought. The first slice has the buffers with it. The
  // moments of less than the whole are kept.
  Slice slice{};
  // Where the run compresses averages: the model that all share, to which differences are taken; null: what is averaged
  // is a difference itself. (Of average_model, null: the model that the worker's local steps began at.)
  ModelStatePtr from{};
  // Of a slice: that nobody looks at the rest of what comes back, so that it may be anything. One model is then made
  // for all workers, and not one for each.
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

// What a worker brings to an exchange of a compressed sum or average: words of four bytes, a promise like a gradient.
struct Packet {
  CellPtr words{};                    // null in time-only runs
  Bytes size{};                       // of the words; what else is in them travels as it does in a dense sum
  std::vector<MicroBatch> carried{};  // what has flowed into it, where somebody wants to know
};
// Everybody's by rank, or their sum alone. One copy for all who get it.
using SharedPackets = std::shared_ptr<const std::vector<Packet>>;

// What a worker brings to a collective, and how it describes it. All who take part give the same terms.
struct Collective {
  enum class Kind : std::int32_t {
    all_reduce,
    partial_all_reduce,  // does not wait for everybody. A worker comes to the round after the last one whose result it
                         // has got, and has one under way at a time. If that round has not taken place yet, its
                         // gradient is part of it, and the round's sum comes back. If it has, the gradient is late (see
                         // LateGradient), and the sums of all rounds since then come back, oldest first
    average,
    broadcast,
    all_gather,
    barrier,
    // Exchanges of a compressed sum. All bring packets of one size, unless all packets come back; of the gradient only
    // what it counts is summed.
    sum_packets,     // as numbers, in single precision
    gather_packets,  // as they are
    // Those before another exchange, which ends the sum:
    sum_first_packets,  // as sum_packets
    broadcast_packet,   // the root's packet to all
    // packets are as many chunks of one size as there are members, of which everybody gets one of each packet
    exchange_chunks,
    // Exchanges of a compressed average, whose packets hold differences between models.
    sum_differences,     // as numbers, in single precision
    gather_differences,  // as they are
  };
  Kind kind = Kind::barrier;
  Gradient gradient{};            // all-reduces: the sum comes back. Of a slice; what lies outside it is undefined then
  ModelStatePtr model{};          // average: the mean comes back; broadcast: the root's parameters and buffers
  Packet packet{};                // of an exchange: all packets, or their sum, come back, of a broadcast the root's
  Bytes all_packets{};            // where all come back: of all members', once they are known; 0: as many of one size
  std::vector<double> numbers{};  // as many on each worker. all_gather: by rank; sums of gradients: summed along
  AveragePolicy policy{};
  double weight = 1;
  std::optional<int> group_size{};  // see Averaging; averages alone can be one over groups
  Rank root{};                      // of a broadcast, of a packet too
  Slice slice{};                    // of an all-reduce or average
  bool rest_is_needed = true;       // see Averaging
  ModelStatePtr from{};             // of an average: see Averaging. Nothing that all must give alike
  Activation activation{};          // of a partial all-reduce, this and:
  LateGradient late{};

  static Collective all_reduce(Gradient gradient, std::span<const double> numbers = {}, Slice slice = {});
  static Collective partial_all_reduce(Gradient gradient, const Activation& activation, LateGradient late);
  static Collective average(ModelStatePtr model, const Averaging& averaging);
  static Collective broadcast(ModelStatePtr model, Rank root);
  static Collective all_gather(std::span<const double> numbers);
  static Collective barrier() { return {}; }
  // The kind of an exchange of packets, by what it is to the network.
  static Kind first_exchange(Operation operation);
  static Kind last_exchange(Operation operation);
  static Kind last_of_average(Operation operation);

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
  // Everybody's packets come back.
  bool gathers_packets() const { return kind == Kind::gather_packets || kind == Kind::gather_differences; }
  // Their sum does.
  bool sums_packets() const {
    return kind == Kind::sum_packets || kind == Kind::sum_first_packets || kind == Kind::sum_differences;
  }
  bool is_exchange() const { return sums_packets() || gathers_packets() || is_first_exchange(); }
  Terms terms() const { return {kind, policy, root, slice, std::ssize(numbers)}; }
};
// "all_gather with 3 numbers".
std::string describe(const Collective::Terms& terms);

// What holds of a kind of collective, whoever performs it.
struct KindOfCollective {
  const char* name;
  Operation operation;  // on the network
  bool sums_gradients;  // a step follows along each sum, and belongs to it
  bool makes_row;       // of steps.csv; others do where somebody contributes
};
constexpr KindOfCollective properties_of(Collective::Kind kind) {
  switch (kind) {
    case Collective::Kind::all_reduce:
      return {"all_reduce_sum", Operation::all_reduce, true, true};
    case Collective::Kind::partial_all_reduce:
      return {"partial_all_reduce_sum", Operation::all_reduce, true, true};
    case Collective::Kind::average:
      return {"average_model", Operation::all_reduce, false, true};
    case Collective::Kind::broadcast:
      return {"broadcast_model", Operation::broadcast, false, false};
    case Collective::Kind::all_gather:
      return {"all_gather", Operation::all_gather, false, false};
    case Collective::Kind::sum_packets:
      return {"sum_packets", Operation::all_reduce, true, true};
    case Collective::Kind::gather_packets:
      return {"gather_packets", Operation::all_gather, true, true};
    case Collective::Kind::sum_first_packets:
      return {"sum_first_packets", Operation::all_reduce, false, false};
    case Collective::Kind::sum_differences:
      return {"sum_differences", Operation::all_reduce, false, true};
    case Collective::Kind::gather_differences:
      return {"gather_differences", Operation::all_gather, false, true};
    case Collective::Kind::broadcast_packet:
      return {"broadcast_packet", Operation::broadcast, false, false};
    case Collective::Kind::exchange_chunks:
      return {"exchange_chunks", Operation::all_to_all, false, false};
    case Collective::Kind::barrier:
      break;
  }
  return {"barrier", Operation::all_reduce, false, false};
}

// What the network moves of it. An all-gather has everybody's numbers; of packets that are gathered there are as many
// as members.
Bytes payload_of(const Collective& collective, const Training& training, int members = 1);

// The workers that take part where `self` does.
struct Members {
  Rank first{};
  int count = 1;
  auto operator<=>(const Members&) const = default;

  Ranks ranks() const { return Ranks(first, count); }
  std::size_t size() const { return static_cast<std::size_t>(count); }
  // The member's place among them, from 0; what members bring stands in this order.
  std::size_t place_of(Rank member) const { return static_cast<std::size_t>(member.value - first.value); }
};
Members members_of(const Collective& collective, Rank self, int workers);

// A collective under way, as one of its workers holds it, who finishes it at most once.
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
  std::int64_t number;           // among those that its members have started; of partial ones by itself
  Step step;                     // that its worker contributed

  static constexpr std::int64_t finished = -1;  // as a number: moved from
};

// One round of partial all-reduces, as every worker gets it.
struct PartialSum {
  Gradient sum{};
  int contributors = 0;  // workers whose gradients are in it
  int arrived = 0;       // of these, who came in time
  AgreedProgress agreement{};
};

// What has come back, in the place of what was brought.
struct CollectiveResult {
  Gradient gradient{};
  ModelStatePtr model{};
  SharedNumbers numbers{};  // null: there were none
  SharedPackets packets{};  // null: it was no exchange
  int chunk = 0;            // of exchanged chunks: which one of each packet is this worker's
  std::vector<PartialSum> sums{};
  AgreedProgress agreement{};  // that of a group is on its time alone
};

// What participants send each other.
// What travels instead of the values of a gradient, or of a difference (workers/compression): a promise like these. It
// stands where a model does, so that messages do not become longer: its words of four bytes, and normalisation
// statistics behind them, are the parameters; null in time-only runs.
struct SentPacket : ModelState {
  Bytes size{};                       // of the words
  std::vector<MicroBatch> carried{};  // what has flowed into it, where somebody wants to know
};

// Made by the functions of its kind; `from`, `kept` and `slice` are filled in by who sends it.
struct Message {
  enum class Kind : std::uint8_t {
    note,           // its step and numbers alone
    gradient,       // computed at version `step`
    model,          // version `step`
    last_model,     // the same, for the result alone, and the last that its receiver gets from there
    difference,     // between models, at version `step`
    request,        // asks for the model as it is
    request_after,  // asks for a model of a version after `step`
    farewell,       // the last message of a sender that has no model to give
  };

  Step step{};            // a version of the model
  Gradient gradient{};    // else empty; of a difference its work alone, without values
  ModelStatePtr model{};  // or the difference; else null; null in time-only runs too
  Kind kind = Kind::note;
  bool is_packed = false;  // a gradient or difference comes as a packet, which is in the model's place until a server
                           // has opened it
  std::uint16_t answers = 0;  // of the numbers so many, the last, are of the receiver's packets (CompressedMessages)
  Rank from{};
  std::vector<double> numbers{};  // travel along, 8 bytes each
  std::int64_t kept = 0;          // from a server: micro-batches in its model; of a packet: its sender's number for it
  Slice slice{};                  // which part of the parameters the gradient or the model stands for

  static Message of_gradient(Step version, Gradient gradient) {
    return {.step = version, .gradient = std::move(gradient), .kind = Kind::gradient};
  }
  static Message of_model(Step version, ModelStatePtr model, std::vector<double> numbers = {}) {
    return {.step = version, .model = std::move(model), .kind = Kind::model, .numbers = std::move(numbers)};
  }
  static Message of_last_model(Step version, ModelStatePtr model, std::vector<double> numbers = {}) {
    return {.step = version, .model = std::move(model), .kind = Kind::last_model, .numbers = std::move(numbers)};
  }
  // `work`: how much has been computed for it, for a server that books that (Server::accept).
  static Message of_difference(Step version, ModelStatePtr difference, const Work& work = {}) {
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
  // A gradient of no micro-batches has none.
  bool has_values() const { return has_model() || gradient.micro_batches() > 0; }
  const SentPacket& packet() const { return static_cast<const SentPacket&>(*model); }
  // Of its gradient or difference.
  Work work() const { return {from, gradient.micro_batches(), gradient.compute_time()}; }
};

// Where received messages come from, and go back to: thousands of workers send millions of them.
class MessagePool {
 public:
  virtual void take_back(Message* message) = 0;

 protected:
  ~MessagePool() = default;
};
struct GiveBack {
  MessagePool* pool = nullptr;  // null: the message stands alone
  void operator()(Message* message) const { pool ? pool->take_back(message) : delete message; }
};
// A message that has come, or null. It does not outlive the run.
using ReceivedMessage = std::unique_ptr<Message, GiveBack>;

// Bytes that the message takes on the network: 4 per parameter of its slice (8 for a wide gradient), or its packet's,
// and 8 per number. A message without values costs its latency alone.
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

// Where a participant waits.
// Where in an algorithm a worker waits, for explanations of a deadlock.
struct Place {
  const char* operation = "";
  SourceLine at;
};

// The servers of a method: how many, and who has to do with whom. Their ranks come after the workers'.
struct Servers {
  // So many; of several each holds a slice of the model, and all workers have to do with all of them.
  constexpr Servers(int count = 0) : count(count) {}  // NOLINT: numbers read naturally, as in `.servers = 1`

  // Servers of servers: the first one is the global server, and each region has one of its own. All hold whole models.
  // A region is workers of consecutive ranks, in each as many; so many regions must divide the number of workers.
  static constexpr Servers of_regions(int regions) {
    Servers servers(regions + 1);
    servers.regions = regions;
    return servers;
  }

  int count = 0;
  int regions = 0;  // 0: there are none

  constexpr operator int() const { return count; }  // NOLINT: as above
  constexpr bool hold_slices() const { return count > 1 && regions == 0; }

  // The server that a worker has (of those that hold slices the first), and that a region's server has. Others have
  // none but themselves.
  constexpr Rank server_of(Rank rank, int workers) const {
    const bool is_worker = rank.value < workers;
    if (regions == 0) return is_worker ? Rank{workers} : rank;
    return Rank{workers + (is_worker ? 1 + rank.value / (workers / regions) : 0)};
  }
  // Whose server this one is.
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

  // For explanations.
  std::string name_of(Rank server, int workers) const;
};

// "0-3, 7": ranks in ascending order as ranges.
std::string rank_ranges(const std::vector<int>& ranks);

}  // namespace syncopate
