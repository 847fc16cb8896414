// How a swept value is named in tables, plots and directories.
#pragma once

#include <string>
#include <vector>

#include "workers/settings/toml_tree.hpp"

namespace syncopate {

// A short name for each value of an axis, no two alike. A table is named after its kind (also its `name`, `rule` or
// `schedule`); tables of one kind after the keys in which they differ, cut off where that is long. Names that would
// still be alike are numbered from 1.
std::vector<std::string> swept_labels(const TomlNode::Array& values);

}  // namespace syncopate
