#include "experiments/sections/configuration_hash.hpp"

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>

#include "results/run/results_version.hpp"

namespace syncopate {
namespace {

// Where files lie decides nothing; what they hold does, and is in `file_hash`, `directory_hash`, `start_hash`. What a
// number was solved for decides nothing beside the number.
constexpr const char* solved_for = "solved_for";
// A key that came later decides nothing at what went without saying before: runs made until then keep their hash.
struct LaterKey {
  const char* key;
  bool was;
};
constexpr LaterKey later_keys[] = {{"bias_correction", true}};  // of Adam and AdamW
void erase_what_decides_nothing(TomlNode& node) {
  if (node.is_array())
    for (TomlNode& element : node.array()) erase_what_decides_nothing(element);
  if (!node.is_table()) return;
  for (const char* place : {"file", "directory", "start"})
    if (node.find(fmt::format("{}_hash", place))) node.erase(place);
  node.erase(solved_for);
  for (const auto& [key, was] : later_keys)
    if (const TomlNode* const later = node.find(key);
        later && std::get_if<bool>(&later->value) && std::get<bool>(later->value) == was)
      node.erase(key);
  for (TomlNode::Member& member : node.table()) erase_what_decides_nothing(member.value);
}

}  // namespace

std::string configuration_hash(TomlNode resolved) {
  erase_what_decides_nothing(resolved);
  resolved.erase("description");
  resolved.erase("recording");
  resolved.erase("checkpoint");
  const std::string text = fmt::format("{}\nresults_version = {}\n", write_toml(resolved), results_version);
  return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

std::string digest_of_hashes(std::vector<std::string> hashes) {
  std::ranges::sort(hashes);
  hashes.erase(std::unique(hashes.begin(), hashes.end()), hashes.end());  // clang 14 cannot compile ranges::unique
  const std::string text = fmt::format("{}", fmt::join(hashes, "\n"));
  return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

}  // namespace syncopate
