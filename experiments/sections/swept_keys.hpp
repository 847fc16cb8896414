// The table [sweep] as it is read.
#pragma once

#include <string>
#include <vector>

#include "experiments/sections/swept_values.hpp"
#include "workers/settings/fault_list.hpp"
#include "workers/settings/toml_tree.hpp"

namespace syncopate {

// A key of [sweep].
struct SweptKey {
  std::vector<std::string> path;  // elements of lists by their numbers: their names may be swept themselves
  std::string key;                // the same as it is written
  SourcePlace place{};
  SweptValues swept{};
};

// Keys that are swept, by groups: those of a group go together, and have as many values each.
using SweptKeys = std::vector<std::vector<SweptKey>>;

// In the order of the file, a group at the place of its first key. Faults are added, and keys that have one are left
// out, as are those that the command line sets.
SweptKeys read_swept_keys(const TomlNode& root, FaultList& faults);

// The table that reads back to them.
TomlNode written(const SweptKeys& keys, const SourcePlace& place);

// Whether the table of [sweep], or one in it, names nothing to sweep.
bool sweeps_nothing(const TomlNode& table);

}  // namespace syncopate
