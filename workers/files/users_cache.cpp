#include "workers/files/users_cache.hpp"

#include <cstdlib>

namespace syncopate {

// As the XDG base directory specification has it: a relative path is as if there were none.
std::filesystem::path users_cache() {
  namespace fs = std::filesystem;
  const auto absolute = [](const char* name) {
    const char* value = std::getenv(name);
    return value && *value == '/' ? fs::path(value) : fs::path();
  };
  fs::path caches = absolute("XDG_CACHE_HOME");
  if (caches.empty() && !absolute("HOME").empty()) caches = absolute("HOME") / ".cache";
  return caches.empty() ? caches : caches / "syncopate";
}

}  // namespace syncopate
