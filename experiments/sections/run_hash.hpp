// The hash of a run's resolved configuration, and the version of its results.
#pragma once

#include <string>
#include <vector>

#include "workers/config/toml.hpp"

namespace syncopate {

// The hash of a run: 16 hexadecimal digits of the resolved configuration and the version of its results. It excludes
// the description, [recording], [checkpoint], places of files, and targets for which numbers were solved; it includes
// contents of files. It excludes keys that were added later if they have the value that held before.
std::string configuration_hash(TomlNode resolved);

// 16 hexadecimal digits for a set of hashes, independent of their order.
std::string digest_of_hashes(std::vector<std::string> hashes);

// The version of the results of the run with this resolved configuration: that of the newest program change that
// altered what the run computes. Only altered runs get another hash; all others stay valid. At least
// `first_selective_results_version`, at most `results_version`.
int results_version_of(const TomlNode& resolved);

}  // namespace syncopate
