// Dotted keys, as on the command line and in [sweep]: training.learning_rate.peak, methods.0.threshold_s,
// methods.dropcompute.threshold_s, methods."Local SGD (QSR)".period.power.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "workers/config/toml.hpp"

namespace syncopate {

// A key that cannot be followed; what() says what it must be.
struct KeyPathFault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The parts between the dots; a part in single or double quotes may contain dots. Throws KeyPathFault
// for an empty part, an open quote or too many parts.
std::vector<std::string> split_key(std::string_view dotted);

// The element of an array of tables that `part` addresses: its number, or the value of its label, algorithm
// or kind. Throws KeyPathFault if there is none, or more than one.
std::size_t element_index(const TomlNode& array, const std::string& part);

// Puts `value` at the key, replacing what is there; tables on the way are made. Throws KeyPathFault.
void assign(TomlNode& root, const std::vector<std::string>& path, const SourcePlace& place, TomlNode value);

// Removes what is at the key: a member of a table, or an element of a list. Throws KeyPathFault if there is nothing.
void remove(TomlNode& root, const std::vector<std::string>& path);

// What is at the key; null if there is nothing.
const TomlNode* find(const TomlNode& root, const std::vector<std::string>& path);

// "key=value" as given on the command line, its value parsed as TOML and, where that fails, taken as a
// string. Throws KeyPathFault for a missing "=".
struct Override {
  std::string key;
  TomlNode value;
  std::string why_no_toml{};  // of a string that begins like a table, a list or a text in quotes; else empty
};
Override parse_override(std::string_view text);

// What the user probably meant: the known name nearest to the one that was written.
// Insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b` (optimal string
// alignment; capitals count as small letters, - as _).
std::size_t edit_distance(std::string_view a, std::string_view b);

// The nearest of `names`, the first of several, within a third of the longer name's letters (at least 2 edits, 1 of up
// to four letters with another beginning, and fewer than `name` has letters). If none is: the only one of which `name`
// is a piece from a word's beginning on, if it begins so or `name` is at least half of it.
std::optional<std::string> nearest_name(std::string_view name, std::span<const std::string> names);

// `; did you mean "..."?` or nothing.
std::string suggestion(std::string_view name, std::span<const std::string> names);

// The names that could stand in the place of `name`, for a message "<before>must be one of <list><after>". A short list
// is given in full, with the nearest name after it. A long list would hide that: the nearest comes before, and the list
// has the five nearest, those of which `name` is a piece before others, and how many more there are. Where none is
// near, the list is full. `quote` encloses each name.
struct NamesToChoose {
  std::string before;  // `did you mean "..."? ` or nothing
  std::string list;
  std::string after;  // `; did you mean "..."?` or nothing
};
NamesToChoose names_to_choose(std::string_view name, std::span<const std::string> names, std::string_view quote = "");

// "must be one of <list>" with the nearest name before or after it.
std::string must_be_one_of(std::string_view name, std::span<const std::string> names, std::string_view quote = "");

}  // namespace syncopate
