// Compressions as written in experiment files.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>

#include "workers/compression/compressor.hpp"

namespace syncopate {

inline bool has_ratio(std::string_view kind) {
  return kind == "top-k" || kind == "dgc" || kind == "random-k" || kind == "scalecom";
}

// Options of compression `kind` with these keys, as in compression("top-k", "ratio = 0.1"). If the kind has a ratio, it
// must be the first key; its default is 1 %.
inline CompressionOptions compression(std::string_view kind, const std::string& keys = "",
                                      Compresses what = Compresses::gradients) {
  std::string table = fmt::format("name = \"{}\"", kind);
  if (has_ratio(kind) && !keys.starts_with("ratio = ")) table += ", ratio = 0.01";
  if (!keys.empty()) table += ", " + keys;
  SettingsDocument document(parse_toml("compression = { " + table + " }", "e.toml"));
  Settings root = document.root();
  const auto options = read_compression(root, {.compresses = what, .rejects_messages = true, .drops = Drops::computed});
  if (!options || !document.check().empty()) throw std::invalid_argument(document.check().report());
  return *options;
}

inline CompressionOptions compression(std::string_view kind, Compresses what, double ratio) {
  return compression(kind, has_ratio(kind) ? fmt::format("ratio = {}", ratio) : "", what);
}

}  // namespace syncopate
