// What is said and left behind when all of an experiment's runs have been made.
#pragma once

#include "experiments/execution/runner.hpp"
#include "experiments/execution/runs_so_far.hpp"
#include "experiments/sections/experiment.hpp"

namespace syncopate {

// Prints the table of results, which runs did not finish, and what becomes of the claims, which are judged on virtual
// time alone, and leaves the table beside the runs; without RunOptions::tables nothing of all this. Returns the exit
// status: 1 where a run did not finish.
int print_final_tables(const Experiment& experiment, const RunOptions& options, const RunsSoFar& made, bool under_mpi);

}  // namespace syncopate
