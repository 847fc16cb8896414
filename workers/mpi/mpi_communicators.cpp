#include "workers/mpi/mpi_communicators.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <stdexcept>

#include "workers/mpi/mpi_wait.hpp"

namespace syncopate {
namespace {

// Cores that the processes of a node may use together: launchers bind each rank to its own.
int cores_of(MPI_Comm node) {
  cpu_set_t own;
  CPU_ZERO(&own);
  sched_getaffinity(0, sizeof(own), &own);
  cpu_set_t together;
  MPI_Allreduce(&own, &together, sizeof(own), MPI_BYTE, MPI_BOR, node);
  return CPU_COUNT(&together);
}

void meet_politely(MPI_Comm communicator, bool cores_suffice) {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibarrier(communicator, &request);
  wait_politely(cores_suffice, [&] {
    int done = 0;
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    return done != 0;
  });
}

}  // namespace

MpiCommunicators::MpiCommunicators(MPI_Comm all, int participants, int workers, bool has_checkpoints) {
  int size = 0;
  MPI_Comm_rank(all, &rank_);
  MPI_Comm_size(all, &size);
  if (size < participants)
    throw std::invalid_argument(
        fmt::format("{} workers and {} servers do not fit on {} ranks", workers, participants - workers, size));
  meet_politely(all, false);  // some ranks may still be busy with the results of the run before
  MPI_Comm_dup(all, &everyone_);
  MPI_Comm_dup(all, &messages_);
  MPI_Comm_dup(all, &waits_);
  MPI_Comm_split(all, rank_ < workers ? 0 : MPI_UNDEFINED, rank_, &workers_);
  if (workers_ != MPI_COMM_NULL) MPI_Comm_dup(workers_, &reductions_);
  if (has_checkpoints) MPI_Comm_split(all, rank_ < participants ? 0 : MPI_UNDEFINED, rank_, &checkpoints_);
  MPI_Comm_split_type(all, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node_);
  int on_node = 0;
  MPI_Comm_size(node_, &on_node);
  cores_suffice_ = on_node <= cores_of(node_);
}

MpiCommunicators::~MpiCommunicators() {
  for (MPI_Comm* communicator : {&everyone_, &messages_, &waits_, &checkpoints_, &workers_, &reductions_, &node_})
    if (*communicator != MPI_COMM_NULL) MPI_Comm_free(communicator);
  for (auto& [ranks, communicator] : groups_) MPI_Comm_free(&communicator);
}

MPI_Comm MpiCommunicators::group(int first, int count) {
  MPI_Comm& communicator = groups_.try_emplace({first, count}, MPI_COMM_NULL).first->second;
  if (communicator != MPI_COMM_NULL) return communicator;
  MPI_Group all = MPI_GROUP_NULL, members = MPI_GROUP_NULL;
  MPI_Comm_group(workers_, &all);
  int range[1][3] = {{first, first + count - 1, 1}};
  MPI_Group_range_incl(all, 1, range, &members);
  MPI_Comm_create_group(workers_, members, first, &communicator);
  MPI_Group_free(&members);
  MPI_Group_free(&all);
  return communicator;
}

long long MpiCommunicators::common_start_ns() const {
  meet_politely(everyone_, cores_suffice_);
  long long start = monotonic_ns();
  MPI_Bcast(&start, 1, MPI_LONG_LONG, 0, node_);
  return start;
}

}  // namespace syncopate
