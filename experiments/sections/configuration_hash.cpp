#include "experiments/sections/configuration_hash.hpp"

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <variant>

#include "experiments/sections/results_changes.hpp"

namespace syncopate {
namespace {

// Where files lie decides nothing; what they hold does, and is in `file_hash`, `directory_hash`, `start_hash`. What a
// number was solved for decides nothing beside the number.
constexpr const char* solved_for = "solved_for";
// A key that was added later is left out of the hash at the value that held before it existed, so that runs made until
// then keep their hash.
struct LaterKey {
  std::string_view key;
  std::string_view value_before;                        // as TOML
  std::array<std::string_view, 2> algorithms_before{};  // methods that had a key of this name already
};
constexpr LaterKey later_keys[] = {
    {"bias_correction", "true"},                                   // of Adam and AdamW
    {"contention", "true"},                                        // of networks: those it changes have a new version
    {"rounds", "\"overlapped\""},                                  // of CO2
    {"rule", "\"clipping-rennala\""},                              // of MindFlayer
    {"weights", "\"equal\"", {"dropcompute-local-sgd", "stsyn"}},  // of averages of models
};

bool had_before(const LaterKey& later, const TomlNode& table) {
  const TomlNode* const algorithm = table.find("algorithm");
  const auto* const name = algorithm ? std::get_if<std::string>(&algorithm->value) : nullptr;
  return name && std::ranges::find(later.algorithms_before, *name) != later.algorithms_before.end();
}

void erase_what_decides_nothing(TomlNode& node) {
  if (node.is_array())
    for (TomlNode& element : node.array()) erase_what_decides_nothing(element);
  if (!node.is_table()) return;
  for (const char* place : {"file", "directory", "start"})
    if (node.find(fmt::format("{}_hash", place))) node.erase(place);
  node.erase(solved_for);
  for (const LaterKey& later : later_keys) {
    const TomlNode* const value = node.find(later.key);
    if (value && inline_toml(*value) == later.value_before && !had_before(later, node)) node.erase(later.key);
  }
  for (TomlNode::Member& member : node.table()) erase_what_decides_nothing(member.value);
}

}  // namespace

std::string configuration_hash(TomlNode resolved) {
  const int version = results_version_of(resolved);
  erase_what_decides_nothing(resolved);
  resolved.erase("description");
  resolved.erase("recording");
  resolved.erase("checkpoint");
  const std::string text = fmt::format("{}\nresults_version = {}\n", write_toml(resolved), version);
  return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

std::string digest_of_hashes(std::vector<std::string> hashes) {
  std::ranges::sort(hashes);
  hashes.erase(std::unique(hashes.begin(), hashes.end()), hashes.end());  // clang 14 cannot compile ranges::unique
  const std::string text = fmt::format("{}", fmt::join(hashes, "\n"));
  return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

}  // namespace syncopate
