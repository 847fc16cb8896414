#include "experiments/sections/tuned_axis.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <variant>

namespace syncopate {

std::string label_of(const TunedAxis& axis, const TomlNode& value) {
  const std::string written = inline_toml(value);
  for (std::size_t i = 0; i < axis.labels.size(); ++i)
    if (inline_toml(axis.values[i]) == written) return axis.labels[i];
  return written;
}

std::optional<std::vector<double>> numbers_of(const TunedAxis& axis) {
  std::vector<double> numbers;
  for (const TomlNode& value : axis.values) {
    if (const auto* integer = std::get_if<std::int64_t>(&value.value))
      numbers.push_back(static_cast<double>(*integer));
    else if (const auto* number = std::get_if<double>(&value.value); number && std::isfinite(*number))
      numbers.push_back(*number);
    else
      return {};
  }
  return numbers;
}

std::optional<TomlNode> next_beyond(const TunedAxis& axis, bool above, double share) {
  std::optional<std::vector<double>> numbers = numbers_of(axis);
  if (!numbers || numbers->size() < 2) return {};
  std::ranges::sort(*numbers);
  const double edge = above ? numbers->back() : numbers->front();
  const double neighbour = above ? *(numbers->end() - 2) : (*numbers)[1];
  const double whole =
      axis.goes_by_steps || numbers->front() <= 0 ? edge - neighbour : edge * (edge / neighbour) - edge;
  const double beyond = edge + share * whole;
  const bool is_whole = std::ranges::all_of(
      axis.values, [](const TomlNode& value) { return std::holds_alternative<std::int64_t>(value.value); });
  // The nearest number that one would write.
  const double rounded = is_whole ? std::round(beyond) : std::stod(fmt::format("{:.12g}", beyond));
  if (!std::isfinite(rounded) || std::abs(rounded) > 1e15 || (above ? rounded <= edge : rounded >= edge)) return {};
  TomlNode value{rounded, axis.place};
  if (is_whole) value.value = static_cast<std::int64_t>(rounded);
  return value;
}

}  // namespace syncopate
