// Why a path is no directory, where "Not a directory" alone would not help.
#pragma once

#include <filesystem>
#include <string>

namespace syncopate {

// "is a file", "is a link to x, which is not there", ...; empty if it is a directory.
std::string why_no_directory(const std::filesystem::path& path);

}  // namespace syncopate
