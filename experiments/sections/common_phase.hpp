// [training.common]: a first phase that all methods of a seed have in common, as a run of its own.
#pragma once

#include <string>

#include "workers/settings/fault_list.hpp"
#include "workers/settings/settings.hpp"
#include "workers/settings/toml_tree.hpp"

namespace syncopate {

inline constexpr const char* common_phase_label = "common phase";

// The table, as it is written; null where there is none. One that is no table, or has no length, is a fault, and so is
// one of a method's own.
const TomlNode* common_phase_table(const TomlNode& written, FaultList& faults);

// The experiment of the phase alone: synchronous SGD by the keys of [training], with the phase's own in their place,
// and its length as budget.
TomlNode with_common_phase_alone(const TomlNode& written, const TomlNode& common);

// Its own keys, for lists and pages: what is written is read as the budget of the phase.
void describe_common_phase(Settings& root);

}  // namespace syncopate
