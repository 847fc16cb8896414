#include "workers/text/text_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <system_error>

#include "workers/files/data_fault.hpp"
#include "workers/files/whole_file.hpp"
#include "workers/process/utf8.hpp"

namespace syncopate {
namespace {

constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";  // by which editors mark UTF-8; it is no part of the text
constexpr std::uint64_t most_bytes = std::uint64_t{1} << 32;

std::string content_of(const std::filesystem::path& file) {
  try {
    return whole_file(file, most_bytes);
  } catch (const std::system_error& problem) {
    throw DataFault(fmt::format("{}: {}", file.string(), problem.code().message()));
  }
}

}  // namespace

void for_each_line(const std::filesystem::path& file,
                   const std::function<void(std::string_view line, const std::string& place)>& line) {
  const std::string content = content_of(file);
  if (content.empty()) throw DataFault(fmt::format("{}: is empty; must be a text, line by line", file.string()));
  if (const std::string form = foreign_form(content); !form.empty())
    throw DataFault(fmt::format("{}: is {}; must be a text in UTF-8, line by line", file.string(), form));
  const std::size_t valid = utf8_until(content);
  if (valid < content.size())
    throw DataFault(fmt::format(
        "{}:{}: byte 0x{:02x} is no UTF-8; a text in Latin-1 is converted by iconv -f ISO-8859-1 -t UTF-8",
        file.string(), 1 + std::count(content.begin(), content.begin() + static_cast<std::ptrdiff_t>(valid), '\n'),
        static_cast<unsigned char>(content[valid])));
  std::size_t number = 0;
  std::string_view rest = content;
  if (rest.starts_with(byte_order_mark)) rest.remove_prefix(byte_order_mark.size());
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view one = rest.substr(0, end);
    if (one.ends_with('\r')) one.remove_suffix(1);
    line(one, fmt::format("{}:{}", file.string(), ++number));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
}

}  // namespace syncopate
