#include "workers/text/words.hpp"

#include <string>

namespace syncopate {
namespace {

constexpr bool is_letter(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9') || byte >= 0x80;
}
constexpr char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

}  // namespace

void for_each_word(std::string_view text, const std::function<void(std::string_view word)>& word) {
  std::string letters;
  for (std::size_t at = 0; at < text.size();) {
    if (!is_letter(text[at])) {
      ++at;
      continue;
    }
    letters.clear();
    while (at < text.size() &&
           (is_letter(text[at]) || (text[at] == '\'' && at + 1 < text.size() && is_letter(text[at + 1]))))
      letters += lower(text[at++]);
    word(letters);
  }
}

}  // namespace syncopate
