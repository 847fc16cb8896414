// What to say where the disk does not take results: which place, why, and what helps.
#pragma once

#include <exception>
#include <filesystem>
#include <string>

namespace syncopate {

// On one line. `directory`: that of the experiment, below which something could not be written or put on the disk.
std::string disk_fault(const std::filesystem::path& directory, const std::filesystem::filesystem_error& problem);

// Of one file of a run: why, and what helps; of what is not the disk's, what() alone.
std::string disk_problem(const std::exception& problem);

// Throws std::filesystem::filesystem_error where the directory is gone: what was removed is not made anew in part.
void require_there(const std::filesystem::path& directory);

}  // namespace syncopate
