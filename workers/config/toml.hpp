// A TOML document that can be copied, changed and printed while its parts keep their places in the source. Tables of
// toml++ lose their places when they are copied, and sort their keys, so they are used only for parsing.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace syncopate {

// The maximum depth of a document. Each part of a key and each array or inline table around it counts as a level. The
// parser and the functions that traverse a tree recurse once per level.
inline constexpr int most_levels = 64;

// A place in a file, or the command line.
struct SourcePlace {
  std::string source;
  std::uint32_t line = 0;  // first line: 1; 0: unknown
  std::uint32_t column = 0;
  std::string origin{};  // what has set the value (patch.hpp), such as `variant "slow"`; empty: the file

  std::string text() const;  // "file:line:column", "file" or "command line"
  auto operator<=>(const SourcePlace&) const = default;
};

inline constexpr std::string_view command_line_source = "command line";

struct TomlNode {
  struct Member;
  using Array = std::vector<TomlNode>;
  using Table = std::vector<Member>;  // in the order of the document
  struct Moment {                     // a date or time; no key of Syncopate accepts one
    std::string text;
  };

  // A table by default. (An initializer would need Member's definition here.)
  std::variant<Table, Array, bool, std::int64_t, double, std::string, Moment> value;
  SourcePlace place{};

  bool is_table() const { return std::holds_alternative<Table>(value); }
  bool is_array() const { return std::holds_alternative<Array>(value); }
  bool is_array_of_tables() const;  // at least one element, all of them tables

  Table& table() { return std::get<Table>(value); }
  const Table& table() const { return std::get<Table>(value); }
  Array& array() { return std::get<Array>(value); }
  const Array& array() const { return std::get<Array>(value); }

  // Returns the member of a table; null if it does not exist or this is not a table.
  TomlNode* find(std::string_view key);
  const TomlNode* find(std::string_view key) const;

  void set(std::string key, SourcePlace key_place, TomlNode node);  // only for a table
  void erase(std::string_view key);                                 // only for a table
};

struct TomlNode::Member {
  std::string key;
  SourcePlace place;  // where the key is
  TomlNode value;
};

// Thrown for a document that is not TOML. what() is "file:line:column: what is wrong".
struct TomlSyntaxFault : std::runtime_error {
  using std::runtime_error::runtime_error;
  TomlSyntaxFault(const SourcePlace& at, std::string_view what)
      : std::runtime_error(at.text() + ": " + std::string(what)), place(at), problem(what) {}

  SourcePlace place{};    // if known
  std::string problem{};  // the text of what() without the place, if the place is known
};

// Parses a whole document. `source` is its name in SourcePlace. Throws TomlSyntaxFault if it is not TOML, has more than
// most_levels levels, or has more values than fit into memory.
TomlNode parse_toml(std::string_view text, const std::string& source);

// Returns a value as TOML on one line, such as 0.5, "text", [1, 2] or { a = 1 }.
std::string inline_toml(const TomlNode& node);
// Returns a string's text; empty if `node` is null or not a string.
inline std::string_view text_in(const TomlNode* node) {
  const auto* const text = node ? std::get_if<std::string>(&node->value) : nullptr;
  return text ? std::string_view(*text) : std::string_view();
}
// Returns a string's text, and any other value as TOML.
inline std::string plain_text(const TomlNode& node) {
  const auto* const text = std::get_if<std::string>(&node.value);
  return text ? *text : inline_toml(node);
}
// Returns a whole or real number; nullopt if `node` is null or not a number.
inline std::optional<double> number_in(const TomlNode* node) {
  if (const auto* const whole = node ? std::get_if<std::int64_t>(&node->value) : nullptr)
    return static_cast<double>(*whole);
  const auto* const real = node ? std::get_if<double>(&node->value) : nullptr;
  return real ? std::optional(*real) : std::nullopt;
}
// Whether both nodes exist and have equal values.
inline bool is_same(const TomlNode* a, const TomlNode* b) { return a && b && inline_toml(*a) == inline_toml(*b); }

// Returns a key as TOML: without quotes if possible.
std::string toml_key(std::string_view key);

// Returns a whole document as TOML. Each table's values come before its sub-tables; otherwise the order is kept.
std::string write_toml(const TomlNode& table);

}  // namespace syncopate
