#include "workers/delays/csv_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "workers/process/utf8.hpp"

namespace syncopate {
namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blanks = " \t\r";
  const auto first = text.find_first_not_of(blanks);
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

constexpr std::size_t longest_shown = 80;
constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";

// The values of a line, one after another.
class Values {
 public:
  Values(std::string_view line, bool has_quotes) : rest_(line), has_quotes_(has_quotes) {}

  // The last value has no mark at its end.
  bool is_left_open() const { return is_open_; }

  // False at the end. A value between quotation marks is given without them; a mark in it stays doubled.
  bool next(std::string_view& value) {
    if (is_at_end_) return false;
    const std::size_t end = std::min(end_of_value(), rest_.size());
    value = trimmed(rest_.substr(0, end));
    if (has_quotes_ && value.size() > 1 && value.front() == '"' && value.back() == '"')
      value = trimmed(value.substr(1, value.size() - 2));
    is_at_end_ = end == rest_.size();
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    return true;
  }

 private:
  // Where the comma behind the next value stands. A doubled mark is two marks: it leaves the value open or closed.
  std::size_t end_of_value() {
    if (!has_quotes_ || !trimmed(rest_).starts_with('"')) return rest_.find(',');
    is_open_ = false;
    for (std::size_t at = 0; at < rest_.size(); ++at) {
      if (rest_[at] == '"') is_open_ = !is_open_;
      if (rest_[at] == ',' && !is_open_) return at;
    }
    return rest_.npos;
  }

  std::string_view rest_;
  bool has_quotes_;
  bool is_at_end_ = false;
  bool is_open_ = false;
};

}  // namespace

CsvRows::CsvRows(const std::string& file, std::string_view content, std::initializer_list<CsvColumn> columns)
    : file_(file), text_(content, file), wanted_(columns), values_(columns.size()) {
  taken_ = text_.next();
  check_form(taken_);
  if (taken_.starts_with(byte_order_mark)) begin_ = byte_order_mark.size();
  if (!next_line()) {
    fault_at(1, "the file is empty; must have a header");
    check();
  }
  columns_ = cells();
  for (const CsvColumn& column : wanted_) find_column(column);
  check();
}

void CsvRows::check_form(std::string_view begin) {
  if (const std::string form = foreign_form(begin); !form.empty())
    fault_at(1, fmt::format("the file is {}; must be a table of comma-separated values in UTF-8", form));
  check();
}

std::vector<std::size_t> CsvRows::places_of(std::string_view name) const {
  std::vector<std::size_t> found;
  Values values(row_, has_quotes_);  // once: a damaged file's header may have millions of columns
  std::string_view value;
  for (std::size_t position = 0; values.next(value); ++position)
    if (value == name) found.push_back(position);
  return found;
}

std::string CsvRows::header_in_messages() const {
  const bool readable = std::ranges::all_of(row_, [](unsigned char c) { return c >= 0x20 && c < 0x7f; });
  return readable ? std::string(row_.substr(0, longest_shown)) : "";
}

void CsvRows::find_column(const CsvColumn& column) {
  const auto found = places_of(column.name);
  positions_.push_back(found.empty() ? std::nullopt : std::optional(found.front()));
  if (found.size() > 1) fault(fmt::format("the column {} stands twice", column.name));
  if (!found.empty() || column.otherwise) return;
  const std::string header = header_in_messages();
  std::string hint = header.empty() ? "" : "; there are " + header;
  for (const auto& [separator, name] : {std::pair{';', "semicolons"}, std::pair{'\t', "tabs"}})
    if (columns_ == 1 && row_.find(separator) != row_.npos)
      hint = fmt::format("; its header has {} between the columns; must have commas, and numbers decimal points", name);
  fault(fmt::format("the column {} is missing{}", column.name, hint));
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
  has_quotes_ = row_.find('"') != row_.npos;
  ++line_;
  return true;
}

std::string_view CsvRows::cell(std::size_t position) const {
  Values values(row_, has_quotes_);
  std::string_view value;
  for (std::size_t at = 0; values.next(value); ++at)
    if (at == position) return value;
  return {};
}

std::size_t CsvRows::cells() const {
  if (!has_quotes_) return static_cast<std::size_t>(std::ranges::count(row_, ',')) + 1;
  Values values(row_, has_quotes_);
  std::string_view value;
  std::size_t count = 0;
  while (values.next(value)) ++count;
  return count;
}

bool CsvRows::is_left_open() const {
  Values values(row_, has_quotes_);
  std::string_view value;
  while (values.next(value)) continue;
  return values.is_left_open();
}

bool CsvRows::read_value(std::size_t column) {
  if (!positions_[column]) {
    values_[column] = *wanted_[column].otherwise;
    return true;
  }
  const std::string_view text = cell(*positions_[column]);
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), values_[column]);
  if (problem == std::errc() && end == text.data() + text.size() && std::isfinite(values_[column])) return true;
  const bool has_comma = text.find(',') != text.npos;
  fault(fmt::format("{} = {}; must be a finite number{}", wanted_[column].name,
                    text.empty() ? "nothing" : text.substr(0, longest_shown),
                    has_comma ? ", with a decimal point and without separators of thousands" : ""));
  return false;
}

bool CsvRows::next() {
  while (next_line()) {
    if (has_quotes_ && is_left_open()) {
      fault("a quotation mark is left open; must be closed in the same line");
      continue;
    }
    bool right = cells() <= columns_;
    if (!right)
      fault(fmt::format("there are {} values for {} columns; a number must have no comma in it", cells(), columns_));
    for (std::size_t column = 0; column < values_.size(); ++column) right = read_value(column) && right;
    if (right) return true;
  }
  return false;
}

std::optional<std::int64_t> CsvRows::integer(std::size_t column, std::int64_t most) {
  const double value = values_[column];
  if (value >= 0 && value <= static_cast<double>(most) && value == std::floor(value))
    return static_cast<std::int64_t>(value);
  fault(fmt::format("{} = {}; must be an integer from 0 to {}", wanted_[column].name, value, most));
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
