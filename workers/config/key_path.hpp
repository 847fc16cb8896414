// Paths to values, written as dotted keys on the command line and in [sweep]: training.learning_rate.peak,
// methods.0.threshold_s, methods.dropcompute.threshold_s, methods."Local SGD (QSR)".period.power.
#pragma once

#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "workers/config/toml.hpp"

namespace syncopate {

// Thrown if a key cannot be parsed or leads to nothing. what() says what is required.
struct KeyPathFault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Splits a key at its dots. A part in single or double quotes may contain dots. Throws KeyPathFault for an empty part,
// a quote that is not closed, or more than most_levels parts.
std::vector<std::string> split_key(std::string_view dotted);

// Returns the index of an element of an array of tables. `part` is its number, or the value of its label, algorithm or
// kind. Throws KeyPathFault if there is none, or more than one.
std::size_t element_index(const TomlNode& array, const std::string& part);

// The smallest number of insertions, deletions, substitutions and swaps of neighbouring letters that turn `a` into `b`
// (optimal string alignment). Ignores case and treats - like _.
std::size_t edit_distance(std::string_view a, std::string_view b);

// Returns `; did you mean "..."?` with the name that the user probably meant, or an empty string if no name is near.
std::string suggestion(std::string_view name, std::span<const std::string> names);

// The valid names, for a message "<before>must be one of <list><after>" about the wrong name `name`. If all names take
// at most 120 characters, or none is near, `list` contains all names, and a nearest one stands in `after`. If not, the
// nearest one stands in `before`, where nobody overlooks it, and `list` contains five names and the number of the
// others. The five are the nearest ones, beginning with those that contain `name`. `quote` encloses each name.
struct NamesToChoose {
  std::string before;  // `did you mean "..."? ` or nothing
  std::string list;
  std::string after;  // `; did you mean "..."?` or nothing
};
NamesToChoose names_to_choose(std::string_view name, std::span<const std::string> names, std::string_view quote = "");

// Returns "must be one of <list>" with the nearest name before or after it.
std::string must_be_one_of(std::string_view name, std::span<const std::string> names, std::string_view quote = "");

}  // namespace syncopate
