#include "workers/delays/csv_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

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

CsvRows::CsvRows(const std::string& file, std::string_view content, std::initializer_list<std::string_view> columns)
    : file_(file), text_(content, file), names_(columns.begin(), columns.end()), values_(columns.size()) {
  taken_ = text_.next();
  if (taken_.starts_with(byte_order_mark)) begin_ = byte_order_mark.size();
  if (!next_line()) {
    fault_at(1, "the file is empty; must have a header");
    check();
  }
  columns_ = cells();
  for (const std::string& name : names_) find_column(name);
  check();
}

std::vector<std::size_t> CsvRows::places_of(std::string_view name) const {
  std::vector<std::size_t> found;
  std::string_view rest = row_;  // once: a damaged file's header may have millions of columns
  for (std::size_t position = 0; position < columns_; ++position) {
    const auto comma = std::min(rest.find(','), rest.size());
    if (trimmed(rest.substr(0, comma)) == name) found.push_back(position);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return found;
}

void CsvRows::find_column(const std::string& name) {
  const auto found = places_of(name);
  positions_.push_back(found.empty() ? 0 : found.front());
  if (found.size() > 1) fault(fmt::format("the column {} stands twice", name));
  if (!found.empty()) return;
  const bool readable = std::ranges::all_of(row_, [](unsigned char c) { return c >= 0x20 && c < 0x7f; });
  fault(fmt::format("the column {} is missing{}", name,
                    readable ? fmt::format("; there are {}", row_.substr(0, longest_quoted)) : ""));
}

bool CsvRows::next_line() {
  while (take_line())
    if (!row_.empty() && row_.front() != '#') return true;
  return false;
}

bool CsvRows::take_line() {
  auto end = taken_.find('\n', begin_);
  while (end == taken_.npos) {
    const std::string_view more = text_.next();
    if (more.empty()) break;
    taken_.erase(0, begin_);
    begin_ = 0;
    const std::size_t searched = taken_.size();
    taken_ += more;
    end = taken_.find('\n', searched);
  }
  if (begin_ == taken_.size()) return false;
  end = std::min(end, taken_.size());  // the last line need not have one
  row_ = trimmed(std::string_view(taken_).substr(begin_, end - begin_));
  begin_ = std::min(end + 1, taken_.size());
  ++line_;
  return true;
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
