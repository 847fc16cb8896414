#include "experiments/sections/document_changes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "experiments/sections/table_forms.hpp"
#include "workers/settings/key_path.hpp"

namespace syncopate {
namespace {

using Path = std::vector<std::string>;

const TomlNode* found_at(const TomlNode& root, const Path& path) {
  try {
    return find(root, path);
  } catch (const KeyPathFault&) {  // an element that is not there
    return nullptr;
  }
}

class TableReader {
 public:
  TableReader(const TomlNode& root, std::string name, FaultList& faults)
      : root_(root), name_(std::move(name)), faults_(faults) {}

  std::vector<Change> read(const TomlNode& table) {
    if (const TomlNode* keys = table.find("remove")) add_removals(*keys);
    add_table(table, {}, "");
    return std::move(changes_);
  }

 private:
  void fault(const SourcePlace& place, const std::string& text) {
    faults_.add(place, fmt::format("{}.{}", name_, text));
  }

  void add_removals(const TomlNode& keys) {
    const bool is_list = keys.is_array() && std::ranges::all_of(keys.array(), [](const TomlNode& key) {
                           return std::holds_alternative<std::string>(key.value);
                         });
    if (!is_list) return fault(keys.place, fmt::format("remove = {}; must be a list of keys", inline_toml(keys)));
    for (const TomlNode& key : keys.array()) {
      const auto& text = std::get<std::string>(key.value);
      try {
        Path path = with_numbers(root_, split_key(text));
        if (!found_at(root_, path)) throw KeyPathFault("must be a key that the file has");
        changes_.push_back({std::move(path), text, key.place, {}});
      } catch (const KeyPathFault& problem) {
        fault(key.place, fmt::format("remove = \"{}\"; {}", text, problem.what()));
      }
    }
  }

  void add_table(const TomlNode& table, const Path& above, const std::string& prefix) {
    for (const TomlNode::Member& member : table.table()) {
      if (above.empty() && (member.key == "remove" || member.key == "label")) continue;
      const std::string key = prefix.empty() ? member.key : fmt::format("{}.{}", prefix, member.key);
      try {
        Path path = above;
        for (std::string& part : split_key(member.key)) path.push_back(std::move(part));
        add(member, with_numbers(root_, std::move(path)), key);
      } catch (const KeyPathFault& problem) {
        fault(member.place, fmt::format("{}; {}", key, problem.what()));
      }
    }
  }

  void add(const TomlNode::Member& member, const Path& path, const std::string& key) {
    const TomlNode* there = found_at(root_, path);
    if (there && member.value.is_table()) {
      if (there->is_array_of_tables()) return add_elements(member.value, *there, path, key);
      if (there->is_table() && !names_another(*there, member.value)) return add_table(member.value, path, key);
    }
    const Path above(path.begin(), path.end() - 1);
    const TomlNode* table = above.empty() ? &root_ : found_at(root_, above);
    if (table && table->is_table())
      for (const std::string& other : other_forms(*table, path.back())) {
        Path removed = above;
        removed.push_back(other);
        changes_.push_back({std::move(removed), key, member.place, {}});
      }
    changes_.push_back({path, key, member.place, member.value});
  }

  // [variants.methods.DropCompute]: keys of an element, by its name.
  void add_elements(const TomlNode& table, const TomlNode& list, const Path& path, const std::string& prefix) {
    for (const TomlNode::Member& member : table.table()) {
      const std::string key = fmt::format("{}.{}", prefix, member.key);
      try {
        Path element = path;
        element.push_back(std::to_string(element_index(list, member.key)));
        add(member, element, key);
      } catch (const KeyPathFault& problem) {
        fault(member.place, fmt::format("{}; {}", key, problem.what()));
      }
    }
  }

  const TomlNode& root_;
  std::string name_;
  FaultList& faults_;
  std::vector<Change> changes_;
};

}  // namespace

Path with_numbers(const TomlNode& root, Path path) {
  const TomlNode* node = &root;
  try {
    for (std::string& part : path) {
      if (!node) break;
      if (node->is_array()) {
        const std::size_t index = element_index(*node, part);
        part = std::to_string(index);
        node = &node->array()[index];
      } else {
        node = node->find(part);
      }
    }
  } catch (const KeyPathFault&) {  // whoever assigns to it says so
  }
  return path;
}

std::vector<Change> changes_of(const TomlNode& root, const TomlNode& table, const std::string& name,
                               FaultList& faults) {
  return TableReader(root, name, faults).read(table);
}

void apply(TomlNode& root, const Change& change) {
  if (change.value)
    assign(root, change.path, change.place, *change.value);
  else
    remove(root, change.path);
}

bool begins_with(const Path& path, const Path& beginning) {
  return path.size() >= beginning.size() && std::equal(beginning.begin(), beginning.end(), path.begin());
}

std::set<std::size_t> methods_of(std::span<const Change> changes) {
  std::set<std::size_t> methods;
  for (const Change& change : changes) {
    if (change.path.size() < 2 || change.path.front() != "methods") return {};
    std::size_t method = 0;
    const std::string& text = change.path[1];
    if (std::from_chars(text.data(), text.data() + text.size(), method).ec != std::errc()) return {};
    methods.insert(method);
  }
  return methods;
}

bool is_set_by_command_line(const TomlNode& root, const Path& path) {
  const TomlNode* node = found_at(root, path);
  return node && node->place.source == command_line_source;
}

}  // namespace syncopate
