// What a table `compression` may name, by what is compressed, and why it may not name others.
#pragma once

#include <span>
#include <string_view>

#include "workers/compression/options.hpp"

namespace syncopate {

struct CompressionRow {
  std::string_view name;      // `name = ...` in TOML
  std::string_view sentence;  // what it sends
  CompressionOptions::Kind kind;
};
std::span<const CompressionRow> compressions_of(Compresses what);

// Why a difference between models, or a message, cannot be compressed so; nothing for what is no such name.
std::string_view why_not(Compresses what, std::string_view name);

}  // namespace syncopate
