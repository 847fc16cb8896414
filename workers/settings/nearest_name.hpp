// What the user probably meant: the known name nearest to the one that was written.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace syncopate {

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
