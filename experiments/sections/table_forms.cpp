#include "experiments/sections/table_forms.hpp"

#include <algorithm>
#include <string_view>

namespace syncopate {
namespace {

bool is_same(const TomlNode* a, const TomlNode* b) { return a && b && inline_toml(*a) == inline_toml(*b); }

// "warmup" of warmup_steps, warmup_epochs, warmup_share: one length, said in different ways. Else empty.
std::string_view length_of(std::string_view key) {
  if (key == "rounds" || key == "share") return "rounds";  // that a number is solved for
  for (const std::string_view unit : {"_steps", "_epochs", "_seconds", "_share", "_step", "_epoch"})
    if (key.ends_with(unit)) return key.substr(0, key.size() - unit.size());
  return {};
}

}  // namespace

std::string deciding_key(const TomlNode& common, const TomlNode& own) {
  const auto differs = [&](const char* key) { return own.find(key) && !is_same(common.find(key), own.find(key)); };
  for (const char* const key : {"name", "schedule", "kind", "rule"})
    if (differs(key)) return key;
  if (!common.find("label") && differs("algorithm"))
    return "algorithm";  // of a phase; one of [[methods]] keeps its name
  // Of randaugment; an optimizer may have a form beside its name.
  return !common.find("name") && differs("form") ? "form" : "";
}

bool names_another(const TomlNode& common, const TomlNode& own) { return !deciding_key(common, own).empty(); }

std::vector<std::string> other_forms(const TomlNode& table, const std::string& key) {
  std::vector<std::string> others;
  const std::string_view length = length_of(key);
  if (length.empty()) return others;
  for (const TomlNode::Member& other : table.table())
    if (other.key != key && length_of(other.key) == length) others.push_back(other.key);
  return others;
}

}  // namespace syncopate
