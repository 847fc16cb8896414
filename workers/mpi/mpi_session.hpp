// The MPI session of a process, from its first MPI call to its last. It exists only under a launcher (mpirun, srun),
// and a failure of one rank ends all ranks.
#pragma once

#include <mpi.h>
#include <time.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "workers/base/process.hpp"

namespace syncopate {

// Converts a number of elements to MPI's int. Throws std::length_error above 2^31 - 1.
int mpi_count(std::size_t elements);

inline int rank_in(MPI_Comm communicator) {
  int rank = 0;
  MPI_Comm_rank(communicator, &rank);
  return rank;
}
inline int ranks_of(MPI_Comm communicator) {
  int ranks = 0;
  MPI_Comm_size(communicator, &ranks);
  return ranks;
}

// Let MPI progress. Return whether all requests are done.
inline bool is_done(MPI_Request& request) {
  int done = 0;
  MPI_Test(&request, &done, MPI_STATUS_IGNORE);
  return done != 0;
}
inline bool are_done(std::span<MPI_Request> requests) {
  int done = 0;
  MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE);
  return done != 0;
}

// Nanoseconds of the machine's monotonic clock, the same for all processes of a node.
inline std::int64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{1'000'000'000} * now.tv_sec + now.tv_nsec;
}

inline void sleep_until_monotonic(std::int64_t at_ns) {
  const timespec at{.tv_sec = at_ns / 1'000'000'000, .tv_nsec = at_ns % 1'000'000'000};
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr);  // a signal ends the sleep early, which callers allow
}

// The communicators of one run, so that its messages and collectives never mix with those of other runs.
class MpiCommunicators {
 public:
  // Collective over `all`, with the same arguments on all ranks. Ranks 0 .. workers-1 are workers, the next ones up to
  // participants-1 servers. Waits politely for all ranks. Throws std::invalid_argument if there are fewer ranks.
  MpiCommunicators(MPI_Comm all, int participants, int workers, bool has_checkpoints);
  ~MpiCommunicators();
  MpiCommunicators(const MpiCommunicators&) = delete;
  MpiCommunicators& operator=(const MpiCommunicators&) = delete;

  MPI_Comm everyone() const { return everyone_; }        // workers, servers and idle ranks
  MPI_Comm workers() const { return workers_; }          // MPI_COMM_NULL on other ranks
  MPI_Comm messages() const { return messages_; }        // all ranks, for point-to-point messages
  MPI_Comm waits() const { return waits_; }              // all ranks, for deadlock detection (MpiWaitRounds)
  MPI_Comm checkpoints() const { return checkpoints_; }  // participants; MPI_COMM_NULL if idle or without checkpoints
  int rank() const { return rank_; }

  // The communicator of workers `first` .. `first` + `count` - 1. The first call for a group is collective over it, and
  // blocks.
  MPI_Comm group(int first, int count);

  // Whether each rank of this node can have its own core. If not, waits must not spin.
  bool cores_suffice() const { return cores_suffice_; }

  // A time common to all ranks, in nanoseconds of the node's monotonic clock. Collective over everyone, with a barrier.
  long long common_start_ns() const;

 private:
  MPI_Comm everyone_ = MPI_COMM_NULL;
  MPI_Comm workers_ = MPI_COMM_NULL;
  MPI_Comm messages_ = MPI_COMM_NULL;
  MPI_Comm waits_ = MPI_COMM_NULL;
  MPI_Comm checkpoints_ = MPI_COMM_NULL;
  MPI_Comm node_ = MPI_COMM_NULL;
  std::map<std::pair<int, int>, MPI_Comm> groups_;  // by first rank and count
  int rank_ = 0;
  bool cores_suffice_ = true;
};

// Memory shared by the ranks of one node, without MPI messages. It records which rank failed first and which ranks'
// processes are gone. A launcher sends all ranks the same signal after a rank was killed and after the user's
// interrupt; this memory tells these cases apart.
class NodeStatus {
 public:
  NodeStatus() = default;
  NodeStatus(const NodeStatus&) = delete;
  NodeStatus& operator=(const NodeStatus&) = delete;

  // Collective over the ranks of a node; `rank` is this one's rank in the session.
  void open(MPI_Comm node, int rank);
  void close();  // collective

  // True for the first rank of the node that calls it.
  bool first_to_fail() const { return status_->failed.exchange(1) == 0; }

  // From now on the others report this process as lost if it ends without having been asked to. Call this function
  // once interrupts are handled.
  void expect_to_stay() const {
    std::atomic<int>& state = status_->entries[own_].state;
    state = expected;
    notify_of_interrupt(&state, asked_to_end);
  }

  // Ranks of this node that should be running but are not, in ascending order.
  std::vector<int> lost() const;

 private:
  enum State : int { not_expected, expected, asked_to_end };
  struct Entry {
    std::atomic<int> state;
    std::atomic<int> process;
    std::atomic<int> rank;
  };
  struct SharedStatus {
    std::atomic<int> failed;
    Entry entries[1];  // one per rank of the node
  };
  static_assert(std::atomic<int>::is_always_lock_free, "it is shared between processes");

  MPI_Win window_ = MPI_WIN_NULL;
  SharedStatus* status_ = nullptr;
  int own_ = 0;                        // index of this rank's entry
  std::vector<const Entry*> visible_;  // entries whose processes are visible from here
};

// Whether mpirun, mpiexec or srun started this process, according to environment variables that these set.
bool launched_by_mpi();

// Construct it once per process, early in main, but after use_best_blas_kernel, which re-executes the program. Without
// a launcher MPI stays off: active() is false, rank() is 0, size() is 1.
class MpiSession {
 public:
  // Throws std::runtime_error if MPI cannot be initialised with MPI_THREAD_FUNNELED.
  // `wanted`: false for a launched process that does not communicate with the others.
  explicit MpiSession(bool wanted = true);
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  bool active() const { return active_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  MPI_Comm communicator() const { return communicator_; }
  int ranks_on_node() const { return ranks_on_node_; }
  // Number of cores that the ranks of this node may use together. A launcher may have bound each rank to some of them.
  int cores_on_node() const { return cores_on_node_; }
  // Whether a thread other than the main one may use MPI while the main one does not.
  bool serves_other_threads() const { return serves_other_threads_; }

  // Ends all ranks with this exit status and one message on standard error, "rank 2: <message>". If several ranks fail
  // together, only the first one of a node prints its message. Without MPI this process prints the message and ends.
  [[noreturn]] void abort(const std::string& message, int status = 1) const;

  // Call it once interrupts are handled. Without MPI it does nothing.
  void expect_to_stay() const {
    if (active_) status_.expect_to_stay();
  }
  // Ends all ranks after a launcher's request. The exit status is 1 if a rank was lost (the message says which),
  // otherwise 130 (interrupted). `what_stays`: end of the message.
  [[noreturn]] void abort_as_asked(const std::string& what_stays) const;

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
  NodeStatus status_;
};

// Explains that a launcher's processes do not see each other, so each would run the whole experiment; empty if they do.
std::string why_alone(const MpiSession& session);

// The error text for a machine with too many ranks for its cores; empty if their number is right. Ranks share cores by
// taking turns, but with more than four ranks per core an experiment takes minutes to begin. Sixteen ranks are allowed
// on any machine, because they mostly sleep.
std::string too_many_ranks(int ranks_on_node, int cores_on_node);

// Ranks an experiment needs: one per worker, and one per server of the method with the most servers.
inline int ranks_needed(int workers, int servers) { return workers + servers; }

// Returns an error text with the right command, for rank 0 to print (exit status 2); empty if `found` ranks are right.
std::string wrong_number_of_ranks(int found, int workers, int servers);

}  // namespace syncopate
