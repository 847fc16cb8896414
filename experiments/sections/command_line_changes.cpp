#include "experiments/sections/command_line_changes.hpp"

#include <fmt/format.h>

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "experiments/sections/swept_keys.hpp"
#include "workers/process/printable.hpp"
#include "workers/settings/key_path.hpp"
#include "workers/settings/settings_document.hpp"

namespace syncopate {
namespace {

// The parts between commas that stand in neither quotes nor brackets; one part where there are none.
std::vector<std::string_view> parts_of(std::string_view text) {
  std::vector<std::string_view> parts;
  std::size_t begin = 0;
  int depth = 0;
  char quote = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (quote) {
      if (c == quote) quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '[' || c == '{') {
      ++depth;
    } else if (c == ']' || c == '}') {
      --depth;
    } else if (c == ',' && depth == 0) {
      parts.push_back(text.substr(begin, at - begin));
      begin = at + 1;
    }
  }
  parts.push_back(text.substr(begin));
  return parts;
}

struct CommandLineList {
  std::string key;
  TomlNode values;  // a list, or a range
};

// Of "key=a,b,c", or of a range; nothing where the value is one value.
std::optional<CommandLineList> list_of(const std::string& change) {
  Override parsed = parse_override(change);
  const auto has = [&parsed](const char* key) { return parsed.value.find(key) != nullptr; };
  if (parsed.value.is_table() && has("from") && has("to") && (has("step") || has("factor")))
    return CommandLineList{parsed.key, std::move(parsed.value)};
  const auto* text = std::get_if<std::string>(&parsed.value.value);
  // A text in quotes has been read as TOML, and has its place.
  if (!text || parsed.value.place.source == command_line_source) return {};
  const std::vector<std::string_view> parts = parts_of(*text);
  if (parts.size() < 2) return {};
  const SourcePlace command_line{std::string(command_line_source)};
  TomlNode::Array values;
  for (const std::string_view part : parts) {
    Override element = parse_override(fmt::format("value={}", part));
    if (!element.why_no_toml.empty()) throw KeyPathFault(element.why_no_toml);
    TomlNode& value = element.value;
    const auto* word = std::get_if<std::string>(&value.value);
    if (word && word->empty() && value.place.source != command_line_source)
      throw KeyPathFault("an element of the list is empty");
    value.place = command_line;
    values.push_back(std::move(value));
  }
  return CommandLineList{parsed.key, {std::move(values), command_line}};
}

void sweep(TomlNode& root, CommandLineList list) {
  const SourcePlace command_line{std::string(command_line_source)};
  const std::vector<std::string> path = split_key(list.key);
  if (path.front() == "seeds" || path.front() == "sweep") return assign(root, path, command_line, list.values);
  if (!root.find("sweep")) root.set("sweep", command_line, {TomlNode::Table{}, command_line});
  if (!root.find("sweep")->is_table()) throw KeyPathFault("cannot be swept beside a sweep that is no table");
  root.find("sweep")->set(list.key, command_line, std::move(list.values));
}

}  // namespace

void apply_command_line(TomlNode& root, std::span<const std::string> changes, FaultList& faults) {
  const auto has_empty_sweep = [&root] {
    const TomlNode* const swept = root.find("sweep");
    return swept && swept->is_table() && sweeps_nothing(*swept);
  };
  const bool was_empty = has_empty_sweep();
  for (std::size_t i = 0; i < changes.size(); ++i) {
    try {
      std::optional<CommandLineList> list = changes[i].starts_with('~') ? std::nullopt : list_of(changes[i]);
      if (list) {
        sweep(root, std::move(*list));
        continue;
      }
    } catch (const KeyPathFault& problem) {
      faults.add({std::string(command_line_source)}, fmt::format("{}; {}", shortened(changes[i]), problem.what()));
      continue;
    }
    apply_overrides(root, changes.subspan(i, 1), faults);
  }
  if (!was_empty && has_empty_sweep()) root.erase("sweep");  // its last key was removed
}

}  // namespace syncopate
