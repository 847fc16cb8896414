// MPI from the first call to the last: initialised if and only if a launcher (mpirun, srun) started
// this process, and ended on all ranks together when one of them fails.
#pragma once

#include <mpi.h>

#include <atomic>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace syncopate {

// Who talks to whom in one run: communicators of their own, so that collectives and messages of a
// method never meet those of anybody else.
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

// What the ranks of one node know of each other beside MPI, in memory that they share: who has spoken first when
// several fail, and whose process is gone. A launcher ends all ranks with the same signal whether one of them was
// killed or the user has interrupted the program; here the two can be told apart.
class NodeBoard {
 public:
  NodeBoard() = default;
  NodeBoard(const NodeBoard&) = delete;
  NodeBoard& operator=(const NodeBoard&) = delete;

  // Collective over the ranks of a node; `rank` is this one's among all.
  void open(MPI_Comm node, int rank);
  void close();  // collective

  // True for the first rank of the node that asks.
  bool first_to_fail() const { return board_->failed.exchange(1) == 0; }

  // From now on this process is expected to be there until it is told to end, or closes the board. Call it once
  // interrupts are handled.
  void expect_to_stay() const;

  // Ranks of this node that should still be there and are not, in ascending order.
  std::vector<int> lost() const;

 private:
  enum State : int { not_expected, expected, told_to_end };
  struct Entry {
    std::atomic<int> state;
    std::atomic<int> process;
    std::atomic<int> rank;
  };
  struct Board {
    std::atomic<int> failed;
    Entry entries[1];  // one per rank of the node
  };
  static_assert(std::atomic<int>::is_always_lock_free, "it is shared between processes");

  MPI_Win window_ = MPI_WIN_NULL;
  Board* board_ = nullptr;
  int own_ = 0;                        // entry
  std::vector<const Entry*> visible_;  // whose processes can be looked for from here
};

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
