// The rounds of standstill.hpp, as non-blocking collectives that a rank joins while it waits.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <string>
#include <vector>

#include "workers/mpi/standstill.hpp"

namespace syncopate {

class MpiWaitRounds {
 public:
  // `communicator` belongs to the rounds alone, and has all ranks of the run.
  explicit MpiWaitRounds(MPI_Comm communicator);
  MpiWaitRounds(const MpiWaitRounds&) = delete;
  MpiWaitRounds& operator=(const MpiWaitRounds&) = delete;

  // Whether a rank that waits since `since_ns` (of the monotonic clock) should call join; cheap.
  bool is_due(std::int64_t since_ns) const;

  // To be called again and again by a rank that waits, each time after it has found that nothing has come that would
  // let it go on, and that it has no letter half sent or half received. True, once and on all ranks, if nobody can
  // go on.
  bool join(const WaitReport& own);

  // Collective, once nobody can go on. On rank 0: what every rank says, by rank; elsewhere empty.
  std::vector<std::string> gather(const std::string& own) const;

  // Collective over `everyone`, the same ranks, when none of them waits any more: completes what some have joined.
  void finish(MPI_Comm everyone, bool cores_suffice);

 private:
  void join_next(const WaitReport& own);

  MPI_Comm communicator_;
  int size_ = 1;
  std::int64_t joined_ = 0;  // rounds
  MPI_Request round_ = MPI_REQUEST_NULL;
  WaitReport own_;                   // read by the round that is under way
  std::vector<WaitReport> reports_;  // written by it
  std::vector<WaitReport> last_reports_;
  std::int64_t next_look_ns_ = 0;
  bool is_over_ = false;
};

}  // namespace syncopate
