#include "results/text_table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cassert>
#include <numeric>
#include <sstream>

#include "results/result_table.hpp"
#include "workers/base/terminal_text.hpp"

namespace syncopate {

namespace {

bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }  // in UTF-8

std::size_t end_of(std::string_view text, std::size_t count) {
  std::size_t end = 0;
  for (; end < text.size(); ++end)
    if (begins_character(text[end]) && count-- == 0) break;
  return end;
}

// The first line of a reason, because a deadlock's reason has a line for every worker.
std::string first_line(const std::string& reason) { return reason.substr(0, reason.find('\n')); }

constexpr std::size_t gap = 2;
constexpr std::size_t least_folded = 16;  // fewest columns of a folded cell

void append_padded(std::string& line, const std::string& cell, std::size_t width, Align align) {
  const std::string blanks(width - display_width(cell), ' ');
  line += align == Align::left ? cell + blanks : blanks + cell;
}

void finish_line(std::string& text, std::string& line) {
  line.erase(line.find_last_not_of(' ') + 1);
  text += line + "\n";
  line.clear();
}

// The cells, each changed by `change`, with `between` between them.
template <typename Change>
std::string joined(std::vector<std::string> cells, const char* between, Change change) {
  std::ranges::transform(cells, cells.begin(), change);
  return fmt::format("{}", fmt::join(cells, between));
}

std::string in_markdown(const std::string& text) {
  std::string result;
  for (const char character : text) result += character == '|' ? "\\|" : std::string(1, character);
  return result;
}

std::string latex_character(char character) {
  switch (character) {
    case '\\':
      return "\\textbackslash{}";
    case '~':
      return "\\textasciitilde{}";
    case '^':
      return "\\textasciicircum{}";
    case '<':
      return "$<$";
    case '>':
      return "$>$";
    default:
      const bool is_special = std::string_view("%&#$_{}").find(character) != std::string_view::npos;
      return is_special ? std::string{'\\', character} : std::string(1, character);
  }
}

// Writes "+-" as a plus-minus sign: "88.12 +- 0.10".
std::string in_latex(const std::string& text) {
  std::string result;
  for (const char character : text) result += latex_character(character);
  for (std::size_t at = 0; (at = result.find("+-", at)) != std::string::npos; at += 5) result.replace(at, 2, "$\\pm$");
  return result;
}

}  // namespace

std::vector<std::string> split_lines(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(std::move(line));
  return lines;
}

std::vector<std::string> folded(std::string_view line, std::size_t width, std::size_t indent, LongWords long_words) {
  std::vector<std::string> lines;
  const std::size_t first = std::min(line.find_first_not_of(' '), line.size());
  std::string current(line.substr(0, first));
  bool is_begun = false;
  for (std::size_t begin = first; begin <= line.size();) {
    const std::size_t end = std::min(line.find(' ', begin), line.size());
    const std::string_view word = line.substr(begin, end - begin);
    if (is_begun && display_width(current) + 1 + display_width(word) > width) {
      lines.push_back(current);
      current.assign(indent, ' ');
      is_begun = false;
    }
    if (is_begun) current += ' ';
    current += word;
    is_begun = true;
    while (long_words == LongWords::cut && width > indent && display_width(current) > width) {
      const std::size_t cut = end_of(current, width);
      lines.push_back(current.substr(0, cut));
      current = std::string(indent, ' ') + current.substr(cut);
    }
    begin = end + 1;
  }
  lines.push_back(std::move(current));
  return lines;
}

std::string fold_lines(const std::string& text, std::size_t width, std::size_t indent) {
  if (width == 0) return text;
  std::string result;
  for (const std::string& whole : split_lines(text))
    for (const std::string& line : folded(whole, width, indent, LongWords::whole)) result += line + "\n";
  if (!text.empty() && text.back() != '\n') result.pop_back();
  return result;
}

std::string short_reason(const std::string& reason) {
  constexpr std::size_t most_columns = 60, fewest_columns = 30;
  const std::string line = first_line(reason);
  if (line.size() <= most_columns) return line;
  const std::string beginning = line.substr(0, most_columns + 1);
  for (const char* const end : {"; ", ": ", ", ", " "}) {
    const std::size_t place = beginning.rfind(end);
    if (place != std::string::npos && place >= fewest_columns) return line.substr(0, place) + " ...";
  }
  std::size_t place = most_columns;
  while (place > 0 && !begins_character(line[place])) --place;
  return line.substr(0, place) + " ...";
}

std::string note_of_reason(const std::string& whose, const std::string& reason) {
  const std::string line = first_line(reason);
  return short_reason(reason) == line ? "" : printable(fmt::format("{}: {}", whose, line)) + "\n";
}

std::size_t display_width(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, begins_character));
}

void TextTable::add_column(std::string heading, Align align) {
  columns_.push_back({split_lines(printable_lines(heading)), align});
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

TextTable TextTable::squeezed() const {
  TextTable table = *this;
  for (std::vector<std::string>& row : table.rows_)
    for (std::size_t column = 1; column < row.size(); ++column)
      for (std::size_t at = 0; (at = row[column].find(" +- ")) != std::string::npos;)
        row[column].erase(at + 3, 1).erase(at, 1);
  return table;
}

std::string TextTable::text(std::size_t most) const { return broken(column_widths(), most, 1); }

std::string TextTable::folded_text(std::size_t most, std::size_t leading) const {
  return broken(widths_within(most, leading), most, leading);
}

// Widths of columns with which a part of the table fits into `most`. The leading columns get at most half of `most`,
// and leave enough room for the widest right-aligned column.
std::vector<std::size_t> TextTable::widths_within(std::size_t most, std::size_t leading) const {
  std::vector<std::size_t> widths = column_widths();
  if (width() <= most) return widths;
  const auto least = [this](std::size_t column) {
    std::size_t width = least_folded;
    for (const std::string& line : columns_[column].heading) width = std::max(width, display_width(line));
    return width;
  };
  std::size_t numbers = 0, taken = gap * (leading - 1);
  for (std::size_t column = 0; column < widths.size(); ++column) {
    if (column < leading)
      taken += widths[column];
    else if (columns_[column].align == Align::right)
      numbers = std::max(numbers, widths[column]);
  }
  const std::size_t room = std::min(most / 2, most > gap + numbers ? most - gap - numbers : 0);
  while (taken > room) {
    std::size_t widest = leading;
    for (std::size_t column = 0; column < leading; ++column)
      if (columns_[column].align == Align::left && widths[column] > least(column) &&
          (widest == leading || widths[column] > widths[widest]))
        widest = column;
    if (widest == leading) break;
    --widths[widest];
    --taken;
  }
  const std::size_t left = most > gap + taken ? most - gap - taken : 0;
  for (std::size_t column = leading; column < widths.size(); ++column)
    if (columns_[column].align == Align::left) widths[column] = std::min(widths[column], std::max(left, least(column)));
  return widths;
}

std::string TextTable::broken(const std::vector<std::size_t>& widths, std::size_t most, std::size_t leading) const {
  std::string text;
  std::vector<std::size_t> columns;
  std::size_t width = 0;
  const auto add = [&](std::size_t column) {
    width += (columns.empty() ? 0 : gap) + widths[column];
    columns.push_back(column);
  };
  for (std::size_t column = 0; column < columns_.size(); ++column) {
    if (columns.size() > leading && width + gap + widths[column] > most) {
      text += text_of(columns, widths) + "\n";
      columns.clear();
      width = 0;
      for (std::size_t again = 0; again < leading; ++again) add(again);
    }
    add(column);
  }
  return text + text_of(columns, widths);
}

std::vector<std::vector<std::string>> TextTable::heading_rows(const std::vector<std::size_t>& columns) const {
  std::size_t lines = 0;
  for (const std::size_t column : columns) lines = std::max(lines, columns_[column].heading.size());
  std::vector<std::vector<std::string>> rows(lines);
  for (const std::size_t column : columns) {
    const auto& heading = columns_[column].heading;
    const std::size_t blank = lines - heading.size();
    for (std::size_t line = 0; line < lines; ++line)
      rows[line].push_back(line < blank ? std::string{} : heading[line - blank]);
  }
  return rows;
}

std::string TextTable::text_of(const std::vector<std::size_t>& columns, const std::vector<std::size_t>& widths) const {
  std::string text, line;
  std::size_t whole = 0;
  for (const std::size_t column : columns) whole += widths[column] + (column == columns.front() ? 0 : gap);
  const auto append = [&](std::size_t column, const std::string& cell) {
    if (column != columns.front()) line.append(gap, ' ');
    append_padded(line, cell, widths[column], columns_[column].align);
  };
  for (const auto& row : heading_rows(columns)) {
    for (std::size_t k = 0; k < columns.size(); ++k) append(columns[k], row[k]);
    finish_line(text, line);
  }
  line.assign(whole, '-');
  finish_line(text, line);
  for (const auto& row : rows_) {
    std::vector<std::vector<std::string>> cells;
    std::size_t lines = 1;
    for (const std::size_t column : columns) {
      const bool fits = display_width(row[column]) <= widths[column];
      cells.push_back(fits ? std::vector{row[column]} : folded(row[column], widths[column], gap, LongWords::cut));
      lines = std::max(lines, cells.back().size());
    }
    for (std::size_t i = 0; i < lines; ++i) {
      for (std::size_t k = 0; k < columns.size(); ++k) append(columns[k], i < cells[k].size() ? cells[k][i] : "");
      finish_line(text, line);
    }
  }
  return text;
}

std::vector<std::string> TextTable::headings() const {
  std::vector<std::string> all;
  for (const Column& column : columns_) all.push_back(fmt::format("{}", fmt::join(column.heading, " ")));
  return all;
}

std::string TextTable::markdown() const {
  std::string text = "| " + joined(headings(), " | ", in_markdown) + " |\n|";
  for (const Column& column : columns_) text += column.align == Align::left ? "---|" : "---:|";
  text += "\n";
  for (const auto& row : rows_) text += "| " + joined(row, " | ", in_markdown) + " |\n";
  return text;
}

std::string TextTable::latex() const {
  std::string text = "\\begin{tabular}{";
  for (const Column& column : columns_) text += column.align == Align::left ? 'l' : 'r';
  text += "}\n\\toprule\n";
  std::vector<std::size_t> all(columns_.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  for (const auto& row : heading_rows(all)) text += joined(row, " & ", in_latex) + " \\\\\n";
  text += "\\midrule\n";
  for (const auto& row : rows_) text += joined(row, " & ", in_latex) + " \\\\\n";
  return text + "\\bottomrule\n\\end{tabular}\n";
}

std::string TextTable::csv() const {
  std::string text = joined(headings(), ",", csv_field) + "\n";
  for (const auto& row : rows_) text += joined(row, ",", csv_field) + "\n";
  return text;
}

}  // namespace syncopate
