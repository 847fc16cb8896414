// Why a key that a file lacks is required there. Each function adds that to the messages of such faults.
#pragma once

#include <initializer_list>

#include "workers/settings/fault_list.hpp"
#include "workers/settings/toml_tree.hpp"

namespace syncopate {

// Which other key's value asks for it: `training.model = "none"` for training.parameters. `resolved`: what was read of
// the document that has the faults.
void say_what_asks(FaultList& faults, const TomlNode& resolved);

// That the file has the key in a table of another kind, which a variant's, profile's or method's own table replaces.
// `document`: the one that has the faults; `before`: as it was before variants, and before profiles too.
void say_what_was_replaced(FaultList& faults, const TomlNode& document, std::initializer_list<const TomlNode*> before);

}  // namespace syncopate
