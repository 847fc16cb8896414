// Who talks to whom in one run: communicators of their own, so that collectives and messages of a
// method never meet those of anybody else.
#pragma once

#include <mpi.h>

#include <map>
#include <utility>

namespace syncopate {

class MpiCommunicators {
 public:
  // Collective over `all`. Ranks 0 .. workers-1 are workers; the first `participants` ranks are needed.
  // Waits politely for the last rank. Throws std::invalid_argument, on all ranks, if they are too few.
  // `has_checkpoints`: alike on all ranks.
  MpiCommunicators(MPI_Comm all, int participants, int workers, bool has_checkpoints = false);
  ~MpiCommunicators();
  MpiCommunicators(const MpiCommunicators&) = delete;
  MpiCommunicators& operator=(const MpiCommunicators&) = delete;

  MPI_Comm everyone() const { return everyone_; }        // workers, servers and idle ranks
  MPI_Comm workers() const { return workers_; }          // MPI_COMM_NULL on other ranks
  MPI_Comm reductions() const { return reductions_; }    // the workers again, for what follows their arrivals
  MPI_Comm messages() const { return messages_; }        // everyone again, for point-to-point
  MPI_Comm waits() const { return waits_; }              // everyone again, for the rounds of those who wait
  MPI_Comm checkpoints() const { return checkpoints_; }  // the participants; MPI_COMM_NULL elsewhere, or without any
  int rank() const { return rank_; }

  // The workers `first` .. `first` + `count` - 1. Collective over these alone, and blocking, when they
  // ask for the first time.
  MPI_Comm group(int first, int count);

  // Whether each rank of this node can have a core of its own; if not, waits must not spin.
  bool cores_suffice() const { return cores_suffice_; }

  // A time that all ranks have in common, in nanoseconds of this process's monotonic clock: the same
  // number on all ranks of a node, taken after a barrier of everyone. Collective over everyone.
  long long common_start_ns() const;

 private:
  MPI_Comm everyone_ = MPI_COMM_NULL;
  MPI_Comm workers_ = MPI_COMM_NULL;
  MPI_Comm reductions_ = MPI_COMM_NULL;
  MPI_Comm messages_ = MPI_COMM_NULL;
  MPI_Comm waits_ = MPI_COMM_NULL;
  MPI_Comm checkpoints_ = MPI_COMM_NULL;
  MPI_Comm node_ = MPI_COMM_NULL;
  std::map<std::pair<int, int>, MPI_Comm> groups_;  // by first rank and count
  int rank_ = 0;
  bool cores_suffice_ = true;
};

}  // namespace syncopate
