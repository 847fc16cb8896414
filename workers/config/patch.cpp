#include "workers/config/patch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <variant>

#include "workers/base/terminal_text.hpp"

namespace syncopate {

namespace {

// Returns the member of a table, or the element of a list. Null if the member does not exist. Throws KeyPathFault if
// the element does not exist.
template <typename Node>
Node* part_of(Node& node, const std::string& part) {
  return node.is_array() ? &node.array()[element_index(node, part)] : node.find(part);
}

// Sets or replaces the value at the path and creates missing tables on the way. Throws KeyPathFault.
void assign(TomlNode& root, const Path& path, const SourcePlace& place, TomlNode value) {
  TomlNode* node = &root;
  for (const std::string& part : path) {
    if (!node->is_table() && !node->is_array())
      throw KeyPathFault(fmt::format("\"{}\" cannot be set, because the value before it is not a table", part));
    const bool is_last = &part == &path.back();
    if (node->is_table() && (is_last || !node->find(part))) node->set(part, place, TomlNode{TomlNode::Table{}, place});
    node = part_of(*node, part);
  }
  *node = std::move(value);
}

// Removes the member of a table or element of a list at the path. Throws KeyPathFault if it does not exist.
void remove(TomlNode& root, const Path& path) {
  TomlNode* node = &root;
  for (std::size_t i = 0; node && i + 1 < path.size(); ++i) node = part_of(*node, path[i]);
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

void set_origin(TomlNode& node, const std::string& origin) {
  node.place.origin = origin;
  if (node.is_array())
    for (TomlNode& element : node.array()) set_origin(element, origin);
  if (node.is_table())
    for (TomlNode::Member& member : node.table()) {
      member.place.origin = origin;
      set_origin(member.value, origin);
    }
}

// Returns the name of a length without its unit: "warmup" for warmup_steps, warmup_epochs and warmup_share. Empty if
// the key is not a length.
std::string_view length_of(std::string_view key) {
  if (key == "rounds" || key == "share") return "rounds";  // `rounds` and `share` determine the same quantity
  for (const std::string_view unit : {"_steps", "_epochs", "_seconds", "_s", "_share", "_step", "_epoch"})
    if (key.ends_with(unit)) return key.substr(0, key.size() - unit.size());
  return {};
}

// Returns the table's keys for the same length in other units, such as warmup_epochs for warmup_steps.
std::vector<std::string> other_forms(const TomlNode& table, const std::string& key) {
  std::vector<std::string> others;
  const std::string_view length = length_of(key);
  if (length.empty()) return others;
  for (const TomlNode::Member& other : table.table())
    if (other.key != key && length_of(other.key) == length) others.push_back(other.key);
  return others;
}

// Whether the keys of `own` are added to those of `common`, instead of replacing the whole table.
bool joins(const TomlNode& common, const TomlNode& own) {
  return common.is_table() && own.is_table() && deciding_key(common, own).empty();
}

class TableReader {
 public:
  TableReader(const TomlNode& document, std::string name, std::string origin, FaultList& faults)
      : document_(document), name_(std::move(name)), origin_(std::move(origin)), faults_(faults) {}

  std::vector<Patch> read(TomlNode table) {
    if (const TomlNode* keys = table.find("remove")) add_removals(*keys);
    for (const char* const no_key : {"remove", "label"}) table.erase(no_key);
    has_dotted_keys_ = true;
    return read_keys(table);
  }

  std::vector<Patch> read_keys(const TomlNode& table) {
    add_table(table, {}, "");
    return std::move(patches_);
  }

 private:
  void fault(const SourcePlace& place, const std::string& text) {
    faults_.add(place, fmt::format("{}.{}", name_, text));
  }

  void add(Path path, std::optional<TomlNode> value, SourcePlace place, std::string key) {
    place.origin = origin_;
    patches_.push_back({std::move(path), std::move(value), std::move(place), std::move(key)});
  }

  void add_removals(const TomlNode& keys) {
    const bool is_list = keys.is_array() && std::ranges::all_of(keys.array(), [](const TomlNode& key) {
                           return std::holds_alternative<std::string>(key.value);
                         });
    if (!is_list) return fault(keys.place, fmt::format("remove = {}; must be a list of keys", inline_toml(keys)));
    for (const TomlNode& key : keys.array()) {
      const auto& text = std::get<std::string>(key.value);
      try {
        Path path = with_numbers(document_, split_key(text));
        if (!found_at(document_, path)) throw KeyPathFault("must be a key that is in the file");
        add(std::move(path), {}, key.place, text);
      } catch (const KeyPathFault& problem) {
        fault(key.place, fmt::format("remove = \"{}\"; {}", text, problem.what()));
      }
    }
  }

  // If there is a `list` at the path `above`, the table's keys are names of its elements, such as in
  // [variants.methods.DropCompute].
  void add_table(const TomlNode& table, const Path& above, const std::string& prefix, const TomlNode* list = nullptr) {
    for (const TomlNode::Member& member : table.table()) {
      const std::string key = prefix.empty() ? member.key : fmt::format("{}.{}", prefix, member.key);
      try {
        Path path = above;
        if (list)
          path.push_back(std::to_string(element_index(*list, member.key)));
        else
          std::ranges::move(has_dotted_keys_ ? split_key(member.key) : Path{member.key}, std::back_inserter(path));
        add_member(member, with_numbers(document_, std::move(path)), key);
      } catch (const KeyPathFault& problem) {
        fault(member.place, fmt::format("{}; {}", key, problem.what()));
      }
    }
  }

  void add_member(const TomlNode::Member& member, const Path& path, const std::string& key) {
    const TomlNode* there = found_at(document_, path);
    if (there && member.value.is_table()) {
      if (there->is_array_of_tables()) return add_table(member.value, path, key, there);
      if (joins(*there, member.value)) return add_table(member.value, path, key);
    }
    const Path above(path.begin(), path.end() - 1);
    const TomlNode* table = found_at(document_, above);
    if (table && table->is_table())
      for (const std::string& other : other_forms(*table, path.back())) {
        Path removed = above;
        removed.push_back(other);
        const bool is_removed_already =
            std::ranges::any_of(patches_, [&](const Patch& patch) { return !patch.value && patch.path == removed; });
        if (!is_removed_already) add(std::move(removed), {}, member.place, key);
      }
    add(path, member.value, member.place, key);
  }

  const TomlNode& document_;
  std::string name_, origin_;
  FaultList& faults_;
  bool has_dotted_keys_ = false;
  std::vector<Patch> patches_;
};

// "key=value" from the command line. A value that is not TOML becomes a string.
struct Override {
  std::string key;
  TomlNode value;
  // Why the value is not TOML, if it begins like a table, a list or a quoted text; empty in all other cases.
  std::string why_no_toml{};
};

// Calls is_end(character, index) for the characters outside of quotes until it returns true. Returns that index, or the
// text's length.
template <typename IsEnd>
std::size_t find_outside_quotes(std::string_view text, const IsEnd& is_end) {
  char quote = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (quote) {
      if (c == quote) quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (is_end(c, at)) {
      return at;
    }
  }
  return text.size();
}

// Throws KeyPathFault if "=" is missing or the text is not UTF-8.
Override parse_override(std::string_view text) {
  if (const std::size_t valid = utf8_until(text); valid < text.size())  // a record of it could not be read back
    throw KeyPathFault(
        fmt::format("must be UTF-8, but its byte {} is 0x{:02x}", valid + 1, static_cast<unsigned char>(text[valid])));
  const std::size_t equals = find_outside_quotes(text, [](char c, std::size_t) { return c == '='; });
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

// Splits the text at commas that are not inside quotes or brackets.
std::vector<std::string_view> parts_of(std::string_view text) {
  std::vector<std::string_view> parts;
  std::size_t begin = 0;
  int depth = 0;
  find_outside_quotes(text, [&](char c, std::size_t at) {
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (c == ',' && depth == 0) {
      parts.push_back(text.substr(begin, at - begin));
      begin = at + 1;
    }
    return false;
  });
  parts.push_back(text.substr(begin));
  return parts;
}

const SourcePlace& command_line() {
  static const SourcePlace place{std::string(command_line_source)};
  return place;
}

// Returns the swept values if `change` is a range or has several parts between commas; nullopt for a single value.
std::optional<TomlNode> swept_values(const Override& change) {
  const auto has = [&change](const char* key) { return change.value.find(key) != nullptr; };
  if (change.value.is_table() && has("from") && has("to") && (has("step") || has("factor"))) return change.value;
  const auto* text = std::get_if<std::string>(&change.value.value);
  const bool is_in_quotes = change.value.place.source == command_line_source;  // parsed as TOML, so it was quoted
  if (!text || is_in_quotes) return {};
  const std::vector<std::string_view> parts = parts_of(*text);
  if (parts.size() < 2) return {};
  TomlNode::Array values;
  for (const std::string_view part : parts) {
    Override element = parse_override(fmt::format("value={}", part));
    if (!element.why_no_toml.empty()) throw KeyPathFault(element.why_no_toml);
    TomlNode& value = element.value;
    const auto* word = std::get_if<std::string>(&value.value);
    if (word && word->empty() && value.place.source != command_line_source)
      throw KeyPathFault("an element of the list is empty");
    value.place = command_line();
    values.push_back(std::move(value));
  }
  return TomlNode{std::move(values), command_line()};
}

// Removes empty tables in [sweep], and [sweep] itself, after their last key was removed.
void remove_empty_sweep(TomlNode& document, Path removed) {
  for (removed.pop_back(); !removed.empty() && removed.front() == "sweep"; removed.pop_back()) {
    const TomlNode* table = found_at(document, removed);
    if (!table || !table->is_table() || !table->table().empty()) return;
    remove(document, removed);
  }
}

}  // namespace

void apply(TomlNode& document, const Patch& patch) {
  if (!patch.value) return remove(document, patch.path);
  TomlNode value = *patch.value;
  if (!patch.place.origin.empty()) set_origin(value, patch.place.origin);
  assign(document, patch.path, patch.place, std::move(value));
}

void apply(TomlNode& document, std::span<const Patch> all, FaultList& faults) {
  for (const Patch& patch : all) {
    try {
      apply(document, patch);
    } catch (const KeyPathFault& fault) {
      faults.add(patch.place, fmt::format("\"{}\"; {}", patch.key, fault.what()));
    }
  }
}

std::vector<Patch> patches_of(const TomlNode& document, const TomlNode& table, const std::string& name,
                              const std::string& origin, FaultList& faults) {
  return TableReader(document, name, origin, faults).read(table);
}

TomlNode with_keys_of(TomlNode table, const TomlNode& own, const std::string& name, FaultList& faults) {
  const std::vector<Patch> patches = TableReader(table, name, "", faults).read_keys(own);
  apply(table, patches, faults);
  return table;
}

TomlNode difference(const TomlNode& from, const TomlNode& to) {
  TomlNode keys;
  for (const TomlNode::Member& member : to.table()) {
    const TomlNode* other = from.find(member.key);
    if (is_same(other, &member.value)) continue;
    keys.set(member.key, {}, other && joins(*other, member.value) ? difference(*other, member.value) : member.value);
  }
  return keys;
}

Patch parse_patch(const std::string& change) {
  if (change.starts_with('~')) {
    const std::string key = change.substr(1);
    return {split_key(key), {}, command_line(), key};
  }
  Override parsed = parse_override(change);
  if (std::optional<TomlNode> list = swept_values(parsed)) {
    const Path path = split_key(parsed.key);
    const bool is_itself = path.front() == "seeds" || path.front() == "sweep";
    return {is_itself ? path : Path{"sweep", parsed.key}, std::move(list), command_line(), parsed.key};
  }
  if (!parsed.why_no_toml.empty()) throw KeyPathFault(parsed.why_no_toml);
  parsed.value.place = command_line();
  return {split_key(parsed.key), std::move(parsed.value), command_line(), parsed.key};
}

void apply_command_line(TomlNode& document, std::span<const std::string> changes, FaultList& faults) {
  for (const std::string& change : changes) {
    try {
      const Patch patch = parse_patch(change);
      apply(document, patch);
      if (!patch.value) remove_empty_sweep(document, patch.path);
    } catch (const KeyPathFault& problem) {
      faults.add(command_line(), fmt::format("{}; {}", shortened(change), problem.what()));
    }
  }
}

Path with_numbers(const TomlNode& document, Path path) {
  const TomlNode* node = &document;
  try {
    for (std::string& part : path) {
      if (!node) break;
      if (node->is_array()) part = std::to_string(element_index(*node, part));
      node = part_of(*node, part);
    }
  } catch (const KeyPathFault&) {  // assign() reports it
  }
  return path;
}

const TomlNode* found_at(const TomlNode& document, const Path& path) {
  const TomlNode* node = &document;
  try {
    for (const std::string& part : path)
      if (node) node = part_of(*node, part);
  } catch (const KeyPathFault&) {  // the element does not exist
    return nullptr;
  }
  return node;
}

bool begins_with(const Path& path, const Path& beginning) {
  return path.size() >= beginning.size() && std::equal(beginning.begin(), beginning.end(), path.begin());
}

bool is_set_by_command_line(const TomlNode& document, const Path& path) {
  const TomlNode* node = found_at(document, path);
  return node && node->place.source == command_line_source;
}

std::string deciding_key(const TomlNode& common, const TomlNode& own) {
  const auto differs = [&](const char* key) { return own.find(key) && !is_same(common.find(key), own.find(key)); };
  for (const char* const key : {"name", "schedule", "kind", "rule"})
    if (differs(key)) return key;
  if (!common.find("label") && differs("algorithm"))
    return "algorithm";  // a phase may name another algorithm; an element of [[methods]] keeps its own
  // `form` decides for randaugment only: an optimizer may have a form in addition to its name.
  return !common.find("name") && differs("form") ? "form" : "";
}

bool is_range(const TomlNode& node) {
  const auto is_plain = [](const TomlNode* member) { return member && !member->is_table() && !member->is_array(); };
  return node.is_table() && (is_plain(node.find("from")) || is_plain(node.find("to")));
}

}  // namespace syncopate
