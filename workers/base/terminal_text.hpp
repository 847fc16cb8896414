// Text and numbers for terminals, tables, messages and pages of Markdown, and the standard streams.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace syncopate {

// Text of files and command lines for a terminal, which obeys control characters. Escapes (\n, \t, \u001B, \xFF,
// \U000E0001) replace control characters (C0, C1, DEL), bytes that are no UTF-8, and characters that take no room or
// change the direction of writing, with which different texts would look equal.
std::string printable(std::string_view text);

// The same for text of several lines: the ends of lines stay.
std::string printable_lines(std::string_view text);

// Short enough for a line of a report; "..." stands for the rest.
std::string shortened(std::string text, std::size_t longest = 60);

// The place of the first byte that is no part of a character in UTF-8; the text's length if there is none.
std::size_t utf8_until(std::string_view text);

// The format of a file that begins so and is no text in UTF-8, with a way to convert it: "UTF-16 (little-endian), which
// iconv -f UTF-16LE -t UTF-8 converts". Recognised by a byte order mark, by the zero bytes of UTF-16 and UTF-32, or by
// the first bytes of a format. Empty: none of these.
std::string foreign_form(std::string_view begin);

// Significant digits without zeros at the end: 0.52, 88.12, 12346, 1.25e-07, 8e+29. Plain from 1e-4 to 1e7, with all
// digits before the point, else scientific. plots/numbers.py has the same rules as these functions.
std::string shown_number(double value, int digits = 4);

// A fixed number of decimals: 0.50. As shown_number for 1e7 and more, and where the decimals would show fewer than two
// digits (0.0004 with two decimals). `with_sign`: also of positive numbers.
std::string with_decimals(double value, int decimals, bool with_sign = false);

// A deviation from the right value, with its sign and a fixed number of decimals, however small: +0.03, -0.00. As
// shown_number from 1e7 on.
std::string error_text(double value, int decimals = 2);

// Numbers that are read together end at the same decimal place: a mean, its deviation, the ends of its interval.
class SamePlace {
 public:
  // 10^last_place is the last digit shown. `largest`: the largest of the numbers, without its sign.
  SamePlace(double largest, int last_place);

  // Two digits of `uncertainty`, a deviation or half an interval; if it is 0, four digits of the mean.
  static SamePlace of(double mean, double uncertainty);

  std::string operator()(double value, bool with_sign = false) const;

 private:
  int last_place_;
  bool is_plain_;
};

// Standard output or standard error. Errors of writing are stored, never thrown: results matter more than messages, so
// the work goes on, and the program's end reports the loss.
class Output {
 public:
  constexpr Output(int descriptor, const char* name) : descriptor_(descriptor), name_(name) {}

  // Writes all of the text, unbuffered; any thread may call it.
  void write(std::string_view text);
  // The system's number of the first error; 0: nothing has been lost.
  int error() const { return error_; }
  const char* name() const { return name_; }

 private:
  int descriptor_;
  const char* name_;
  std::atomic<int> error_{0};
};

inline Output standard_output{1, "standard output"};
inline Output standard_error{2, "standard error"};

// Call it first in main. A closed standard stream keeps its number, so that no file that is opened later gets the
// messages. A reader that goes away becomes an error of the stream, and does not end the program.
void guard_standard_streams();

// `status`, or 1 instead of 0 if output was lost, which the other stream reports.
int report_lost_output(int status);

}  // namespace syncopate
