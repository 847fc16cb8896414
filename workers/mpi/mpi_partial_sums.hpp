// Partial all-reduces of an MPI rank; worker 0 coordinates those of all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "workers/base/process.hpp"
#include "workers/base/units.hpp"
#include "workers/cluster/accounting.hpp"
#include "workers/cluster/calls.hpp"
#include "workers/mpi/mpi_collectives.hpp"
#include "workers/mpi/mpi_waiting.hpp"
#include "workers/training/objective.hpp"

namespace syncopate {

// Which gradients go into which partial all-reduce: worker 0 keeps this for all workers. It takes what
// they bring in order of arrival; it sends nothing and knows no clock.
class StateArchive;

// What a worker says that comes to a round.
struct PartialArrival {
  Rank worker{};
  std::int64_t round = 0;  // the first whose result it lacks
  Activation activation{};
  LateGradient late{};
  std::int64_t kept = 0;  // micro-batches, as in its Contribution
  std::int64_t planned = 0;
  std::int64_t micro_batches = 0;  // in the gradient
  Duration compute_time{};
  bool wide = false;
};

// A round that has taken place.
struct PartialRound {
  std::int64_t number = 0;  // from 0
  FlatVector sum;           // by rank; empty without values
  bool wide = false;
  std::int64_t micro_batches = 0;   // in the sum
  std::vector<MicroBatch> carried;  // these, as far as they are known
  ByRank<char> arrived;             // whether it came in time
  int contributors = 0;             // those, and others whose late gradient is in the sum
  StepRow row;
};

class PartialRounds {
 public:
  // Values are as `layout` says, or wide.
  PartialRounds(int workers, ValueLayout layout);

  // `values` may be empty: nothing was computed, or it will not be needed; `carried`: which micro-batches they are
  // known to be of. The worker waits for the round's result, or gets those of earlier rounds if it is late. Throws
  // RunFailure where workers differ about the activation.
  void arrive(const PartialArrival& arrival, FlatVector values, std::span<const MicroBatch> carried = {});
  void leave(Rank worker);

  // Whether the round that workers arrive at now takes place, and what comes out. take() may be called if so;
  // the next round begins.
  bool takes_place() const;
  PartialRound take();

  // Why the round can never take place if the workers of `lost` never arrive; else empty.
  std::string explain_standstill(const ByRank<char>& lost) const;

  // What became of a worker's gradients so far: those that wait for a round are lost. The time of those that have been
  // dropped is the worker's own to book, which learns of it.
  Tally tally_of(Rank worker) const;
  // The time that was spent on what waits for a round.
  Duration pending_of(Rank worker) const;

  void keep(StateArchive& archive);

 private:
  // What one worker contributes to the round that is open.
  struct Part {
    FlatVector values;
    std::vector<MicroBatch> carried;
    bool wide = false;
    std::int64_t micro_batches = 0;
    std::int64_t kept = 0;
    std::int64_t planned = 0;
    Duration compute_time{};

    template <typename Archive>
    void keep(Archive& archive) {
      archive(values, carried, wide, micro_batches, kept, planned, compute_time);
    }
  };

  void add(Part& part, const PartialArrival& arrival, FlatVector values) const;
  void book(Rank worker, const Contribution& part);
  void add_values_to(FlatVector& total, bool& total_is_wide, FlatVector values, bool wide) const;

  int workers_;
  ValueLayout layout_;
  std::int64_t open_ = 0;  // number of the open round
  std::optional<Activation> activation_;
  ByRank<char> arrived_;
  std::map<Rank, Part> parts_;
  StepRow row_;  // of the open round
  ByRank<char> left_;
  ByRank<Tally> tallies_;
};

class MpiPartialSums {
 public:
  MpiPartialSums(MpiStage& stage, MpiWaiting& waiting);

  // See Cluster.
  StartedCollective start(Collective&& what, const Contribution& contribution, const Place& place);
  CollectiveResult finish(const Place& place);
  // Both halves of Cluster::perform.
  StartedCollective begin(Collective&& what, const Contribution& contribution);
  CollectiveResult wait_for_result(const Place& place);

  // What was told when one was finished, and the same from that, in another process.
  struct Told {
    std::int64_t micro_batches = 0;
    std::int32_t contributors = 0;
    std::int32_t arrived = 0;
    bool wide = false;
    AgreedProgress agreement;
  };
  const std::vector<Told>& last_told() const { return last_told_; }
  CollectiveResult finished_before(const std::vector<Told>& told) const;

  void keep(StateArchive& archive);

  void progress();
  // Nobody here will ask for more.
  void drop_results() { results_.clear(); }

  // At the end, on worker 0: what became of a worker's gradients, and the time of those that nobody took.
  Tally tally_of(Rank worker) const { return rounds_ ? rounds_->tally_of(worker) : Tally(); }
  Duration pending_of(Rank worker) const { return rounds_->pending_of(worker); }

 private:
  // What the coordinator says of a round; the sum is the letter's body.
  struct RoundResult {
    std::int64_t micro_batches = 0;
    std::int32_t contributors = 0;
    std::int32_t arrived = 0;
    bool in_time = false;  // whether this worker was
    bool wide = false;
    AgreedProgress agreement;
  };
  struct Started {
    bool knows_it_is_late;
    LateGradient late;
    Duration compute_time;
  };
  struct Result {
    RoundResult of;
    FlatVector sum;

    template <typename Archive>
    void keep(Archive& archive) {
      archive(of, sum);
    }
  };

  PartialSum sum_of(const Told& told, FlatVector values) const;
  void arrive(const PartialArrival& arrival, FlatVector values, std::span<const MicroBatch> carried);
  void coordinate();
  void conclude_rounds();
  void conclude(PartialRound round);
  void take_results();
  void add_result(const RoundResult& result, FlatVector sum);

  MpiStage& stage_;
  MpiWaiting& waiting_;
  std::optional<PartialRounds> rounds_;  // worker 0
  NumberedRounds arrived_;               // likewise, for the record of arrivals: as worker 0 learns of them
  std::vector<Time> rounds_began_;       // since the first, likewise
  std::optional<Started> own_;           // the one that this worker has under way
  std::int64_t next_round_ = 0;          // the first whose result this worker has not got
  std::deque<Result> results_;           // from next_round_ on
  std::vector<Told> last_told_;
};

}  // namespace syncopate
