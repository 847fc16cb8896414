// What the command line changes in an experiment file.
#pragma once

#include <span>
#include <string>

#include "workers/settings/fault_list.hpp"
#include "workers/settings/toml_tree.hpp"

namespace syncopate {

// In their order: key=value sets a key; key=a,b,c sweeps it (of seeds it is the list); ~key removes it. What cannot be
// applied is a fault of the command line.
void apply_command_line(TomlNode& root, std::span<const std::string> changes, FaultList& faults);

}  // namespace syncopate
