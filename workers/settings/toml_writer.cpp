#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "workers/settings/toml_tree.hpp"

namespace syncopate {
namespace {

std::string basic_string_literal(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    switch (c) {
      case '"':
        result += "\\\"";
        break;
      case '\\':
        result += "\\\\";
        break;
      case '\n':
        result += "\\n";
        break;
      case '\t':
        result += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
          result += fmt::format("\\u{:04X}", static_cast<unsigned>(static_cast<unsigned char>(c)));
        } else {
          result += c;
        }
    }
  }
  return result + '"';
}

// The shortest digits that read back as the same number, with something that says it is no integer.
std::string number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::string digits = fmt::format("{}", value);
  if (digits.find_first_of(".e") == std::string::npos) digits += ".0";
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
    for (const auto& [key, place, value] : members) {
      result += fmt::format("{}{} = {}", result.empty() ? "" : ", ", toml_key(key), inline_toml(value));
    }
    return result.empty() ? "{}" : "{ " + result + " }";
  }
};

bool has_own_header(const TomlNode& node) { return node.is_table() || node.is_array_of_tables(); }

bool has_values(const TomlNode& table) {
  return std::ranges::any_of(table.table(), [](const auto& member) { return !has_own_header(member.value); });
}

void write_table(const TomlNode& table, const std::string& path, std::string& out) {
  for (const auto& [key, place, value] : table.table()) {
    if (!has_own_header(value)) out += fmt::format("{} = {}\n", toml_key(key), inline_toml(value));
  }
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
