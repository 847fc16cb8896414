// The cluster of real processes: one worker per MPI rank, wall clock, delays injected as sleeps.
// Ranks 0 .. N-1 are workers; rank N serves a method that has a server; ranks that a method does not
// need stay idle until its run ends, so that one experiment may mix methods with and without a server.
//
// Accounts: a participant's wall time is booked without gaps. Everything between two cluster calls
// (optimizer steps, the algorithm itself) is compute; waiting for the last arrival is wait, the
// reduction itself communicate.
#pragma once

#include <mpi.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "workers/cluster.hpp"
#include "workers/delays/compute_time.hpp"
#include "workers/mpi/mpi_session.hpp"

namespace syncopate {

class MpiCluster : public Cluster {
 public:
  // How long a micro-batch takes.
  enum class Pace {
    inject,   // real computation, then a sleep of the added delay and (factor - 1) x the measured time
    emulate,  // real computation inside, then a sleep until the whole drawn duration has passed
  };

  struct Options {
    int workers = 1;
    bool has_server = false;
    const ComputeTime& compute_time;
    Pace pace = Pace::inject;         // time-only runs compute nothing and so always emulate
    Training& training;               // its executor should have no threads: a rank computes at once
    RunObserver* observer = nullptr;  // may be null; rank 0 reports rounds of collectives
    const MpiSession& session;
    MPI_Comm communicator = MPI_COMM_NULL;  // null: all ranks of the session
    // Called on a rank that fails, before all ranks end: the last chance to save what there is.
    std::function<void(const std::string& what)> before_abort = {};
  };

  // Collective over the communicator. Throws std::invalid_argument if it has too few ranks.
  explicit MpiCluster(const Options& options);
  ~MpiCluster() override;

  int workers() const override;

  // Collective: every rank of the communicator calls it, idle ones too. The totals are complete on
  // every rank. An exception of a program does not come back: it ends all ranks through
  // MpiSession::abort with one message that names this rank.
  RunTotals run(const Program& work, const Program& serve) override;

  Time now(Rank self) const override;
  std::optional<Gradient> compute_gradient(Rank self, const ModelStatePtr& at, const MicroBatch& micro_batch,
                                           const Deadline& deadline) override;
  Agreement all_reduce_sum(Rank self, Gradient& gradient, const Contribution& contribution, Place place) override;
  Agreement average(Rank self, ModelStatePtr& state, const AveragePolicy& policy, const Contribution& contribution,
                    Place place) override;
  Agreement broadcast(Rank self, ModelStatePtr& state, Rank root, Place place) override;
  Agreement barrier(Rank self, Place place) override;
  void send(Rank self, Rank to, Message message, Place place) override;
  std::optional<Message> receive(Rank self, Time until, Place place) override;
  void discard(Rank self, const Message& message) override;
  void keep(Rank self, const Message& message) override;
  Bytes bytes_sent() const override;

 private:
  class Process;  // this rank's part in the run
  std::unique_ptr<Process> process_;
};

}  // namespace syncopate
