// Version, commit and compiler of this program.
#pragma once

#include <optional>
#include <string>

namespace syncopate {

struct BuildInfo {
  std::string version;        // Syncopate's version, as in CMakeLists.txt
  std::string commit;         // 40 hexadecimal digits; "unknown" outside a git checkout
  std::optional<bool> dirty;  // whether the source differed from the commit; nullopt if the commit is unknown
  std::string compiler;
  std::string flags;
};

const BuildInfo& build_info();

}  // namespace syncopate
