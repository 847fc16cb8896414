// What an experiment's runs are made on, by how this process was started and what its command line says:
//
//   --cluster mpi, or a launcher and no --cluster     the MPI cluster: all ranks of the launch make each run together
//   --cluster simulated, by several ranks             the simulated cluster: they divide each run among them
//   --share, or --jobs (RunOptions::sharing)          the simulated cluster, in this process alone: whole runs are
//                                                     divided by leases, whatever launcher there is
//   else                                              the simulated cluster, in this process alone
#pragma once

#include <functional>
#include <string>

#include "experiments/execution/execution.hpp"
#include "experiments/execution/runner.hpp"
#include "experiments/sections/experiment.hpp"

namespace syncopate {

// What of an experiment is for the simulated cluster alone; empty: nothing.
std::string why_not_under_mpi(const Experiment& experiment);

// Calls `make` with it, and returns its status; the machinery is gone afterwards. Where the runs cannot be made on it
// (no launcher, other ranks than the experiment needs, what only the simulated cluster has) one rank says why, and the
// status is exit_usage on all. All ranks of a launch call it.
int on_chosen_machinery(const Experiment& experiment, const RunOptions& options,
                        const std::function<int(const Machinery&)>& make);

}  // namespace syncopate
