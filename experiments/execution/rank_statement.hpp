// What a command makes this process do, as the ranks of a launch must agree on it.
#pragma once

#include <string>
#include <vector>

#include "experiments/execution/rank_agreement.hpp"
#include "experiments/sections/experiment.hpp"

namespace syncopate {

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
