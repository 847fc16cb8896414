#include "workers/process/shown_number.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace syncopate {
namespace {

constexpr double least_plain = 1e-4, first_scientific = 1e7;
constexpr int most_decimals = 6;

// Of its first digit; 9.999999999999998 is 10, but for rounding.
int place_of(double value) {
  constexpr double rounding = 1e-12;
  return static_cast<int>(std::floor(std::log10(std::abs(value) * (1 + rounding))));
}

// fmt writes the sign of a NaN, which means nothing.
double without_sign_of_nan(double value) { return std::isnan(value) ? std::abs(value) : value; }

std::string fixed(double value, int decimals, bool with_sign) {
  value = without_sign_of_nan(value);
  return with_sign ? fmt::format("{:+.{}f}", value, decimals) : fmt::format("{:.{}f}", value, decimals);
}

std::string scientific(double value, int decimals, bool with_sign) {
  return with_sign ? fmt::format("{:+.{}e}", value, decimals) : fmt::format("{:.{}e}", value, decimals);
}

std::string significant(double value, int digits, bool with_sign) {
  value = without_sign_of_nan(value);
  const double size = std::abs(value);
  if (size >= std::pow(10, digits) && size < first_scientific) return fixed(value, 0, with_sign);
  return with_sign ? fmt::format("{:+.{}g}", value, digits) : fmt::format("{:.{}g}", value, digits);
}

}  // namespace

std::string shown_number(double value, int digits) { return significant(value, digits, false); }

std::string with_decimals(double value, int decimals, bool with_sign) {
  const double size = std::abs(value);
  const bool is_plain =
      value == 0 || !std::isfinite(value) || (size >= std::pow(10, 1 - decimals) && size < first_scientific);
  return is_plain ? fixed(value, decimals, with_sign) : significant(value, std::clamp(decimals, 2, 4), with_sign);
}

std::string error_text(double value, int decimals) {
  return std::abs(value) < first_scientific || !std::isfinite(value) ? fixed(value, decimals, true)
                                                                     : significant(value, 4, true);
}

SamePlace::SamePlace(double largest, int last_place) : last_place_(last_place) {
  is_plain_ = !(largest >= first_scientific) && (last_place >= -most_decimals || largest >= least_plain);
}

SamePlace SamePlace::of(double mean, double uncertainty) {
  constexpr int digits_of_mean = 4, digits_of_uncertainty = 2;
  const bool has_any = uncertainty > 0 && std::isfinite(uncertainty);
  const double shown = has_any ? uncertainty : std::abs(mean);
  if (!(shown > 0) || !std::isfinite(shown)) return {0, 0};
  return {std::max(std::abs(mean), has_any ? uncertainty : 0),
          place_of(shown) + 1 - (has_any ? digits_of_uncertainty : digits_of_mean)};
}

std::string SamePlace::operator()(double value, bool with_sign) const {
  const bool rounds_to_zero = std::abs(value) < 0.5 * std::pow(10, last_place_);
  if (is_plain_) {
    const int decimals = std::clamp(-last_place_, 0, most_decimals);
    const bool is_hidden = std::abs(value) < 0.5 * std::pow(10, -decimals);
    if (!is_hidden || rounds_to_zero) return fixed(value, decimals, with_sign);
  } else if (rounds_to_zero) {
    return "0";
  }
  if (!std::isfinite(value)) return fixed(value, 0, with_sign);
  const double size = std::abs(value);
  if (!is_plain_ && last_place_ >= -most_decimals && size >= least_plain && size < first_scientific)
    return fixed(value, std::max(-last_place_, 0), with_sign);  // a small deviation of a large mean
  return scientific(value, std::clamp(place_of(value) - last_place_, 0, most_decimals), with_sign);
}

}  // namespace syncopate
