// Files that are part of the program, so that they are found wherever it stands.
#pragma once

#include <span>
#include <string_view>

namespace syncopate {

struct EmbeddedFile {
  std::string_view name;
  std::string_view sentence;
  std::string_view content;
};

// See workers/delays/data/README.md.
std::span<const EmbeddedFile> embedded_histograms();

}  // namespace syncopate
