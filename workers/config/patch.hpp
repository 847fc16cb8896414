// A patch is a change of a document: it sets or removes the value at a path and records the origin of the change. A
// list of patches, applied in order, turns an experiment file into the document of one run. Patches come from profiles,
// the command line, a variant, values of [sweep], [tune.trials], tuned values, a method's own [methods.training], and
// the first phase in [training.common]. experiments/README.md states their order.
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

using Path = std::vector<std::string>;  // parts of a key; an element of a list is given by its number or name

struct Patch {
  Path path{};
  std::optional<TomlNode> value{};  // nullopt: removes the key
  SourcePlace place{};              // place of the key; its `origin` says what makes the change
  std::string key{};                // as written
};

// Applies a patch. Every part of the value gets the patch's origin, so that messages about faults name the origin.
// Throws KeyPathFault.
void apply(TomlNode& document, const Patch& patch);

// Applies all patches in order. Reports a fault at a patch's place if it cannot be applied.
void apply(TomlNode& document, std::span<const Patch> all, FaultList& faults);

// Converts a table of changed keys, such as a variant's, to patches. Keys may be written with dots and quotes
// ("cluster.workers") or as nested tables; they may lead into an element of a list (methods.DropCompute.threshold_s).
// Each key replaces one key of the document, with two exceptions. A table that names another kind, optimizer, schedule,
// rule or form replaces the whole table. A length in epochs (or steps, or a share) also removes the same length in
// other units.
// `remove = ["a.b"]` removes keys; `label` is ignored. Messages about faults call the table `name`. Patches get
// `origin`.
std::vector<Patch> patches_of(const TomlNode& document, const TomlNode& table, const std::string& name,
                              const std::string& origin, FaultList& faults);

// Returns the table with its keys replaced by those of `own`, with the exceptions of patches_of. Dots in keys and
// `remove` mean nothing here, because difference() could not express them. Messages about faults call `own` by `name`.
TomlNode with_keys_of(TomlNode table, const TomlNode& own, const std::string& name, FaultList& faults);

// The inverse of with_keys_of: returns the keys that turn `from` into `to`, both of which are complete tables.
TomlNode difference(const TomlNode& from, const TomlNode& to);

// Parses a change on the command line. key=value sets a key (to a string if the value is not TOML), ~key removes one.
// key=a,b,c and key={ from, to, ... } add to [sweep], but seeds=a,b,c sets `seeds`. Throws KeyPathFault.
Patch parse_patch(const std::string& change);

// Applies changes from the command line, in order. Reports a fault for each that cannot be applied.
void apply_command_line(TomlNode& document, std::span<const std::string> changes, FaultList& faults);

// Replaces names of list elements in the path by their numbers, as far as the path exists.
Path with_numbers(const TomlNode& document, Path path);

// Returns the value at the path; null if the value or an element on the way to it does not exist.
const TomlNode* found_at(const TomlNode& document, const Path& path);

// Whether `path` equals `beginning` or leads into it.
bool begins_with(const Path& path, const Path& beginning);

// Whether the command line has set the value at the path.
bool is_set_by_command_line(const TomlNode& document, const Path& path);

// If `own` names another optimizer, schedule, kind, rule, algorithm or form than `common`, the other keys of `common`
// do not apply to `own`. Returns the key that differs, "name", "schedule", "kind", "rule", "algorithm" or "form"; empty
// if differs.
std::string deciding_key(const TomlNode& common, const TomlNode& own);

// Whether a table in [sweep] is a range, such as { from = 8, to = 2048, factor = 2 }. If not, it is a table of swept
// keys.
bool is_range(const TomlNode& node);

}  // namespace syncopate
