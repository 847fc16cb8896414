// Runs that are there: those of one or several experiments, found by their directories.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "results/rows/summary.hpp"

namespace syncopate {

struct FoundRun {
  std::filesystem::path directory;
  RunSummary summary;
  bool on_wall_clock = false;  // made under MPI
  bool is_trial = false;       // of tuning
  // Of config.toml, what decides results, but for seed, methods, what is only recorded, and what the run's method has
  // otherwise: "cluster.workers" -> "16", values as TOML.
  std::map<std::string, std::string> configuration;
  std::map<std::string, std::string> of_method;  // the same of its method: "threshold_s" -> "0.05"
};

// Which runs count is decided here, for tables, claims, exports and the status; figures have the same rules
// (plots/runs.py, plots/comparison.py):
// - A run whose directory is not named after its seed and its hash is a fault, which names both places.
//   So is a directory with a run's files and a name that no run has; not a link, nor what is hidden or unfinished.
// - Two runs of one hash under the same method and swept values are a fault, which names both: one is a copy.
// - A hash under several names of swept values (a sweep, and later one of its points by itself) is one run. It has the
//   name with most values.
// - Of runs that differ in nothing but the version of the results the newest counts.

// All runs at or below the directory that have ended, in the order of their names, without common phases that other
// runs start from, and without trials, unless they are asked for or the directory is in their folder. Throws
// ResultsDirectoryFault, with all that is wrong: no such directory, no runs in it, a damaged file, a file that is
// missing, a summary of another schema version, a run in a place that is not its own, a copy.
std::vector<FoundRun> find_runs(const std::filesystem::path& directory, bool with_trials = false);

// The simulated runs with these hashes at or below the directory: those of an experiment file. Other runs are not
// read, so that nothing that is wrong with them is a fault here. None may be there.
std::vector<FoundRun> find_runs_of(const std::filesystem::path& directory, const std::set<std::string>& hashes);

// The runs in these directories by the first three rules. `faults`: what is wrong, a line each; the other runs are
// there. Of a run and its copy none is there.
struct RunsAndFaults {
  std::vector<FoundRun> runs{};
  std::vector<std::string> faults{};
  std::vector<std::string> faults_of_common_phases{};  // which no table needs: their runs have been read
};
RunsAndFaults read_runs(std::span<const std::filesystem::path> directories, const std::filesystem::path& above);

// By the names of their experiments, in the order in which these are first met.
std::vector<std::vector<FoundRun>> by_experiment(std::vector<FoundRun> runs);

// Keys whose values differ among runs of one method, in the order of the keys: what varies beside method and seed.
std::vector<std::string> varied_keys(std::span<const FoundRun> runs);

}  // namespace syncopate
