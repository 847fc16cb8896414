// Sweeps, variants, profiles and tuning: everything that varies over the runs of an experiment. Sections 3 and 4 of
// experiments/README.md describe their tables.
// An axis varies independently of other axes. It is the variants, a swept key, or the keys in one list of `zip`. The
// variants vary slowest, the last swept key fastest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "experiments/sections/experiment.hpp"
#include "results/run.hpp"
#include "workers/config/patch.hpp"
#include "workers/config/settings.hpp"
#include "workers/config/toml.hpp"

namespace syncopate {

// Reads the varied keys of `table`, whose name is "sweep" or "tune". Keys may be quoted ("a.b" = [1, 2]), dotted, or
// tables within tables. `is_other`: whether a member of the table is no varied key, such as `zip`. `check` throws
// KeyPathFault for keys that must not vary.
std::vector<VariedKey> read_varied_keys(const TomlNode& document, const TomlNode& table, std::string_view name,
                                        const std::function<bool(const std::string& member)>& is_other,
                                        const std::function<void(const VariedKey& key)>& check, FaultList& faults);

// Sets the values of `key` from `node`, in one of these forms:
// - a list, [8, 16], whose elements may have labels: { label = "none", value = [] }
// - a range with a step or a factor; it ends at the last value that is not beyond `to`
// Returns false after a fault: neither a list nor a range, no values, repeated values or labels. `table`: the name of
// the key's table, for messages.
bool read_values(const TomlNode& node, std::string_view table, VariedKey& key, FaultList& faults);

// Returns a short, unique label for each value of a key. The label of a table has its kind (`kind`, `name`, `rule` or
// `schedule`) and the keys in which tables of this kind differ. Equal labels are numbered.
std::vector<std::string> swept_labels(const TomlNode::Array& values);

// Returns the label of one of the key's values. A value that the key does not have is its own label.
std::string label_of(const VariedKey& key, const TomlNode& value);

// Returns the values as numbers; nullopt if one is not a number.
std::optional<std::vector<double>> numbers_of(const VariedKey& key);

// Returns a value beyond the largest one (`above`) or the smallest one. It continues the ratio of the last two values
// or, if the key is a range with a step or not all values are positive, their difference. `share` scales the distance.
// The result is whole if all values are. Returns nullopt without two numbers, or if rounding leaves no distance.
std::optional<TomlNode> next_beyond(const VariedKey& key, bool above, double share = 1);

// A key or "variant", and its value, as shown to users.
using PointName = std::pair<std::string, std::string>;

// The names of the values of each swept key, and of the variants.
using SweptNames = std::map<std::string, std::set<std::string>>;

// Returns why a file with these swept keys does not sweep the key or, with a `value`, this value of the key. Empty if
// the file does.
std::string why_not_swept(const SweptNames& swept, const std::string& key, const std::optional<std::string>& value);

// One value of an axis.
struct SweepEntry {
  struct Name {
    PointName name;
    std::set<std::size_t> methods{};  // indices of the methods that the value affects; empty: all
  };
  std::vector<Patch> patches;
  std::vector<Name> names;
};

struct SweepAxis {
  SourcePlace place{};
  std::vector<SweepEntry> entries;
};

// One combination of values: the index of an entry for each axis.
using SweepPoint = std::vector<std::size_t>;

// Returns the axes of the document. Repeated values are faults, and so are two axes that change the same table. Keys
// that the command line sets are neither swept nor changed by variants. Rewrites [sweep] accordingly: each key in
// quotes, with its values and their labels.
std::vector<SweepAxis> read_sweep(TomlNode& root, FaultList& faults);

// Returns the product, or the largest number after an overflow.
constexpr std::uint64_t saturated_product(std::uint64_t a, std::uint64_t b) {
  constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  return b != 0 && a > most / b ? most : a * b;
}

// Returns all combinations of one index per axis. The last axis varies fastest. `size`: an axis's number of values.
template <typename Axis, typename Size>
std::vector<std::vector<std::size_t>> combinations(const std::vector<Axis>& axes, const Size& size) {
  std::vector<std::vector<std::size_t>> all = {{}};
  for (const Axis& axis : axes) {
    std::vector<std::vector<std::size_t>> longer;
    for (const std::vector<std::size_t>& one : all)
      for (std::size_t i = 0; i < size(axis); ++i) {
        longer.push_back(one);
        longer.back().push_back(i);
      }
    all = std::move(longer);
  }
  return all;
}

// Returns the number of combinations, or the largest number after an overflow.
std::uint64_t number_of_points(const std::vector<SweepAxis>& axes);
// Returns all combinations. Without axes, that is one empty point.
std::vector<SweepPoint> sweep_points(const std::vector<SweepAxis>& axes);
void apply_sweep(TomlNode& root, const std::vector<SweepAxis>& axes, const SweepPoint& point, FaultList& faults);
// Returns the names of the point's values, except those that only affect other methods.
std::vector<PointName> describe_point(const std::vector<SweepAxis>& axes, const SweepPoint& point, std::size_t method);

// An experiment file at every sweep point, the input of runs_of.
struct Expansion {
  std::string file;
  LoadOptions options;
  std::vector<SweepAxis> axes;
  std::vector<SweepPoint> points;
  std::vector<TomlNode> documents;  // by point
  std::size_t methods = 0;
  std::vector<std::uint64_t> seeds;
};

// Returns the tuned values of a method at a point. Without tuned values (nullopt) the method's runs there are skipped.
using Tuned = std::function<std::optional<std::vector<Patch>>(std::size_t point, std::size_t method)>;

// Returns the runs, ordered by point, method and seed. Leaves out runs that equal a run of an earlier point because the
// swept key does not affect the method. Throws ConfigurationFault if a run cannot be read, or if different values of a
// swept key that affects the method make the same run.
std::vector<Run> runs_of(const Expansion& all, const Tuned& tuned = {});

// Removes from `sweep` the keys whose values differ in `other`. Both belong to points that make the same run, so the
// run does not depend on these keys.
void keep_what_is_equal(std::vector<PointName>& sweep, const std::vector<PointName>& other);

// In place of a coefficient or period a file may give a number of rounds. The program then finds the coefficient or
// period with so many rounds (algorithms/local_sgd/sync_period.hpp). This key of a method's resolved table records the
// requested number.
inline constexpr const char* solved_for = "solved_for";

// Returns a note for users about an entry of [[methods]], such as "period.coefficient = 0.0627 makes 470 rounds". The
// note also names the requested number of rounds if it differs. Empty if no number was solved for.
std::string solved_note(const TomlNode& method);

// Returns the document with the requested targets, such as { rounds = 470 }, in place of solved numbers.
TomlNode with_numbers_as_asked(TomlNode document);

// Sets the keys of these profiles in the document, in this order, and removes [profiles]. An unknown profile is a
// fault.
void apply_profiles(TomlNode& root, std::span<const std::string> names, FaultList& faults);

// Returns the keys of a variant or of [tune.trials] as patches with this origin (see patches_of). `name`: the table's
// name, for messages. Keys that concern the whole file, such as `seeds`, are faults. Leaves out keys that the command
// line sets.
std::vector<Patch> patches_of_runs(const TomlNode& root, const TomlNode& table, const std::string& name,
                                   const std::string& origin, FaultList& faults);

struct TuneSection {
  SourcePlace place{};
  std::vector<std::uint64_t> seeds;
  std::string measure;                       // empty: accuracy on the validation split or, without accuracies, the loss
  int extensions = 0;                        // how often a grid may grow beyond its edge
  std::map<std::size_t, std::size_t> fixed;  // `where`: sweep axes with the one entry at which methods are tuned
  std::vector<Patch> trials;                 // changes that only trials have
  std::vector<std::vector<VariedKey>> axes;  // by method: the tuned keys
  std::vector<std::string> methods;          // names of the methods, for messages

  std::uint64_t settings(std::size_t method) const;  // number of settings of the method's grid before it grows
};

// Reads keys of [training] and of methods (methods.LABEL.key), written as in [sweep]. A key of [training] is tuned for
// each method separately, as the method's [methods.training]; methods.LABEL.training takes precedence. Keys that the
// command line sets or sweeps are not tuned. Returns nullopt if nothing is tuned, or after one of these faults: other
// keys, unknown methods, swept keys, no seeds, seeds of the experiment, methods with different numbers of settings.
std::optional<TuneSection> read_tune(const TomlNode& root, const std::vector<SweepAxis>& swept, FaultList& faults);

// Declares the keys of [tune] for `list` and the reference.
void describe_tune(Settings& root);

// Returns the number of trials at all values of the axes outside `where`, before grids grow.
std::uint64_t number_of_trials(const TuneSection& tune, const std::vector<SweepAxis>& axes);

// Returns the plan of all trials. `runs`: those of the expansion. Returns null after faults: settings that cannot be
// read or make the same run, and a measure that does not exist or cannot be used. (The test set must not judge
// settings. A measure may also need a model or a validation split that the file does not have.)
std::shared_ptr<const TuningPlan> plan_tuning(const std::shared_ptr<const Expansion>& all, const TuneSection& tune,
                                              std::span<const Run> runs, FaultList& faults);

}  // namespace syncopate
