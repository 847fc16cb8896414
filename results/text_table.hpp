// A table of texts: plain, with aligned columns, or as Markdown, LaTeX or CSV.
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace syncopate {

// Text that is broken at blanks to fit a width.
enum class LongWords { whole, cut };  // whole: a word that is wider has a line of its own, and is wider

// Of one line. Those behind the first begin with `indent` blanks.
std::vector<std::string> folded(std::string_view line, std::size_t width, std::size_t indent, LongWords long_words);

// Of a text each line. Width 0, where there is no terminal: the text as it is.
std::string fold_lines(const std::string& text, std::size_t width, std::size_t indent = 2);

// Why a run failed, in a table's cell: the beginning of a reason, which may be long, and the whole of it below the
// table.
// What happened: a reason's first line. It may have more (a deadlock names every worker).
std::string first_line(const std::string& reason);

// The first line, if it is no longer than about 60 columns; else its beginning up to the end of a clause or word, and
// "...".
std::string short_reason(const std::string& reason);

// The whole first line as a line of its own, headed by whose it is; empty where the short one is all of it.
std::string note_of_reason(const std::string& whose, const std::string& reason);

enum class Align { left, right };

class TextTable {
 public:
  // A heading may have several lines, separated by '\n'; they end at the rule below the header.
  void add_column(std::string heading, Align align);
  void add_row(std::vector<std::string> cells);  // one per column; printed as `printable` has them

  std::size_t width() const;  // in columns of the terminal

  // Lines end in '\n', without trailing blanks. A table that is wider than `most` is broken into several, one below the
  // other, each with the first column.
  std::string text(std::size_t most = std::numeric_limits<std::size_t>::max()) const;

  // Likewise, each with so many leading columns, and cells of left-aligned columns that leave too little room are folded.
  std::string folded_text(std::size_t most, std::size_t leading = 1) const;

  std::string markdown() const;
  std::string latex() const;  // a tabular with booktabs' rules
  std::string csv() const;    // RFC 4180's

 private:
  struct Column {
    std::vector<std::string> heading;
    Align align;
  };
  std::vector<std::size_t> column_widths() const;
  std::vector<std::size_t> widths_within(std::size_t most, std::size_t leading) const;
  std::string broken(const std::vector<std::size_t>& widths, std::size_t most, std::size_t leading) const;
  std::string text_of(const std::vector<std::size_t>& columns, const std::vector<std::size_t>& widths) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// Columns that UTF-8 text takes, each code point counted as one.
std::size_t display_width(std::string_view text);

}  // namespace syncopate
