// Where the user's programs keep what they can make again.
#pragma once

#include <filesystem>

namespace syncopate {

// syncopate in $XDG_CACHE_HOME or ~/.cache; empty where there is neither. It need not exist.
std::filesystem::path users_cache();

}  // namespace syncopate
