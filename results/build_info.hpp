// What this program was built from and with.
#pragma once

#include <optional>
#include <string>

namespace syncopate {

struct BuildInfo {
  std::string version;        // of Syncopate, as in CMakeLists.txt
  std::string commit;         // 40 hexadecimal digits; "unknown" outside a git checkout
  std::optional<bool> dirty;  // what it is built from differed from the commit; none where the commit is unknown
  std::string compiler;
  std::string flags;
};

const BuildInfo& build_info();

}  // namespace syncopate
