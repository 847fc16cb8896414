// Partial all-reduces of the simulated cluster. Workers arrive in the order of virtual time; once the activation is
// fulfilled the sum is formed of what is there, and those who come later, or are still computing, only get its result.
#pragma once

#include <deque>
#include <vector>

#include "workers/cluster/run_record.hpp"
#include "workers/simulated/pauses_under_way.hpp"
#include "workers/simulated/stage.hpp"
#include "workers/simulated/traffic.hpp"

namespace syncopate {

class PartialSums {
 public:
  PartialSums(Stage& stage, Traffic& traffic, PausesUnderWay& pauses)
      : stage_(stage),
        traffic_(traffic),
        pauses_(pauses),
        by_worker_(stage.options.workers),
        rounds_(arrivals_of(stage.options.record), start_time) {}

  // See Cluster.
  StartedCollective start(Rank self, Collective&& what, const Contribution& part, const Place& place);
  CollectiveResult finish(Rank self, const Place& place);
  bool are_used() const { return are_used_; }

  // Events: the sum that is on the network is there; a worker has left.
  void end_sum();
  void tell_of_leave() {
    if (are_used_) begin_if_due();
  }

  // What a worker has left over at the end of the run: a gradient that nobody took, and what was planned for it.
  struct Late {
    Gradient gradient;  // to be added to the next sum
    Contribution part;
    // Nothing that was computed, perhaps, of what was planned.
    bool waits() const { return gradient.micro_batches() > 0 || part.planned > 0; }
  };
  const Late& left_over(Rank worker) const { return by_worker_[worker].late; }

 private:
  struct OfWorker {
    Step next{};  // the first sum whose result it has not got
    Late late;
    bool has_one_under_way = false;
    bool in_time = false;  // whether it has come to that one before it took place
  };
  // The sum that is open or under way, and the results that somebody has still to get.
  struct Open {
    Step number{};
    bool under_way = false;
    Time begun_at{};
    Time free_from{};  // the end of the one before
    Activation activation;
    std::vector<Rank> arrived;
    BucketArrivals buckets;         // of these, where the exchange overlaps the backward pass
    std::vector<Rank> waiting;      // arrived, or too late and waiting for its result
    std::vector<Rank> accumulated;  // have a late gradient to contribute
    int contributors = 0;
    Gradient sum;
    StepRow row;
    std::deque<PartialSum> results;  // of the sums before `number`
  };

  void meet_the_others(Rank worker, const Place& place);
  void contribute(Rank worker, Gradient gradient, const Contribution& part);
  void contribute_late(Rank worker);
  void begin_if_due();
  std::vector<PartialSum> results_for(OfWorker& worker);

  Stage& stage_;
  Traffic& traffic_;
  PausesUnderWay& pauses_;
  ByRank<OfWorker> by_worker_;
  Open open_;
  NumberedRounds rounds_;  // for the record of arrivals
  bool are_used_ = false;
};

}  // namespace syncopate
