// Text of files and command lines on its way to a terminal, which obeys control characters.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace syncopate {

// Control characters (C0, C1, DEL), characters that take no room or turn the direction of writing, so that two texts
// would look alike, and bytes that are no UTF-8 as escapes: \n, \t, \u001B, \xFF, \U000E0001. Everything else stays.
std::string printable(std::string_view text);

// The same for text of several lines: the ends of lines stay.
std::string printable_lines(std::string_view text);

// Short enough for a line of a report; "..." stands for the rest.
std::string shortened(std::string text, std::size_t longest = 60);

}  // namespace syncopate
