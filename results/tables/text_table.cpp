#include "results/tables/text_table.hpp"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <utility>

#include "workers/process/printable.hpp"

namespace syncopate {
namespace {

constexpr std::size_t gap = 2;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::size_t begin = 0;
  for (std::size_t end = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    lines.push_back(text.substr(begin, end - begin));
  }
  lines.push_back(text.substr(begin));
  return lines;
}

void append_padded(std::string& line, const std::string& cell, std::size_t width, Align align) {
  const std::string blanks(width - display_width(cell), ' ');
  line += align == Align::left ? cell + blanks : blanks + cell;
}

void finish_line(std::string& text, std::string& line) {
  line.erase(line.find_last_not_of(' ') + 1);
  text += line;
  text += '\n';
  line.clear();
}

}  // namespace

std::size_t display_width(std::string_view text) {
  const auto begins_code_point = [](char character) { return (static_cast<unsigned char>(character) & 0xC0) != 0x80; };
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), begins_code_point));
}

void TextTable::add_column(std::string heading, Align align) {
  columns_.push_back({lines_of(printable_lines(heading)), align});
}

void TextTable::add_row(std::vector<std::string> cells) {
  assert(cells.size() == columns_.size());
  for (std::string& cell : cells) cell = printable(cell);
  rows_.push_back(std::move(cells));
}

std::vector<std::size_t> TextTable::column_widths() const {
  std::vector<std::size_t> widths;
  for (std::size_t column = 0; column < columns_.size(); ++column) {
    std::size_t width = 0;
    for (const std::string& line : columns_[column].heading) width = std::max(width, display_width(line));
    for (const auto& row : rows_) width = std::max(width, display_width(row[column]));
    widths.push_back(width);
  }
  return widths;
}

std::size_t TextTable::width() const {
  const auto widths = column_widths();
  if (widths.empty()) return 0;
  return std::accumulate(widths.begin(), widths.end(), gap * (widths.size() - 1));
}

std::string TextTable::text() const {
  const auto widths = column_widths();
  std::size_t heading_lines = 0;
  for (const Column& column : columns_) heading_lines = std::max(heading_lines, column.heading.size());

  std::string text;
  std::string line;
  const auto append = [&](std::size_t column, const std::string& cell) {
    if (column > 0) line.append(gap, ' ');
    append_padded(line, cell, widths[column], columns_[column].align);
  };
  for (std::size_t row = 0; row < heading_lines; ++row) {
    for (std::size_t column = 0; column < columns_.size(); ++column) {
      const auto& heading = columns_[column].heading;
      const std::size_t blank = heading_lines - heading.size();
      append(column, row < blank ? std::string{} : heading[row - blank]);
    }
    finish_line(text, line);
  }
  line.assign(width(), '-');
  finish_line(text, line);
  for (const auto& row : rows_) {
    for (std::size_t column = 0; column < columns_.size(); ++column) append(column, row[column]);
    finish_line(text, line);
  }
  return text;
}

}  // namespace syncopate
