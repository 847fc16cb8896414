#include "workers/settings/key_path.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <span>

#include "workers/process/utf8.hpp"
#include "workers/settings/nearest_name.hpp"
#include "workers/settings/toml_nesting.hpp"

namespace syncopate {
namespace {

constexpr std::array<std::string_view, 3> naming_keys = {"label", "algorithm", "kind"};

const std::string* naming_value(const TomlNode& element, std::string_view key) {
  const TomlNode* value = element.find(key);
  return value ? std::get_if<std::string>(&value->value) : nullptr;
}

std::vector<std::string> element_names(const TomlNode::Array& elements) {
  std::vector<std::string> names;
  for (const TomlNode& element : elements) {
    for (const std::string_view key : naming_keys) {
      if (const std::string* name = naming_value(element, key)) names.push_back(*name);
    }
  }
  return names;
}

// Each element by what names it best, each name once.
std::vector<std::string> names_to_show(const TomlNode::Array& elements) {
  std::vector<std::string> names;
  for (const TomlNode& element : elements) {
    const auto key = std::ranges::find_if(naming_keys, [&](auto one) { return naming_value(element, one) != nullptr; });
    if (key == naming_keys.end()) continue;
    const std::string& name = *naming_value(element, *key);
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  return names;
}

std::string no_such_element(const TomlNode::Array& elements, const std::string& part) {
  if (elements.empty()) return fmt::format("\"{}\" is looked for in an empty list", part);
  constexpr std::size_t most = 12;
  const std::vector<std::string> names = names_to_show(elements);
  const std::size_t shown = std::min(names.size(), most);
  const NamesToChoose choice = names_to_choose(part, names);
  if (!choice.before.empty())
    return fmt::format("{}\"{}\" must be one of {}, or a number from 0 to {}", choice.before, part, choice.list,
                       elements.size() - 1);
  std::string known = fmt::format("{}", fmt::join(std::span(names).first(shown), ", "));
  if (names.size() > shown) known += fmt::format(" and {} more", names.size() - shown);
  if (!known.empty()) known = fmt::format("one of {}, or ", known);
  const std::string numbers = elements.size() == 1 ? "0" : fmt::format("a number from 0 to {}", elements.size() - 1);
  return fmt::format("\"{}\" must be {}{}{}", part, known, numbers, suggestion(part, element_names(elements)));
}

std::optional<std::size_t> as_index(const std::string& part) {
  std::size_t index = 0;
  const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), index);
  if (error != std::errc() || end != part.data() + part.size()) return {};
  return index;
}

TomlNode& child_for_assignment(TomlNode& node, const std::string& part, const SourcePlace& place) {
  if (node.is_array()) return node.array()[element_index(node, part)];
  if (!node.is_table()) throw KeyPathFault(fmt::format("\"{}\" is looked for in a value that is no table", part));
  if (!node.find(part)) node.set(part, place, TomlNode{TomlNode::Table{}, place});
  return *node.find(part);
}

}  // namespace

std::vector<std::string> split_key(std::string_view dotted) {
  std::vector<std::string> parts;
  std::size_t at = 0;
  for (;;) {
    std::string part;
    if (at < dotted.size() && (dotted[at] == '"' || dotted[at] == '\'')) {
      const std::size_t end = dotted.find(dotted[at], at + 1);
      if (end == std::string_view::npos) throw KeyPathFault("a quote in the key is not closed");
      part = dotted.substr(at + 1, end - at - 1);
      at = end + 1;
      if (at < dotted.size() && dotted[at] != '.') throw KeyPathFault("a quoted part of the key must end at a dot");
    } else {
      const std::size_t end = std::min(dotted.find('.', at), dotted.size());
      part = dotted.substr(at, end - at);
      at = end;
    }
    if (part.empty()) throw KeyPathFault("a part of the key is empty");
    if (std::ssize(parts) == most_levels) throw KeyPathFault(fmt::format("must have at most {} parts", most_levels));
    parts.push_back(std::move(part));
    if (at >= dotted.size()) return parts;
    ++at;  // the dot
  }
}

std::size_t element_index(const TomlNode& array, const std::string& part) {
  const TomlNode::Array& elements = array.array();
  if (const auto index = as_index(part)) {
    if (*index < elements.size()) return *index;
    throw KeyPathFault(no_such_element(elements, part));
  }
  for (const std::string_view key : naming_keys) {
    std::vector<std::size_t> matches;
    for (std::size_t i = 0; i < elements.size(); ++i) {
      const std::string* name = naming_value(elements[i], key);
      if (name && *name == part) matches.push_back(i);
    }
    if (matches.size() == 1) return matches.front();
    if (matches.size() > 1) {
      throw KeyPathFault(
          fmt::format("\"{}\" names {} elements; must be a label, or a number from 0", part, matches.size()));
    }
  }
  throw KeyPathFault(no_such_element(elements, part));
}

void assign(TomlNode& root, const std::vector<std::string>& path, const SourcePlace& place, TomlNode value) {
  TomlNode* node = &root;
  for (std::size_t i = 0; i + 1 < path.size(); ++i) node = &child_for_assignment(*node, path[i], place);
  if (node->is_array()) {
    node->array()[element_index(*node, path.back())] = std::move(value);
  } else if (node->is_table()) {
    node->set(path.back(), place, std::move(value));
  } else {
    throw KeyPathFault(fmt::format("\"{}\" is looked for in a value that is no table", path.back()));
  }
}

void remove(TomlNode& root, const std::vector<std::string>& path) {
  TomlNode* node = &root;
  for (std::size_t i = 0; node && i + 1 < path.size(); ++i)
    node = node->is_array() ? &node->array()[element_index(*node, path[i])] : node->find(path[i]);
  if (node && node->is_array()) {
    node->array().erase(node->array().begin() + static_cast<std::ptrdiff_t>(element_index(*node, path.back())));
  } else if (node && node->find(path.back())) {
    node->erase(path.back());
  } else {
    std::vector<std::string> known;
    if (node && node->is_table())
      for (const TomlNode::Member& member : node->table()) known.push_back(member.key);
    throw KeyPathFault(fmt::format("there is no such key to remove{}", suggestion(path.back(), known)));
  }
}

const TomlNode* find(const TomlNode& root, const std::vector<std::string>& path) {
  const TomlNode* node = &root;
  for (const std::string& part : path) {
    if (!node) return nullptr;
    node = node->is_array() ? &node->array()[element_index(*node, part)] : node->find(part);
  }
  return node;
}

Override parse_override(std::string_view text) {
  if (const std::size_t valid = utf8_until(text); valid < text.size())  // what it sets could not be read back
    throw KeyPathFault(
        fmt::format("must be UTF-8, and its byte {} is 0x{:02x}", valid + 1, static_cast<unsigned char>(text[valid])));
  // The value starts at the first "=" outside quotes.
  char quote = 0;
  std::size_t equals = 0;
  for (; equals < text.size(); ++equals) {
    const char c = text[equals];
    if (quote) {
      if (c == quote) quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '=') {
      break;
    }
  }
  if (equals >= text.size()) throw KeyPathFault("an override must be key=value");
  const auto trimmed = [](std::string_view part) {
    while (!part.empty() && part.front() == ' ') part.remove_prefix(1);
    while (!part.empty() && part.back() == ' ') part.remove_suffix(1);
    return std::string(part);
  };
  const std::string value = trimmed(text.substr(equals + 1));
  Override result{trimmed(text.substr(0, equals)), {value, {}}};
  if (value.find('\n') == std::string::npos) {
    constexpr std::string_view key = "value = ";
    try {
      const std::string source(command_line_source);
      result.value = *parse_toml(std::string(key) + value, source).find("value");
    } catch (const TomlSyntaxFault& fault) {  // a bare word: it stays a string
      if (!value.empty() && std::string_view("{[\"'").find(value.front()) != std::string_view::npos)
        result.why_no_toml = fault.place.column <= key.size()
                                 ? std::string("its value is not valid TOML")
                                 : fmt::format("its value is not valid TOML, at its character {}: {}",
                                               fault.place.column - key.size(), fault.problem);
    }
  }
  return result;
}

}  // namespace syncopate
