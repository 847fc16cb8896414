// The cluster of real processes: one worker per MPI rank, wall clock, delays injected as sleeps.
// Ranks 0 .. N-1 are workers; the ranks from N on serve a method that has servers; ranks that a method does
// not need stay idle until its run ends, so that one experiment may mix methods with and without servers.
//
// Accounts: a participant's wall time is booked without gaps. Everything between two cluster calls
// (optimizer steps, the algorithm itself) is compute; waiting for the last arrival is wait, the
// reduction itself communicate.
#pragma once

#include <mpi.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "workers/cluster/cluster.hpp"
#include "workers/cluster/pace.hpp"
#include "workers/cluster/run_record.hpp"
#include "workers/delays/compute_time.hpp"
#include "workers/delays/outages.hpp"
#include "workers/mpi/mpi_session.hpp"
#include "workers/mpi/rank_store.hpp"

namespace syncopate {

class MpiCluster : public Cluster {
 public:
  struct Options {
    int workers = 1;
    Servers servers{};
    const ComputeTime& compute_time;
    Pace pace = Pace::inject;         // time-only runs compute nothing and so always emulate
    Training& training;               // its executor should have no threads: a rank computes at once
    RunObserver* observer = nullptr;  // may be null; worker 0 reports rounds
    RunRecord* record = nullptr;      // alike on all ranks; null: nothing is recorded. Complete on rank 0 after the run
    const OutagePlan* outages = nullptr;  // alike on all ranks; null: there are none. They are slept through
    const MpiSession& session;
    MPI_Comm communicator = MPI_COMM_NULL;  // null: all ranks of the session
    // Called on a rank that fails, before all ranks end: the last chance to save what there is.
    std::function<void(const std::string& what)> before_abort = {};
    // Null on all ranks: there are no checkpoints. Else this thread keeps a CourseLog (CourseLog::Here) from before
    // `training` is used until the run has ended.
    RankStore* store = nullptr;
  };

  // Collective over the communicator. Throws std::invalid_argument if it has too few ranks.
  explicit MpiCluster(const Options& options);
  ~MpiCluster() override;

  int workers() const override;
  Servers servers() const override;

  // Collective: every rank of the communicator calls it, idle ones too. The totals are complete on
  // every rank. An exception of a program does not come back: it ends all ranks through
  // MpiSession::abort with one message that names this rank. Only AnotherCourse and LeftAtCheckpoint do, on all ranks
  // alike: of a run that cannot go on from the checkpoint in the store, and of one that the store ends at another.
  RunTotals run(const Program& work, const Program& serve) override;

  Time now(Rank self) const override;
  int workers_left(Rank self) override;
  bool has_left(Rank self, Rank worker) const override;
  std::optional<Gradient> compute_gradient(Rank self, const ModelStatePtr& at, const MicroBatch& slot,
                                           const MicroBatch& samples, const Deadline& deadline) override;
  bool may_lose_state(Rank self) const override;
  bool has_lost_state(Rank self) override;
  StartedCollective start(Rank self, Collective&& what, const Contribution& contribution, Place place) override;
  CollectiveResult finish(Rank self, StartedCollective&& started, Place place) override;
  CollectiveResult perform(Rank self, Collective&& what, const Contribution& contribution, Place place) override;
  void report_steps(Rank self, const Contribution& contribution) override;
  void send(Rank self, Rank to, Message&& message, Place place) override;
  ReceivedMessage receive(Rank self, std::optional<Rank> from, Time until, Place place) override;
  void discard(Rank self, const Work& work) override;
  void keep(Rank self, const Work& work, Step staleness) override;
  Bytes bytes_sent() const override;

 private:
  class Process;  // this rank's part in the run
  std::unique_ptr<Process> process_;
};

}  // namespace syncopate
