#include "workers/process/utf8.hpp"

#include <algorithm>
#include <array>

namespace syncopate {
namespace {

unsigned byte_at(std::string_view text, std::size_t at) { return static_cast<unsigned char>(text[at]); }

std::string in_encoding(const std::string& name, const std::string& endian) {
  const std::string order = endian == "LE" ? "little-endian" : "big-endian";
  return name + " (" + order + "), which iconv -f " + name + endian + " -t UTF-8 converts";
}

// Of text without a byte order mark: most characters of most texts are below 256, so that zero bytes stand at the other
// places of each 2 or 4. UTF-8 has none.
std::string encoding_by_zeros(std::string_view begin) {
  constexpr std::size_t enough = 1024;
  std::array<std::size_t, 4> zeros{};  // by place
  const std::size_t looked_at = std::min(begin.size(), enough) / 4 * 4;
  for (std::size_t at = 0; at < looked_at; ++at) zeros[at % 4] += begin[at] == '\0' ? 1 : 0;
  const auto most = [&](std::size_t place) { return zeros[place] * 4 * 4 > looked_at * 3; };  // of three quarters
  if (most(0) && most(1) && most(2) && most(3)) return "full of zero bytes, as after a crash";
  if (most(1) && most(3)) return most(2) ? in_encoding("UTF-32", "LE") : in_encoding("UTF-16", "LE");
  if (most(0) && most(2)) return most(1) ? in_encoding("UTF-32", "BE") : in_encoding("UTF-16", "BE");
  return {};
}

}  // namespace

std::string foreign_form(std::string_view begin) {
  using namespace std::string_view_literals;
  if (begin.starts_with("\xff\xfe\0\0"sv)) return in_encoding("UTF-32", "LE");
  if (begin.starts_with("\0\0\xfe\xff"sv)) return in_encoding("UTF-32", "BE");
  if (begin.starts_with("\xff\xfe"sv)) return in_encoding("UTF-16", "LE");
  if (begin.starts_with("\xfe\xff"sv)) return in_encoding("UTF-16", "BE");
  if (begin.starts_with("PK\x03\x04"sv)) return "a zip archive, as spreadsheets (.xlsx, .ods) and .npz are";
  if (begin.starts_with("\x1f\x8b"sv)) return "compressed with gzip";
  if (begin.starts_with("PAR1"sv)) return "in Parquet's format";
  return encoding_by_zeros(begin);
}

bool continues_character(std::string_view text, std::size_t at) {
  return at < text.size() && (byte_at(text, at) & 0xc0) == 0x80;
}

Utf8Character first_character(std::string_view text) {
  const unsigned lead = byte_at(text, 0);
  if (lead < 0x80) return {1, lead};
  const std::size_t bytes = lead >= 0xf0 && lead < 0xf5 ? 4 : lead >= 0xe0 && lead < 0xf0 ? 3 : lead >= 0xc2 ? 2 : 0;
  if (bytes == 0 || lead >= 0xf5) return {};
  std::uint32_t code = lead & (0x7fU >> bytes);
  for (std::size_t at = 1; at < bytes; ++at) {
    if (!continues_character(text, at)) return {};
    code = code << 6 | (byte_at(text, at) & 0x3f);
  }
  constexpr std::uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = code >= 0xd800 && code < 0xe000;
  return code < smallest[bytes] || code > 0x10ffff || is_surrogate ? Utf8Character{} : Utf8Character{bytes, code};
}

std::size_t utf8_until(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t bytes = first_character(text.substr(at)).bytes;
    if (bytes == 0) return at;
    at += bytes;
  }
  return at;
}

}  // namespace syncopate
