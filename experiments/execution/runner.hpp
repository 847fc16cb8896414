// Runs all runs of an experiment and leaves their directories and one table behind.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "experiments/execution/sharing.hpp"
#include "experiments/sections/experiment.hpp"

namespace syncopate {

class MpiSession;

enum class ClusterChoice {
  automatic,  // mpi when started by mpirun (or Slurm), else simulated
  simulated,
  mpi,
};

struct RunOptions {
  std::string results_directory = "results/runs";
  int threads = 0;              // of the executor; 0: all cores
  bool rerun = false;           // repeat runs that are already there
  bool quiet = false;           // only the final table and errors
  bool tables = true;           // print it, and which runs failed
  std::size_t table_width = 0;  // of the terminal that the table is for, in columns; 0: there is none
  bool plan = false;            // say first how many runs there are, and what they will take; not where quiet
  ClusterChoice cluster = ClusterChoice::automatic;
  int retries = 0;                   // how often a failed run is tried again, on the simulated cluster
  std::string division{};            // how runs go side by side, for the plan: "in 4 processes of 1 thread"
  int side_by_side = 1;              // of these, so many
  std::optional<Sharing> sharing{};  // with other processes; the simulated cluster alone
  const MpiSession* mpi = nullptr;   // null: run_experiment opens its own where it needs one
};

// The exit status: 0 all runs finished, 1 at least one failed or diverged, or could not be made, 2 the results
// directory cannot be used (nothing has run), 130 interrupted.
int run_experiment(const Experiment& experiment, const RunOptions& options);

}  // namespace syncopate
