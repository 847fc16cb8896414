// The values of a key of [sweep] or [tune]: a list, or a range, and a name for each of them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "workers/config/settings.hpp"
#include "workers/config/toml.hpp"

namespace syncopate {

struct SweptValues {
  TomlNode::Array values;
  std::vector<std::string> labels;  // for tables and plots
};

// A list, [8, 16], whose elements may have names, { label = "none", value = [] }; or a range with a step or a factor,
// which ends at the last value that is not beyond `to`. nullopt after a fault: neither of them, no values, repeated
// values or labels. `table`: of the key, for faults.
std::optional<SweptValues> read_swept_values(const TomlNode& node, const std::string& table, const std::string& key,
                                             FaultList& faults);

// The nearest number that one would write: 0.3 for 0.1 + 2 x 0.1.
double nearest_written(double value);

// A short, unique name for each value of an axis. A table is named by its kind (`name`, `rule`, `schedule`), tables of
// one kind by the keys in which they differ, shortened. Equal names are numbered from 1.
std::vector<std::string> swept_labels(const TomlNode::Array& values);

}  // namespace syncopate
