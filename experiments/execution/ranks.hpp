// Messages between the ranks of a launch, before runs and between them. First the ranks agree on what to run. If one
// rank cannot run, or would run something different, none runs, and rank 0 reports that rank, its host and the reason.
// agree() is the ranks' first collective operation, because a rank with a fault in its command line must reach it, too.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "experiments/sections/experiment.hpp"
#include "results/run.hpp"
#include "workers/mpi/mpi_session.hpp"
#include "workers/training/checkpoint_log.hpp"

namespace syncopate {

// All functions with a session are collective and throw Interrupted. Waiting ranks leave the cores to ranks that may be
// evaluating: rank 0 and servers.

// The end of messages about an interruption or a lost rank.
inline constexpr const char* what_stays =
    "finished runs stay, and the same command continues with the others, from their newest checkpoints if they have "
    "any";

// Replaces the bytes of every rank by rank 0's. Calls `meanwhile`, if there is such a function, while it waits.
void broadcast(const MpiSession& session, std::string& bytes, const std::function<void()>& meanwhile);

// Returns rank 0's value on every rank. `meanwhile`: as for broadcast.
template <typename Value>
Value from_rank_0(const MpiSession& session, Value value, const std::function<void()>& meanwhile = {}) {
  StoredBytes stored;
  if (session.rank() == 0) StateArchive(stored.sink())(value);
  broadcast(session, stored.bytes, meanwhile);
  if (session.rank() > 0) StateArchive(stored.source())(value);
  return value;
}
// Null: this process is the only one, so it keeps its value.
template <typename Value>
Value from_rank_0(const MpiSession* session, Value value) {
  return session ? from_rank_0(*session, std::move(value)) : value;
}

// Combine all ranks' numbers by MPI_SUM, MPI_MAX, ..., and give the result to every rank. The second function works in
// place.
double reduced(const MpiSession& session, double number, MPI_Op operation);
void reduced(const MpiSession& session, std::vector<double>& numbers, MPI_Op operation);

// Returns all ranks' texts, by rank, on rank 0. Returns nothing on other ranks.
std::vector<std::string> texts_on_rank_0(const MpiSession& session, const std::string& own);

struct RankHandshake {
  std::string fault;     // why this rank cannot run; empty if it can
  std::string identity;  // must be equal on all ranks: determines what would run
  KeyValues plan;        // keys and values of the runs, to explain differences
};

// Thrown if no rank can run: exit status 2 on all ranks. Its text is complete on rank 0, the only one to print it.
struct CannotRun : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Either returns on all ranks or throws CannotRun on all ranks. Without a launcher, this process is the only rank.
void agree(const MpiSession& session, const RankHandshake& own);

struct RankReport {
  std::string host;
  RankHandshake handshake;
};
// Returns the message for the user; empty if the ranks agree. `ranks`: reports by rank.
std::string explain_disagreement(const std::vector<RankReport>& ranks);

// The plan of a command. The ranks of a launch must agree on it. If neither `on_mpi` nor `together` is true, runs and
// results directories may differ between ranks.
struct Intention {
  std::string command;                     // "run", "check", ..., "--help"
  const Experiment* experiment = nullptr;  // null: the command has none
  bool on_mpi = false;                     // whether its runs use the MPI cluster
  bool together = false;                   // whether ranks divide each run
  bool rerun = false;
  std::string results_directory{};  // as the user wrote it
};

RankHandshake handshake_of(const Intention& intention);

}  // namespace syncopate
