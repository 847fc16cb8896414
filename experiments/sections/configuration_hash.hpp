// What tells runs apart.
#pragma once

#include <string>

#include "workers/settings/toml_tree.hpp"

namespace syncopate {

// 16 hexadecimal digits of all that decides what a run computes: its whole resolved configuration and results_version,
// but not the description, nor what is recorded beside it, nor where files lie whose contents count.
std::string configuration_hash(TomlNode resolved);

}  // namespace syncopate
