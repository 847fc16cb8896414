// The hash of a run's resolved configuration, and the version of its results.
#pragma once

#include <string>
#include <vector>

#include "workers/config/toml.hpp"

namespace syncopate {

// Returns the hash of a run: 16 hexadecimal digits that depend on the resolved configuration and on the version of the
// run's results. The hash depends on the contents of files, but not on their paths. It ignores the description,
// [recording], [checkpoint], and targets for which numbers were solved. It also ignores keys that were added to the
// program later, if their value means what the program did before.
std::string configuration_hash(TomlNode resolved);

// Returns 16 hexadecimal digits for a set of hashes, independent of their order.
std::string digest_of_hashes(std::vector<std::string> hashes);

// Returns the version of the results of a run: the version of the newest program change that altered what a run with
// this resolved configuration computes. So a program change alters the hashes of affected runs only, and all other
// results remain valid. At least `first_selective_results_version`, at most `results_version`.
int results_version_of(const TomlNode& resolved);

}  // namespace syncopate
