// Numbers in a file of comma-separated values, plain or compressed with gzip.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "workers/delays/table_text.hpp"

namespace syncopate {

// A column that is asked for: one that must be there, or one that has a value where it is missing.
struct CsvColumn {
  CsvColumn(const char* needed) : name(needed) {}  // NOLINT(google-explicit-constructor): a name is a column
  CsvColumn(const char* wanted, double value) : name(wanted), otherwise(value) {}

  std::string name;
  std::optional<double> otherwise{};
};

// Reads row by row the columns that are asked for, in the order in which they are asked for; others are passed over.
// The first line that is not empty and does not begin with # has the columns' names. A byte order mark and line ends
// (\n or \r\n) are passed over. Any value, and any column's name, may stand between quotation marks, as RFC 4180 has
// them, within one line. Faults are collected until somebody asks.
class CsvRows {
 public:
  // `content`, compressed or not, outlives the object. Throws FileFault if a column is missing or stands twice, if the
  // file is no text in UTF-8 or separates values by anything but commas, and as TableText does.
  CsvRows(const std::string& file, std::string_view content, std::initializer_list<CsvColumn> columns);

  // The next row whose numbers are all finite; false at the end. Other rows are faults. Throws as TableText does.
  bool next();
  std::span<const double> values() const { return values_; }
  // Value `column` of the row, an integer from 0 to `most`; nothing, and a fault, if it is none.
  std::optional<std::int64_t> integer(std::size_t column, std::int64_t most);
  double number(std::size_t column) const { return values_[column]; }
  // In the header, whether it was asked for or not; before the first row is read.
  bool has_column(std::string_view name) const { return !places_of(name).empty(); }

  std::int64_t line() const { return line_; }
  void fault(const std::string& what) { fault_at(line_, what); }
  void fault_at(std::int64_t line, const std::string& what);
  // Throws FileFault if there have been any; of very many the first ones.
  void check() const;

 private:
  bool next_line();
  bool take_line();
  std::size_t cells() const;
  bool is_left_open() const;  // the line that is read now has a quotation mark without its second
  std::string_view cell(std::size_t position) const;
  void find_column(const CsvColumn& column);
  std::vector<std::size_t> places_of(std::string_view name) const;  // in the line that is read now
  void check_form(std::string_view begin);                          // of the file: faults where it is no such table
  std::string header_in_messages() const;  // the line that is read now; empty where it cannot be shown
  bool read_value(std::size_t column);     // false after a fault

  std::string file_;
  TableText text_;
  std::string taken_;      // of the text: the line that is read now, and what follows it
  std::size_t begin_ = 0;  // of the next line there
  std::string_view row_{};
  bool has_quotes_ = false;  // the row
  std::int64_t line_ = 0;
  std::vector<CsvColumn> wanted_;
  std::vector<std::optional<std::size_t>> positions_;  // of the columns within a row; none: it is missing
  std::vector<double> values_;
  std::size_t columns_ = 0;  // of the header
  std::vector<std::string> faults_;
  std::int64_t faults_left_out_ = 0;
};

}  // namespace syncopate
