// MPI from the first call to the last: initialised if and only if a launcher (mpirun, srun) started
// this process, and ended on all ranks together when one of them fails.
#pragma once

#include <mpi.h>

#include <string>

#include "workers/mpi/node_board.hpp"

namespace syncopate {

// Whether mpirun, mpiexec or srun started this process, judged by the environment they set.
bool launched_by_mpi();

// Ranks that wait do so in turn, but not for nothing: beyond so many on a machine with so many cores an experiment
// takes minutes to begin. Four for each core, and sixteen on any machine, since those of small experiments mostly
// sleep.
int most_ranks_for(int cores);

// Construct once per process, early in main (after use_best_blas_kernel, which re-executes the
// program). Without a launcher everything stays off: active() is false, rank() 0, size() 1.
class MpiSession {
 public:
  // Throws std::runtime_error if MPI cannot be initialised with MPI_THREAD_FUNNELED.
  // `wanted`: false for a process of a launch that has nothing to say to the others.
  explicit MpiSession(bool wanted = true);
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  bool active() const { return active_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  MPI_Comm communicator() const { return communicator_; }
  int ranks_on_node() const { return ranks_on_node_; }
  // That the ranks of this node may use, all together: a launcher may have bound each of them to some.
  int cores_on_node() const { return cores_on_node_; }
  // Whether another thread than the main one may speak MPI while that does not.
  bool serves_other_threads() const { return serves_other_threads_; }

  // Ends all ranks with exit status `status` and one message on standard error, "rank 2: <message>":
  // when several ranks of a node fail together only the first one speaks. Without MPI the message
  // is printed and this process ends.
  [[noreturn]] void abort(const std::string& message, int status = 1) const;

  // Once interrupts are handled; without MPI nothing happens.
  void expect_to_stay() const;
  // Ends all ranks of which a launcher has told this one to end: with status 130 where the program was interrupted,
  // but 1 where a rank was lost, which is then named. `what_stays` follows.
  [[noreturn]] void abort_as_told(const std::string& what_stays) const;

 private:
  bool active_ = false;
  int rank_ = 0;
  int size_ = 1;
  int node_ = 0;  // ordinal of this rank's node
  int ranks_on_node_ = 1;
  int cores_on_node_ = 1;
  bool serves_other_threads_ = false;
  MPI_Comm communicator_ = MPI_COMM_NULL;
  int nodes_ = 1;
  NodeBoard board_;
};

// Where a launcher has started several processes of which each finds itself alone: why, and what helps; else empty.
// Each of them would make the whole experiment.
std::string why_alone(const MpiSession& session);

// Where a machine has more ranks than most_ranks_for() its cores: what would be right; else empty.
std::string too_many_ranks(int ranks_on_node, int cores_on_node);

// Ranks an experiment needs: one per worker, and one per server of the method that has most.
int ranks_needed(int workers, int servers);

// Empty if `found` ranks are right; else what is wrong and the command that would be right, for
// rank 0 to print (exit status 2).
std::string wrong_number_of_ranks(int found, int workers, int servers);

}  // namespace syncopate
