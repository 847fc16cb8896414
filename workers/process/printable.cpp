#include "workers/process/printable.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

namespace syncopate {
namespace {

unsigned byte_at(std::string_view text, std::size_t at) { return static_cast<unsigned char>(text[at]); }

bool continues(std::string_view text, std::size_t at) { return at < text.size() && (byte_at(text, at) & 0xc0) == 0x80; }

// Bytes of the UTF-8 character that `text` begins with, and the character; 0 bytes where it begins with none.
struct Character {
  std::size_t bytes = 0;
  std::uint32_t code = 0;
};

Character first_character(std::string_view text) {
  const unsigned lead = byte_at(text, 0);
  if (lead < 0x80) return {1, lead};
  const std::size_t bytes = lead >= 0xf0 && lead < 0xf5 ? 4 : lead >= 0xe0 && lead < 0xf0 ? 3 : lead >= 0xc2 ? 2 : 0;
  if (bytes == 0 || lead >= 0xf5) return {};
  std::uint32_t code = lead & (0x7fU >> bytes);
  for (std::size_t at = 1; at < bytes; ++at) {
    if (!continues(text, at)) return {};
    code = code << 6 | (byte_at(text, at) & 0x3f);
  }
  constexpr std::uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = code >= 0xd800 && code < 0xe000;
  return code < smallest[bytes] || code > 0x10ffff || is_surrogate ? Character{} : Character{bytes, code};
}

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
      result += fmt::format("\\x{:02X}", byte_at(text, 0));
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
  while (end > 0 && continues(text, end)) --end;  // not within a character
  return text.substr(0, end) + " ...";
}

}  // namespace syncopate
