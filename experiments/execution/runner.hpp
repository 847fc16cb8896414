// Runs all runs of an experiment and leaves their directories and one table behind.
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

// How a process takes part where several make an experiment's runs together.
struct Sharing {
  std::chrono::milliseconds time_out = std::chrono::seconds(120);  // of leases; see results/lease.hpp
  std::string call{};  // of all processes that were started together; see results/lease.hpp
  bool waits = true;   // for what others have taken, so that the tables are whole; else it ends when all is taken
  bool takes = true;   // false: others make the runs, and this process shows how far they are
  bool speaks = true;  // tables, claims, and that it was interrupted
  // With takes = false: what starts those others, and whether there are any. They may be asked again and again.
  std::function<void()> start_others{};
  std::function<bool()> others_are_there{};
  // Several processes meet the same full disk, and one says so: true for the first of those that were started together
  // that asks. Empty: this process says so in any case.
  std::function<bool()> is_first_to_say{};

  // Whether this process says why runs are not made. Asked when it would.
  bool says_why() const { return !is_first_to_say || is_first_to_say(); }
};

// The name that all processes of this launch have in common: of mpirun, a Slurm job, or an array of jobs; else one that
// no other process has.
std::string call_of_this_process();

// Of the launch; 0 without one. One process of a launch speaks.
int rank_in_launch();

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

// What an experiment's runs are made on, by how this process was started and what its command line says:
//
//   --cluster mpi, or a launcher and no --cluster     the MPI cluster: all ranks of the launch make each run together
//   --cluster simulated, by several ranks             the simulated cluster: they divide each run among them
//   --share, or --jobs (RunOptions::sharing)          the simulated cluster, in this process alone: whole runs are
//                                                     divided by leases, whatever launcher there is
//   else                                              the simulated cluster, in this process alone
// What of an experiment is for the simulated cluster alone; empty: nothing.
std::string why_not_under_mpi(const Experiment& experiment);

// Calls `make` with it, and returns its status; the machinery is gone afterwards. Where the runs cannot be made on it
// (no launcher, other ranks than the experiment needs, what only the simulated cluster has) one rank says why, and the
// status is exit_usage on all. All ranks of a launch call it.
int on_chosen_machinery(const Experiment& experiment, const RunOptions& options,
                        const std::function<int(const Machinery&)>& make);

// The claims of an experiment file, judged by its runs.
// Judges the claims by the experiment's runs that are in the results directory, simulated ones, and returns the
// scoreboard, folded at `width` unless that is 0; empty where nothing is claimed. Writes claims.json beside the runs,
// unless the experiment differs from its file: overrides must not replace the file's verdicts. Throws
// std::runtime_error (a damaged run) or std::system_error (claims.json cannot be written).
std::string judge_claims(const Experiment& experiment, const std::filesystem::path& results, std::size_t width);

// The scoreboard of the same claims, judged by the same runs, whose claims.json is in the experiment's folder of that
// directory, with a line that says by what program, folded likewise; empty if there is none. Throws std::system_error.
std::string accepted_claims(const Experiment& experiment, const std::filesystem::path& directory, std::size_t width);

}  // namespace syncopate
