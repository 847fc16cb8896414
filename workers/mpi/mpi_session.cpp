#include "workers/mpi/mpi_session.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <limits>
#include <new>
#include <stdexcept>
#include <thread>

#include "workers/base/terminal_text.hpp"
#include "workers/cluster/calls.hpp"
#include "workers/mpi/mpi_waiting.hpp"

namespace syncopate {

namespace {

void meet_politely(MPI_Comm communicator, bool cores_suffice) {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibarrier(communicator, &request);
  wait_politely_for(request, cores_suffice);
}

int number_in_environment(const char* name) {
  const char* const text = std::getenv(name);
  return text ? std::atoi(text) : 0;
}

// Number of processes that the launcher has started; 0: unknown, or no launcher. The order matters, because Open MPI's
// mpirun may itself be one task under Slurm.
int launched_processes() {
  for (const char* const name : {"OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "PMI_SIZE"})
    if (const int number = number_in_environment(name); number > 0) return number;
  return 0;
}

cpu_set_t own_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof(cores), &cores) == 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) CPU_SET(core, &cores);  // there are more cores than the set can hold
  return cores;
}

// Number of cores that the node's processes may use together. A launcher may bind each rank to its own cores.
int cores_of(MPI_Comm node) {
  cpu_set_t cores = own_cores();
  MPI_Allreduce(MPI_IN_PLACE, &cores, sizeof(cores), MPI_BYTE, MPI_BOR, node);
  return CPU_COUNT(&cores);
}

// Lets waiting ranks of Open MPI yield their core. mpirun itself requests this only if it knows the number of cores.
void wait_in_turn() {
  const cpu_set_t cores = own_cores();
  if (number_in_environment("OMPI_COMM_WORLD_LOCAL_SIZE") > CPU_COUNT(&cores))
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", /*overwrite=*/0);
}

std::string this_host() {
  char name[MPI_MAX_PROCESSOR_NAME + 1] = {};
  int length = 0;
  MPI_Get_processor_name(name, &length);
  return name;
}

// Waits until this process is ended by the launcher, or by the rank that failed first, which prints its own message.
[[noreturn]] void be_ended(int status) {
  std::this_thread::sleep_for(std::chrono::seconds(30));
  _exit(status);
}

// Slurm sets it for every task of a step. An interactive `srun --pty` shell is a step of one task.
int slurm_tasks() { return number_in_environment("SLURM_STEP_NUM_TASKS"); }

bool is_there(int process) { return kill(process, 0) == 0 || errno != ESRCH; }

}  // namespace

int mpi_count(std::size_t elements) {
  if (elements > static_cast<std::size_t>(std::numeric_limits<int>::max()))
    throw std::length_error(
        fmt::format("{} values are too many for one MPI call; must be at most 2147483647", elements));
  return static_cast<int>(elements);
}

MpiCommunicators::MpiCommunicators(MPI_Comm all, int participants, int workers, bool has_checkpoints) {
  rank_ = rank_in(all);
  const int size = ranks_of(all);
  if (size < participants)
    throw std::invalid_argument(fmt::format("{} workers and {} servers need one rank each, found {} ranks", workers,
                                            participants - workers, size));
  meet_politely(all, false);  // some ranks may still be busy with the results of the run before
  MPI_Comm_dup(all, &everyone_);
  MPI_Comm_dup(all, &messages_);
  MPI_Comm_dup(all, &waits_);
  MPI_Comm_split(all, rank_ < workers ? 0 : MPI_UNDEFINED, rank_, &workers_);
  if (has_checkpoints) MPI_Comm_split(all, rank_ < participants ? 0 : MPI_UNDEFINED, rank_, &checkpoints_);
  MPI_Comm_split_type(all, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node_);
  cores_suffice_ = ranks_of(node_) <= cores_of(node_);
}

MpiCommunicators::~MpiCommunicators() {
  for (MPI_Comm* communicator : {&everyone_, &messages_, &waits_, &checkpoints_, &workers_, &node_})
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

bool launched_by_mpi() {
  if (std::getenv("OMPI_COMM_WORLD_SIZE")) return true;                                   // mpirun of Open MPI
  if (slurm_tasks() > 0) return slurm_tasks() > 1;                                        // srun
  return std::getenv("PMI_SIZE") || std::getenv("PMI_RANK") || std::getenv("PMIX_RANK");  // mpiexec of MPICH, PMIx
}

MpiSession::MpiSession(bool wanted) {
  if (!wanted || !launched_by_mpi()) return;
  wait_in_turn();
  int level = 0;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level) != MPI_SUCCESS || level < MPI_THREAD_FUNNELED)
    throw std::runtime_error("MPI cannot be initialised with thread support FUNNELED");
  active_ = true;
  serves_other_threads_ = level >= MPI_THREAD_SERIALIZED;
  communicator_ = MPI_COMM_WORLD;
  rank_ = rank_in(communicator_);
  size_ = ranks_of(communicator_);
  // Waits sleep for tens of microseconds. The kernel's default slack of 50 microseconds would double them.
  prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);

  MPI_Comm node = MPI_COMM_NULL;
  MPI_Comm_split_type(communicator_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node);
  ranks_on_node_ = ranks_of(node);
  cores_on_node_ = cores_of(node);
  const int leads_node = rank_in(node) == 0 ? 1 : 0;
  MPI_Exscan(&leads_node, &node_, 1, MPI_INT, MPI_SUM, communicator_);
  if (rank_ == 0) node_ = 0;  // MPI_Exscan leaves rank 0's result undefined
  MPI_Bcast(&node_, 1, MPI_INT, 0, node);

  nodes_ = leads_node;
  MPI_Allreduce(MPI_IN_PLACE, &nodes_, 1, MPI_INT, MPI_SUM, communicator_);
  status_.open(node, rank_);
  MPI_Comm_free(&node);
}

MpiSession::~MpiSession() {
  if (!active_) return;
  // If an exception ends this rank, the others do not know of it. They would wait in MPI_Finalize for ever.
  if (std::uncaught_exceptions() > 0) abort("ended by an unhandled exception");
  status_.close();
  MPI_Finalize();
}

void MpiSession::abort(const std::string& message, int status) const {
  using namespace std::chrono_literals;
  std::fflush(stdout);
  if (active_ && !status_.first_to_fail()) be_ended(status);  // another rank of this node prints its message
  // Only one node should print. Nodes share no memory, so each waits longer than the one before, and the first ends the
  // job before the others print.
  if (active_) std::this_thread::sleep_for(std::min(node_, 10) * 200ms);
  const std::string text =
      active_ ? fmt::format("syncopate: rank {}: {}\n", rank_, message) : fmt::format("syncopate: {}\n", message);
  std::fputs(printable_lines(text).c_str(), stderr);
  std::fflush(stderr);
  int speaks_mpi = 0;  // false in the thread that ends an interrupted process; then the launcher ends the other ranks
  if (active_) MPI_Is_thread_main(&speaks_mpi);
  if (speaks_mpi) MPI_Abort(communicator_, status);
  _exit(status);
}

// Launchers end the ranks of all nodes by the same request. Only the node of a lost rank knows that it is lost, so that
// node prints first. If no node knows of one, only the first node prints, before the launcher kills its ranks.
void MpiSession::abort_as_asked(const std::string& what_stays) const {
  using namespace std::chrono_literals;
  const std::vector<int> lost = active_ ? status_.lost() : std::vector<int>{};
  if (!lost.empty())
    abort(fmt::format("rank{} {} on host {} {} lost: killed, or crashed; {}", lost.size() > 1 ? "s" : "",
                      rank_ranges(lost), this_host(), lost.size() > 1 ? "were" : "was", what_stays),
          exit_failure);
  if (nodes_ == 1) abort(fmt::format("interrupted; {}", what_stays), exit_interrupted);
  if (node_ > 0) be_ended(exit_interrupted);
  std::this_thread::sleep_for(300ms);
  abort(fmt::format("ended by the launcher: either interrupted, or a rank on another host was lost; {}", what_stays),
        exit_interrupted);
}

std::string too_many_ranks(int ranks_on_node, int cores_on_node) {
  const int most = std::max(16, 4 * cores_on_node);
  if (ranks_on_node <= most) return {};
  return fmt::format(
      "{} ranks on one machine, which has {} {} for them; must be at most {}; to let ranks share cores anyway, use "
      "`run --oversubscribe ...`",
      ranks_on_node, cores_on_node, cores_on_node == 1 ? "core" : "cores", most);
}

std::string why_alone(const MpiSession& session) {
  const int launched = launched_processes();
  if (!session.active() || session.size() > 1 || launched <= 1) return {};
  const bool by_srun = launched == slurm_tasks() && !std::getenv("OMPI_COMM_WORLD_SIZE");
  return by_srun ? fmt::format("srun started {} tasks that do not see each other: try `srun --mpi=pmix`", launched)
                 : fmt::format(
                       "the launcher started {} processes that do not see each other: use the mpirun of the MPI "
                       "that Syncopate was built with",
                       launched);
}

std::string wrong_number_of_ranks(int found, int workers, int servers) {
  const int needed = ranks_needed(workers, servers);
  if (found == needed) return {};
  const std::string and_servers =
      servers == 0 ? "" : fmt::format(" and {} {}", servers, servers == 1 ? "server" : "servers");
  return fmt::format(
      "{} than the experiment needs: found {} {}, must be {} ({} {}{}); start it with `mpirun -n {} ...` or set "
      "cluster.workers={}; `./dev mpirun FILE` chooses the number, and sets what Open MPI requires to run as root or "
      "with more ranks than cores",
      found > needed ? "more ranks" : "fewer ranks", found, found == 1 ? "rank" : "ranks", needed, workers,
      workers == 1 ? "worker" : "workers", and_servers, needed, std::max(1, found - servers));
}

void NodeStatus::open(MPI_Comm node, int rank) {
  own_ = rank_in(node);
  const int size = ranks_of(node);
  const auto bytes = sizeof(SharedStatus) + static_cast<std::size_t>(size - 1) * sizeof(Entry);
  void* part = nullptr;
  MPI_Win_allocate_shared(own_ == 0 ? static_cast<MPI_Aint>(bytes) : 0, 1, MPI_INFO_NULL, node, &part, &window_);
  MPI_Aint found_bytes = 0;
  int unit = 0;
  void* whole = nullptr;
  MPI_Win_shared_query(window_, 0, &found_bytes, &unit, &whole);
  status_ = static_cast<SharedStatus*>(whole);
  if (own_ == 0) new (&status_->failed) std::atomic<int>(0);
  Entry& own = status_->entries[own_];
  new (&own.state) std::atomic<int>(not_expected);
  new (&own.process) std::atomic<int>(getpid());
  new (&own.rank) std::atomic<int>(rank);
  MPI_Barrier(node);
  // Ranks in separate containers may share memory without seeing each other's processes.
  for (int i = 0; i < size; ++i)
    if (is_there(status_->entries[i].process)) visible_.push_back(&status_->entries[i]);
  MPI_Barrier(node);
}

void NodeStatus::close() {
  notify_of_interrupt(nullptr, 0);
  status_->entries[own_].state = not_expected;
  MPI_Win_free(&window_);
}

std::vector<int> NodeStatus::lost() const {
  std::vector<int> ranks;
  for (const Entry* entry : visible_)
    if (entry->state == expected && !is_there(entry->process)) ranks.push_back(entry->rank);
  std::ranges::sort(ranks);
  return ranks;
}

}  // namespace syncopate
