// What lies below a results directory, by experiments: runs that have ended, and signs of those that have not.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace syncopate {

// Of a run that is under way, or was left unfinished: nothing on the disk says which.
struct UnfinishedFiles {
  bool has_checkpoint = false;  // else files that have not got their names yet
  std::filesystem::file_time_type written = std::filesystem::file_time_type::min();
};

struct ExperimentFolder {
  std::filesystem::path directory{};
  std::vector<std::filesystem::path> runs{};                      // their directories, trials too
  std::map<std::filesystem::path, UnfinishedFiles> unfinished{};  // by the directory that the run will have
  std::vector<std::string> faults{};                              // what cannot be looked into, a line each
};

// seed=<number>-<hash>, of a run's directory.
bool is_name_of_run(const std::string& name);

// A directory that has a run's files and another name, such as "seed=1-20c62185.bak": a copy, or a run renamed.
// Links and what is hidden or unfinished are none.
bool is_misnamed_run(const std::filesystem::path& directory);

// Experiments at or below the directory, by their paths: those with runs, with a sign of one, or that were shared. Also
// empty folders that are in an experiment's place, as where a process has just begun.
std::vector<ExperimentFolder> experiment_folders(const std::filesystem::path& directory);

}  // namespace syncopate
