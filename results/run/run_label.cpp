#include "results/run/run_label.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <string_view>

namespace syncopate {
namespace {

// "threshold_s" of methods.drop.threshold_s; "delays.0", since a number says nothing by itself.
std::string_view last_name(std::string_view key) {
  const std::size_t dot = key.rfind('.');
  if (dot == key.npos) return key;
  const bool is_number = key.find_first_not_of("0123456789", dot + 1) == key.npos;
  const std::size_t before = is_number && dot > 0 ? key.rfind('.', dot - 1) : dot;
  return before == key.npos ? key : key.substr(before + 1);
}

// "1.25G" of 1250000000.0, as figures write it; where six digits do not tell the number, it stays.
std::string short_value(const std::string& value) {
  constexpr double shortened_from = 1e4, rounding = 1e-12;
  double number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size() || !(std::abs(number) >= shortened_from)) return value;
  constexpr std::array<std::pair<double, char>, 3> sizes = {{{1e9, 'G'}, {1e6, 'M'}, {1e3, 'k'}}};
  for (const auto& [size, letter] : sizes) {
    if (std::abs(number) < size) continue;
    const std::string text = fmt::format("{:.6g}", number / size);
    double read = 0;
    std::from_chars(text.data(), text.data() + text.size(), read);
    const bool is_same = std::abs(read * size - number) <= rounding * std::abs(number);
    return is_same ? text + letter : value;
  }
  return value;
}

}  // namespace

std::string run_label(const std::string& method, const std::vector<std::pair<std::string, std::string>>& sweep) {
  std::string label = method;
  for (const auto& [key, value] : sweep)
    label += key == "variant" ? ", " + value : fmt::format(", {} = {}", last_name(key), short_value(value));
  return label;
}

}  // namespace syncopate
