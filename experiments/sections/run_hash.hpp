// What decides a run's results: the hash of its resolved configuration, and the version of its results.
#pragma once

#include <string>
#include <vector>

#include "workers/config/toml.hpp"

namespace syncopate {

// The hash of a run: 16 hexadecimal digits of the resolved configuration and the version of its results. It leaves out
// the description, [recording], [checkpoint], places of files and targets that numbers were solved for; contents of
// files count. Keys that were added later are left out at the value that held before them.
std::string configuration_hash(TomlNode resolved);

// 16 hexadecimal digits of a set of hashes, in any order.
std::string digest_of_hashes(std::vector<std::string> hashes);

// The version of the results of the run with this resolved configuration: of the newest program change that altered
// what it computes. Only those runs get another hash; all others stay valid. At least
// `first_selective_results_version`, at most `results_version`.
int results_version_of(const TomlNode& resolved);

}  // namespace syncopate
