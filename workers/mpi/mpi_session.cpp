#include "workers/mpi/mpi_session.hpp"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <stdexcept>
#include <thread>

#include "experiments/printable.hpp"

namespace syncopate {
namespace {

// Set by Slurm for every task of a step; an interactive `srun --pty` shell is a step of one task.
int slurm_tasks() {
  const char* tasks = std::getenv("SLURM_STEP_NUM_TASKS");
  return tasks ? std::atoi(tasks) : 0;
}

}  // namespace

bool launched_by_mpi() {
  if (std::getenv("OMPI_COMM_WORLD_SIZE")) return true;                                   // mpirun of Open MPI
  if (slurm_tasks() > 0) return slurm_tasks() > 1;                                        // srun
  return std::getenv("PMI_SIZE") || std::getenv("PMI_RANK") || std::getenv("PMIX_RANK");  // mpiexec of MPICH, PMIx
}

MpiSession::MpiSession() {
  if (!launched_by_mpi()) return;
  int level = 0;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level) != MPI_SUCCESS || level < MPI_THREAD_FUNNELED)
    throw std::runtime_error("MPI cannot be initialised with thread support FUNNELED");
  active_ = true;
  communicator_ = MPI_COMM_WORLD;
  MPI_Comm_rank(communicator_, &rank_);
  MPI_Comm_size(communicator_, &size_);
  // Waits sleep for tens of microseconds; the kernel's default slack of 50 would double them.
  prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);

  MPI_Comm node = MPI_COMM_NULL;
  MPI_Comm_split_type(communicator_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node);
  int rank_on_node = 0;
  MPI_Comm_rank(node, &rank_on_node);
  const int leads_node = rank_on_node == 0 ? 1 : 0;
  MPI_Exscan(&leads_node, &node_, 1, MPI_INT, MPI_SUM, communicator_);
  if (rank_ == 0) node_ = 0;  // the scan leaves rank 0's result undefined
  MPI_Bcast(&node_, 1, MPI_INT, 0, node);

  static_assert(std::atomic<int>::is_always_lock_free, "the word is shared between processes");
  void* own = nullptr;
  MPI_Win_allocate_shared(leads_node ? sizeof(std::atomic<int>) : 0, 1, MPI_INFO_NULL, node, &own, &speaker_window_);
  MPI_Aint bytes = 0;
  int unit = 0;
  void* leader = nullptr;
  MPI_Win_shared_query(speaker_window_, 0, &bytes, &unit, &leader);
  if (leads_node) new (leader) std::atomic<int>(0);
  speaker_ = static_cast<std::atomic<int>*>(leader);
  MPI_Barrier(node);
  MPI_Comm_free(&node);
}

MpiSession::~MpiSession() {
  if (!active_) return;
  // The other ranks do not know of an exception here and would never come to MPI_Finalize.
  if (std::uncaught_exceptions() > 0) abort("ended by an exception that nobody handled");
  MPI_Win_free(&speaker_window_);
  MPI_Finalize();
}

bool MpiSession::first_to_fail() const { return speaker_->exchange(1) == 0; }

void MpiSession::abort(const std::string& message, int status) const {
  using namespace std::chrono_literals;
  std::fflush(stdout);
  if (active_ && !first_to_fail()) {
    // Another rank of this node has spoken and is ending everyone, this process too.
    std::this_thread::sleep_for(30s);
    _exit(status);
  }
  // Nodes share no memory: the later ones give the first the time to end them unheard.
  if (active_) std::this_thread::sleep_for(std::min(node_, 10) * 200ms);
  const std::string text =
      active_ ? fmt::format("syncopate: rank {}: {}\n", rank_, message) : fmt::format("syncopate: {}\n", message);
  std::fputs(printable_lines(text).c_str(), stderr);
  std::fflush(stderr);
  if (active_) MPI_Abort(communicator_, status);
  _exit(status);
}

int ranks_needed(int workers, int servers) { return workers + servers; }

std::string wrong_number_of_ranks(int found, int workers, int servers) {
  const int needed = ranks_needed(workers, servers);
  if (found == needed) return {};
  const std::string and_servers =
      servers == 0 ? "" : fmt::format(" and {} {}", servers, servers == 1 ? "server" : "servers");
  std::string text = fmt::format(
      "{} than the experiment needs: found {} {}, must be {} ({} {}{}); start it with `mpirun -n {} ...` or set "
      "cluster.workers={}",
      found > needed ? "more ranks" : "fewer ranks", found, found == 1 ? "rank" : "ranks", needed, workers,
      workers == 1 ? "worker" : "workers", and_servers, needed, std::max(1, found - servers));
  if (found == 1 && slurm_tasks() > 1)
    text += fmt::format("; srun started {} tasks that do not see each other: try `srun --mpi=pmix`", slurm_tasks());
  return text;
}

}  // namespace syncopate
