// [training.common]: a first phase that the methods of a seed have in common, as a run of its own. What a method has
// otherwise in it, [methods.training.common], makes another phase, which methods that say the same have in common.
#pragma once

#include <vector>

#include "workers/models/objective_plan.hpp"
#include "workers/settings/fault_list.hpp"
#include "workers/settings/settings.hpp"
#include "workers/settings/toml_tree.hpp"
#include "workers/training/starting_point.hpp"

namespace syncopate {

inline constexpr const char* common_phase_label = "common phase";

// The table, as it is written; null where there is none. One that is no table, or has no length, is a fault, and so are
// keys that no other table would tell.
const TomlNode* common_phase_table(const TomlNode& written, FaultList& faults);

// The experiment of the phase alone: its `method`, or synchronous SGD, by the keys of [training] and of [models.*] and
// [datasets.*], with the phase's own in their place, and its length as budget.
TomlNode with_common_phase_alone(const TomlNode& written, const TomlNode& common);

// The table as it is resolved: what of the experiment of the phase, `alone`, differs from `all`, both resolved, and of
// `written` what says how long it is and what is taken of it.
TomlNode resolved_common_phase(const TomlNode& written, const TomlNode& all, const TomlNode& alone);

// Whether methods begin with the body of the phase's model alone, and with a head of their own.
bool takes_body_alone(const TomlNode& common);

// The bodies' tensors, where both models have the same ones: for each of the phase's where it is in the method's. Empty
// where they do not, or one has no body.
std::vector<TakenElements> taken_body(const ObjectivePlan& of_phase, const ObjectivePlan& of_method);

// Its own keys, for lists and pages: what is written is read as the budget of the phase.
void describe_common_phase(Settings& root);

}  // namespace syncopate
