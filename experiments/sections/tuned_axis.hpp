// A key that is tuned: the values that it is tried with, and those that lie beyond them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "workers/settings/toml_tree.hpp"

namespace syncopate {

struct TunedAxis {
  std::string key;                // as it is written
  std::vector<std::string> path;  // in a document; elements of lists by their numbers
  SourcePlace place{};
  TomlNode::Array values{};           // in the order of the file
  std::vector<std::string> labels{};  // as tables name them
  bool goes_by_steps = false;         // a range with a step: neighbours differ by as much
};

// The label of the value, one of the axis' own or another one.
std::string label_of(const TunedAxis& axis, const TomlNode& value);

// A number for each value; nothing where one is none.
std::optional<std::vector<double>> numbers_of(const TunedAxis& axis);

// The value beyond the largest, or below the smallest one: as far from it as its neighbour, by the ratio of the two, or
// by their difference where the axis goes by steps, or has values that are not above 0. Whole where all values are.
// Nothing where a value is no number, there is only one, or rounding leaves none beyond. `share`: of that way.
std::optional<TomlNode> next_beyond(const TunedAxis& axis, bool above, double share = 1);

}  // namespace syncopate
