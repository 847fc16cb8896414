// `syncopate compare`: an experiment on the simulated cluster and under MPI, and the error of the simulation.
#pragma once

#include <string>
#include <vector>

#include "experiments/execution/runner.hpp"
#include "experiments/sections/experiment.hpp"
#include "results/tables/comparison.hpp"

namespace syncopate {

struct CompareOptions {
  RunOptions run;                      // its `cluster` and `mpi` are not used
  std::vector<std::string> arguments;  // changes and profiles that it was loaded with, for the processes under MPI
  std::string mpiexec;                 // see mpi_launcher
  Tolerances tolerances;
  bool all_seeds = false;  // else the first one
  bool check = false;      // exit status 1 also where something is not within the tolerances
  std::string json;        // further files for the result; empty: none
  std::string markdown;
};

// What the experiment must be loaded with, beside the user's, so that the models can be compared.
inline constexpr const char* compare_override = "recording.parameters=true";

// Runs what is not there yet into the usual directories, prints the table, and writes compare.json beside the runs'
// directories. Every run under MPI is a launch of its own, so that one that fails leaves the others alone.
// The exit status: 0 all runs could be compared (with `check`: and are within the tolerances), 1 if not, 2 the results
// directory, the launcher or one of the files cannot be used, 130 interrupted.
int compare(const Experiment& experiment, const CompareOptions& options);

}  // namespace syncopate
