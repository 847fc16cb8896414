// How a swept value is named in tables, plots and directories.
#pragma once

#include <string>
#include <vector>

#include "workers/settings/toml_tree.hpp"

namespace syncopate {

// One for each value of an axis, no two alike and each short: of tables their kind, and of those with one kind the keys
// by which they differ, cut off where that would be long. Where two would be alike the values'
// places, from 1, follow.
std::vector<std::string> swept_labels(const TomlNode::Array& values);

}  // namespace syncopate
