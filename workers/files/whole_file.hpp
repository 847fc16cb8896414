// A file as it is stored.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace syncopate {

// Throws std::system_error, which says what the system does, where the file cannot be opened or read to its end, or has
// more than most_bytes.
std::string whole_file(const std::filesystem::path& file, std::uint64_t most_bytes);

}  // namespace syncopate
