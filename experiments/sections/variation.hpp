// What varies over the runs of an experiment. [sweep]: keys that take several values,
// "training.learning_rate.peak" = [0.1, 0.2], a run for each combination, the last key varying fastest; those that
// `zip` names together take their first values together, then their second ones. [[variants]]: named sets of keys,
// which vary slowest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "experiments/sections/document_changes.hpp"
#include "workers/settings/fault_list.hpp"
#include "workers/settings/toml_tree.hpp"

namespace syncopate {

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

}  // namespace syncopate
