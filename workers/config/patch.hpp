// A change of a document: a value at a path, or the removal of what is there, and who made it. Whatever turns an
// experiment's file into the document of one run is a list of patches, applied one after the other: profiles, the
// command line, a variant, values of [sweep], tuned values, a method's own [methods.training], and the first phase in
// [training.common]. experiments/README.md states the order.
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

using Path = std::vector<std::string>;  // elements of lists by their numbers or names

struct Patch {
  Path path;
  std::optional<TomlNode> value{};  // none: removes the key
  SourcePlace place{};              // of the key, and its `origin`: who makes the change
  std::string key{};                // as written
};

// Every part of the value gets the patch's origin, so that its faults name it. Throws KeyPathFault.
void apply(TomlNode& document, const Patch& patch);

// `all`, in order. A patch that cannot be applied is a fault at its place.
void apply(TomlNode& document, std::span<const Patch> all, FaultList& faults);

// The patches of a table of keys. Keys may be written with dots and quotes ("cluster.workers"), or as tables within
// tables, also of an element of a list (methods.DropCompute.threshold_s). They replace the document's keys one by one;
// but a table that names another kind, optimizer, schedule, rule or form replaces the whole table, and a length in
// epochs (steps, a share) replaces one in other units. `remove = ["a.b"]` removes keys, and `label` is no key.
// `name`: of the table, for faults. `origin`: of the patches.
std::vector<Patch> patches_of(const TomlNode& document, const TomlNode& table, const std::string& name,
                              const std::string& origin, FaultList& faults);

// The table with another's keys, which replace its own in the same way. But keys with dots are names, and nothing is
// removed: the difference of two tables could not say so. `name`: of the other table, for faults.
TomlNode with_keys_of(TomlNode table, const TomlNode& own, const std::string& name, FaultList& faults);

// The inverse: keys that make `from` the table `to`, both complete.
TomlNode difference(const TomlNode& from, const TomlNode& to);

// A change of the command line: key=value sets a key; key=a,b,c and a range go into [sweep], but seeds get the list;
// ~key removes a key. A value that is no TOML becomes a string. Throws KeyPathFault.
Patch parse_patch(const std::string& change);

// Changes of the command line, in order. One that cannot be applied is a fault of the command line.
void apply_command_line(TomlNode& document, std::span<const std::string> changes, FaultList& faults);

// The path with numbers of elements instead of their names, as far as it exists.
Path with_numbers(const TomlNode& document, Path path);

// The value at the path; null if there is none, also where an element does not exist.
const TomlNode* found_at(const TomlNode& document, const Path& path);

// Whether the paths are equal, or `path` leads to something within the other.
bool begins_with(const Path& path, const Path& beginning);

// Whether the command line has set what is at the path.
bool is_set_by_command_line(const TomlNode& document, const Path& path);

// The key in which `own` names another optimizer, schedule, kind, rule or form than `common`, whose other keys then do
// not apply: "name", "schedule", "kind", "rule", "algorithm" or "form". Empty: it names none.
std::string deciding_key(const TomlNode& common, const TomlNode& own);

// Whether a table of [sweep] is a range, { from = 8, to = 2048, factor = 2 }, and not one of swept keys.
bool is_range(const TomlNode& node);

}  // namespace syncopate
