// Where a run's files are, and how they get there whole or not at all: everything is written into a
// hidden sibling directory, which is renamed when it is complete.
#pragma once

#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>

#include "experiments/experiment.hpp"

namespace syncopate {

// The results directory cannot be used: what() names the path and the reason. Exit status 2.
struct ResultsDirectoryFault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Lower-case letters, digits, dots, equals signs and underscores; everything else becomes one hyphen. Never empty,
// never hidden, at most 100 characters, so that it is a good file name everywhere.
std::string slug(std::string_view text);

// <results>/<experiment>/<method and sweep>/seed=3-<8 digits of the hash>. Runs on a wall clock are
// kept apart from simulated ones of the same configuration by the suffix -mpi.
std::filesystem::path run_directory(const std::filesystem::path& results, const Run& run, bool mpi);

// Creates <results>/<experiment> and proves that it, and what is already there for these runs, can
// be read and written. Throws ResultsDirectoryFault.
void require_usable(const std::filesystem::path& results, const Experiment& experiment);

// Removes what killed processes have left in the experiment's directory; what a process that still
// exists (or one on another host) is writing stays. Returns how many directories went.
int remove_leftovers(const std::filesystem::path& results, const Experiment& experiment);

using FileContents = std::map<std::string, std::string>;  // name -> contents

// Replaces `directory` by one with exactly these files. Throws std::filesystem::filesystem_error or
// std::system_error; then `directory` is as it was.
void write_directory(const std::filesystem::path& directory, const FileContents& files);

}  // namespace syncopate
