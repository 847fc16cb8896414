#include "experiments/sections/swept_keys.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "experiments/sections/document_changes.hpp"
#include "experiments/sections/swept_label.hpp"
#include "workers/settings/key_path.hpp"
#include "workers/settings/nearest_name.hpp"

namespace syncopate {
namespace {

constexpr const char* zip = "zip";

// Why a key must not be swept; empty: it may be.
std::string why_not_swept(const std::vector<std::string>& path) {
  const std::string& key = path.front();
  if (key == "seeds") return "the list of seeds has a run for each of them";
  if (key == "name") return "it names the directory of all the runs";
  if (key == "description") return "it is the title of plots; a text with commas stands in quotes";
  const bool is_of_file = key == "sweep" || key == "variants" || key == "profiles" || key == "tune";
  return is_of_file ? "it is no key of a run" : "";
}

// Keys may be quoted, "a.b" = [...], or not, a.b = [...]: then they are tables within tables.
void collect(const TomlNode& root, const TomlNode& table, const std::string& prefix, std::vector<SweptKey>& keys,
             FaultList& faults) {
  for (const auto& [name, place, value] : table.table()) {
    if (prefix.empty() && name == zip) continue;
    const std::string key = prefix.empty() ? name : fmt::format("{}.{}", prefix, name);
    if (value.is_table() && !is_range(value)) {
      collect(root, value, key, keys, faults);
      continue;
    }
    try {
      SweptKey read{.path = with_numbers(root, split_key(key)), .key = key, .place = place};
      if (const std::string why_not = why_not_swept(read.path); !why_not.empty())
        throw KeyPathFault(fmt::format("must not be swept: {}", why_not));
      auto swept = read_swept_values(value, "sweep", key, faults);
      if (!swept || is_set_by_command_line(root, read.path)) continue;
      read.swept = std::move(*swept);
      keys.push_back(std::move(read));
    } catch (const KeyPathFault& fault) {
      faults.add(place, fmt::format("sweep.\"{}\"; {}", key, fault.what()));
    }
  }
}

bool is_of_command_line(const SweptKey& key) { return key.place.source == command_line_source; }

// What the command line sweeps, the file no longer does.
void leave_to_command_line(std::vector<SweptKey>& keys) {
  const std::vector<SweptKey> all = keys;
  std::erase_if(keys, [&](const SweptKey& key) {
    return !is_of_command_line(key) && std::ranges::any_of(all, [&](const SweptKey& other) {
      return is_of_command_line(other) && other.path == key.path;
    });
  });
}

// zip = ["a", "b"], or several such lists.
std::vector<TomlNode> lists_to_zip(const TomlNode& root, FaultList& faults) {
  const TomlNode* node = root.find("sweep")->find(zip);
  if (!node) return {};
  const auto is_list_of_texts = [](const TomlNode& list) {
    return list.is_array() && list.array().size() > 1 && std::ranges::all_of(list.array(), [](const TomlNode& key) {
             return std::holds_alternative<std::string>(key.value);
           });
  };
  if (is_list_of_texts(*node)) return {*node};
  if (node->is_array() && !node->array().empty() && std::ranges::all_of(node->array(), is_list_of_texts))
    return node->array();
  faults.add(node->place, fmt::format("sweep.zip = {}; must be a list of at least two swept keys, or of such lists",
                                      inline_toml(*node)));
  return {};
}

// Of the keys, as they stand in the list; nothing where one of them is not swept, which may be the command line's
// doing.
std::vector<std::size_t> named_by(const TomlNode& root, const TomlNode& list, const std::vector<SweptKey>& keys,
                                  FaultList& faults) {
  std::vector<std::size_t> named;
  bool is_left_out = false;
  for (const TomlNode& name : list.array()) {
    const auto& text = std::get<std::string>(name.value);
    try {
      const std::vector<std::string> path = with_numbers(root, split_key(text));
      const auto found = std::ranges::find(keys, path, &SweptKey::path);
      if (found != keys.end()) {
        named.push_back(static_cast<std::size_t>(found - keys.begin()));
      } else if (is_set_by_command_line(root, path)) {
        is_left_out = true;
      } else {
        std::vector<std::string> known;
        for (const SweptKey& key : keys) known.push_back(key.key);
        throw KeyPathFault(fmt::format("must be a key of [sweep]{}", suggestion(text, known)));
      }
    } catch (const KeyPathFault& fault) {
      faults.add(name.place, fmt::format("sweep.zip, \"{}\"; {}", text, fault.what()));
      return {};
    }
  }
  if (is_left_out) return {};
  for (const std::size_t key : named)
    if (keys[key].swept.values.size() != keys[named.front()].swept.values.size()) {
      faults.add(list.place,
                 fmt::format("sweep.zip = {}; must be keys of as many values: \"{}\" has {}, \"{}\" has {}",
                             inline_toml(list), keys[named.front()].key, keys[named.front()].swept.values.size(),
                             keys[key].key, keys[key].swept.values.size()));
      return {};
    }
  return named;
}

}  // namespace

SweptKeys read_swept_keys(const TomlNode& root, FaultList& faults) {
  const TomlNode* sweep = root.find("sweep");
  if (!sweep) return {};
  if (!sweep->is_table()) {
    faults.add(sweep->place, fmt::format("sweep = {}; must be a table, [sweep]", inline_toml(*sweep)));
    return {};
  }
  if (sweeps_nothing(*sweep)) {
    faults.add(sweep->place, "sweep; must hold a key with its values, such as \"cluster.workers\" = [2, 4]");
    return {};
  }
  const std::size_t faults_before = faults.size();
  std::vector<SweptKey> keys;
  collect(root, *sweep, "", keys, faults);
  if (faults.size() > faults_before) return {};  // keys are missing, so that nothing true can be said of groups
  leave_to_command_line(keys);
  std::vector<std::optional<std::size_t>> group_of(keys.size());
  std::size_t groups = 0;
  for (const TomlNode& list : lists_to_zip(root, faults)) {
    for (const std::size_t key : named_by(root, list, keys, faults)) {
      if (group_of[key])
        faults.add(list.place,
                   fmt::format("sweep.zip = {}; \"{}\" stands there twice", inline_toml(list), keys[key].key));
      group_of[key] = groups;
    }
    ++groups;
  }
  SweptKeys result;
  std::vector<std::optional<std::size_t>> place_of(groups);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (group_of[i] && place_of[*group_of[i]]) {
      result[*place_of[*group_of[i]]].push_back(std::move(keys[i]));
      continue;
    }
    if (group_of[i]) place_of[*group_of[i]] = result.size();
    result.emplace_back().push_back(std::move(keys[i]));
  }
  return result;
}

bool sweeps_nothing(const TomlNode& table) {
  return std::ranges::all_of(table.table(), [](const TomlNode::Member& member) {
    return member.value.is_table() && !is_range(member.value) && sweeps_nothing(member.value);
  });
}

TomlNode written(const SweptKeys& groups, const SourcePlace& place) {
  TomlNode sweep{TomlNode::Table{}, place};
  TomlNode::Array zips;
  for (const std::vector<SweptKey>& group : groups) {
    TomlNode::Array names;
    for (const SweptKey& key : group) {
      const std::vector<std::string> usual = swept_labels(key.swept.values);
      TomlNode::Array values;
      for (std::size_t i = 0; i < key.swept.values.size(); ++i) {
        if (key.swept.labels[i] == usual[i]) {
          values.push_back(key.swept.values[i]);
          continue;
        }
        TomlNode named;
        named.set("label", {}, {key.swept.labels[i], {}});
        named.set("value", {}, key.swept.values[i]);
        values.push_back(std::move(named));
      }
      sweep.set(key.key, key.place, {std::move(values), key.place});
      names.push_back({key.key, {}});
    }
    if (group.size() > 1) zips.push_back({std::move(names), {}});
  }
  if (!zips.empty()) sweep.set(zip, {}, {std::move(zips), {}});
  return sweep;
}

}  // namespace syncopate
