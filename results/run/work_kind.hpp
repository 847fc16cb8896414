// What decides how long this machine takes for a micro-batch of a run, as far as the configuration says it.
#pragma once

#include <string>

#include "workers/settings/toml_tree.hpp"

namespace syncopate {

// Of a run's resolved configuration: its model, its data set, with their settings, and the size of a micro-batch. Runs
// of one kind cost this machine about the same per micro-batch; equal texts are one kind.
std::string work_kind(const TomlNode& resolved);

}  // namespace syncopate
