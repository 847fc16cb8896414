// The hash by which runs are told apart.
#pragma once

#include <string>

#include "workers/settings/toml_tree.hpp"

namespace syncopate {

// 16 hexadecimal digits of everything that decides what a run computes: the resolved configuration and results_version.
// The description, [recording] and the places of files are left out; the contents of files count.
std::string configuration_hash(TomlNode resolved);

}  // namespace syncopate
