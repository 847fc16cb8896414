// The values that a key takes in [sweep].
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "workers/settings/fault_list.hpp"
#include "workers/settings/toml_tree.hpp"

namespace syncopate {

struct SweptValues {
  TomlNode::Array values;
  std::vector<std::string> labels;  // as tables and plots name them
};

// Whether the table is a range, and not one of keys that are swept: { from = 8, to = 2048, factor = 2 }.
bool is_range(const TomlNode& node);

// A list, [8, 16], whose elements may have names, { label = "none", value = [] }; or a range with a step or a factor,
// which ends at the last value that is not beyond `to`. Nothing after a fault: neither of them, no values, one value
// or label twice. `table`: in which the key stands, as faults call it.
std::optional<SweptValues> read_swept_values(const TomlNode& node, const std::string& table, const std::string& key,
                                             FaultList& faults);

}  // namespace syncopate
