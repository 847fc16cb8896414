// Numbers as tables, messages and pages of Markdown show them: with enough digits to tell them apart, and in scientific
// form where a plain number would be all zeros or very long. plots/numbers.py has the same rule.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace syncopate {

// Text of files and command lines on its way to a terminal, which obeys control characters.
// Control characters (C0, C1, DEL), characters that take no room or turn the direction of writing, so that two texts
// would look alike, and bytes that are no UTF-8 as escapes: \n, \t, \u001B, \xFF, \U000E0001. Everything else stays.
std::string printable(std::string_view text);

// The same for text of several lines: the ends of lines stay.
std::string printable_lines(std::string_view text);

// Short enough for a line of a report; "..." stands for the rest.
std::string shortened(std::string text, std::size_t longest = 60);

// UTF-8, character by character.
struct Utf8Character {
  std::size_t bytes = 0;  // 0: the text begins with none
  std::uint32_t code = 0;
};

// The character that `text`, which is not empty, begins with; no overlong forms, no surrogates.
Utf8Character first_character(std::string_view text);

// Whether a character does not begin here, but goes on.
bool continues_character(std::string_view text, std::size_t at);

// Where the first byte stands that is no part of a character; the text's length if there is none.
std::size_t utf8_until(std::string_view text);

// What a file is that begins so and is no text in UTF-8, with the way to make it one: "UTF-16 (little-endian), which
// iconv -f UTF-16LE -t UTF-8 converts". Known by a byte order mark, by zero bytes in the places where UTF-16 and UTF-32
// have them, or by the first bytes of a format. Empty: nothing of that kind.
std::string foreign_form(std::string_view begin);

// So many significant digits, without zeros at the end: 0.52, 88.12, 12346, 1.25e-07, 8e+29. Plain from 1e-4 to 1e7,
// with all digits before the point.
std::string shown_number(double value, int digits = 4);

// So many decimals: 0.50. A number of which they would show fewer than two digits (0.0004 with two decimals), or that
// is 1e7 or more, is as shown_number has it. `with_sign`: also of positive numbers.
std::string with_decimals(double value, int decimals, bool with_sign = false);

// A deviation from what is right, with its sign and so many decimals, however small it is: +0.03, -0.00. From 1e7 on as
// shown_number has it.
std::string error_text(double value, int decimals = 2);

// Numbers that are read together end at the same decimal place: a mean, its deviation, the ends of its interval.
class SamePlace {
 public:
  // 10^last_place is the last digit to be shown. `largest`: the largest of the numbers, without its sign.
  SamePlace(double largest, int last_place);

  // To two digits of `uncertainty`, a deviation or half an interval; to four digits of the mean where it is 0.
  static SamePlace of(double mean, double uncertainty);

  std::string operator()(double value, bool with_sign = false) const;

 private:
  int last_place_;
  bool is_plain_;
};

// What the program says, on standard output and standard error. What cannot be written is remembered and never
// thrown: results matter more than messages, so the work goes on, and the program's end reports the loss.
class Output {
 public:
  constexpr Output(int descriptor, const char* name) : descriptor_(descriptor), name_(name) {}

  // All of the text, at once and unbuffered; any thread may call it.
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

// Call it first in main. A standard stream that is closed stays one that cannot be written, where the next file to be
// opened would have taken its number and got the messages; a reader that goes away is an error of its stream, where it
// would have ended the program.
void guard_standard_streams();

// `status`, or 1 instead of 0 where output was lost, which is said on the other stream.
int report_lost_output(int status);

}  // namespace syncopate
