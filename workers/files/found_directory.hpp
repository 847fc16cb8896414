// Where a package puts the files of a data set.
#pragma once

#include <filesystem>
#include <string>

namespace syncopate {

// The first directory that exists: `name` in the directory that the environment variable SYNCOPATE_DATA names, then
// `packaged` in share of /usr/local and /usr. Throws DataFault, which says `what_to_do`, if there is none.
std::filesystem::path found_directory(const std::string& name, const std::string& packaged,
                                      const std::string& what_to_do);

}  // namespace syncopate
