// A bound on how deep a document goes, found before it is parsed: the parser, and all that walks over a tree
// afterwards, call themselves once per level.
#pragma once

#include <string>
#include <string_view>

namespace syncopate {

inline constexpr int most_levels = 64;  // parts of a key, and arrays and inline tables around it

// Throws TomlSyntaxFault at the first place that lies deeper within its statement. What is not TOML need not be
// noticed: the parser, which stops at the same place, says so.
void check_nesting(std::string_view text, const std::string& source);

}  // namespace syncopate
