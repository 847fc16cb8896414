#include "workers/datasets/text_sources.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <string>

#include "workers/datasets/digest_cache.hpp"
#include "workers/files/content_hash.hpp"
#include "workers/files/directory_check.hpp"
#include "workers/text/text_lines.hpp"
#include "workers/text/wordnet_glosses.hpp"

namespace syncopate {
namespace {

using std::filesystem::path;

std::string glosses_hash(const path& directory) {
  if (const std::string why = why_no_directory(directory); !why.empty())
    throw DataFault(fmt::format("{}: {}; must be a directory with WordNet's files", directory.string(), why));
  std::string digests;
  for (const char* file : wordnet_files) digests += digest_cache().digest(directory / file);
  return content_hash(digests);
}

}  // namespace

TextSource text_lines(bool labelled) {
  return {.variant = labelled ? "labelled lines" : "lines",
          .read = [labelled](const path& file) { return read_text_lines(file, labelled); },
          .hash = [](const path& file) { return digest_cache().digest(file); }};
}

TextSource wordnet_glosses() {
  return {.variant = "wordnet glosses", .read = read_wordnet_glosses, .hash = glosses_hash};
}

}  // namespace syncopate
