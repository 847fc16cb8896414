#include "results/run/run_label.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <optional>
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

constexpr std::array<std::pair<double, char>, 3> sizes = {{{1e9, 'G'}, {1e6, 'M'}, {1e3, 'k'}}};

std::optional<double> number_of(const std::string& value) {
  double number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size()) return {};
  return number;
}

// "1.25G"; none where six digits do not tell the number, or none of the sizes is that small.
std::optional<std::string> in_thousands(double number) {
  constexpr double rounding = 1e-12;
  for (const auto& [size, letter] : sizes) {
    if (std::abs(number) < size) continue;
    const std::string text = fmt::format("{:.6g}", number / size);
    const bool is_same = std::abs(number_of(text).value_or(0) * size - number) <= rounding * std::abs(number);
    return is_same ? std::optional(text + letter) : std::nullopt;
  }
  return {};
}

// "1.25G" of 1250000000.0, as figures write it.
std::string short_value(const std::string& value) {
  constexpr double shortened_from = 1e4;
  const std::optional<double> number = number_of(value);
  return number && std::abs(*number) >= shortened_from ? in_thousands(*number).value_or(value) : value;
}

// "10 Gbit/s".
bool is_rate(const std::string& value) {
  const std::size_t end = value.find_first_not_of("0123456789.");
  if (end == 0 || end == value.npos || value[end] != ' ') return false;
  std::string_view unit = std::string_view(value).substr(end + 1);
  if (!unit.empty() && std::string_view("kMGT").find(unit.front()) != unit.npos) unit.remove_prefix(1);
  return unit == "bit/s" || unit == "B/s" || unit == "bytes/s";
}

// What says by itself what it is: a variant, "10 Gbit/s", also of a bandwidth in bytes; else empty. Figures have the
// same rule (plots/variation.py).
std::string alone(const std::string& key, const std::string& value) {
  if (key == "variant") return value;
  if (!key.ends_with("bandwidth_bytes_per_s")) return {};
  if (is_rate(value)) return value;
  const std::optional<double> number = number_of(value);
  if (!number || !(*number > 0)) return {};
  std::string text = in_thousands(8 * *number).value_or("");
  return text.empty() ? text : text.insert(text.size() - 1, 1, ' ') + "bit/s";
}

}  // namespace

std::string run_label(const std::string& method, const std::vector<std::pair<std::string, std::string>>& sweep) {
  std::string label = method;
  for (const auto& [key, value] : sweep) {
    const std::string text = alone(key, value);
    label += text.empty() ? fmt::format(", {} = {}", last_name(key), short_value(value)) : ", " + text;
  }
  return label;
}

}  // namespace syncopate
