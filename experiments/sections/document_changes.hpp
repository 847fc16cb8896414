// Changes of a document: what a point of a sweep, a variant or a profile has otherwise.
#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "workers/settings/fault_list.hpp"
#include "workers/settings/toml_tree.hpp"

namespace syncopate {

struct Change {
  std::vector<std::string> path;  // elements of lists by their numbers, as far as they are there
  std::string key;                // as it is written
  SourcePlace place{};
  std::optional<TomlNode> value{};  // none: what is at the key is removed
};

// The path with the numbers of elements instead of their names, as far as it leads somewhere.
std::vector<std::string> with_numbers(const TomlNode& root, std::vector<std::string> path);

// What a table of keys changes. They may be written with dots and quotes ("cluster.workers"), or as tables within
// tables, also those of a method (methods.DropCompute.threshold_s). Values take the place of the document's one by one;
// but a table that names another kind, optimizer, schedule, rule or form stands by itself, and a length in epochs
// (steps, a share) removes one that is said otherwise. `remove = ["a.b"]` removes keys. `name` is what the table is
// called in faults.
std::vector<Change> changes_of(const TomlNode& root, const TomlNode& table, const std::string& name, FaultList& faults);

// Throws KeyPathFault.
void apply(TomlNode& root, const Change& change);

// Whether the path is the other one, or leads to something within it.
bool begins_with(const std::vector<std::string>& path, const std::vector<std::string>& beginning);

// The methods that the changes concern, by their places in the file; empty: all.
std::set<std::size_t> methods_of(std::span<const Change> changes);

// Whether what is at the path comes from the command line.
bool is_set_by_command_line(const TomlNode& root, const std::vector<std::string>& path);

}  // namespace syncopate
