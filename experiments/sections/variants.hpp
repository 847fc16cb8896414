// Named sets of keys: [[variants]], one of which each run has, and [profiles.NAME], which the command line asks for.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "experiments/sections/sweep.hpp"
#include "workers/settings/fault_list.hpp"
#include "workers/settings/toml_tree.hpp"

namespace syncopate {

// [[variants]] label = "...", and keys as changes_of reads them. Nothing where there are none, or after a fault: no
// label, one label twice, a key that cannot be followed.
std::optional<SweepAxis> read_variants(const TomlNode& root, FaultList& faults);

// Puts the keys of these profiles into the document, in this order, and removes [profiles]. A profile that is not there
// is a fault.
void apply_profiles(TomlNode& root, std::span<const std::string> names, FaultList& faults);

}  // namespace syncopate
