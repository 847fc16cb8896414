// Messages between a launch's ranks before and between runs. Before anything runs, the ranks agree on what to run. If
// one cannot run, or would run something else, none runs, and rank 0 reports the rank, its host and the reason. Ranks
// may call agree() from different places (one after a fault in its command line), so it is their first common
// operation.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "experiments/sections/experiment.hpp"
#include "results/recorder.hpp"
#include "workers/mpi/mpi_session.hpp"

namespace syncopate {

// All functions with a session are collective and throw Interrupted. Waiting leaves the cores to rank 0 and the server,
// which may be evaluating.
inline constexpr const char* what_stays =
    "finished runs stay, and the same command continues with the others, from their newest checkpoints if they have "
    "any";

// Rank 0's numbers, returned on every rank.
std::vector<int> from_rank_0(const MpiSession& session, std::vector<int> numbers);
double from_rank_0(const MpiSession& session, double number);
// The same; calls `meanwhile` repeatedly until the number arrives.
double from_rank_0(const MpiSession& session, double number, const std::function<void()>& meanwhile);
// Rank 0 determines the size; other ranks' numbers are ignored.
std::vector<float> from_rank_0(const MpiSession& session, std::vector<float> numbers);

// All ranks' numbers combined by MPI_SUM, MPI_MAX, ..., on every rank. Several numbers are combined in place.
double reduced(const MpiSession& session, double number, MPI_Op operation);
void reduced(const MpiSession& session, std::vector<double>& numbers, MPI_Op operation);

// All ranks' texts, by rank, on rank 0; empty on other ranks.
std::vector<std::string> texts_on_rank_0(const MpiSession& session, const std::string& own);

// The recording of rank `from`, on rank 0; an empty one on other ranks. Only `from` and rank 0 wait.
Recording move_to_rank_0(const MpiSession& session, int from, const Recording& recording);

struct RankHandshake {
  std::string fault;                                      // why this rank cannot run; empty if it can
  std::string identity;                                   // identity of what it would run: ranks with equal texts run
                                                          // together
  std::vector<std::pair<std::string, std::string>> plan;  // the same by key and value, to explain differences
};

// No run is made: exit status 2 on all ranks. what() is complete on rank 0, and only rank 0 should print it.
struct CannotRun : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Returns on all ranks or throws CannotRun on all. Without a launcher, this process is the only rank.
void agree(const MpiSession& session, const RankHandshake& own);

struct RankReport {
  std::string host;
  RankHandshake handshake;
};
// `ranks`: by rank. Empty if they agree.
std::string explain_disagreement(const std::vector<RankReport>& ranks);

// The plan of a command, on which the ranks of a launch must agree.
struct Intention {
  std::string command;                     // "run", "check", ..., "--help"
  const Experiment* experiment = nullptr;  // null: the command has none
  bool on_mpi = false;                     // its runs are made under MPI
  bool together = false;                   // ranks make its runs together, as under MPI; if false, their intentions may
                                           // differ
  bool rerun = false;
  std::string results_directory{};  // as the user wrote it
};

RankHandshake handshake_of(const Intention& intention);

}  // namespace syncopate
