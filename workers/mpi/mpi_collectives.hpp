#pragma once

#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "workers/mpi/mpi_waiting.hpp"

namespace syncopate {

// Each member's message to the others before a collective sends values. It serves polite waits, totals and errors.
struct Arrival {
  Time time{};
  std::optional<Collective::Terms> terms{};  // empty: the worker's program has ended
  bool wide = false;                         // the gradient is in double precision
  bool blocks = false;                       // the worker does nothing else until the collective has ended
  double weight = 0;                         // weight of the worker's model in a weighted mean
  MomentAges ages{};                         // ages of that model's optimizer moments
  std::int64_t micro_batches = 0;            // number in the gradient to reduce
  Contribution part{};                       // compute_time is not set
  Bytes packet_bytes{};                      // size of the packet to exchange
  Bytes message_bytes{};                     // size of all messages that this worker has sent so far
  std::int64_t partial_kept = 0;             // on worker 0: micro-batches kept in partial all-reduces so far
  char place[64] = {};                       // file and line of the call in the algorithm, for error messages
};

// Sums values in place over the ranks of a communicator. The sums advance whenever the ranks let MPI progress.
//
// The sum goes around the ring in pieces, a few at a time. In each step a rank sends one chunk of a piece (an N-th of
// it) to the next rank. In the first N - 1 steps the receiver adds its own values, after which each rank has the sum of
// one chunk. In N - 1 more steps every rank receives the other sums. So each rank sends 2 (N - 1) / N of the values, as
// in the network model's ring. The sum of chunk i adds the values of rank i, then rank i + 1, and so on. So it does not
// depend on times. All ranks add at the same time, whereas MPI's own non-blocking sum may bring all values to one rank
// (Open MPI does this in place).
class RingSums {
 public:
  // Values to reduce: `count` floats or doubles (`type`). All ranks have the same count.
  struct Values {
    void* data;
    std::size_t count;
    MPI_Datatype type;
  };
  static constexpr int lanes = 8;  // number of pieces under way at a time; each has its own tag

  // All members of `ranks` pass values with the same sizes and types in the same order. Tags first_tag to first_tag +
  // lanes - 1 of `ranks` are reserved until the sums are done.
  RingSums(const std::vector<Values>& values, MPI_Comm ranks, int first_tag);
  RingSums(const RingSums&) = delete;
  RingSums& operator=(const RingSums&) = delete;

  // Advances the sums without blocking. Returns whether all are done.
  bool test();

 private:
  struct Lane {
    Values piece{};
    int step = -1;  // step of the piece, below 2 (N - 1); -1: no piece is under way
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
  std::array<std::deque<Values>, lanes> waiting_;  // pieces not begun, by lane; the same on all ranks
  std::array<Lane, lanes> lanes_;
};

// Zeros of this size. Time-only runs send them, so that their messages load the real network like values.
FlatVector zeros_of(Bytes bytes);

// The collective's properties that follow from the arrivals of all its members.
struct MpiAgreed {
  std::int64_t micro_batches = 0;  // number in the sum
  bool wide = false;               // the sum is in double precision
  std::optional<double> share{};   // weight of this rank's model in the mean; empty on all ranks: equal weights
  std::vector<Bytes> packets{};    // sizes by rank, if the collective gathers packets
  MomentAges ages{};               // ages of the mean's optimizer moments

  void serialise(StateArchive& archive) { archive(micro_batches, wide, share, packets, ages); }
};

class MpiReduction;  // one rank's values in a collective

// A collective on this rank, from the rank's arrival until it has its result.
struct MpiCollective {
  std::int64_t number = 0;  // counts the collectives of the same members
  Collective what{};
  Arrival own{};
  std::vector<Arrival> arrivals{};  // by member; complete once is_complete is true
  std::vector<Rank> awaited{};      // members that have not arrived
  bool is_complete = false;         // all members have arrived
  bool blocks = false;              // all members do nothing else until the collective has ended
  std::shared_ptr<MpiReduction> reduction{};
  bool has_ended = false;
  AgreedProgress agreement{};
  StepRow row{};

  // Whether its values are being sent while the members may do other work.
  bool is_moving() const { return is_complete && !blocks && reduction && !has_ended; }
};

// Workers that take part in collectives together: all workers, or a group.
struct MpiCollectiveGroup {
  Members members;
  std::int64_t started = 0;
  // In the order of their starts, which is the same on all members.
  std::list<MpiCollective> open{};
};

// Collectives of an MPI rank, from its arrival until it has its result. First every member sends the others its
// arrival: the time and the terms of the collective. Then the values are reduced. Both stages are non-blocking. They
// advance in every wait, in the sleep of a delay and before each micro-batch, but not during one. If the arrivals say
// that all members do nothing else until the end, MPI's blocking reduction is used. All members begin reductions in the
// order of the collectives' starts.
class MpiCollectives {
 public:
  MpiCollectives(MpiRunState& state, MpiWaiting& waiting)
      : state_(state), waiting_(waiting), all_{.members = {Rank{0}, state.options.workers}} {}

  // See Cluster. `blocks`: the worker does nothing else before `finish` (Cluster::perform).
  StartedCollective start(Collective&& what, const Contribution& contribution, const Place& place, bool blocks);
  CollectiveResult finish(StartedCollective&& started, const Place& place);
  bool has_ended(const StartedCollective& started);

  // Everything that a program received when it finished a collective. A replay computes the same result from it.
  struct Finished {
    MpiAgreed agreed;
    std::vector<double> numbers;
    AgreedProgress agreement;

    void serialise(StateArchive& archive) { archive(agreed, numbers, agreement); }
  };
  const Finished& last_finished() const { return last_finished_; }
  StartedCollective started_before(Collective&& what, Step step);  // for a replay; start() calls it, too
  CollectiveResult finished_before(StartedCollective&& started, Finished outcome);

  bool are_under_way() const {
    return state_.is_worker() && any_is([](const MpiCollective& collective) { return !collective.has_ended; });
  }
  // Whether values of a collective are being sent. They advance only when this rank lets MPI progress.
  bool are_moving() const { return any_is(&MpiCollective::is_moving); }
  // Advances everything that can advance without this rank's worker.
  void advance_all() {
    advance(all_);
    for (auto& [members, group] : groups_) advance(group);
  }
  // Call it while this rank is stopped for a checkpoint. Finishes collectives that all members have entered, including
  // blocking ones.
  void drive();
  // Whether every collective that all members have entered has ended.
  bool have_ended() const {
    return !any_is([](const MpiCollective& collective) { return collective.is_complete && !collective.has_ended; });
  }
  // Call it after the program. Waits for the collectives that this worker did not finish, because other members may
  // need their results. Then waits until all programs have ended.
  void wait_for_all_ends();

  // Archives open collectives while the ranks are stopped. Reading restores the contents of those that
  // `started_before` has added during the replay.
  void serialise(StateArchive& archive);

 private:
  bool is_group(const MpiCollectiveGroup& group) const { return &group != &all_; }
  MpiCollectiveGroup& group_of(const StartedCollective& started);
  template <typename Is>
  bool any_is(const Is& is) const {
    return std::ranges::any_of(all_.open, is) ||
           std::ranges::any_of(groups_, [&](const auto& group) { return std::ranges::any_of(group.second.open, is); });
  }
  Arrival arrival_at(const Collective& what, const Contribution& contribution, const Place& place);
  void advance(MpiCollectiveGroup& group);
  void drive(MpiCollectiveGroup& group);
  void serialise(MpiCollectiveGroup& group, StateArchive& archive);
  void serialise(const MpiCollectiveGroup& group, MpiCollective& collective, StateArchive& archive);
  MpiTransport::Kind frames_of(const MpiCollectiveGroup& group) const {
    return is_group(group) ? MpiTransport::Kind::group_arrival : MpiTransport::Kind::arrival;
  }
  void gather_arrivals(MpiCollectiveGroup& group, MpiCollective& collective);
  void conclude_arrivals(MpiCollectiveGroup& group, MpiCollective& collective);
  void end_collective(const MpiCollectiveGroup& group, MpiCollective& collective);
  void fail_for_lost(const MpiCollective& collective) const;

  MpiRunState& state_;
  MpiWaiting& waiting_;
  MpiCollectiveGroup all_;  // all workers
  std::map<Members, MpiCollectiveGroup> groups_;
  Finished last_finished_;
};

// The layout of a gradient's or model's values in one flat vector: the parameters, the low parts of their
// double-precision values (only in a wide vector), and the normalisation buffers.
struct ValueLayout {
  std::size_t parameters = 0;
  std::size_t buffers = 0;
  bool wide = false;

  std::size_t parts() const { return wide ? 2 : 1; }
  std::size_t size() const { return parts() * parameters + buffers; }
};

// The layout for a model; empty in time-only runs.
ValueLayout layout_of(const Training& training, bool wide = false);

// Returns a slice's values of `whole`: the slice's parameters, and in the first slice also the buffers.
FlatVector cut(const FlatVector& whole, const ValueLayout& layout, const Slice& slice);
// Returns a vector of the whole layout, with the values of `part` in the slice and zeros elsewhere.
FlatVector spread(const FlatVector& part, const ValueLayout& layout, const Slice& slice);

// Converts a narrow vector to a wide one; `layout` is the narrow layout.
FlatVector widened(const FlatVector& narrow, const ValueLayout& layout);

FlatVector copy_of(const FlatVector& values);

// total += values, both in this layout; in double precision if the layout is wide.
void add_values(FlatVector& total, const FlatVector& values, const ValueLayout& layout);

// Splits a double-precision value into two floats, and joins them again.
inline void split(double value, float& high, float& low) {
  high = static_cast<float>(value);
  low = static_cast<float>(value - high);
}
inline double joined(float high, float low) { return static_cast<double>(high) + low; }

}  // namespace syncopate
