// Runs that are there: those of one or several experiments, found by their directories.
#pragma once

#include <filesystem>
#include <map>
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
  // Of config.toml, what decides results, but for seed, methods and what is only recorded: "cluster.workers" -> "16",
  // values as TOML.
  std::map<std::string, std::string> configuration;
  std::map<std::string, std::string> of_method;  // likewise, of its method: "threshold_s" -> "0.05"
};

// All runs at or below the directory that have ended, in the order of their names, without common phases that other
// runs start from, and without trials, unless they are asked for or the directory is in their folder. Throws
// ResultsDirectoryFault, with all that is wrong: no such directory, no runs in it, a damaged file, a file that is
// missing, a summary of another schema version.
std::vector<FoundRun> find_runs(const std::filesystem::path& directory, bool with_trials = false);

// The runs in these directories, likewise; what is wrong is told, a line each, and the others are there.
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
