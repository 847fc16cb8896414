// Before anything runs, the ranks of one launch tell each other whether they can run, and what. Where one cannot, or
// would run something else than the others, none runs, and rank 0 says which rank it is, on which host, and why.
//
// Ranks may come here from different places (one still reads its file, another has failed in its command line), so
// this is the only thing that they do together before they agree.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "experiments/sections/experiment.hpp"
#include "results/recorder.hpp"
#include "workers/mpi/mpi_session.hpp"

namespace syncopate {

// What ranks tell each other before and between runs. Waiting here leaves the cores to rank 0 and the server,
// which evaluate meanwhile. All functions are collective and throw Interrupted.
inline constexpr const char* what_stays =
    "finished runs stay, and the same command continues with the others, from their newest checkpoints if they have "
    "any";

// Rank 0's numbers, on every rank.
std::vector<int> from_rank_0(const MpiSession& session, std::vector<int> numbers);
double from_rank_0(const MpiSession& session, double number);
// The same, `meanwhile` being called again and again until it is there.
double from_rank_0(const MpiSession& session, double number, const std::function<void()>& meanwhile);
// As many as rank 0 has; what others give is not looked at.
std::vector<float> from_rank_0(const MpiSession& session, std::vector<float> numbers);

// What comes of every rank's number (MPI_SUM, MPI_MAX, ...), on every rank; of as many numbers in their place.
double reduced(const MpiSession& session, double number, MPI_Op operation);
void reduced(const MpiSession& session, std::vector<double>& numbers, MPI_Op operation);

// What every rank gives, by rank, on every rank.
std::vector<std::array<std::uint64_t, 2>> gather_everywhere(const MpiSession& session,
                                                            const std::array<std::uint64_t, 2>& own);

// What every rank gives, by rank, on rank 0; elsewhere empty.
std::vector<std::string> texts_on_rank_0(const MpiSession& session, const std::string& own);

// The recording of rank `from`, on rank 0; elsewhere an empty one. Only `from` and rank 0 wait.
Recording move_to_rank_0(const MpiSession& session, int from, const Recording& recording);

class MpiSession;

struct RankStatement {
  std::string fault;                                      // why this rank cannot run; empty: it can
  std::string identity;                                   // of what it would run: equal texts run together
  std::vector<std::pair<std::string, std::string>> plan;  // the same, by key and value: explains what differs
};

// Nothing runs: exit status 2, on all ranks. what() is complete on rank 0, which alone should print it.
struct CannotRun : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Collective over the session; without a launcher, this process is the only rank. Returns on all ranks or throws
// CannotRun on all.
void agree(const MpiSession& session, const RankStatement& own);

// What every rank says, by rank. Empty if they agree.
struct RankSaid {
  std::string host;
  RankStatement statement;
};
std::string explain_disagreement(const std::vector<RankSaid>& ranks);

// What a command makes this process do, as the ranks of a launch must agree on it.
struct Intention {
  std::string command;                     // "run", "check", ..., "--help"
  const Experiment* experiment = nullptr;  // null: the command has none
  bool on_mpi = false;                     // its runs are
  bool together = false;                   // ranks make its runs together, as under MPI; else they may differ
  bool rerun = false;
  std::string results_directory{};  // as it was given
};

RankStatement statement_of(const Intention& intention);

}  // namespace syncopate
