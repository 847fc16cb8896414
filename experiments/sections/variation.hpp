// What varies over the runs of an experiment. [sweep]: keys that take several values,
// "training.learning_rate.peak" = [0.1, 0.2], a run for each combination, the last key varying fastest; those that
// `zip` names together take their first values together, then their second ones. [[variants]]: named sets of keys,
// which vary slowest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "experiments/sections/experiment.hpp"
#include "results/run.hpp"
#include "workers/config/settings.hpp"
#include "workers/config/toml.hpp"

namespace syncopate {

// What the command line changes in an experiment file.
// In their order: key=value sets a key; key=a,b,c sweeps it (of seeds it is the list); ~key removes it. What cannot be
// applied is a fault of the command line.
void apply_command_line(TomlNode& root, std::span<const std::string> changes, FaultList& faults);

// Changes of a document: what a point of a sweep, a variant or a profile has otherwise.
struct Change {
  std::vector<std::string> path;  // elements of lists by their numbers, as far as they are there
  std::string key;                // as it is written
  SourcePlace place{};
  std::optional<TomlNode> value{};  // none: what is at the key is removed
};

// The path with the numbers of elements instead of their names, as far as it leads somewhere.
std::vector<std::string> with_numbers(const TomlNode& root, std::vector<std::string> path);

// What a table of keys changes. They may be written with dots and quotes ("cluster.workers"), or as tables within
// tables, also those of a method (methods.DropCompute.threshold_s). Values take the place of the document's one by one;
// but a table that names another kind, optimizer, schedule, rule or form stands by itself, and a length in epochs
// (steps, a share) removes one that is said otherwise. `remove = ["a.b"]` removes keys. `name` is what the table is
// called in faults.
std::vector<Change> changes_of(const TomlNode& root, const TomlNode& table, const std::string& name, FaultList& faults);

// Throws KeyPathFault.
void apply(TomlNode& root, const Change& change);

// Whether the path is the other one, or leads to something within it.
bool begins_with(const std::vector<std::string>& path, const std::vector<std::string>& beginning);

// The methods that the changes concern, by their places in the file; empty: all.
std::set<std::size_t> methods_of(std::span<const Change> changes);

// Whether what is at the path comes from the command line.
bool is_set_by_command_line(const TomlNode& root, const std::vector<std::string>& path);

// What varies, and its value, as shown to the user.
using PointName = std::pair<std::string, std::string>;

// One of the values of an axis.
struct SweepEntry {
  struct Name {
    PointName name;
    std::set<std::size_t> methods{};  // whom it concerns, by their places in the file; empty: all
  };
  std::vector<Change> changes;
  std::vector<Name> names;
};

struct SweepAxis {
  SourcePlace place{};
  std::vector<SweepEntry> entries;
};

// Where the runs of one combination stand: one entry per axis.
using SweepPoint = std::vector<std::size_t>;

// The axes of the document; faults of the tables themselves are added, such as a value that stands twice or an axis
// within another one. A key that the command line sets is no longer swept, nor changed by variants. The document's
// [sweep] then says just that: each key in quotes, with its values and their names, no table without keys.
std::vector<SweepAxis> read_sweep(TomlNode& root, FaultList& faults);

// The largest number, where the product is larger.
constexpr std::uint64_t saturated_product(std::uint64_t a, std::uint64_t b) {
  constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  return b != 0 && a > most / b ? most : a * b;
}

// How many combinations there are; the largest number if there are more.
std::uint64_t number_of_points(const std::vector<SweepAxis>& axes);

// All combinations; one empty point where nothing is swept.
std::vector<SweepPoint> sweep_points(const std::vector<SweepAxis>& axes);

// Puts the point's values into the document.
void apply_sweep(TomlNode& root, const std::vector<SweepAxis>& axes, const SweepPoint& point, FaultList& faults);

// What names the point for the method of this index: what concerns only other methods is left out.
std::vector<PointName> describe_point(const std::vector<SweepAxis>& axes, const SweepPoint& point, std::size_t method);

// An experiment file at every point of what varies, and the runs that this makes.
struct Expansion {
  std::string file;
  LoadOptions options;
  std::vector<SweepAxis> axes;
  std::vector<SweepPoint> points;
  std::vector<TomlNode> documents;  // point by point
  std::size_t methods = 0;
  std::vector<std::uint64_t> seeds;
};

// What a method has otherwise at a point, as tuning found it best; nothing: its runs are not to be made.
using Tuned = std::function<std::optional<std::vector<Change>>(std::size_t point, std::size_t method)>;

struct ExpandedRuns {
  std::vector<Run> runs;
  std::vector<std::size_t> points;  // of each: the first that makes it
};

// Point by point, method by method, seed by seed. Runs that another point makes already, because what is swept concerns
// another method, or because the method has the key otherwise, are left out. Throws ConfigurationFault, also where
// other values make the same run: they mean the same.
ExpandedRuns runs_of(const Expansion& all, const Tuned& tuned = {});

// Without the keys in which the two differ: they do not concern the method.
void keep_what_is_equal(std::vector<PointName>& sweep, const std::vector<PointName>& other);

// Numbers of a method that were solved for (algorithms/local_sgd/sync_period.hpp), as its resolved table has them: the
// number, and beside it `solved_for`.
// Of an entry of [[methods]], as a line for readers: "period.coefficient = 0.0627 makes 470 rounds", and what was asked
// for where that is another number. Empty where nothing was solved for.
std::string solved_note(const TomlNode& method);

// As it was asked for, { rounds = 470 }, in all methods of the document: for an experiment whose runs solve for it
// anew, each over its own steps and rates.
TomlNode with_numbers_as_asked(TomlNode document);

// The values that a key takes in [sweep].
struct SweptValues {
  TomlNode::Array values;
  std::vector<std::string> labels;  // as tables and plots name them
};

// Whether the table is a range, and not one of keys that are swept: { from = 8, to = 2048, factor = 2 }.
bool is_range(const TomlNode& node);

// A list, [8, 16], whose elements may have names, { label = "none", value = [] }; or a range with a step or a factor,
// which ends at the last value that is not beyond `to`. Nothing after a fault: neither of them, no values, one value
// or label twice. `table`: in which the key stands, as faults call it.
std::optional<SweptValues> read_swept_values(const TomlNode& node, const std::string& table, const std::string& key,
                                             FaultList& faults);

// How a swept value is named in tables, plots and directories.
// A short name for each value of an axis, no two alike. A table is named after its kind (also its `name`, `rule` or
// `schedule`); tables of one kind after the keys in which they differ, cut off where that is long. Names that would
// still be alike are numbered from 1.
std::vector<std::string> swept_labels(const TomlNode::Array& values);

// What keys of a table belong to: another form of it has other keys.
// Whether `own` names another optimizer, schedule, kind, rule or form than `common`, whose other keys then mean nothing
// beside it.
bool names_another(const TomlNode& common, const TomlNode& own);

// The key by which it does: "name", "schedule", "kind", "rule", "algorithm" or "form". Empty: it does not.
std::string deciding_key(const TomlNode& common, const TomlNode& own);

// Keys of the table that say otherwise what `key` says: warmup_epochs of warmup_steps, every_seconds of every_steps.
std::vector<std::string> other_forms(const TomlNode& table, const std::string& key);

// Named sets of keys: [[variants]], one of which each run has, and [profiles.NAME], which the command line asks for.
// [[variants]] label = "...", and keys as changes_of reads them. Nothing where there are none, or after a fault: no
// label, one label twice, a key that cannot be followed.
std::optional<SweepAxis> read_variants(const TomlNode& root, FaultList& faults);

// Puts the keys of these profiles into the document, in this order, and removes [profiles]. A profile that is not there
// is a fault.
void apply_profiles(TomlNode& root, std::span<const std::string> names, FaultList& faults);

}  // namespace syncopate
