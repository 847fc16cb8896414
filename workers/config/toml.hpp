// A TOML document as a value, which can be copied, changed and printed without losing the places where its parts were
// written. (The tables of toml++ lose their places when copied, and sort their keys, so they are used only for
// parsing.)
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace syncopate {

// The maximum number of levels of a document: parts of a key, and arrays and inline tables around it. The parser, and
// everything that walks over a tree, recurse once per level.
inline constexpr int most_levels = 64;

// A place in a file, or the command line.
struct SourcePlace {
  std::string source;
  std::uint32_t line = 0;  // first line: 1; 0: unknown
  std::uint32_t column = 0;
  std::string origin{};  // who changes the document there (patch.hpp), such as `variant "slow"`; empty: the file itself

  std::string text() const;  // "file:line:column", "file" or "command line"
  auto operator<=>(const SourcePlace&) const = default;
};

inline constexpr std::string_view command_line_source = "command line";

struct TomlNode {
  struct Member;
  using Array = std::vector<TomlNode>;
  using Table = std::vector<Member>;  // in the order of the document
  struct Moment {                     // a date or time, which is not a value of any key of Syncopate
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

  // The member of a table; null if there is none, or if this is not a table.
  TomlNode* find(std::string_view key);
  const TomlNode* find(std::string_view key) const;

  void set(std::string key, SourcePlace key_place, TomlNode node);  // this is a table
  void erase(std::string_view key);                                 // this is a table
};

struct TomlNode::Member {
  std::string key;
  SourcePlace place;  // where the key is
  TomlNode value;
};

// A document that is not TOML: what() is "file:line:column: what is wrong".
struct TomlSyntaxFault : std::runtime_error {
  using std::runtime_error::runtime_error;
  TomlSyntaxFault(const SourcePlace& at, std::string_view what)
      : std::runtime_error(at.text() + ": " + std::string(what)), place(at), problem(what) {}

  SourcePlace place{};    // if known
  std::string problem{};  // if place is known: the text without it
};

// Parses a whole document; `source` names it in places. Throws TomlSyntaxFault, also for more than most_levels levels.
TomlNode parse_toml(std::string_view text, const std::string& source);

// One value as TOML on one line, such as 0.5, "text", [1, 2] or { a = 1 }.
std::string inline_toml(const TomlNode& node);
// A string's text; empty for null and for other kinds of values.
inline std::string_view text_in(const TomlNode* node) {
  const auto* const text = node ? std::get_if<std::string>(&node->value) : nullptr;
  return text ? std::string_view(*text) : std::string_view();
}
// Whether both exist and have equal values.
inline bool is_same(const TomlNode* a, const TomlNode* b) { return a && b && inline_toml(*a) == inline_toml(*b); }

// A key as TOML: bare if possible, else quoted.
std::string toml_key(std::string_view key);

// A whole document. For each table first the values, then the sub-tables, both in their order.
std::string write_toml(const TomlNode& table);

}  // namespace syncopate
