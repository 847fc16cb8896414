// Partial all-reduces of an MPI rank; worker 0 coordinates those of all.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "workers/mpi/mpi_waiting.hpp"
#include "workers/mpi/partial_rounds.hpp"

namespace syncopate {

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
