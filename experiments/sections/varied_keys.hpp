// Keys with several values in [sweep] and [tune]: their places, their values (lists or ranges), and a name for each
// value.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "workers/config/patch.hpp"
#include "workers/config/settings.hpp"
#include "workers/config/toml.hpp"

namespace syncopate {

struct VariedKey {
  std::string key{};  // as written
  Path path{};        // elements of lists are given by number, since their names may vary themselves
  SourcePlace place{};
  TomlNode::Array values{};           // in the order of the file
  std::vector<std::string> labels{};  // for tables and plots
  bool goes_by_steps = false;         // whether it is a range with a step, not a factor
};

// Reads the keys of `table`, which is [sweep] or [tune] according to its name. They are in quotes ("a.b" = [1, 2]),
// with dots, or tables within tables. `is_other`: whether a member of the table is no such key. `check` throws
// KeyPathFault for keys that must not vary.
std::vector<VariedKey> read_varied_keys(const TomlNode& document, const TomlNode& table, std::string_view name,
                                        const std::function<bool(const std::string& member)>& is_other,
                                        const std::function<void(const VariedKey& key)>& check, FaultList& faults);

// Gives the key its values. They are a list, [8, 16], whose elements may have names, { label = "none", value = [] }; or
// a range with a step or a factor, which ends at the last value that is not beyond `to`. Returns false after a fault:
// neither list nor range, no values, repeated values or labels. `table`: the key's table, for faults.
bool read_values(const TomlNode& node, std::string_view table, VariedKey& key, FaultList& faults);

// The nearest number that a person would write: 0.3 for 0.1 + 2 x 0.1.
double nearest_written(double value);

// A short, unique name for each value of a key. A table is named by its kind (`name`, `rule`, `schedule`), tables of
// one kind by the keys in which they differ, shortened. Equal names are numbered from 1.
std::vector<std::string> swept_labels(const TomlNode::Array& values);

// The label of one of the key's values, or of a value beyond them.
std::string label_of(const VariedKey& key, const TomlNode& value);

// The values as numbers; nullopt if one is no number.
std::optional<std::vector<double>> numbers_of(const VariedKey& key);

// The value beyond the largest or below the smallest one. Its distance follows from the ratio to the neighbour, or from
// the difference if the key goes by steps or has values that are not positive. `share`: part of that distance. The
// result is whole if all values are. nullopt if a value is no number, if there is only one value, or if rounding leaves
// none beyond.
std::optional<TomlNode> next_beyond(const VariedKey& key, bool above, double share = 1);

}  // namespace syncopate
