#include "workers/base/terminal_text.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <system_error>
#include <utility>

namespace syncopate {

namespace {

struct Range {
  std::uint32_t first, last;
};

// Invisible characters: Unicode's property Default_Ignorable_Code_Point (including those that change the direction of
// writing), its separators of lines and paragraphs, and annotation marks.
constexpr std::array invisible = {
    Range{0xad, 0xad},       Range{0x34f, 0x34f},   Range{0x61c, 0x61c},     Range{0x115f, 0x1160},
    Range{0x17b4, 0x17b5},   Range{0x180b, 0x180f}, Range{0x200b, 0x200f},   Range{0x2028, 0x202e},
    Range{0x2060, 0x206f},   Range{0x3164, 0x3164}, Range{0xfe00, 0xfe0f},   Range{0xfeff, 0xfeff},
    Range{0xffa0, 0xffa0},   Range{0xfff0, 0xfffb}, Range{0x1bca0, 0x1bca3}, Range{0x1d173, 0x1d17a},
    Range{0xe0000, 0xe0fff},
};

unsigned code_unit(std::string_view text, std::size_t at) { return static_cast<unsigned char>(text[at]); }

bool continues_character(std::string_view text, std::size_t at) {
  return at < text.size() && (code_unit(text, at) & 0xc0) == 0x80;
}

struct Utf8Character {
  std::size_t bytes = 0;  // 0: the text does not begin with a character
  std::uint32_t code = 0;
};

// The first character of a non-empty text. Overlong forms and surrogates are not characters.
Utf8Character first_character(std::string_view text) {
  const unsigned lead = code_unit(text, 0);
  if (lead < 0x80) return {1, lead};
  const std::size_t bytes = lead >= 0xf0 && lead < 0xf5 ? 4 : lead >= 0xe0 && lead < 0xf0 ? 3 : lead >= 0xc2 ? 2 : 0;
  if (bytes == 0 || lead >= 0xf5) return {};
  std::uint32_t code = lead & (0x7fU >> bytes);
  for (std::size_t at = 1; at < bytes; ++at) {
    if (!continues_character(text, at)) return {};
    code = code << 6 | (code_unit(text, at) & 0x3f);
  }
  constexpr std::uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = code >= 0xd800 && code < 0xe000;
  return code < smallest[bytes] || code > 0x10ffff || is_surrogate ? Utf8Character{} : Utf8Character{bytes, code};
}

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

std::string in_encoding(const std::string& name, const std::string& endian) {
  const std::string order = endian == "LE" ? "little-endian" : "big-endian";
  return name + " (" + order + "), which iconv -f " + name + endian + " -t UTF-8 converts";
}

// Guesses the encoding of text without a byte order mark. In most texts most characters are below 256, so their other
// bytes in UTF-16 and UTF-32 are zeros. UTF-8 text has no zeros.
std::string encoding_by_zeros(std::string_view begin) {
  constexpr std::size_t enough = 1024;
  std::array<std::size_t, 4> zeros{};  // by index modulo 4
  const std::size_t looked_at = std::min(begin.size(), enough) / 4 * 4;
  for (std::size_t at = 0; at < looked_at; ++at) zeros[at % 4] += begin[at] == '\0' ? 1 : 0;
  // Whether more than three quarters of the bytes whose index modulo 4 is `place` are zeros.
  const auto most = [&](std::size_t place) { return zeros[place] * 4 * 4 > looked_at * 3; };
  if (most(0) && most(1) && most(2) && most(3)) return "full of zero bytes, as after a crash";
  if (most(1) && most(3)) return most(2) ? in_encoding("UTF-32", "LE") : in_encoding("UTF-16", "LE");
  if (most(0) && most(2)) return most(1) ? in_encoding("UTF-32", "BE") : in_encoding("UTF-16", "BE");
  return {};
}

constexpr double least_plain = 1e-4, first_scientific = 1e7;
constexpr int most_decimals = 6;

// Returns the decimal place of the first digit, for example 1 for 10. 9.999999999999998 counts as 10.
int place_of(double value) {
  constexpr double rounding = 1e-12;
  return static_cast<int>(std::floor(std::log10(std::abs(value) * (1 + rounding))));
}

// `form` is f, e or g, as in std::format. Removes the sign of NaN, which fmt would write although it has no meaning.
std::string formatted(double value, int digits, char form, bool with_sign) {
  if (std::isnan(value)) value = std::abs(value);
  return fmt::format(fmt::runtime(fmt::format("{{:{}.{}{}}}", with_sign ? "+" : "", digits, form)), value);
}

std::string fixed(double value, int decimals, bool with_sign) { return formatted(value, decimals, 'f', with_sign); }

std::string significant(double value, int digits, bool with_sign) {
  const double size = std::abs(value);
  if (size >= std::pow(10, digits) && size < first_scientific) return fixed(value, 0, with_sign);
  return formatted(value, digits, 'g', with_sign);
}

}  // namespace

std::string printable(std::string_view text) { return escaped(text, false); }

std::string printable_lines(std::string_view text) { return escaped(text, true); }

std::string shortened(std::string text, std::size_t longest) {
  if (text.size() <= longest) return text;
  std::size_t end = longest;
  while (end > 0 && continues_character(text, end)) --end;  // back to a character boundary
  return text.substr(0, end) + " ...";
}

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

std::size_t utf8_until(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t bytes = first_character(text.substr(at)).bytes;
    if (bytes == 0) return at;
    at += bytes;
  }
  return at;
}

std::string shown_number(double value, int digits) { return significant(value, digits, false); }

std::string with_decimals(double value, int decimals) {
  const double size = std::abs(value);
  const bool is_plain =
      value == 0 || !std::isfinite(value) || (size >= std::pow(10, 1 - decimals) && size < first_scientific);
  return is_plain ? fixed(value, decimals, false) : significant(value, std::clamp(decimals, 2, 4), false);
}

std::string error_text(double value, int decimals) {
  return std::abs(value) < first_scientific || !std::isfinite(value) ? fixed(value, decimals, true)
                                                                     : significant(value, 4, true);
}

SamePlace::SamePlace(double mean, double uncertainty) {
  constexpr int digits_of_mean = 4, digits_of_uncertainty = 2;
  const bool has_any = uncertainty > 0 && std::isfinite(uncertainty);
  const double shown = has_any ? uncertainty : std::abs(mean);
  if (!(shown > 0) || !std::isfinite(shown)) return;
  last_place_ = place_of(shown) + 1 - (has_any ? digits_of_uncertainty : digits_of_mean);
  const double largest = std::max(std::abs(mean), shown);
  is_plain_ = !(largest >= first_scientific) && (last_place_ >= -most_decimals || largest >= least_plain);
}

std::string SamePlace::operator()(double value, bool with_sign) const {
  const bool rounds_to_zero = std::abs(value) < 0.5 * std::pow(10, last_place_);
  if (is_plain_) {
    const int decimals = std::clamp(-last_place_, 0, most_decimals);
    const bool is_hidden = std::abs(value) < 0.5 * std::pow(10, -decimals);
    if (!is_hidden || rounds_to_zero) return fixed(value, decimals, with_sign);
  } else if (rounds_to_zero) {
    return "0";
  }
  if (!std::isfinite(value)) return fixed(value, 0, with_sign);
  const double size = std::abs(value);
  if (!is_plain_ && last_place_ >= -most_decimals && size >= least_plain && size < first_scientific)
    return fixed(value, std::max(-last_place_, 0), with_sign);  // for example a small deviation of a large mean
  return formatted(value, std::clamp(place_of(value) - last_place_, 0, most_decimals), 'e', with_sign);
}

void Output::write(std::string_view text) {
  while (!text.empty()) {
    const auto written = ::write(descriptor_, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EAGAIN) {  // another process made the shared terminal or pipe non-blocking
      pollfd waited{.fd = descriptor_, .events = POLLOUT, .revents = 0};
      poll(&waited, 1, -1);
    } else if (errno != EINTR) {
      int none = 0;
      error_.compare_exchange_strong(none, errno);
      return;
    }
  }
}

void guard_standard_streams() {
  // open() takes the lowest free descriptor, the closed stream's. It opens for reading only, so that writing fails.
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(descriptor, F_GETFD) < 0 && open("/dev/null", O_RDONLY) < 0) return;
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a write beyond ulimit -f then fails like one to a full disk
}

int report_lost_output(int status) {
  bool lost = false;
  for (const auto& [stream, other] :
       {std::pair(&standard_output, &standard_error), std::pair(&standard_error, &standard_output)}) {
    if (stream->error() == 0) continue;
    lost = true;
    other->write(fmt::format("syncopate: {} could not be written: {}\n", stream->name(),
                             std::generic_category().message(stream->error())));
  }
  return lost && status == 0 ? 1 : status;
}

}  // namespace syncopate
