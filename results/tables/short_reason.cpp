#include "results/tables/short_reason.hpp"

#include <fmt/format.h>

#include <cstddef>

#include "workers/process/printable.hpp"

namespace syncopate {
namespace {

constexpr std::size_t most_columns = 60, fewest_columns = 30;

bool is_inside_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }  // of UTF-8

}  // namespace

std::string first_line(const std::string& reason) { return reason.substr(0, reason.find('\n')); }

std::string short_reason(const std::string& reason) {
  const std::string line = first_line(reason);
  if (line.size() <= most_columns) return line;
  const std::string beginning = line.substr(0, most_columns + 1);
  for (const char* const end : {"; ", ": ", ", ", " "}) {
    const std::size_t place = beginning.rfind(end);
    if (place != std::string::npos && place >= fewest_columns) return line.substr(0, place) + " ...";
  }
  std::size_t place = most_columns;
  while (place > 0 && is_inside_character(line[place])) --place;
  return line.substr(0, place) + " ...";
}

std::string note_of_reason(const std::string& whose, const std::string& reason) {
  const std::string line = first_line(reason);
  return short_reason(reason) == line ? "" : printable(fmt::format("{}: {}", whose, line)) + "\n";
}

}  // namespace syncopate
