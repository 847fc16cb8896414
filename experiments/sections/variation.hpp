// Sweeps, variants, profiles and tuning: everything that varies over the runs of an experiment.
//   [sweep]       keys with several values, "training.learning_rate.peak" = [0.1, 0.2]: a run for each combination, the
//                 last key varying fastest; keys that `zip` names together take their n-th values together
//   [[variants]]  named sets of keys, which vary slowest; each run has one
//   [profiles]    named sets of keys, [profiles.NAME], that the command line applies
//   [tune]        values that each method is tried with before the runs are made
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
#include <utility>
#include <vector>

#include "experiments/sections/experiment.hpp"
#include "results/run.hpp"
#include "workers/config/patch.hpp"

namespace syncopate {

// A key or "variant", and its value, as shown to users.
using PointName = std::pair<std::string, std::string>;

// One of the values of an axis.
struct SweepEntry {
  struct Name {
    PointName name;
    std::set<std::size_t> methods{};  // indices of the methods that it affects; empty: all
  };
  std::vector<Patch> patches;
  std::vector<Name> names;
};

struct SweepAxis {
  SourcePlace place{};
  std::vector<SweepEntry> entries;
};

// One combination: an entry per axis.
using SweepPoint = std::vector<std::size_t>;

// The axes of the document. Repeated values, and axes within other axes, are faults. A key that the command line sets
// is no longer swept or changed by variants. Rewrites [sweep] accordingly: each key in quotes, with its values and
// their names.
std::vector<SweepAxis> read_sweep(TomlNode& root, FaultList& faults);

// The product; the largest number if it does not fit.
constexpr std::uint64_t saturated_product(std::uint64_t a, std::uint64_t b) {
  constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  return b != 0 && a > most / b ? most : a * b;
}

// All combinations of one index per axis; the last axis varies fastest. `size`: the number of values of an axis.
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

// The number of combinations; saturated_product's largest number if it does not fit.
std::uint64_t number_of_points(const std::vector<SweepAxis>& axes);

// All combinations; without axes one empty point.
std::vector<SweepPoint> sweep_points(const std::vector<SweepAxis>& axes);

// Puts the point's values into the document.
void apply_sweep(TomlNode& root, const std::vector<SweepAxis>& axes, const SweepPoint& point, FaultList& faults);

// Names of the point for the method with this index. Leaves out names that concern only other methods.
std::vector<PointName> describe_point(const std::vector<SweepAxis>& axes, const SweepPoint& point, std::size_t method);

// An experiment file at every point, from which runs_of makes the runs.
struct Expansion {
  std::string file;
  LoadOptions options;
  std::vector<SweepAxis> axes;
  std::vector<SweepPoint> points;
  std::vector<TomlNode> documents;  // by point
  std::size_t methods = 0;
  std::vector<std::uint64_t> seeds;
};

// The tuned values of a method at a point; nullopt: its runs are not made.
using Tuned = std::function<std::optional<std::vector<Patch>>(std::size_t point, std::size_t method)>;

struct ExpandedRuns {
  std::vector<Run> runs;
  std::vector<std::size_t> points;  // by run: the first point that makes this run
};

// Ordered by point, method and seed. Leaves out runs that an earlier point makes already, because the swept key affects
// another method or this method overrides it. Throws ConfigurationFault, also if different values make the same run.
ExpandedRuns runs_of(const Expansion& all, const Tuned& tuned = {});

// Removes keys in which the two differ: they do not affect the method.
void keep_what_is_equal(std::vector<PointName>& sweep, const std::vector<PointName>& other);

// The key, in a method's resolved table, that records the target of a solved number
// (algorithms/local_sgd/sync_period.hpp).
inline constexpr const char* solved_for = "solved_for";

// A note for users about an entry of [[methods]]: "period.coefficient = 0.0627 makes 470 rounds". It includes the
// requested number if that differs. Empty if no number was solved for.
std::string solved_note(const TomlNode& method);

// The document with targets, such as { rounds = 470 }, in place of solved numbers: its runs solve for them again, over
// their own steps and rates.
TomlNode with_numbers_as_asked(TomlNode document);

// Puts the keys of these profiles into the document, in this order, and removes [profiles]. A missing profile is a
// fault.
void apply_profiles(TomlNode& root, std::span<const std::string> names, FaultList& faults);

struct TuneSection {
  SourcePlace place{};
  std::vector<std::uint64_t> seeds;
  std::string measure;                       // empty: the measure of the validation split
  int extensions = 0;                        // how often a grid may grow at most
  std::map<std::size_t, std::size_t> fixed;  // sweep axes, and the entry of each at which methods are tuned
  std::vector<std::vector<VariedKey>> axes;  // by method
  std::vector<std::string> methods;          // names of the methods, for faults

  std::uint64_t settings(std::size_t method) const;  // number of settings of its grid as written
};

// Reads keys of [training] and of methods (methods.LABEL.key), written as in [sweep]. A key of [training] is tuned for
// each method separately, as its own [methods.training]; methods.LABEL.training takes precedence. Keys that the command
// line sets or sweeps are not tuned. nullopt if nothing is tuned, or after a fault: another key, an unknown method, a
// key that is also swept, no seeds or one of the experiment's, methods with different numbers of settings.
std::optional<TuneSection> read_tune(const TomlNode& root, const std::vector<SweepAxis>& swept, FaultList& faults);

// Declares the keys of [tune], for the lists of keys.
void describe_tune(Settings& root);

// The number of trials of the grids as written, at every point except for fixed axes.
std::uint64_t number_of_trials(const TuneSection& tune, const std::vector<SweepAxis>& axes);

// `points`: by run, the first point that makes it. Null after faults: settings that cannot be read or make the same
// run; a measure that does not exist, is of the test set, or needs a model or a held-out validation split that is
// missing.
std::shared_ptr<const TuningPlan> plan_tuning(const std::shared_ptr<const Expansion>& all, const TuneSection& tune,
                                              std::span<const Run> runs, std::span<const std::size_t> points,
                                              FaultList& faults);

}  // namespace syncopate
