// [[claim]] reference = "dropcompute.figure-5-time": a paper's figure that stands in
// results/reference/dropcompute.toml, once for all claims that quote it.
#pragma once

#include <string>

#include "workers/settings/fault_list.hpp"
#include "workers/settings/toml_tree.hpp"

namespace syncopate {

// Puts the table `paper` that is meant in the place of each `reference`. The folder results/reference is looked for
// beside the experiment file and in the folders above it, then in the working directory. No such folder, file or entry
// is a fault, with the nearest known name.
void apply_references(TomlNode& root, const std::string& file, FaultList& faults);

}  // namespace syncopate
