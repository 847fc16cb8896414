// A table of texts, written as plain text with aligned columns, Markdown, LaTeX or CSV. Also folds long lines.
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace syncopate {

// The lines of a text, without their ends.
std::vector<std::string> split_lines(const std::string& text);

enum class LongWords { whole, cut };  // whole: a word wider than the width has a line of its own, which is too wide

// Breaks a line at blanks to fit a width. All lines except the first begin with `indent` blanks.
std::vector<std::string> folded(std::string_view line, std::size_t width, std::size_t indent, LongWords long_words);

// Folds each line of a text. If the width is 0 (no terminal), returns the text unchanged.
std::string fold_lines(const std::string& text, std::size_t width, std::size_t indent = 2);

// The first line of a failure's reason, for a cell of a table. If it has more than about 60 columns, it is cut after a
// clause or a word and ends in "...".
std::string short_reason(const std::string& reason);

// A note below the table: `whose`, and the whole first line of the reason. Empty if short_reason does not cut it.
std::string note_of_reason(const std::string& whose, const std::string& reason);

enum class Align { left, right };

class TextTable {
 public:
  TextTable() = default;
  explicit TextTable(const std::vector<std::pair<std::string, Align>>& columns) {
    for (const auto& [heading, align] : columns) add_column(heading, align);
  }

  // A heading may have several lines, separated by '\n' and aligned at the bottom.
  void add_column(std::string heading, Align align);
  void add_row(std::vector<std::string> cells);  // one cell per column; control characters become `printable`

  std::size_t width() const;   // in columns of the terminal
  TextTable squeezed() const;  // without the blanks around "+-", except in the first column: "88.12+-0.10"

  // Lines end in '\n', without trailing blanks. If a table is wider than `most`, it is split into parts with the same
  // first column, one below the other.
  std::string text(std::size_t most = std::numeric_limits<std::size_t>::max()) const;

  // Like text(), but each part has the first `leading` columns, and cells of left-aligned columns that are too wide are
  // folded.
  std::string folded_text(std::size_t most, std::size_t leading = 1) const;

  std::string markdown() const;
  std::string latex() const;  // a tabular with booktabs' rules
  std::string csv() const;    // by RFC 4180

 private:
  struct Column {
    std::vector<std::string> heading;
    Align align;
  };
  std::vector<std::string> headings() const;  // each on one line
  // The heading's lines for these columns, aligned at the bottom: one element per line.
  std::vector<std::vector<std::string>> heading_rows(const std::vector<std::size_t>& columns) const;
  std::vector<std::size_t> column_widths() const;
  std::vector<std::size_t> widths_within(std::size_t most, std::size_t leading) const;
  std::string broken(const std::vector<std::size_t>& widths, std::size_t most, std::size_t leading) const;
  std::string text_of(const std::vector<std::size_t>& columns, const std::vector<std::size_t>& widths) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// Number of terminal columns of UTF-8 text, one for each code point.
std::size_t display_width(std::string_view text);

}  // namespace syncopate
