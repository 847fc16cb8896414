// files.json: the files of a run's directory with their sizes and digests, so that a damaged file is noticed. CRC-32,
// because the libraries at hand have it on both sides (zlib here, zlib in Python's standard library): it is there to
// find accidents, not forgeries.
#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace syncopate {

using FileContents = std::map<std::string, std::string>;  // name -> contents

inline constexpr const char* list_of_files = "files.json";

// The contents of files.json beside these files.
std::string listed(const FileContents& files);

// What is wrong with the first file that is not as it was written, "<path>: <what>". Empty if there is none, or no
// directory.
std::string damage_of(const std::filesystem::path& directory);

}  // namespace syncopate
