#include "experiments/commands/memory_size.hpp"

#include <cctype>
#include <charconv>
#include <cmath>
#include <string>
#include <system_error>

namespace syncopate {
namespace {

// Of "b", "k", "kb", "ki", "kib", and so on; 0: there is no such unit.
double unit_bytes(std::string unit) {
  if (unit.ends_with('b')) unit.pop_back();
  if (unit.empty()) return 1;
  const std::size_t power = std::string_view("kmgtpe").find(unit.front());
  if (power == std::string_view::npos || (unit.size() > 1 && unit.substr(1) != "i")) return 0;
  return std::pow(unit.size() > 1 ? 1024.0 : 1000.0, static_cast<double>(power + 1));
}

}  // namespace

std::optional<std::int64_t> memory_size(std::string_view text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [after, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (error != std::errc{}) return {};
  std::string unit;
  for (const char letter : std::string_view(after, end))
    if (letter != ' ' || !unit.empty()) unit += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  const double bytes = number * unit_bytes(unit);
  if (!(bytes >= 1 && bytes < 0x1p63)) return {};
  return static_cast<std::int64_t>(bytes);
}

}  // namespace syncopate
