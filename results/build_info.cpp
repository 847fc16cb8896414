#include "results/build_info.hpp"

#include <string_view>

#include "commit.inc"

namespace syncopate {

const BuildInfo& build_info() {
  constexpr std::string_view dirty = SYNCOPATE_DIRTY;
  static const BuildInfo info{.version = SYNCOPATE_VERSION,
                              .commit = SYNCOPATE_COMMIT,
                              .dirty = dirty.empty() ? std::nullopt : std::optional(dirty == "true"),
                              .compiler = SYNCOPATE_COMPILER,
                              .flags = SYNCOPATE_FLAGS};
  return info;
}

}  // namespace syncopate
