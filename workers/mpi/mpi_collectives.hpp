// Collectives of an MPI rank, from its arrival until it has its result.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "workers/mpi/mpi_waiting.hpp"

namespace syncopate {

// Every member's message to the others before a collective moves data: waits are polite, totals agreed, and mismatches
// explained.
struct Arrival {
  Time time{};
  std::optional<Collective::Terms> terms{};  // none: the worker's program has ended
  bool wide = false;                         // the gradient is in double precision
  bool blocks = false;                       // the worker does nothing else until the collective has ended
  double weight = 0;                         // of the model in an average
  MomentAges ages{};                         // of its moments
  std::int64_t micro_batches = 0;            // in the gradient that is reduced
  Contribution part{};                       // without its time
  Bytes packet_bytes{};                      // of the packet that is exchanged
  Bytes message_bytes{};                     // sent by this worker so far
  std::int64_t partial_kept = 0;             // worker 0: micro-batches kept in partial all-reduces so far
  char place[64] = {};                       // where in the algorithm, for the explanation
};

// Sums of values over the ranks of a communicator, in place, that go on wherever their ranks let MPI progress.
//
// The sum goes piece by piece around the ring, a few pieces at a time. A rank hands a chunk (its share of a piece) to
// the next one, which adds its own; after N - 1 steps each rank has the sum of one chunk, and after N - 1 more all have
// all of them. Each rank sends 2 (N - 1) / N of the values, as the network model's ring does. The first summand of
// chunk i is rank i's, the next one rank i + 1's: the order of summation depends on nothing else. All ranks add at the
// same time; MPI's own non-blocking sum may bring all values to one of them (Open MPI does, in place).
class RingSums {
 public:
  // Values to reduce: `count` floats or doubles (`type`), the same number on all ranks.
  struct Values {
    void* data;
    std::size_t count;
    MPI_Datatype type;
  };
  static constexpr int lanes = 8;  // pieces at a time, each with a tag of its own

  // All ranks of `ranks` give the same values in the same order. Nobody else may use tags first_tag to
  // first_tag + lanes - 1 there until the sums are done.
  RingSums(const std::vector<Values>& values, MPI_Comm ranks, int first_tag);
  RingSums(const RingSums&) = delete;
  RingSums& operator=(const RingSums&) = delete;

  // Does what can be done now. Returns whether all sums are there.
  bool test();

 private:
  struct Lane {
    Values piece{};
    int step = -1;  // of 2 (N - 1); -1: none is under way
    std::array<MPI_Request, 2> requests{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    std::vector<std::byte> received{};
  };

  bool is_over(Lane& lane);
  void begin_step(Lane& lane);
  void end_step(Lane& lane);
  Values chunk(const Values& piece, int number) const;
  int chunk_sent(int step) const;
  int chunk_received(int step) const { return chunk_sent(step) - 1; }
  bool is_adding(int step) const { return step < size_ - 1; }
  int tag_of(const Lane& lane) const { return first_tag_ + static_cast<int>(&lane - lanes_.data()); }

  MPI_Comm ranks_;
  int first_tag_;
  int rank_;
  int size_;
  std::array<std::deque<Values>, lanes> waiting_;  // by lane, on all ranks alike
  std::array<Lane, lanes> lanes_;
};

// The values that a time-only run moves, so that its messages load the real network too.
FlatVector zeros_of(Bytes bytes);

// The values of one collective on one rank: its part, in buffers that MPI reduces in place, and the result.
class MpiReduction {
 public:
  // The conclusion from all arrivals.
  struct Agreed {
    std::int64_t micro_batches = 0;  // in the sum
    bool wide = false;               // in double precision
    std::optional<double> share{};   // of this rank's model in a mean; none (on all ranks): equal shares
    std::vector<Bytes> packets{};    // of each rank, where all are gathered
    MomentAges ages{};               // of the mean's moments

    void serialise(StateArchive& archive) { archive(micro_batches, wide, share, packets, ages); }
  };
  // The members of a collective that has ended.
  struct Ended {
    int size = 1;
    bool is_root = false;
  };

  // `ranks` has the members, for collectives alone, in the same order on all of them. `number`: of this collective
  // among theirs, of which several may be under way.
  MpiReduction(Training& training, Collective&& what, const Agreed& agreed, MPI_Comm ranks, std::int64_t number);
  // A collective that has ended before the checkpoint. Its values come with the log (CheckpointLog), or by `serialise`.
  MpiReduction(Training& training, Collective&& what, const Agreed& agreed, const Ended& members);
  ~MpiReduction();
  MpiReduction(const MpiReduction&) = delete;
  MpiReduction& operator=(const MpiReduction&) = delete;

  // Blocks until the values are there.
  void run();
  // Returns at once; then call `test` until it is true. Values go piece by piece, so that no call takes long.
  void begin();
  bool test();
  // Begins all pieces of a broadcast: this rank does nothing else from here on.
  void begin_rest() { begin_pieces(pieces_.size()); }

  const Agreed& agreed() const { return agreed_; }
  const std::vector<double>& numbers() const { return numbers_; }
  void set_numbers(std::vector<double> numbers) { numbers_ = std::move(numbers); }

  // Call it once.
  CollectiveResult result();

  // Archives the values of a collective that has ended.
  void serialise(StateArchive& archive);

 private:
  using Part = RingSums::Values;

  void write();
  std::vector<MicroBatch> carried() const;
  void begin_pieces(std::size_t end);
  void add(std::span<float> values) { parts_.push_back({values.data(), values.size(), MPI_FLOAT}); }
  void add(std::span<double> values) { parts_.push_back({values.data(), values.size(), MPI_DOUBLE}); }
  void add_slice();
  void begin_gathering();
  void gather(bool blocks);
  void begin_broadcast();
  bool gathers() const { return what_.gathers_packets() || what_.kind == Collective::Kind::exchange_chunks; }
  bool broadcasts() const {
    return what_.kind == Collective::Kind::broadcast || what_.kind == Collective::Kind::broadcast_packet;
  }
  bool exchanges_chunks() const { return what_.kind == Collective::Kind::exchange_chunks; }
  void widen();
  Gradient sum();
  void scale(double factor);
  ModelStatePtr mean();
  SharedPackets packets();

  Training& training_;
  Collective what_;
  Agreed agreed_;
  MPI_Comm ranks_ = MPI_COMM_NULL;
  std::int64_t number_ = 0;
  int size_ = 1;
  bool is_root_ = false;
  FlatVector values_;
  std::vector<MicroBatch> carried_;  // this rank's, where somebody wants to know
  FlatVector gathered_;              // everybody's packets, or chunks
  std::vector<int> words_;           // of each rank there
  std::vector<int> begins_;          // where they begin
  std::vector<double> exact_;        // of a wide sum
  std::vector<double> numbers_;      // summed, or everybody's
  std::vector<Part> parts_;          // of the buffers, which are reduced
  std::optional<RingSums> sums_;     // of the long ones, where they do not block
  std::vector<Part> pieces_;         // of the parts of a broadcast, which begin one after another
  std::size_t begun_ = 0;            // pieces
  std::vector<MPI_Request> requests_;
};

// A collective, from this rank's arrival until the rank has its result.
struct MpiCollective {
  std::int64_t number = 0;  // among those of its members
  Collective what{};
  Place place{};
  Arrival own{};
  std::vector<Arrival> arrivals{};  // by member; read once all are there
  std::vector<Rank> awaited{};      // members that have not arrived
  bool is_complete = false;         // all have
  bool blocks = false;              // all of them do nothing else until it has ended
  std::optional<MpiReduction> reduction{};
  bool has_ended = false;
  AgreedProgress agreement{};
  StepRow row{};

  // Whether values are on their way, whatever their ranks do meanwhile.
  bool is_moving() const { return is_complete && !blocks && reduction && !has_ended; }
};

// Workers that have collectives among themselves: all, or a group.
struct MpiCollectiveGroup {
  Members members;
  std::int64_t started = 0;
  // In the order in which they were started, which is the same on all members.
  std::list<MpiCollective> open{};
};

// Collectives of an MPI rank. First every member tells the others that it has arrived, when, and with what; then values
// are reduced. Both are non-blocking and go on wherever this rank lets MPI progress: in every wait, in the sleep of a
// delay and before each micro-batch, not within one. Only where the arrivals say that all members do nothing else until
// the end, the reduction is MPI's blocking one. All members come to the reductions in the same order, that in which
// collectives are started.
class MpiCollectives {
 public:
  MpiCollectives(MpiRunState& state, MpiWaiting& waiting)
      : state_(state), waiting_(waiting), all_{.members = {Rank{0}, state.options.workers}} {}

  // See Cluster.
  StartedCollective start(Collective&& what, const Contribution& contribution, const Place& place);
  CollectiveResult finish(StartedCollective&& started, const Place& place);
  // Both halves of Cluster::perform: it arrives, and `finish` waits.
  StartedCollective arrive(Collective&& what, bool blocks, const Contribution& contribution, const Place& place);

  // Everything a program received when it finished a collective; a replay makes the same result of it.
  struct Finished {
    MpiReduction::Agreed agreed;
    std::vector<double> numbers;
    AgreedProgress agreement;

    void serialise(StateArchive& archive) { archive(agreed, numbers, agreement); }
  };
  const Finished& last_finished() const { return last_finished_; }
  StartedCollective started_before(Collective&& what, Step step);
  CollectiveResult finished_before(StartedCollective&& started, Finished outcome);

  bool are_under_way() const {
    return state_.is_worker() && any_is([](const MpiCollective& collective) { return !collective.has_ended; });
  }
  // Whether values are on their way, as fast as this rank lets MPI progress.
  bool are_moving() const { return any_is(&MpiCollective::is_moving); }
  // Moves on what can go on without its worker.
  void advance_all() {
    advance(all_);
    for (auto& [members, group] : groups_) advance(group);
  }
  // Call it while this rank stands still. Ends collectives that all members have come to, blocking ones too.
  void drive();
  // Whether those that all members have come to have ended.
  bool have_ended() const {
    return !any_is([](const MpiCollective& collective) { return collective.is_complete && !collective.has_ended; });
  }
  // After the program: until collectives that it has not finished have ended, which others may need, and all programs.
  void wait_for_all_ends();

  // Archives open collectives, while the ranks stand still. Reading completes what `started_before` has put there.
  void serialise(StateArchive& archive);

 private:
  bool is_group(const MpiCollectiveGroup& group) const { return &group != &all_; }
  MpiCollectiveGroup& group_of(const Collective& what);
  template <typename Is>
  bool any_is(const Is& is) const {
    return std::ranges::any_of(all_.open, is) ||
           std::ranges::any_of(groups_, [&](const auto& group) { return std::ranges::any_of(group.second.open, is); });
  }
  StartedCollective handle_of(const MpiCollectiveGroup& group, const MpiCollective& collective, Step step) const;
  Arrival arrival_at(const Collective& what, const Contribution& contribution, const Place& place);
  void advance(MpiCollectiveGroup& group);
  void drive(MpiCollectiveGroup& group);
  void serialise(MpiCollectiveGroup& group, StateArchive& archive);
  void serialise(const MpiCollectiveGroup& group, MpiCollective& collective, StateArchive& archive);
  void tell_others(const MpiCollectiveGroup& group, MpiCollective& collective);
  MpiReduction::Ended ended_members(const MpiCollectiveGroup& group, const Collective& what) const;
  MpiTransport::Kind frames_of(const MpiCollectiveGroup& group) const {
    return is_group(group) ? MpiTransport::Kind::group_arrival : MpiTransport::Kind::arrival;
  }
  void gather_arrivals(MpiCollectiveGroup& group, MpiCollective& collective);
  void conclude_arrivals(MpiCollectiveGroup& group, MpiCollective& collective);
  void end_collective(const MpiCollectiveGroup& group, MpiCollective& collective);
  void fail_for_lost(const MpiCollective& collective) const;

  MpiRunState& state_;
  MpiWaiting& waiting_;
  MpiCollectiveGroup all_;  // of the workers
  std::map<Members, MpiCollectiveGroup> groups_;
  Finished last_finished_;
};

// How the values of a gradient or a model lie in one flat vector: the parameters; if the vector is wide, the low parts
// of their double-precision values; the normalisation buffers.
struct ValueLayout {
  std::size_t parameters = 0;
  std::size_t buffers = 0;
  bool wide = false;

  std::size_t parts() const { return wide ? 2 : 1; }
  std::size_t size() const { return parts() * parameters + buffers; }
};

// The part of `whole` in a slice: its parameters, and the buffers with the first slice.
FlatVector cut(const FlatVector& whole, const ValueLayout& layout, const Slice& slice);
// A whole vector again, with zeros outside the slice.
FlatVector spread(const FlatVector& part, const ValueLayout& layout, const Slice& slice);

// A wide vector of one that is not; `layout`: of the latter.
FlatVector widened(const FlatVector& narrow, const ValueLayout& layout);

FlatVector copy_of(const FlatVector& values);

// total += values, both of the layout; wide ones in double precision.
void add_values(FlatVector& total, const FlatVector& values, const ValueLayout& layout);

// A double-precision value as two floats, and back.
inline void split(double value, float& high, float& low) {
  high = static_cast<float>(value);
  low = static_cast<float>(value - high);
}
inline double joined(float high, float low) { return static_cast<double>(high) + low; }

}  // namespace syncopate
