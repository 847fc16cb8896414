// [methods.training]: keys of [training] that one method has otherwise.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "workers/models/objective_plan.hpp"
#include "workers/settings/toml_tree.hpp"

namespace syncopate {

// [training] as the method has it. Its own keys take the place of the file's, one by one, also within tables; but a
// table that names another optimizer, schedule or form of randaugment stands by itself, and a length in epochs (steps,
// a share) takes the place of one that is said otherwise. Places stay where things are written.
TomlNode with_own_training(TomlNode training, const TomlNode& own);

// What of a method's [training] differs from the file's, both resolved: together with the file's it is the method's.
TomlNode training_difference(const TomlNode& common, const TomlNode& own);

// The difference as it is shown. Of another optimizer, or of a first phase's method: its name, and what differs from
// its own defaults. Of another learning rate: what differs from the file's, `common` being all of its [training], and
// of keys that the file's does not have what differs from their defaults.
TomlNode shown_difference(TomlNode difference, const TomlNode& common, const ObjectivePlan& objective);

// Keys with their values, as shown to the user: "optimizer.weight_decay", "0.05".
std::vector<std::pair<std::string, std::string>> listed_leaves(const TomlNode& table);

}  // namespace syncopate
