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

// Sets the value at the key, replacing the old one; creates tables on the way. Throws KeyPathFault.
void assign(TomlNode& root, const std::vector<std::string>& path, const SourcePlace& place, TomlNode value);

// Removes the value at the key: a member of a table, or an element of a list. Throws KeyPathFault if there is none.
void remove(TomlNode& root, const std::vector<std::string>& path);

// The value at the key; null if there is none.
const TomlNode* find(const TomlNode& root, const std::vector<std::string>& path);

// "key=value" from the command line. A value that is not TOML becomes a string. Throws KeyPathFault for a missing "=".
struct Override {
  std::string key;
  TomlNode value;
  // For a string that begins like a table, a list or a quoted text; else empty.
  std::string why_no_toml{};
};
Override parse_override(std::string_view text);

// The number of insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b` (optimal string
// alignment). Case is ignored, and - equals _.
std::size_t edit_distance(std::string_view a, std::string_view b);

// The name that the user probably meant: the nearest of `names`, the first of several. The number of edits may be a
// third of the longer name's letters, or 2 (1 if `name` has up to four letters and another first letter), but must be
// less than the number of letters of `name`. If none is near enough: the only name that contains `name` from the
// beginning of a word on, if it begins with `name` or `name` has at least half its length.
std::optional<std::string> nearest_name(std::string_view name, std::span<const std::string> names);

// `; did you mean "..."?` or nothing.
std::string suggestion(std::string_view name, std::span<const std::string> names);

// The possible names in place of `name`, for a message "<before>must be one of <list><after>". A short list is
// complete, and the nearest name follows it. In a long list the nearest name would be hidden, so it comes before. The
// list then has the five nearest, first those that contain `name`, and the number of others. If none is near, the list
// is complete. `quote` encloses each name.
struct NamesToChoose {
  std::string before;  // `did you mean "..."? ` or nothing
  std::string list;
  std::string after;  // `; did you mean "..."?` or nothing
};
NamesToChoose names_to_choose(std::string_view name, std::span<const std::string> names, std::string_view quote = "");

// "must be one of <list>" with the nearest name before or after it.
std::string must_be_one_of(std::string_view name, std::span<const std::string> names, std::string_view quote = "");

}  // namespace syncopate
