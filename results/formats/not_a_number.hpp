// What is not a number, in text.
#pragma once

#include <cmath>
#include <limits>

namespace syncopate {

// The sign of such a value depends on the machine and says nothing: it prints as "nan", never as "-nan".
inline double without_sign_of_nan(double value) {
  return std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value;
}

}  // namespace syncopate
