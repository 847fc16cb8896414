// Text and numbers for terminals, tables, messages and pages of Markdown, and the standard streams.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace syncopate {

// Makes text of files and command lines safe for a terminal, which obeys control characters. Escapes (\n, \t, \u001B,
// \xFF, \U000E0001) replace control characters (C0, C1, DEL), bytes that are not UTF-8, and characters that are
// invisible or change the direction of writing, with which different texts could look equal.
std::string printable(std::string_view text);

// The same for text of several lines: line ends stay.
std::string printable_lines(std::string_view text);

// Shortens text to fit a line of a report; "..." replaces the rest.
std::string shortened(std::string text, std::size_t longest = 60);

// The index of the first byte that is not part of a UTF-8 character; the text's length if there is none.
std::size_t utf8_until(std::string_view text);

// The format of a file that begins with these bytes and is not UTF-8 text, with a way to convert it: "UTF-16
// (little-endian), which iconv -f UTF-16LE -t UTF-8 converts". Recognised by a byte order mark, by the zero bytes of
// UTF-16 and UTF-32, or by the first bytes of a format. Empty if not recognised.
std::string foreign_form(std::string_view begin);

// Significant digits without trailing zeros: 0.52, 88.12, 12346, 1.25e-07, 8e+29. From 1e-4 to 1e7 in plain notation,
// with all digits before the point, else scientific. plots/numbers.py has the same rules as these functions.
std::string shown_number(double value, int digits = 4);

// A fixed number of decimals: 0.50. As shown_number from 1e7 on, and if the decimals would show fewer than two digits
// (0.0004 with two decimals). `with_sign`: positive numbers have a sign too.
std::string with_decimals(double value, int decimals, bool with_sign = false);

// A deviation from the right value, with its sign and a fixed number of decimals, however small: +0.03, -0.00. As
// shown_number from 1e7 on.
std::string error_text(double value, int decimals = 2);

// Formats numbers that belong together with the same last decimal place: a mean, its deviation, the ends of its
// interval.
class SamePlace {
 public:
  // 10^last_place is the last digit shown. `largest`: the largest magnitude among the numbers.
  SamePlace(double largest, int last_place);

  // Shows two digits of `uncertainty`, a deviation or half an interval; if it is 0, four digits of the mean.
  static SamePlace of(double mean, double uncertainty);

  std::string operator()(double value, bool with_sign = false) const;

 private:
  int last_place_;
  bool is_plain_;
};

// Standard output or standard error. Write errors are stored, never thrown: results matter more than messages. The work
// goes on, and the program reports the loss at its end.
class Output {
 public:
  constexpr Output(int descriptor, const char* name) : descriptor_(descriptor), name_(name) {}

  // Writes all of the text, unbuffered; any thread may call it.
  void write(std::string_view text);
  // The errno of the first error; 0: nothing was lost.
  int error() const { return error_; }
  const char* name() const { return name_; }

 private:
  int descriptor_;
  const char* name_;
  std::atomic<int> error_{0};
};

inline Output standard_output{1, "standard output"};
inline Output standard_error{2, "standard error"};

// Call it first in main. Keeps the number of a closed standard stream occupied, so that no file opened later receives
// the messages. A reader that goes away becomes an error of the stream, and does not end the program.
void guard_standard_streams();

// Returns `status`, or 1 instead of 0 if output was lost. Reports the loss on the other stream.
int report_lost_output(int status);

}  // namespace syncopate
