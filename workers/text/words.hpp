// A text as words: what a model's tokens are.
#pragma once

#include <functional>
#include <string_view>

namespace syncopate {

// Calls `word` with each word in turn: the longest runs of letters and digits, with apostrophes between them, in lower
// case. Letters beyond ASCII stay as they are; punctuation is left out. `word` is valid during the call.
void for_each_word(std::string_view text, const std::function<void(std::string_view word)>& word);

}  // namespace syncopate
