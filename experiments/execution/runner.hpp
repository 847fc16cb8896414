// Makes all runs of an experiment, with their directories and one table.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "experiments/execution/execution.hpp"
#include "experiments/sections/experiment.hpp"

namespace syncopate {

// How this process takes part if several processes make an experiment's runs.
struct Sharing {
  std::chrono::milliseconds time_out = std::chrono::seconds(120);  // time-out of leases (results/lease.hpp)
  std::string call{};  // common name of processes that were started together (results/lease.hpp)
  bool waits = true;   // waits until others have made their runs, so that tables are complete; false: ends once all
                       // runs are taken
  bool takes = true;   // false: other processes make the runs, and this one shows their progress
  bool speaks = true;  // prints tables, claims, and a message when interrupted
  // With takes = false: the first starts those processes, the second tells whether any is running. Both may be called
  // repeatedly.
  std::function<void()> start_others{};
  std::function<bool()> others_are_there{};
  // Several processes may find the same disk full, but only one reports it: true for the first caller of a launch.
  // Empty: this process reports it.
  std::function<bool()> is_first_to_report{};
};

// The common name of all processes of this launch by mpirun, a Slurm job or a job array. Without one, a unique name.
std::string call_of_this_process();

// This process's rank in its launch; 0 without a launch. One process of a launch prints.
int rank_in_launch();

enum class ClusterChoice {
  automatic,  // mpi when started by mpirun (or Slurm), else simulated
  simulated,
  mpi,
};

struct RunOptions {
  std::string results_directory = "results/runs";
  int threads = 0;              // threads of the executor; 0: all cores
  bool rerun = false;           // repeat runs that exist already
  bool quiet = false;           // print only the final table and errors
  bool tables = true;           // print the final table, and which runs failed
  std::size_t table_width = 0;  // terminal width in columns; 0: no terminal
  bool plan = false;            // print the plan first, unless quiet
  ClusterChoice cluster = ClusterChoice::automatic;
  int retries = 0;                   // how often a failed run is tried again, on the simulated cluster
  std::string division{};            // for the plan: "in 4 processes of 1 thread"
  int side_by_side = 1;              // runs at a time
  std::optional<Sharing> sharing{};  // how runs are shared with other processes, on the simulated cluster
  const MpiSession* mpi = nullptr;   // null: run_experiment opens its own if it needs one
};

// Makes the runs on the cluster that the launcher and the command line select:
//
//   --cluster mpi, or a launcher and no --cluster     the MPI cluster: all ranks of the launch make each run together
//   --cluster simulated, by several ranks             the simulated cluster: the ranks divide each run
//   --share, or --jobs (RunOptions::sharing)          the simulated cluster, in this process alone: leases divide whole
//                                                     runs, whatever launcher there is
//   else                                              the simulated cluster, in this process alone
//
// If the runs cannot be made on it (no launcher, a wrong number of ranks, features of the simulated cluster), one rank
// says why. All ranks of a launch call it. Returns the exit status, the same on all: 0 all runs finished; 1 at least
// one failed, diverged or could not be made; 2 the results directory cannot be used, and nothing has run; 130
// interrupted.
int run_experiment(const Experiment& experiment, const RunOptions& options);

// The feature of an experiment that prevents it from running under MPI; empty: none.
std::string why_not_under_mpi(const Experiment& experiment);

// The scoreboard from the claims.json of the same claims and runs in the experiment's folder below `directory`. It is
// folded at `width` and has a line that names the program. Empty if there is none. Throws std::system_error.
std::string accepted_claims(const Experiment& experiment, const std::filesystem::path& directory, std::size_t width);

}  // namespace syncopate
