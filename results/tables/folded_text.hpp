// Text that is broken at blanks to fit a width.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace syncopate {

enum class LongWords { whole, cut };  // whole: a word that is wider has a line of its own, and is wider

// Of one line. Those behind the first begin with `indent` blanks.
std::vector<std::string> folded(std::string_view line, std::size_t width, std::size_t indent, LongWords long_words);

// Of a text each line. Width 0, where there is no terminal: the text as it is.
std::string fold_lines(const std::string& text, std::size_t width, std::size_t indent = 2);

}  // namespace syncopate
