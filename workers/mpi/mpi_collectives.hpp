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
#include <string>
#include <utility>
#include <vector>

#include "workers/cluster/accounting.hpp"
#include "workers/cluster/calls.hpp"
#include "workers/mpi/mpi_waiting.hpp"
#include "workers/training/flat_arithmetic.hpp"
#include "workers/training/gradient.hpp"
#include "workers/training/training.hpp"

namespace syncopate {

// Before a collective moves data, every worker says that it has arrived, when, and with what: the
// wait for the last one is polite, all agree on totals, and a mismatch is explained, not hung on.
struct Arrival {
  std::int64_t time_ns = 0;
  std::optional<Collective::Terms> terms{};  // none: the worker's program has ended
  std::int32_t wide = 0;                     // whether the gradient is
  std::int32_t blocks = 0;                   // whether the worker does nothing else until the collective has ended
  double weight = 0;                         // of the model in an average
  MomentAges ages{};                         // of its moments
  std::int64_t micro_batches = 0;            // in the gradient that is reduced
  std::int64_t kept = 0;                     // the worker's contribution, as in calls.hpp
  std::int64_t planned = 0;
  std::int64_t step = 0;
  std::int64_t period = 0;
  std::int64_t packet_bytes = 0;   // of the packet that is exchanged
  std::int64_t message_bytes = 0;  // sent by this worker so far
  std::int64_t partial_kept = 0;   // worker 0: micro-batches kept in partial all-reduces so far
  char place[64] = {};             // where in the algorithm, for the explanation
};

Contribution contribution_of(const Arrival& arrival);

void set_place(Arrival& arrival, const Place& place);

Time last_arrival(const std::vector<Arrival>& arrivals);

// Empty if all came for the same; else who stands where, one line each. The first arrival is that of
// worker `first`.
std::string explain_mismatch(const std::vector<Arrival>& arrivals, int first = 0);

// Why `own` cannot go on without a worker that will not come.
std::string explain_absence(const Arrival& own, Rank absent, const char* why);

// This worker's part of a weighted mean; nothing if all have the same part.
std::optional<double> share_of(const Arrival& own, const std::vector<Arrival>& arrivals);
// Of the mean of all workers' moments.
MomentAges age_of_mean(const Training& training, const std::vector<Arrival>& arrivals);

// Sums of values over the ranks of a communicator, in place, that go on while their ranks do something else: wherever
// they let MPI progress, a step goes on.
//
// Piece by piece around the ring, a few pieces at a time: a rank hands a chunk, a piece's share of a rank, to the next
// one, which adds its own; after N - 1 steps each rank has the sum of one chunk, and after N - 1 more all have all of
// them. Each rank sends 2 (N - 1) / N of the values, as the network model's ring does. The first summand of chunk i is
// rank i's, the next one rank i + 1's: the order of summation depends on nothing else. All ranks add at the same time,
// where a sum of MPI's own that does not block may bring all values to one of them (Open MPI does, in place).
class RingSums {
 public:
  // What is reduced: `count` floats or doubles (`type`), the same number on all ranks.
  struct Values {
    void* data;
    std::size_t count;
    MPI_Datatype type;
  };
  static constexpr int lanes = 8;  // pieces at a time, each with a tag of its own

  // On all ranks of `ranks` in the same order. Tags first_tag to first_tag + lanes - 1 must be nobody else's there
  // until the sums are done.
  RingSums(const std::vector<Values>& values, MPI_Comm ranks, int first_tag);
  RingSums(const RingSums&) = delete;
  RingSums& operator=(const RingSums&) = delete;

  // Does what can be done now; whether all sums are there.
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
  int rank_ = 0;
  int size_ = 1;
  std::array<std::deque<Values>, lanes> waiting_;  // whose lane is fixed, so that all ranks have the same
  std::array<Lane, lanes> lanes_;
};

// The values of one collective on one rank: what it brings, in buffers that MPI reduces in place, and what comes of it.
class StateArchive;

// A number of elements as MPI counts them. Throws std::length_error beyond 2^31 - 1.
int mpi_count(std::size_t elements);

// What a time-only run moves instead of values, so that its messages load the real network too.
FlatVector zeros_of(Bytes bytes);

class MpiReduction {
 public:
  // What the arrivals of all say together.
  struct Agreed {
    std::int64_t micro_batches = 0;  // in the sum
    bool wide = false;               // in double precision
    std::optional<double> share{};   // of this rank's model in a mean; none, on all ranks alike: equal shares
    std::vector<Bytes> packets{};    // of each rank, where all are gathered
    MomentAges ages{};               // of the mean's moments

    template <typename Archive>
    void keep(Archive& archive) {
      archive(micro_batches, wide, share, packets, ages);
    }
  };
  // Who takes part in what has ended.
  struct Ended {
    int size = 1;
    bool is_root = false;
  };

  // `ranks`: of the members, where collectives alone go; the same order of them on all ranks. `number`: of this one
  // among theirs, of which several may be under way.
  MpiReduction(Training& training, Collective&& what, const Agreed& agreed, MPI_Comm ranks, std::int64_t number);
  // One that has ended in another process. Its values come with those of the whole course (CourseLog), or by `keep`.
  MpiReduction(Training& training, Collective&& what, const Agreed& agreed, const Ended& members);
  ~MpiReduction();
  MpiReduction(const MpiReduction&) = delete;
  MpiReduction& operator=(const MpiReduction&) = delete;

  // Blocks until the values are there.
  void run();
  // Returns at once; then `test` until it is true. Values go piece by piece, so that no call takes long that lets them
  // go on: what their rank does meanwhile is held up by it.
  void begin();
  bool test();
  // All pieces of a broadcast at once: this rank does nothing else from here on.
  void begin_rest() { begin_pieces(pieces_.size()); }

  const Agreed& agreed() const { return agreed_; }
  const std::vector<double>& numbers() const { return numbers_; }
  void set_numbers(std::vector<double> numbers) { numbers_ = std::move(numbers); }

  // Once.
  CollectiveResult result();

  // The values of one that has ended.
  void keep(StateArchive& archive);

 private:
  using Part = RingSums::Values;

  void write();
  std::vector<MicroBatch> carried() const;
  void begin_pieces(std::size_t end);
  void add(std::span<float> values) { parts_.push_back({values.data(), values.size(), MPI_FLOAT}); }
  void add(std::span<double> values) { parts_.push_back({values.data(), values.size(), MPI_DOUBLE}); }
  void add_slice();
  void begin_gathering();
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
  FlatVector gathered_;              // everybody's packets, or chunks; of each rank:
  std::vector<int> words_;           // how many words
  std::vector<int> begins_;          // and where they begin
  std::vector<double> exact_;        // of a wide sum
  std::vector<double> numbers_;      // summed, or everybody's
  std::vector<Part> parts_;          // of the buffers: what is reduced
  std::optional<RingSums> sums_;     // of the long ones, where they do not block
  std::vector<Part> pieces_;         // of the parts of a broadcast, which begin one after another
  std::size_t begun_ = 0;            // of them
  std::vector<MPI_Request> requests_;
};

// A collective that a rank has come to, until the rank has its result: first everybody arrives, then values are
// reduced. Both go on without the rank, wherever it lets MPI progress.
struct MpiCollective {
  std::int64_t number = 0;  // among those of its members
  Collective what{};
  Place place{};
  Arrival own{};
  std::vector<Arrival> arrivals{};  // by member; read once all are there
  MPI_Request gathering = MPI_REQUEST_NULL;
  std::vector<Rank> awaited{};  // of a group: members whose letters have not come
  bool is_complete = false;     // all have arrived
  bool blocks = false;          // all of them do nothing else until it has ended
  std::optional<MpiReduction> reduction{};
  bool has_ended = false;
  AgreedProgress agreement{};
  StepRow row{};

  // Values are on their way, whatever their ranks do meanwhile.
  bool is_moving() const { return is_complete && !blocks && reduction && !has_ended; }
};

// Those who have collectives among themselves: all workers, or a group.
struct MpiAssembly {
  MpiAssembly(Members members, bool is_group) : members(members), is_group(is_group) {}

  Members members;
  bool is_group;
  std::int64_t started = 0;
  // In the order in which they were started, which is the same on all members. MPI writes to them: they do not move.
  std::list<MpiCollective> open{};

  bool has_one_under_way() const;
  bool has_one_moving() const {
    return std::ranges::any_of(open, [](const MpiCollective& collective) { return collective.is_moving(); });
  }
};

inline bool MpiAssembly::has_one_under_way() const {
  for (const MpiCollective& collective : open)
    if (!collective.has_ended) return true;
  return false;
}

class MpiCollectives {
 public:
  MpiCollectives(MpiStage& stage, MpiWaiting& waiting)
      : stage_(stage), waiting_(waiting), all_(Members{Rank{0}, stage.options.workers}, false) {}

  // See Cluster.
  StartedCollective start(Collective&& what, const Contribution& contribution, const Place& place);
  CollectiveResult finish(StartedCollective&& started, const Place& place);
  // Both halves of Cluster::perform: it arrives, and `finish` waits.
  StartedCollective arrive(Collective&& what, bool blocks, const Contribution& contribution, const Place& place);

  // What of a collective an earlier process was told when it finished it, and the same from that.
  struct Finished {
    MpiReduction::Agreed agreed;
    std::vector<double> numbers;
    AgreedProgress agreement;

    template <typename Archive>
    void keep(Archive& archive) {
      archive(agreed, numbers, agreement);
    }
  };
  const Finished& last_finished() const { return last_finished_; }
  StartedCollective started_before(Collective&& what, Step step);
  CollectiveResult finished_before(StartedCollective&& started, Finished told);

  bool are_under_way() const;
  bool are_moving() const;  // values of one that is under way, as fast as this rank lets MPI progress
  // What can go on without its worker does.
  void advance_all();
  // Where this rank stands still: what all members have come to goes on to its end, also where one waits for it in MPI's
  // own call.
  void drive();
  // Of all workers, so many have been started here; and whether the first `number` of them have ended, and all of
  // groups that can.
  std::int64_t started() const { return all_.started; }
  bool have_ended(std::int64_t number) const;
  // The last one of all workers, after their programs.
  void meet_at_the_end();

  // What is open, while the ranks stand still; read, it completes what `started_before` has put there.
  void keep(StateArchive& archive);
  // Of what has been read, what not all have come to begins again.
  void go_on();

 private:
  MpiAssembly& assembly_of(const Collective& what);
  Arrival arrival_at(const Collective& what, const Contribution& contribution, const Place& place);
  void stamp(Arrival& own, const Place& place);
  void advance(MpiAssembly& assembly);
  void drive(MpiAssembly& assembly);
  void keep(MpiAssembly& assembly, StateArchive& archive);
  void keep(const MpiAssembly& assembly, MpiCollective& collective, StateArchive& archive);
  void gather(MpiCollective& collective);
  MpiReduction::Ended ended_members(const MpiAssembly& assembly, const Collective& what) const;
  void gather_letters(MpiAssembly& assembly, MpiCollective& collective);
  void conclude_arrivals(MpiAssembly& assembly, MpiCollective& collective);
  void end_collective(const MpiAssembly& assembly, MpiCollective& collective);
  void record_arrivals(const MpiCollective& collective) const;
  void wait_for_arrivals(const MpiAssembly& assembly, MpiCollective& collective, const Place& place);
  void fail_for_lost(const MpiCollective& collective) const;

  MpiStage& stage_;
  MpiWaiting& waiting_;
  MpiAssembly all_;  // of the workers
  std::map<Members, MpiAssembly> groups_;
  Finished last_finished_;
};

// How the values of a gradient or a model lie in one flat vector: the parameters; what those lack of the
// exact values, if the vector is wide; the normalisation buffers.
struct ValueLayout {
  std::size_t parameters = 0;
  std::size_t buffers = 0;
  bool wide = false;

  std::size_t parts() const { return wide ? 2 : 1; }
  std::size_t size() const { return parts() * parameters + buffers; }
};

// What of `whole` a slice stands for: its parameters, and the buffers with the first slice.
FlatVector cut(const FlatVector& whole, const ValueLayout& layout, const Slice& slice);
// A whole vector again; what the slice does not stand for is zero.
FlatVector spread(const FlatVector& part, const ValueLayout& layout, const Slice& slice);

// A vector of the layout, which is not wide, as a wide one.
FlatVector widened(const FlatVector& narrow, const ValueLayout& layout);

FlatVector copy_of(const FlatVector& values);

// total += values, both of the layout; wide ones in double precision.
void add_values(FlatVector& total, const FlatVector& values, const ValueLayout& layout);

// What a double-precision value is as two floats, and back.
inline void split(double value, float& high, float& low) {
  high = static_cast<float>(value);
  low = static_cast<float>(value - high);
}
inline double joined(float high, float low) { return static_cast<double>(high) + low; }

}  // namespace syncopate
