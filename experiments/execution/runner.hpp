// Executes all runs of an experiment: writes their directories and prints one table.
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

// The role of this process if several processes share an experiment's runs.
struct Sharing {
  std::chrono::milliseconds time_out = std::chrono::seconds(120);  // time-out of leases (results/lease.hpp)
  std::string call{};  // common name of processes that were started together (results/lease.hpp)
  bool waits = true;   // false: ends once every run is finished or leased, so tables may be incomplete
  bool takes = true;   // executes runs; false: only shows the progress of the processes that do
  bool speaks = true;  // prints tables, claims, and a message when interrupted
  // If `takes` is false: start_others starts the processes that execute runs, and others_are_there returns whether
  // any of them is running. Both may be called repeatedly.
  std::function<void()> start_others{};
  std::function<bool()> others_are_there{};
  // Returns true for the first caller of a launch, so that only one process reports, for example, a full disk. If
  // empty, this process reports it.
  std::function<bool()> is_first_to_report{};
};

enum class ClusterChoice {
  automatic,  // mpi if started by mpirun (or Slurm), otherwise simulated
  simulated,
  mpi,
};

struct RunOptions {
  std::string results_directory = "results/runs";
  int threads = 0;              // threads of the executor; 0: all cores
  bool rerun = false;           // repeat finished runs
  bool quiet = false;           // print only the final table and errors
  bool tables = true;           // print the final table, and which runs failed
  std::size_t table_width = 0;  // terminal width in columns; 0: no terminal
  bool plan = false;            // print the plan (number of runs, expected time) first, unless quiet
  ClusterChoice cluster = ClusterChoice::automatic;
  int retries = 0;                   // how often a failed run is retried, on the simulated cluster
  std::string division{};            // printed in the plan: "in 4 processes of 1 thread"
  int side_by_side = 1;              // number of runs that are executed at the same time
  std::optional<Sharing> sharing{};  // how runs are shared with other processes, on the simulated cluster
  const MpiSession* mpi = nullptr;   // null: no session
};

// Executes the runs on the cluster that the launcher and the command line select:
//   --cluster mpi, or a launcher and no --cluster   the MPI cluster: all ranks of the launch execute each run together
//   --cluster simulated, by several ranks           the simulated cluster: the ranks divide each run
//   --share, or --jobs (RunOptions::sharing)        the simulated cluster: each process executes whole runs alone, and
//                                                   leases assign the runs, with or without a launcher
//   otherwise                                       the simulated cluster, in this process alone
// If the selected cluster cannot execute the runs (no launcher, a wrong number of ranks, features of the simulated
// cluster), one rank prints the reason. All ranks of a launch must call this function. Returns the exit status, which
// is the same on all ranks:
//   0    all runs finished
//   1    at least one run failed, diverged or could not be executed
//   2    the results directory cannot be used, and nothing has run
//   130  interrupted
int run_experiment(const Experiment& experiment, const RunOptions& options);

// Returns why the experiment cannot run under MPI; empty if it can.
std::string why_not_under_mpi(const Experiment& experiment);

// Returns the scoreboard from claims.json in the experiment's folder below `directory`, with a line that names the
// commit of the results. If the experiment's claims are not those of claims.json, judges them again by the rows of
// runs.csv beside claims.json, and replaces claims.json. Empty if there is no claims.json for the same runs, or if rows
// are missing. Lines are folded at `width`. Throws std::system_error.
std::string accepted_claims(const Experiment& experiment, const std::filesystem::path& directory, std::size_t width);

}  // namespace syncopate
