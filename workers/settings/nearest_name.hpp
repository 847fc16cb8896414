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

// The nearest of `names`, the first of several; nothing if none is within a third of the longer name's
// letters (at least 2 edits, and fewer than `name` has letters).
std::optional<std::string> nearest_name(std::string_view name, std::span<const std::string> names);

// `; did you mean "..."?` or nothing.
std::string suggestion(std::string_view name, std::span<const std::string> names);

}  // namespace syncopate
