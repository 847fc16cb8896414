// UTF-8, character by character.
#pragma once

#include <cstddef>
#include <cstdint>
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

}  // namespace syncopate
