// Which runs a change of the program has altered: only these get another hash, so that all other finished runs stay
// valid.
#pragma once

#include "workers/settings/toml_tree.hpp"

namespace syncopate {

// The version of the results of the run with this resolved configuration: that of the newest change that altered what
// such a run computes. At least `first_selective_results_version`, at most `results_version`.
int results_version_of(const TomlNode& resolved);

}  // namespace syncopate
