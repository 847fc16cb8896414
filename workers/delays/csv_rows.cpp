#include "workers/delays/csv_rows.hpp"

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "workers/gzip_stream.hpp"
#include "workers/interrupt.hpp"

namespace syncopate {
namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blanks = " \t\r";
  const auto first = text.find_first_not_of(blanks);
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

constexpr std::size_t longest_quoted = 80;
constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";

}  // namespace

std::string file_content(const std::filesystem::path& file) {
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored)) throw FileFault(fmt::format("{}: is a directory", file.string()));
  const std::uintmax_t bytes = std::filesystem::file_size(file, ignored);
  if (!ignored && bytes > most_text_bytes)
    throw FileFault(fmt::format("{}: has {} bytes; must be at most {}", file.string(), bytes, most_text_bytes));
  std::ifstream in(file, std::ios::binary);
  std::ostringstream content;
  if (in && in.peek() != std::ifstream::traits_type::eof()) content << in.rdbuf();
  if (!in && !in.eof()) throw FileFault(fmt::format("{}: cannot be read: {}", file.string(), std::strerror(errno)));
  return std::move(content).str();
}

std::string content_hash(std::string_view content) {
  return fmt::format("{:016x}", XXH3_64bits(content.data(), content.size()));
}

std::string uncompressed(std::string_view content, const std::string& file, std::uint64_t most_bytes) {
  // A table whose durations are all the same is compressed to a tenth or so.
  constexpr std::size_t most_times = 100, from_bytes = 64'000'000;
  constexpr std::size_t piece_bytes = 1 << 16;
  std::size_t taken = 0;
  GzipStream stream([&] {
    const std::string_view piece = content.substr(taken, piece_bytes);
    taken += piece.size();
    return piece;
  });
  std::string text;
  text.reserve(content.size());
  std::vector<char> buffer(1 << 18);
  try {
    for (std::size_t got = buffer.size(); got == buffer.size();) {
      throw_if_interrupted();
      got = stream.read(buffer.data(), buffer.size());
      if (got > most_bytes - text.size())
        throw FileFault(
            fmt::format("{}: unpacks to more than {} bytes, the most that a table may have", file, most_bytes));
      text.append(buffer.data(), got);
      if (text.size() > from_bytes && text.size() / most_times > taken)
        throw FileFault(
            fmt::format("{}: unpacks to more than {} times its size, as no table of numbers does", file, most_times));
    }
  } catch (const GzipFault& problem) {
    throw FileFault(fmt::format("{}: {}", file, problem.what()));
  }
  return text;
}

CsvRows::CsvRows(std::string file, std::string_view text, std::initializer_list<std::string_view> columns)
    : file_(std::move(file)), rest_(text), names_(columns.begin(), columns.end()), values_(columns.size()) {
  if (rest_.starts_with(byte_order_mark)) rest_.remove_prefix(byte_order_mark.size());
  if (!next_line()) {
    fault_at(1, "the file is empty; must have a header");
    check();
  }
  columns_ = cells();
  for (const std::string& name : names_) find_column(name);
  check();
}

void CsvRows::find_column(const std::string& name) {
  std::vector<std::size_t> found;
  for (std::size_t position = 0; position < columns_; ++position)
    if (cell(position) == name) found.push_back(position);
  positions_.push_back(found.empty() ? 0 : found.front());
  if (found.size() > 1) fault(fmt::format("the column {} stands twice", name));
  if (!found.empty()) return;
  const bool readable = std::ranges::all_of(row_, [](unsigned char c) { return c >= 0x20 && c < 0x7f; });
  fault(fmt::format("the column {} is missing{}", name,
                    readable ? fmt::format("; there are {}", row_.substr(0, longest_quoted)) : ""));
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

std::size_t CsvRows::cells() const { return static_cast<std::size_t>(std::ranges::count(row_, ',')) + 1; }

bool CsvRows::next() {
  while (next_line()) {
    bool right = cells() <= columns_;
    if (!right) fault(fmt::format("there are {} values for {} columns", cells(), columns_));
    for (std::size_t column = 0; column < values_.size(); ++column) {
      const std::string_view text = cell(positions_[column]);
      const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), values_[column]);
      if (problem == std::errc() && end == text.data() + text.size() && std::isfinite(values_[column])) continue;
      fault(fmt::format("{} = {}; must be a finite number", names_[column],
                        text.empty() ? "nothing" : text.substr(0, longest_quoted)));
      right = false;
    }
    if (right) return true;
  }
  return false;
}

std::optional<std::int64_t> CsvRows::integer(std::size_t column, std::int64_t most) {
  const double value = values_[column];
  if (value >= 0 && value <= static_cast<double>(most) && value == std::floor(value))
    return static_cast<std::int64_t>(value);
  fault(fmt::format("{} = {}; must be an integer from 0 to {}", names_[column], value, most));
  return std::nullopt;
}

void CsvRows::fault_at(std::int64_t line, const std::string& what) {
  constexpr std::size_t most = 20;
  if (faults_.size() == most)
    ++faults_left_out_;
  else
    faults_.push_back(fmt::format("{}:{}: {}", file_, line, what));
}

void CsvRows::check() const {
  if (faults_.empty()) return;
  std::string all;
  for (const std::string& line : faults_) all += (all.empty() ? "" : "\n") + line;
  if (faults_left_out_ > 0) all += fmt::format("\n{}: and {} more faults", file_, faults_left_out_);
  throw FileFault(all);
}

}  // namespace syncopate
