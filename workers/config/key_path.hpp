// Dotted keys, as on the command line and in [sweep]: training.learning_rate.peak, methods.0.threshold_s,
// methods.dropcompute.threshold_s, methods."Local SGD (QSR)".period.power.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "workers/settings/toml_tree.hpp"

namespace syncopate {

// A key that cannot be followed; what() says what it must be.
struct KeyPathFault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The parts between the dots; a part in single or double quotes may contain dots. Throws KeyPathFault
// for an empty part, an open quote or too many parts.
std::vector<std::string> split_key(std::string_view dotted);

// The element of an array of tables that `part` addresses: its number, or the value of its label, algorithm
// or kind. Throws KeyPathFault if there is none, or more than one.
std::size_t element_index(const TomlNode& array, const std::string& part);

// Puts `value` at the key, replacing what is there; tables on the way are made. Throws KeyPathFault.
void assign(TomlNode& root, const std::vector<std::string>& path, const SourcePlace& place, TomlNode value);

// Removes what is at the key: a member of a table, or an element of a list. Throws KeyPathFault if there is nothing.
void remove(TomlNode& root, const std::vector<std::string>& path);

// What is at the key; null if there is nothing.
const TomlNode* find(const TomlNode& root, const std::vector<std::string>& path);

// "key=value" as given on the command line, its value parsed as TOML and, where that fails, taken as a
// string. Throws KeyPathFault for a missing "=".
struct Override {
  std::string key;
  TomlNode value;
  std::string why_no_toml{};  // of a string that begins like a table, a list or a text in quotes; else empty
};
Override parse_override(std::string_view text);

}  // namespace syncopate
