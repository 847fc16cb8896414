// Keys with several values in [sweep] and [tune]: their values (lists or ranges), and a label for each value.
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
  Path path{};        // addresses elements of lists by index, since their names may vary as well
  SourcePlace place{};
  TomlNode::Array values{};           // in the order of the file
  std::vector<std::string> labels{};  // the values' names in tables and plots
  bool goes_by_steps = false;  // whether the values are a range with `step` (not a list or a range with `factor`)
};

// Reads the varied keys of `table`, whose name is "sweep" or "tune". Keys may be written in quotes ("a.b" = [1, 2]),
// with dots, or as tables within tables. `is_other`: whether a member of the table is no varied key, such as `zip`.
// `check` throws KeyPathFault for keys that must not vary.
std::vector<VariedKey> read_varied_keys(const TomlNode& document, const TomlNode& table, std::string_view name,
                                        const std::function<bool(const std::string& member)>& is_other,
                                        const std::function<void(const VariedKey& key)>& check, FaultList& faults);

// Sets the values of `key` from `node`, in one of these forms:
// - a list, [8, 16], whose elements may have labels: { label = "none", value = [] }
// - a range with a step or a factor; it ends at the last value that is not beyond `to`
// Returns false after a fault: neither a list nor a range, no values, repeated values or labels. `table`: the name of
// the key's table, for messages.
bool read_values(const TomlNode& node, std::string_view table, VariedKey& key, FaultList& faults);

// Rounds to 12 significant digits, to undo rounding errors: 0.3 for 0.1 + 2 x 0.1.
double nearest_written(double value);

// Returns a short, unique label for each value of a key. A table is labelled by its kind (`kind`, `name`, `rule` or
// `schedule`). Tables of the same kind are labelled by the keys in which they differ, shortened. Equal labels are
// numbered.
std::vector<std::string> swept_labels(const TomlNode::Array& values);

// Returns the label of one of the key's values. A value that the key does not have is its own label.
std::string label_of(const VariedKey& key, const TomlNode& value);

// Returns the values as numbers; nullopt if one is not a number.
std::optional<std::vector<double>> numbers_of(const VariedKey& key);

// Returns a value beyond the largest one (`above`) or the smallest one. It continues the ratio of the last two values
// or, if the key is a range with a step or not all values are positive, their difference. `share` scales the distance.
// The result is a whole number if all values are. Returns nullopt if a value is not a number, if there is only one
// value, or if rounding leaves no distance.
std::optional<TomlNode> next_beyond(const VariedKey& key, bool above, double share = 1);

}  // namespace syncopate
