// Single files that a reader finds whole or not at all, whenever the program ends.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace syncopate {

// Replaces the file: written beside it under a hidden name, on the disk, and then renamed. What stands under the name
// is replaced whatever it is, a link or a pipe too: where others may write, it may lead to a file of somebody else. The
// folder must be there. Throws std::system_error, whose what() names the file; then it is as it was.
void replace_file(const std::filesystem::path& file, std::string_view contents);

// The same for a file that the user has named. Where a link stands, the file that it leads to is replaced. A pipe or a
// device is written to.
void replace_named_file(const std::filesystem::path& file, std::string_view contents);

// Why a named one could not be replaced as things are, said before there is anything to write; empty if it could.
std::string why_not_replaceable(const std::filesystem::path& file);

}  // namespace syncopate
