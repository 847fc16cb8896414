// What keys of a table belong to: another form of it has other keys.
#pragma once

#include <string>
#include <vector>

#include "workers/settings/toml_tree.hpp"

namespace syncopate {

// Whether `own` names another optimizer, schedule, kind, rule or form than `common`, whose other keys then mean nothing
// beside it.
bool names_another(const TomlNode& common, const TomlNode& own);

// The key by which it does: "name", "schedule", "kind", "rule", "algorithm" or "form". Empty: it does not.
std::string deciding_key(const TomlNode& common, const TomlNode& own);

// Keys of the table that say otherwise what `key` says: warmup_epochs of warmup_steps, every_seconds of every_steps.
std::vector<std::string> other_forms(const TomlNode& table, const std::string& key);

}  // namespace syncopate
