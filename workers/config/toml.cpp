// Disables toml++'s assertions, which only header-only toml++ has. Some texts that are not TOML violate them and would
// end the program, although the code after the assertions reports these faults and their places.
#define TOML_ASSERT(expression) static_cast<void>(0)

#include "workers/config/toml.hpp"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <sstream>
#include <utility>

#include "workers/base/machine.hpp"

namespace syncopate {

namespace {

// Returns the end of the string that begins at `begin`; the text's end if it is not closed, which the parser reports.
std::size_t end_of_string(std::string_view text, std::size_t begin) {
  const char quote = text[begin];
  const bool is_long = text.substr(begin).starts_with(quote == '"' ? R"(""")" : "'''");
  const std::string_view closing = text.substr(begin, is_long ? 3 : 1);
  for (std::size_t at = begin + closing.size(); at < text.size(); ++at) {
    if (text[at] == '\\' && quote == '"') {
      ++at;
    } else if (text.substr(at).starts_with(closing)) {
      at += closing.size();
      while (is_long && at < text.size() && text[at] == quote) ++at;  // up to two quotes belong to the string
      return at;
    } else if (text[at] == '\n' && !is_long) {
      break;
    }
  }
  return text.size();
}

[[noreturn]] void throw_too_deep(const SourcePlace& place) {
  throw TomlSyntaxFault(
      place, fmt::format("a key must have at most {} parts, including the tables and arrays around it", most_levels));
}

// Refuses keys with many more than most_levels parts, and values within more than most_levels brackets, before they
// exhaust the parser's stack. convert() counts all levels.
void check_nesting(std::string_view text, const std::string& source) {
  int dots = 0, brackets = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '.') ++dots;
    if (c == '[' || c == '{') ++brackets;
    if ((c == ']' || c == '}') && brackets > 0) --brackets;
    if (std::string_view("\n=,[]{}").find(c) != std::string_view::npos) dots = 0;
    if (dots > most_levels || brackets > most_levels) {
      const std::string_view before = text.substr(0, at);
      const auto line_begin = before.rfind('\n') + 1;  // npos + 1 is 0
      throw_too_deep({source, static_cast<std::uint32_t>(1 + std::ranges::count(before, '\n')),
                      static_cast<std::uint32_t>(1 + at - line_begin)});
    }
    if (c == '#') at = std::min(text.find('\n', at), text.size()) - 1;
    if (c == '"' || c == '\'') at = end_of_string(text, at) - 1;
  }
}

SourcePlace place_of(const toml::source_region& region, const std::string& source) {
  return {source, static_cast<std::uint32_t>(region.begin.line), static_cast<std::uint32_t>(region.begin.column)};
}

// `level`: the number of keys and arrays that contain the node. `at`: the node's key or, without a key, the node.
TomlNode convert(const toml::node& node, const std::string& source, int level, const toml::source_region& at);

TomlNode::Table convert_table(const toml::table& table, const std::string& source, int level) {
  TomlNode::Table members;
  for (const auto& [key, value] : table)
    members.push_back(
        {std::string(key.str()), place_of(key.source(), source), convert(value, source, level + 1, key.source())});
  // toml++ sorts by key. This restores the document's order, by line and column.
  std::ranges::stable_sort(members, {},
                           [](const TomlNode::Member& m) { return std::pair(m.place.line, m.place.column); });
  return members;
}

TomlNode convert(const toml::node& node, const std::string& source, int level, const toml::source_region& at) {
  if (level > most_levels) throw_too_deep(place_of(at, source));
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
    result.value = convert_table(*table, source, level);
  } else if (const auto* array = node.as_array()) {
    TomlNode::Array elements;
    for (const toml::node& element : *array) elements.push_back(convert(element, source, level + 1, element.source()));
    result.value = std::move(elements);
  } else {
    std::ostringstream out;
    out << toml::node_view(node);
    result.value = TomlNode::Moment{out.str()};
  }
  return result;
}

// Memory per value in bytes while a document is read: in the parser's tree, in our tree, and in later copies.
constexpr double bytes_of_value = 400;

void require_memory_for(std::string_view text, const std::string& source) {
  constexpr std::ptrdiff_t few = 100'000;
  const auto values = std::ranges::count_if(text, [](char one) { return one == ',' || one == '='; });
  if (values <= few) return;
  const double needed = bytes_of_value * static_cast<double>(values);
  const auto free = static_cast<double>(free_memory_bytes());
  if (needed > free)
    throw TomlSyntaxFault({source},
                          fmt::format("contains about {} values; the memory does not suffice: they take about "
                                      "{:.2g} GB, and {:.2g} GB are free",
                                      values, 1e-9 * needed, 1e-9 * free));
}

std::string basic_string_literal(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      result += fmt::format("\\{}", c);
    else if (c == '\n')
      result += "\\n";
    else if (c == '\t')
      result += "\\t";
    else if (code < 0x20 || code == 0x7f)
      result += fmt::format("\\u{:04X}", static_cast<unsigned>(code));
    else
      result += c;
  }
  return result + '"';
}

// Returns the shortest decimal that reads back as the same number, with ".0" if it would look like an integer.
std::string number(double value) {
  if (std::isnan(value)) return "nan";
  std::string digits = fmt::format("{}", value);
  if (std::isfinite(value) && digits.find_first_of(".e") == std::string::npos) digits += ".0";
  return digits;
}

struct InlineWriter {
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(std::int64_t value) const { return fmt::format("{}", value); }
  std::string operator()(double value) const { return number(value); }
  std::string operator()(const std::string& value) const { return basic_string_literal(value); }
  std::string operator()(const TomlNode::Moment& value) const { return value.text; }

  std::string operator()(const TomlNode::Array& elements) const {
    std::string result;
    for (const TomlNode& element : elements) result += (result.empty() ? "" : ", ") + inline_toml(element);
    return "[" + result + "]";
  }

  std::string operator()(const TomlNode::Table& members) const {
    std::string result;
    for (const auto& [key, place, value] : members)
      result += fmt::format("{}{} = {}", result.empty() ? "" : ", ", toml_key(key), inline_toml(value));
    return result.empty() ? "{}" : "{ " + result + " }";
  }
};

bool has_own_header(const TomlNode& node) { return node.is_table() || node.is_array_of_tables(); }

bool has_values(const TomlNode& table) {
  return std::ranges::any_of(table.table(), [](const auto& member) { return !has_own_header(member.value); });
}

void write_table(const TomlNode& table, const std::string& path, std::string& out) {
  for (const auto& [key, place, value] : table.table())
    if (!has_own_header(value)) out += fmt::format("{} = {}\n", toml_key(key), inline_toml(value));
  for (const auto& [key, place, value] : table.table()) {
    const std::string name = path.empty() ? toml_key(key) : path + "." + toml_key(key);
    if (value.is_table()) {
      // A table that holds only tables needs no header of its own.
      if (has_values(value) || value.table().empty()) out += fmt::format("{}[{}]\n", out.empty() ? "" : "\n", name);
      write_table(value, name, out);
    } else if (value.is_array_of_tables()) {
      for (const TomlNode& element : value.array()) {
        out += fmt::format("{}[[{}]]\n", out.empty() ? "" : "\n", name);
        write_table(element, name, out);
      }
    }
  }
}

}  // namespace

TomlNode parse_toml(std::string_view text, const std::string& source) {
  require_memory_for(text, source);
  check_nesting(text, source);
  try {
    const toml::table table = toml::parse(text, source);
    return {convert_table(table, source, 0), {source}};
  } catch (const toml::parse_error& error) {
    throw TomlSyntaxFault(place_of(error.source(), source), error.description());
  }
}

std::string SourcePlace::text() const {
  return line == 0 || source == command_line_source ? source : fmt::format("{}:{}:{}", source, line, column);
}

bool TomlNode::is_array_of_tables() const {
  return is_array() && !array().empty() && std::ranges::all_of(array(), &TomlNode::is_table);
}

const TomlNode* TomlNode::find(std::string_view key) const {
  if (!is_table()) return nullptr;
  const auto found = std::ranges::find(table(), key, &Member::key);
  return found == table().end() ? nullptr : &found->value;
}

TomlNode* TomlNode::find(std::string_view key) {
  return const_cast<TomlNode*>(static_cast<const TomlNode*>(this)->find(key));
}

void TomlNode::set(std::string key, SourcePlace key_place, TomlNode node) {
  const auto found = std::ranges::find(table(), key, &Member::key);
  if (found == table().end()) {
    table().push_back({std::move(key), std::move(key_place), std::move(node)});
  } else {
    found->place = std::move(key_place);
    found->value = std::move(node);
  }
}

void TomlNode::erase(std::string_view key) {
  std::erase_if(table(), [&](const Member& member) { return member.key == key; });
}

std::string inline_toml(const TomlNode& node) { return std::visit(InlineWriter{}, node.value); }

std::string toml_key(std::string_view key) {
  const auto is_bare = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-'; };
  return !key.empty() && std::ranges::all_of(key, is_bare) ? std::string(key) : basic_string_literal(key);
}

std::string write_toml(const TomlNode& table) {
  std::string result;
  write_table(table, "", result);
  return result;
}

}  // namespace syncopate
