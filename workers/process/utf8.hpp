// UTF-8, character by character.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace syncopate {

struct Utf8Character {
  std::size_t bytes = 0;  // 0: the text begins with none
  std::uint32_t code = 0;
};

// The character that `text`, which is not empty, begins with; no overlong forms, no surrogates.
Utf8Character first_character(std::string_view text);

// Whether a character does not begin here, but goes on.
bool continues_character(std::string_view text, std::size_t at);

// Where the first byte stands that is no part of a character; the text's length if there is none.
std::size_t utf8_until(std::string_view text);

// What a file is that begins so and is no text in UTF-8, with the way to make it one: "UTF-16 (little-endian), which
// iconv -f UTF-16LE -t UTF-8 converts". Known by a byte order mark, by zero bytes in the places where UTF-16 and UTF-32
// have them, or by the first bytes of a format. Empty: nothing of that kind.
std::string foreign_form(std::string_view begin);

}  // namespace syncopate
