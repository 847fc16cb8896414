#include "workers/process/printable.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "workers/process/utf8.hpp"

namespace syncopate {
namespace {

struct Range {
  std::uint32_t first, last;
};

// Characters that no terminal shows: Unicode's property Default_Ignorable_Code_Point (those that turn the direction of
// writing are among them), its separators of lines and paragraphs, and marks of annotations.
constexpr std::array invisible = {
    Range{0xad, 0xad},       Range{0x34f, 0x34f},   Range{0x61c, 0x61c},     Range{0x115f, 0x1160},
    Range{0x17b4, 0x17b5},   Range{0x180b, 0x180f}, Range{0x200b, 0x200f},   Range{0x2028, 0x202e},
    Range{0x2060, 0x206f},   Range{0x3164, 0x3164}, Range{0xfe00, 0xfe0f},   Range{0xfeff, 0xfeff},
    Range{0xffa0, 0xffa0},   Range{0xfff0, 0xfffb}, Range{0x1bca0, 0x1bca3}, Range{0x1d173, 0x1d17a},
    Range{0xe0000, 0xe0fff},
};

bool is_escaped(std::uint32_t code) {
  const bool is_control = code < 0x20 || (code >= 0x7f && code < 0xa0);
  return is_control || std::ranges::any_of(
                           invisible, [code](const Range& range) { return code >= range.first && code <= range.last; });
}

std::string escaped(std::string_view text, bool keeps_lines) {
  std::string result;
  while (!text.empty()) {
    const auto [bytes, code] = first_character(text);
    if (bytes == 0)
      result += fmt::format("\\x{:02X}", static_cast<unsigned char>(text[0]));
    else if (!is_escaped(code) || (keeps_lines && code == '\n'))
      result += text.substr(0, bytes);
    else if (code == '\n' || code == '\t')
      result += code == '\n' ? "\\n" : "\\t";
    else
      result += code > 0xffff ? fmt::format("\\U{:08X}", code) : fmt::format("\\u{:04X}", code);
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
