// A plain-text table with aligned columns.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace syncopate {

enum class Align { left, right };

class TextTable {
 public:
  // A heading may have several lines, separated by '\n'; they end at the rule below the header.
  void add_column(std::string heading, Align align);
  void add_row(std::vector<std::string> cells);  // one per column; printed as `printable` has them

  std::size_t width() const;  // in columns of the terminal
  std::string text() const;   // lines end in '\n', without trailing blanks

 private:
  struct Column {
    std::vector<std::string> heading;
    Align align;
  };
  std::vector<std::size_t> column_widths() const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// Columns that UTF-8 text takes, each code point counted as one.
std::size_t display_width(std::string_view text);

}  // namespace syncopate
