// A change of a document: sets or removes the value at a path, and records the origin of the change. A list of patches,
// applied in order, turns an experiment's file into the document of one run: profiles, the command line, a variant,
// values of [sweep], tuned values, a method's own [methods.training], and the first phase in [training.common].
// experiments/README.md states the order.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "workers/config/key_path.hpp"
#include "workers/config/settings.hpp"
#include "workers/config/toml.hpp"

namespace syncopate {

using Path = std::vector<std::string>;  // elements of lists by number or name

struct Patch {
  Path path{};
  std::optional<TomlNode> value{};  // none: removes the key
  SourcePlace place{};              // place of the key, with its `origin`: who makes the change
  std::string key{};                // as written
};

// Applies a patch. Every part of the value gets the patch's origin, so that its faults name it. Throws KeyPathFault.
void apply(TomlNode& document, const Patch& patch);

// Applies all patches in order. A patch that cannot be applied is a fault at its place.
void apply(TomlNode& document, std::span<const Patch> all, FaultList& faults);

// The patches of a table of keys. Keys may be written with dots and quotes ("cluster.workers"), or as tables within
// tables, also of an element of a list (methods.DropCompute.threshold_s). They replace the document's keys one by one.
// Exceptions: a table that names another kind, optimizer, schedule, rule or form replaces the whole table, and a length
// in epochs (steps, a share) replaces one in other units. `remove = ["a.b"]` removes keys; `label` is not a key.
// `name`: the table's, for faults. `origin`: of the patches.
std::vector<Patch> patches_of(const TomlNode& document, const TomlNode& table, const std::string& name,
                              const std::string& origin, FaultList& faults);

// The table with the keys of `own`, which replace its keys in the same way. But keys with dots are plain names, and
// nothing is removed, since the difference of two tables could not express it. `name`: of `own`, for faults.
TomlNode with_keys_of(TomlNode table, const TomlNode& own, const std::string& name, FaultList& faults);

// The inverse: the keys that turn `from` into the table `to`; both are complete.
TomlNode difference(const TomlNode& from, const TomlNode& to);

// A change on the command line: key=value sets a key; key=a,b,c and a range go into [sweep], but seeds get the list;
// ~key removes a key. A value that is not TOML becomes a string. Throws KeyPathFault.
Patch parse_patch(const std::string& change);

// Applies changes of the command line, in order. One that cannot be applied is a fault of the command line.
void apply_command_line(TomlNode& document, std::span<const std::string> changes, FaultList& faults);

// The path with numbers instead of names for elements of lists, as far as it exists.
Path with_numbers(const TomlNode& document, Path path);

// The value at the path; null if there is none, or if an element on the way does not exist.
const TomlNode* found_at(const TomlNode& document, const Path& path);

// Whether the paths are equal, or `path` leads into the other.
bool begins_with(const Path& path, const Path& beginning);

// Whether the command line has set the value at the path.
bool is_set_by_command_line(const TomlNode& document, const Path& path);

// The key in which `own` names another optimizer, schedule, kind, rule or form than `common`, whose other keys then do
// not apply: "name", "schedule", "kind", "rule", "algorithm" or "form". Empty: `own` names no other.
std::string deciding_key(const TomlNode& common, const TomlNode& own);

// Whether a table of [sweep] is a range, { from = 8, to = 2048, factor = 2 }, instead of a table of swept keys.
bool is_range(const TomlNode& node);

}  // namespace syncopate
