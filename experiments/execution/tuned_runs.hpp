// An experiment with [tune]: its trials, and then its runs with the best settings.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "experiments/execution/execution.hpp"
#include "experiments/execution/runner.hpp"
#include "experiments/sections/experiment.hpp"
#include "results/rows/summary.hpp"

namespace syncopate {

struct RunsMade {
  int status = 0;                                    // as run_experiment's
  std::vector<std::optional<RunSummary>> summaries;  // run by run; complete on rank 0
};
// Makes an experiment's runs. `later`: those that will follow, for the plan.
using MakeRuns = std::function<RunsMade(const Experiment& part, const RunOptions& options, std::span<const Run> later)>;

// Makes the trials that are missing, extends grids, writes tuning.json beside the runs, and makes the runs. Under MPI
// all ranks call it; they choose by what rank 0 has found. The exit status; 1 also where a method has no setting of
// which all trials came to their end.
int run_tuned(const Experiment& experiment, const RunOptions& options, const Machinery& machinery,
              const MakeRuns& make);

// The trials of the grids as they are written.
std::vector<Run> first_trials(const Experiment& experiment);

// What trials on the disk, on virtual time, have shown so far.
struct TuningSoFar {
  std::vector<Run> trials;                 // with those of grids that have grown
  std::optional<std::vector<Run>> runs{};  // with the best settings; nothing while a trial has not ended
};
TuningSoFar tuning_so_far(const Experiment& experiment, const std::string& results_directory);

}  // namespace syncopate
