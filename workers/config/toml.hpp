// A TOML document as a value: copied, changed and printed without losing the places where its parts were written. (The
// tables of toml++ lose their places when copied, and sort their keys, so they serve only for parsing.)
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace syncopate {

// The most levels of a document: parts of a key, and arrays and inline tables around it. The parser, and all that walks
// over a tree, recurse once per level.
inline constexpr int most_levels = 64;

// A place in a file, or the command line.
struct SourcePlace {
  std::string source;
  std::uint32_t line = 0;  // 1 is the first; 0: no line is known
  std::uint32_t column = 0;
  std::string origin{};  // who changes the document there (patch.hpp), as `variant "slow"`; empty: it is written so

  std::string text() const;  // "file:line:column", "file" or "command line"
  auto operator<=>(const SourcePlace&) const = default;
};

inline constexpr std::string_view command_line_source = "command line";

struct TomlNode {
  struct Member;
  using Array = std::vector<TomlNode>;
  using Table = std::vector<Member>;  // in the order of the document
  struct Moment {                     // a date or time, which no key of Syncopate takes
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

  // The member of a table; null if there is none, or if this is no table.
  TomlNode* find(std::string_view key);
  const TomlNode* find(std::string_view key) const;

  void set(std::string key, SourcePlace key_place, TomlNode node);  // this is a table
  void erase(std::string_view key);                                 // this is a table
};

struct TomlNode::Member {
  std::string key;
  SourcePlace place;  // of the key
  TomlNode value;
};

// A document that is not TOML: what() is "file:line:column: what is wrong".
struct TomlSyntaxFault : std::runtime_error {
  using std::runtime_error::runtime_error;
  TomlSyntaxFault(const SourcePlace& at, std::string_view what)
      : std::runtime_error(at.text() + ": " + std::string(what)), place(at), problem(what) {}

  SourcePlace place{};    // if it is known
  std::string problem{};  // then: the text without the place
};

// Parses a whole document; `source` names it in places. Throws TomlSyntaxFault, also for more than most_levels levels.
TomlNode parse_toml(std::string_view text, const std::string& source);

// One value as TOML on one line, such as 0.5, "text", [1, 2] or { a = 1 }.
std::string inline_toml(const TomlNode& node);
// Its text; empty for null and for another kind of value.
inline std::string_view text_in(const TomlNode* node) {
  const auto* const text = node ? std::get_if<std::string>(&node->value) : nullptr;
  return text ? std::string_view(*text) : std::string_view();
}
// Whether both are there, with equal values.
inline bool is_same(const TomlNode* a, const TomlNode* b) { return a && b && inline_toml(*a) == inline_toml(*b); }

// A key as TOML: bare where it can be, else quoted.
std::string toml_key(std::string_view key);

// A whole document: of each table first the values, then the sub-tables, both in their order.
std::string write_toml(const TomlNode& table);

}  // namespace syncopate
