#include "workers/process/printable.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "workers/process/utf8.hpp"

namespace syncopate {
namespace {

bool commands_terminal(std::uint32_t code) {
  const bool is_control = code < 0x20 || (code >= 0x7f && code < 0xa0);
  const bool turns = code == 0x061c || code == 0x200e || code == 0x200f || (code >= 0x202a && code <= 0x202e) ||
                     (code >= 0x2066 && code <= 0x2069);
  return is_control || turns;
}

std::string escaped(std::string_view text, bool keeps_lines) {
  std::string result;
  while (!text.empty()) {
    const auto [bytes, code] = first_character(text);
    if (bytes == 0)
      result += fmt::format("\\x{:02X}", static_cast<unsigned char>(text[0]));
    else if (!commands_terminal(code) || (keeps_lines && code == '\n'))
      result += text.substr(0, bytes);
    else if (code == '\n' || code == '\t')
      result += code == '\n' ? "\\n" : "\\t";
    else
      result += fmt::format("\\u{:04X}", code);
    text.remove_prefix(std::max<std::size_t>(bytes, 1));
  }
  return result;
}

}  // namespace

std::string printable(std::string_view text) { return escaped(text, false); }

std::string printable_lines(std::string_view text) { return escaped(text, true); }

std::string shortened(std::string text, std::size_t longest) {
  if (text.size() <= longest) return text;
  std::size_t end = longest;
  while (end > 0 && continues_character(text, end)) --end;  // not within a character
  return text.substr(0, end) + " ...";
}

}  // namespace syncopate
