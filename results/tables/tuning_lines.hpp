// What was chosen for each method, in words: the lines below its results.
#pragma once

#include <filesystem>
#include <string>

#include "results/directory/tuning_json.hpp"

namespace syncopate {

// A line for each method: the setting, out of how many settings and trials, if the grid was extended, and if the best
// setting is at its edge all the same.
std::string tuning_lines(const Tuning& tuning);

// Of the file in an experiment's directory; empty where there is none. Throws ResultsDirectoryFault for a damaged one.
std::string tuning_lines(const std::filesystem::path& experiment_directory, bool mpi);

}  // namespace syncopate
