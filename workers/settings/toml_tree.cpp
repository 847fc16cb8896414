#include "workers/settings/toml_tree.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace syncopate {

std::string SourcePlace::text() const {
  return line == 0 || source == command_line_source ? source : fmt::format("{}:{}:{}", source, line, column);
}

bool TomlNode::is_array_of_tables() const {
  return is_array() && !array().empty() && std::ranges::all_of(array(), &TomlNode::is_table);
}

const TomlNode* TomlNode::find(std::string_view key) const {
  if (!is_table()) return nullptr;
  const auto found = std::ranges::find(table(), key, &Member::key);
  return found == table().end() ? nullptr : &found->value;
}

TomlNode* TomlNode::find(std::string_view key) {
  return const_cast<TomlNode*>(static_cast<const TomlNode*>(this)->find(key));
}

void TomlNode::set(std::string key, SourcePlace key_place, TomlNode node) {
  const auto found = std::ranges::find(table(), key, &Member::key);
  if (found == table().end()) {
    table().push_back({std::move(key), std::move(key_place), std::move(node)});
  } else {
    found->place = std::move(key_place);
    found->value = std::move(node);
  }
}

void TomlNode::erase(std::string_view key) {
  std::erase_if(table(), [&](const Member& member) { return member.key == key; });
}

}  // namespace syncopate
