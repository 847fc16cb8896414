#include "workers/delays/csv_rows.hpp"

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

namespace syncopate {
namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blanks = " \t\r";
  const auto first = text.find_first_not_of(blanks);
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

bool is_gzip(std::string_view content) { return content.starts_with("\x1f\x8b"); }

}  // namespace

std::string file_content(const std::filesystem::path& file) {
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored)) throw FileFault(fmt::format("{}: is a directory", file.string()));
  std::ifstream in(file, std::ios::binary);
  std::ostringstream content;
  if (in && in.peek() != std::ifstream::traits_type::eof()) content << in.rdbuf();
  if (!in && !in.eof()) throw FileFault(fmt::format("{}: cannot be read: {}", file.string(), std::strerror(errno)));
  return std::move(content).str();
}

std::string content_hash(std::string_view content) {
  return fmt::format("{:016x}", XXH3_64bits(content.data(), content.size()));
}

std::string uncompressed(std::string_view content, const std::string& file) {
  if (!is_gzip(content)) return std::string(content);
  constexpr int gzip = 16 + MAX_WBITS;
  z_stream stream{};
  if (inflateInit2(&stream, gzip) != Z_OK) throw std::bad_alloc();
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  std::string text;
  std::vector<char> buffer(1 << 18);
  int status = Z_OK;
  while (status == Z_OK) {
    stream.next_out = reinterpret_cast<Bytef*>(buffer.data());
    stream.avail_out = static_cast<uInt>(buffer.size());
    status = inflate(&stream, Z_NO_FLUSH);
    text.append(buffer.data(), buffer.size() - stream.avail_out);
    // A file may be several compressed ones in a row.
    if (status == Z_STREAM_END && stream.avail_in > 0) status = inflateReset(&stream);
  }
  inflateEnd(&stream);
  if (status != Z_STREAM_END) throw FileFault(fmt::format("{}: is damaged or cut short: no whole gzip file", file));
  return text;
}

CsvRows::CsvRows(std::string file, std::string_view text, std::initializer_list<std::string_view> columns)
    : file_(std::move(file)), rest_(text), names_(columns.begin(), columns.end()), values_(columns.size()) {
  if (!next_line()) fail_at(1, "the file is empty; must have a header");
  for (const std::string& name : names_) {
    std::size_t position = 0;
    const auto count = static_cast<std::size_t>(std::ranges::count(row_, ',')) + 1;
    while (position < count && cell(position) != name) ++position;
    if (position == count) fail(fmt::format("the column {} is missing", name));
    positions_.push_back(position);
  }
}

bool CsvRows::next_line() {
  while (!rest_.empty()) {
    const auto end = rest_.find('\n');
    row_ = trimmed(rest_.substr(0, end));
    rest_.remove_prefix(end == rest_.npos ? rest_.size() : end + 1);
    ++line_;
    if (!row_.empty() && row_.front() != '#') return true;
  }
  return false;
}

std::string_view CsvRows::cell(std::size_t position) const {
  std::string_view rest = row_;
  for (; position > 0; --position) {
    const auto comma = rest.find(',');
    if (comma == rest.npos) return {};
    rest.remove_prefix(comma + 1);
  }
  return trimmed(rest.substr(0, rest.find(',')));
}

bool CsvRows::next() {
  if (!next_line()) return false;
  for (std::size_t column = 0; column < values_.size(); ++column) {
    const std::string_view text = cell(positions_[column]);
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), values_[column]);
    if (problem != std::errc() || end != text.data() + text.size() || !std::isfinite(values_[column]))
      fail(fmt::format("{} = {}; must be a finite number", names_[column], text.empty() ? "nothing" : text));
  }
  return true;
}

std::int64_t CsvRows::integer(std::size_t column, std::int64_t most) const {
  const double value = values_[column];
  if (!(value >= 0 && value <= static_cast<double>(most) && value == std::floor(value)))
    fail(fmt::format("{} = {}; must be an integer from 0 to {}", names_[column], value, most));
  return static_cast<std::int64_t>(value);
}

void CsvRows::fail_at(std::int64_t line, const std::string& what) const {
  throw FileFault(fmt::format("{}:{}: {}", file_, line, what));
}

}  // namespace syncopate
