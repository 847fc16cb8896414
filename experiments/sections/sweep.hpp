// The table [sweep]: keys that take several values, "training.learning_rate.peak" = [0.1, 0.2]; a run for
// each combination, the last key varying fastest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "workers/settings/fault_list.hpp"
#include "workers/settings/toml_tree.hpp"

namespace syncopate {

struct SweepAxis {
  std::vector<std::string> path;  // of the key that is swept
  std::string key;                // the same as it is written
  SourcePlace place{};
  TomlNode::Array values;
  std::vector<std::string> labels{};  // of the values, as tables and plots name them
};

// Where the runs of one combination stand: one value per axis.
using SweepPoint = std::vector<std::size_t>;

// The axes of the document's [sweep]; faults of the table itself are added, such as a value that stands twice or an
// axis within another one. A key that the command line sets is no longer swept.
std::vector<SweepAxis> read_sweep(const TomlNode& root, FaultList& faults);

// Makes the document's [sweep] say just that: each axis under its quoted key, no table without axes.
void write_sweep(TomlNode& root, const std::vector<SweepAxis>& axes);

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

// Key and value as shown to the user. `method` is the index of the run's method: axes that concern only
// another method are left out.
std::vector<std::pair<std::string, std::string>> describe_point(const TomlNode& root,
                                                                const std::vector<SweepAxis>& axes,
                                                                const SweepPoint& point, std::size_t method);

}  // namespace syncopate
