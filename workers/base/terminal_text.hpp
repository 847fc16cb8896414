// Numbers as tables, messages and pages of Markdown show them: with enough digits to tell them apart, and in scientific
// form where a plain number would be all zeros or very long. plots/numbers.py has the same rule.
#pragma once

#include <string>

namespace syncopate {

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

}  // namespace syncopate
