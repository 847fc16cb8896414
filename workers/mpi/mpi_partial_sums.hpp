// Partial all-reduces (rounds that do not wait for all workers) of an MPI rank. Worker 0 coordinates the rounds.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "workers/mpi/mpi_collectives.hpp"
#include "workers/mpi/mpi_waiting.hpp"

namespace syncopate {

// A worker's message to worker 0 when it enters a round.
struct PartialArrival {
  Rank worker{};
  std::int64_t round = 0;  // the first round whose result the worker does not have
  Activation activation{};
  LateGradient late{};
  std::int64_t kept = 0;  // number of micro-batches kept, as in the worker's Contribution
  std::int64_t planned = 0;
  std::int64_t micro_batches = 0;  // number in the gradient
  Duration compute_time{};
  bool wide = false;
};

// A round's result without the sum's values. A replay gives the program the same result.
struct PartialOutcome {
  std::int64_t micro_batches = 0;  // number in the sum
  std::int32_t contributors = 0;   // number of workers in time, and of workers whose late gradient is in the sum
  std::int32_t arrived = 0;        // number of workers in time
  bool wide = false;
  AgreedProgress agreement{};
};

// A round that has taken place.
struct PartialRound {
  FlatVector sum;                   // added up in the order of ranks; empty if no worker sent values
  PartialOutcome outcome;           // the coordinator sets the agreement
  std::vector<MicroBatch> carried;  // micro-batches in the sum, as far as they are known
  ByRank<char> arrived;             // by worker: 1 if the worker arrived in time
  StepRow row;
};

// Decides on worker 0, in order of arrival, which gradients go into which partial all-reduce. Sends nothing.
class PartialRounds {
 public:
  // Gradients' values have this layout, or its wide variant.
  PartialRounds(int workers, ValueLayout layout);

  // Adds a worker's arrival. `values` are empty if they were not computed or are not needed. `carried`: the gradient's
  // micro-batches, as far as they are known. A worker in time waits for this round's result; a late one gets the
  // results of earlier rounds. Throws RunFailure if workers' activations differ.
  void arrive(const PartialArrival& arrival, FlatVector values, std::span<const MicroBatch> carried = {});
  void leave(Rank worker) { left_[worker] = 1; }

  // Whether the open round takes place now. If it does, take() returns its result and begins the next round.
  bool takes_place() const;
  PartialRound take();

  // Explains why the round can never take place if the workers in `lost` never arrive; empty if it can without them.
  std::string explain_deadlock(const ByRank<char>& lost) const;

  // Counts of a worker's gradients so far. Gradients that wait for a round count as lost. The time of gradients that
  // are dropped is not included: the worker books it.
  Tally tally_of(Rank worker) const;
  // Computation time of the worker's gradients that wait for a round.
  Duration pending_of(Rank worker) const {
    const auto waiting = parts_.find(worker);
    return waiting == parts_.end() ? Duration{} : waiting->second.compute_time;
  }

  void serialise(StateArchive& archive) { archive(open_, activation_, arrived_, parts_, row_, left_, tallies_); }

 private:
  struct Part {
    FlatVector values;
    std::vector<MicroBatch> carried;
    bool wide = false;
    std::int64_t micro_batches = 0;
    std::int64_t kept = 0;
    std::int64_t planned = 0;
    Duration compute_time{};

    void serialise(StateArchive& archive) {
      archive(values, carried, wide, micro_batches, kept, planned, compute_time);
    }
  };

  void book(Rank worker, const Contribution& part) {
    tallies_[worker].kept += part.kept;
    tallies_[worker].missing += part.dropped();
    row_.add(part);
  }
  void add_values_to(FlatVector& total, bool& total_is_wide, FlatVector values, bool wide) const;

  int workers_;
  ValueLayout layout_;
  std::int64_t open_ = 0;  // number of the open round
  std::optional<Activation> activation_;
  ByRank<char> arrived_;
  std::map<Rank, Part> parts_;
  StepRow row_;  // the open round's row
  ByRank<char> left_;
  ByRank<Tally> tallies_;
};

// Partial all-reduces of an MPI rank. Every worker sends its gradient to worker 0, which coordinates the rounds
// whenever it lets MPI progress, and sends all workers the sums. While worker 0 computes a micro-batch, rounds wait.
class MpiPartialSums {
 public:
  MpiPartialSums(MpiRunState& state, MpiWaiting& waiting);

  // See Cluster. `blocks`: the worker does both in one call (Cluster::perform).
  StartedCollective start(Collective&& what, const Contribution& contribution, const Place& place, bool blocks);
  CollectiveResult finish(const Place& place, bool blocks);

  const std::vector<PartialOutcome>& last_outcome() const { return last_outcome_; }
  CollectiveResult finished_before(const std::vector<PartialOutcome>& outcome) const;

  void serialise(StateArchive& archive);

  void progress();
  // Call it once this rank's program asks for no more results.
  void drop_results() { results_.clear(); }

  // At the end, on worker 0: the counts of a worker's gradients, and the computation time of those that no round took.
  Tally tally_of(Rank worker) const { return rounds_ ? rounds_->tally_of(worker) : Tally(); }
  Duration pending_of(Rank worker) const { return rounds_->pending_of(worker); }

 private:
  // Worker 0's message about a round. The round's sum is the body of the frame.
  struct RoundResult {
    PartialOutcome outcome;
    bool in_time = false;  // whether the receiving worker arrived in time
  };
  struct Started {
    bool knows_it_is_late;
    LateGradient late;
    Duration compute_time;
  };
  struct Result {
    RoundResult of;
    FlatVector sum;

    void serialise(StateArchive& archive) { archive(of, sum); }
  };

  PartialSum sum_of(const PartialOutcome& outcome, FlatVector values) const;
  void arrive(const PartialArrival& arrival, FlatVector values, std::span<const MicroBatch> carried);
  void coordinate();
  void conclude_rounds() {
    while (rounds_->takes_place()) conclude(rounds_->take());
  }
  void conclude(PartialRound round);
  void add_result(const RoundResult& result, FlatVector sum);

  MpiRunState& state_;
  MpiWaiting& waiting_;
  std::optional<PartialRounds> rounds_;  // on worker 0
  NumberedRounds arrived_;               // on worker 0, for the record of arrivals: times at which it learns of them
  std::optional<Started> own_;           // this worker's current partial all-reduce
  std::int64_t next_round_ = 0;          // the first round whose result this worker does not have
  std::deque<Result> results_;           // results of rounds from next_round_ on
  std::vector<PartialOutcome> last_outcome_;
};

}  // namespace syncopate
