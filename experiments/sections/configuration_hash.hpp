// The hash by which runs are told apart.
#pragma once

#include <string>
#include <vector>

#include "workers/settings/toml_tree.hpp"

namespace syncopate {

// 16 hexadecimal digits of everything that decides what a run computes: the resolved configuration and the version of
// its results (results_changes.hpp). The description, [recording], [checkpoint], the places of files and what numbers
// were solved for are left out; the contents of files count. Keys that were added later are left out at the value that
// held before them.
std::string configuration_hash(TomlNode resolved);

// 16 hexadecimal digits of a set of hashes, whatever their order.
std::string digest_of_hashes(std::vector<std::string> hashes);

}  // namespace syncopate
