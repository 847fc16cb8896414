// Formats text and numbers for terminals, tables, messages and Markdown pages. Writes to the standard streams.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace syncopate {

// Makes text from files and command lines safe to print on a terminal, which would execute control characters. Replaces
// control characters (C0, C1, DEL) and bytes that are not UTF-8 by escapes (\n, \t, \u001B, \xFF, \U000E0001). Also
// replaces characters that are invisible or change the direction of writing, because they could make different texts
// look equal.
std::string printable(std::string_view text);

// Like printable, but does not escape line ends.
std::string printable_lines(std::string_view text);

// Cuts text after `longest` bytes, so that it fits a line of a report, and appends " ..." if anything was cut.
std::string shortened(std::string text, std::size_t longest = 60);

// Returns the index of the first byte that is not part of a UTF-8 character, or the text's length if all bytes are.
std::size_t utf8_until(std::string_view text);

// Names the format of a file that begins with these bytes and is not UTF-8 text, and how to convert it, for example
// "UTF-16 (little-endian), which iconv -f UTF-16LE -t UTF-8 converts". Recognises a byte order mark, the zero bytes of
// UTF-16 and UTF-32, and the first bytes of some formats. Empty if not recognised.
std::string foreign_form(std::string_view begin);

// Formats with `digits` significant digits, without trailing zeros: 0.52, 88.12, 12346, 1.25e-07, 8e+29. Magnitudes
// from 1e-4 to 1e7 are in plain notation, with all digits before the point; others are scientific. plots/numbers.py has
// the same rules as the functions here.
std::string shown_number(double value, int digits = 4);

// Formats with a fixed number of decimals: 0.50. Formats like shown_number from 1e7 on, and if the decimals would show
// fewer than two significant digits (0.0004 with two decimals).
std::string with_decimals(double value, int decimals);

// Formats a deviation from a reference value with its sign and a fixed number of decimals, however small: +0.03, -0.00.
// Formats like shown_number from 1e7 on.
std::string error_text(double value, int decimals = 2);

// Formats numbers that are shown together (a mean, its deviation, its interval's ends) with one last decimal place.
class SamePlace {
 public:
  // Shows two digits of `uncertainty` (a standard deviation or half an interval). If that is 0, four digits of `mean`.
  SamePlace(double mean, double uncertainty);

  std::string operator()(double value, bool with_sign = false) const;

 private:
  int last_place_ = 0;  // the last digit shown has the place value 10^last_place
  bool is_plain_ = true;
};

// Standard output or standard error. Write errors are stored and never thrown, because results matter more than
// messages. The program continues and reports the loss at its end.
class Output {
 public:
  constexpr Output(int descriptor, const char* name) : descriptor_(descriptor), name_(name) {}

  // Writes all of the text, unbuffered; any thread may call it.
  void write(std::string_view text);
  // The errno of the first error; 0 if there was none.
  int error() const { return error_; }
  const char* name() const { return name_; }

 private:
  int descriptor_;
  const char* name_;
  std::atomic<int> error_{0};
};

inline Output standard_output{1, "standard output"};
inline Output standard_error{2, "standard error"};

// Call it first in main. If a standard stream is closed, occupies its descriptor, so that no file opened later receives
// the messages. Later, writing to a pipe whose reader has ended is an error of the stream and does not end the program.
void guard_standard_streams();

// Returns `status`, or 1 instead of 0 if output was lost. Reports the loss on the other stream.
int report_lost_output(int status);

}  // namespace syncopate
