// Single files that a reader finds whole or not at all, whenever the program ends.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace syncopate {

// Replaces the file: written beside it under a hidden name, on the disk, and then renamed. Where a
// link stands, the file that it leads to is replaced. A pipe or a device is written to directly. The folder must be
// there. Throws std::system_error, whose what() names the file; then it is as it was.
void replace_file(const std::filesystem::path& file, std::string_view contents);

// Why it could not be replaced as things are, said before there is anything to write; empty if it could.
std::string why_not_replaceable(const std::filesystem::path& file);

}  // namespace syncopate
