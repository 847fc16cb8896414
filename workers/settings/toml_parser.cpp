#include <fmt/format.h>

// The parser's assertions do not hold of every text that is no TOML; what follows them finds that, too, and says where.
// The distribution's library is built without them; where toml++ is headers alone, they would end the program.
#define TOML_ASSERT(expression) static_cast<void>(0)
#include <toml++/toml.h>

#include <algorithm>
#include <sstream>

#include "workers/process/free_memory.hpp"
#include "workers/settings/toml_nesting.hpp"
#include "workers/settings/toml_tree.hpp"

namespace syncopate {
namespace {

SourcePlace place_of(const toml::source_region& region, const std::string& source) {
  return {source, static_cast<std::uint32_t>(region.begin.line), static_cast<std::uint32_t>(region.begin.column)};
}

TomlNode convert(const toml::node& node, const std::string& source);

TomlNode::Table convert_table(const toml::table& table, const std::string& source) {
  TomlNode::Table members;
  for (const auto& [key, value] : table) {
    members.push_back({std::string(key.str()), place_of(key.source(), source), convert(value, source)});
  }
  // toml++ sorts by key; the document's own order is that of the places.
  std::ranges::stable_sort(members, {},
                           [](const TomlNode::Member& m) { return std::pair(m.place.line, m.place.column); });
  return members;
}

TomlNode convert(const toml::node& node, const std::string& source) {
  TomlNode result;
  result.place = place_of(node.source(), source);
  if (const auto* flag = node.as_boolean()) {
    result.value = flag->get();
  } else if (const auto* integer = node.as_integer()) {
    result.value = integer->get();
  } else if (const auto* number = node.as_floating_point()) {
    result.value = number->get();
  } else if (const auto* text = node.as_string()) {
    result.value = text->get();
  } else if (const auto* table = node.as_table()) {
    result.value = convert_table(*table, source);
  } else if (const auto* array = node.as_array()) {
    TomlNode::Array elements;
    for (const toml::node& element : *array) elements.push_back(convert(element, source));
    result.value = std::move(elements);
  } else {
    std::ostringstream out;
    node.visit([&](const auto& moment) {
      if constexpr (toml::is_date<decltype(moment)> || toml::is_time<decltype(moment)> ||
                    toml::is_date_time<decltype(moment)>) {
        out << moment.get();
      }
    });
    result.value = TomlNode::Moment{out.str()};
  }
  return result;
}

// What a value takes while it is read, in the parser's tree and in ours, and in the copies that follow.
constexpr double bytes_of_value = 400;

void require_memory_for(std::string_view text, const std::string& source) {
  constexpr std::ptrdiff_t few = 100'000;
  const auto values = std::ranges::count_if(text, [](char one) { return one == ',' || one == '='; });
  if (values <= few) return;
  const double needed = bytes_of_value * static_cast<double>(values);
  const auto free = static_cast<double>(free_memory_bytes());
  if (needed > free)
    throw TomlSyntaxFault({source}, fmt::format("holds about {} values; the memory does not suffice: they take about "
                                                "{:.2g} GB, and {:.2g} GB are free",
                                                values, 1e-9 * needed, 1e-9 * free));
}

}  // namespace

TomlNode parse_toml(std::string_view text, const std::string& source) {
  require_memory_for(text, source);
  check_nesting(text, source);
  try {
    const toml::table table = toml::parse(text, source);
    return {convert_table(table, source), {source}};
  } catch (const toml::parse_error& error) {
    throw TomlSyntaxFault(place_of(error.source(), source), error.description());
  }
}

}  // namespace syncopate
