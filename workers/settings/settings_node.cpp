#include "workers/settings/settings_node.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "workers/process/printable.hpp"
#include "workers/settings/nearest_name.hpp"

namespace syncopate {
namespace {

// What was found, short enough for one line of a report.
std::string found_text(const TomlNode& node) {
  if (node.is_table()) return "a table";
  if (node.is_array_of_tables()) return "an array of tables";
  return shortened(inline_toml(node));
}

std::string listed(const std::vector<std::string>& names) {
  std::string result;
  for (const std::string& name : names) result += (result.empty() ? "one of " : ", ") + name;
  return result.empty() ? "absent: no keys belong here" : result;
}

}  // namespace

std::string Settings::Node::full_key(std::string_view key) const {
  return path.empty() ? toml_key(key) : path + "." + toml_key(key);
}

bool Settings::Node::has_read_table(std::string_view key) const {
  const TomlNode* found = find(key);
  const auto read = std::ranges::find(entries, key, &Entry::key);
  return found && found->is_table() && read != entries.end() && !read->children.empty();
}

Settings::Node::Entry& Settings::Node::entry(std::string_view key) {
  const auto found = std::ranges::find(entries, key, &Entry::key);
  if (found != entries.end()) return *found;
  return entries.emplace_back(Entry{std::string(key), {}, {}});
}

std::shared_ptr<Settings::Node> Settings::Node::child(std::string_view key, const TomlNode* table,
                                                      std::string child_path) const {
  auto node = std::make_shared<Node>();
  node->faults = faults;
  node->path = std::move(child_path);
  node->source = source;
  node->exploration = exploration;
  node->silent = silent || (table && !table->is_table());
  node->written = table && table->is_table() ? table : nullptr;
  node->place = node->written ? node->written->place : place;
  // A table that only other headers imply ([a.b] without [a]) has no place of its own.
  if (node->written && node->place.line == 0) {
    const auto member = std::ranges::find(written->table(), key, &TomlNode::Member::key);
    if (member != written->table().end()) node->place = member->place;
  }
  return node;
}

std::vector<std::filesystem::path> Settings::Node::places_of(const std::filesystem::path& named) const {
  namespace fs = std::filesystem;
  const fs::path beside = fs::path(source).parent_path() / named;  // an absolute name replaces what stands before it
  const bool is_one_place = fs::absolute(beside).lexically_normal() == fs::absolute(named).lexically_normal();
  return is_one_place ? std::vector{named} : std::vector{beside, named};
}

void Settings::Node::report_at(const TomlNode& found, std::string_view key, const std::string& what) {
  faults->add(found.place, fmt::format("{} = {}; {}", full_key(key), found_text(found), what));
}

void Settings::Node::report_wrong(std::string_view key, const std::string& what) {
  if (const TomlNode* found = find(key)) {
    report_at(*found, key, "must be " + what);
  } else if (!silent) {
    faults->add(place, fmt::format("{} is missing; must be {}", full_key(key), what));
  }
}

void Settings::Node::report_unread() const {
  if (!written) return;
  std::vector<std::string> known;
  // Digests are written by the program, for the program.
  for (const Entry& entry : entries)
    if (!entry.key.ends_with("_hash")) known.push_back(entry.key);
  for (const auto& [key, key_place, value] : written->table()) {
    if (std::ranges::find(entries, key, &Entry::key) != entries.end()) continue;
    std::string hint = suggestion(key, known);
    if (hint.empty() && incomplete) continue;  // may belong to what the wrong choice hides
    if (hint.empty()) hint = "; must be " + listed(known);
    faults->add(key_place, fmt::format("{} = {}; unknown key{}", full_key(key), found_text(value), hint));
  }
  for (const Entry& entry : entries) {
    for (const auto& child : entry.children) child->report_unread();
  }
}

void Settings::Node::describe(const Key& key, std::string takes, std::optional<std::string> fallback, bool required) {
  if (!exploration) return;
  Entry& described = entry(key.name);
  if (described.description) return;
  described.description = KeyDescription{.path = full_key(key.name),
                                         .takes = std::move(takes),
                                         .unit = std::string(key.unit),
                                         .fallback = std::move(fallback),
                                         .left_out = std::string(key.left_out),
                                         .required = required,
                                         .sentence = std::string(key.sentence)};
}

void Settings::Node::describe_table(const Key& key, KeyDescription::Kind kind) {
  describe(key, kind == KeyDescription::Kind::table ? "a table" : "tables", {}, false);
  if (exploration) entry(key.name).description->kind = kind;
}

bool Settings::Node::explored_presence(std::string_view key) const {
  return exploration->ask({full_key(key) + "?", {absent, present}}) == 1;
}

std::optional<std::size_t> Settings::Node::explored_word(const Key& key, std::span<const Alternative> words,
                                                         std::optional<std::size_t> fallback,
                                                         std::string_view fallback_words) {
  std::vector<std::string> names;
  for (const Alternative& word : words) names.emplace_back(word.name);
  const std::string usual = fallback ? fmt::format("\"{}\"", names[*fallback]) : "";
  describe(key, "a word",
           fallback ? std::optional(fallback_words.empty() ? usual : std::string(fallback_words)) : std::nullopt,
           !fallback);
  Entry& described = entry(key.name);
  if (described.description->words.empty())
    for (const Alternative& word : words) described.description->words.emplace_back(word.name, word.sentence);
  const std::size_t place = exploration->ask({full_key(key.name), names, fallback.value_or(0)});
  record(key.name, names[place]);
  return place;
}

TomlNode Settings::Node::resolved() const {
  TomlNode table;
  for (const Entry& entry : entries) {
    if (entry.value) {
      table.set(entry.key, {}, *entry.value);
    } else if (entry.is_array) {
      TomlNode::Array elements;
      for (const auto& child : entry.children) elements.push_back(child->resolved());
      if (!elements.empty()) table.set(entry.key, {}, {std::move(elements), {}});
    } else if (!entry.children.empty()) {
      TomlNode child = entry.children.front()->resolved();
      if (!child.table().empty()) table.set(entry.key, {}, std::move(child));
    }
  }
  return table;
}

void Settings::Node::add_known_keys(std::vector<KnownKey>& keys) const {
  for (const Entry& entry : entries) {
    if (entry.children.empty()) keys.push_back({full_key(entry.key), entry.choices});
    for (const auto& child : entry.children) child->add_known_keys(keys);
  }
}

void Settings::Node::add_descriptions(std::vector<KeyDescription>& keys) const {
  for (const Entry& entry : entries) {
    if (entry.description) keys.push_back(*entry.description);
    for (const auto& child : entry.children) child->add_descriptions(keys);
  }
}

}  // namespace syncopate
