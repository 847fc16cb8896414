#include "workers/settings/settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "workers/process/printable.hpp"
#include "workers/settings/nearest_name.hpp"
#include "workers/settings/settings_node.hpp"

namespace syncopate {
namespace {

bool contains(const Range& range, double value) {
  if (std::isnan(value)) return false;
  if (range.low_open ? value <= range.low : value < range.low) return false;
  return range.high_open ? value < range.high : value <= range.high;
}

std::string range_text(const Range& range) {
  std::string text = range.high_open && std::isinf(range.high) ? "a finite number" : "a number";
  const bool has_low = !std::isinf(range.low);
  if (has_low) text += fmt::format(" {} {}", range.low_open ? "above" : "of at least", range.low);
  if (!std::isinf(range.high)) {
    text += fmt::format("{} {} {}", has_low ? " and" : "", range.high_open ? "below" : "at most", range.high);
  }
  return text;
}

std::string between_text(const std::string& low, const std::string& high, bool has_low, bool has_high) {
  if (!has_high) return has_low ? fmt::format("an integer of at least {}", low) : "an integer";
  return fmt::format("an integer from {} to {}", low, high);
}

std::string integer_text(std::int64_t low, std::int64_t high) {
  using limits = std::numeric_limits<std::int64_t>;
  return between_text(std::to_string(low), std::to_string(high), low > limits::min(), high < limits::max());
}

// A value as a page shows it: by its words, where it follows from other keys.
template <typename Value>
std::string shown(const Stated<Value>& value) {
  return value.words.empty() ? inline_toml({value.value, {}}) : std::string(value.words);
}
template <typename Value>
std::optional<std::string> shown(const std::optional<Stated<Value>>& value) {
  return value ? std::optional(shown(*value)) : std::nullopt;
}
template <typename Value>
std::optional<std::string> shown(const std::optional<std::vector<Value>>& values) {
  if (!values) return std::nullopt;
  TomlNode::Array array;
  for (const Value& value : *values) array.push_back({value, {}});
  return inline_toml({std::move(array), {}});
}

// The same in words where the bounds follow from other keys.
std::string integer_text(const Stated<std::int64_t>& low, const Stated<std::int64_t>& high) {
  using limits = std::numeric_limits<std::int64_t>;
  return between_text(shown(low), shown(high), low.value > limits::min(), high.value < limits::max());
}

// The default itself.
template <typename Value>
std::optional<Value> value_of(const std::optional<Stated<Value>>& stated) {
  return stated ? std::optional(stated->value) : std::nullopt;
}

// The lower bound as a stand-in for a value that is missing or wrong, so that reading goes on.
double stand_in(const Range& range) {
  if (std::isinf(range.low)) return contains(range, 0) || std::isinf(range.high) ? 0 : range.high;
  if (!range.low_open) return range.low;
  return std::isinf(range.high) ? range.low + 1 : (range.low + range.high) / 2;
}

std::optional<double> as_number(const TomlNode& node, const Range& range) {
  std::optional<double> value;
  if (const auto* number = std::get_if<double>(&node.value)) value = *number;
  if (const auto* integer = std::get_if<std::int64_t>(&node.value)) value = static_cast<double>(*integer);
  return value && contains(range, *value) ? value : std::nullopt;
}

std::optional<std::int64_t> as_integer(const TomlNode& node, std::int64_t low, std::int64_t high) {
  const auto* value = std::get_if<std::int64_t>(&node.value);
  return value && *value >= low && *value <= high ? std::optional(*value) : std::nullopt;
}

template <typename Value>
std::optional<Value> as(const TomlNode& node) {
  const auto* value = std::get_if<Value>(&node.value);
  return value ? std::optional(*value) : std::nullopt;
}

std::string listed_words(const std::vector<std::string>& words) {
  std::string list;
  for (const std::string& word : words) list += fmt::format("{}\"{}\"", list.empty() ? "" : ", ", word);
  return words.size() > 1 ? "one of " + list : list;
}

// What all readers share: the written value if it is right, else the fallback; what is taken is recorded.
template <typename Value, typename Node>
Value read(Node& node, std::string_view key, const std::function<std::optional<Value>(const TomlNode&)>& convert,
           const std::optional<Value>& fallback, Value stand_in, const std::string& must_be) {
  std::optional<Value> value;
  const TomlNode* written = node.find(key);
  if (written && fallback && node.has_read_table(key)) written = nullptr;
  if (written) value = convert(*written);
  if (!value && (written || !fallback)) node.report_wrong(key, must_be);
  Value taken = value.value_or(fallback.value_or(std::move(stand_in)));
  node.record(key, taken);
  return taken;
}

// The same for lists; each wrong element is reported at its own place.
template <typename Value, typename Node>
std::vector<Value> read_list(Node& node, std::string_view key,
                             const std::function<std::optional<Value>(const TomlNode&)>& convert,
                             const std::optional<std::vector<Value>>& fallback, const std::string& element) {
  std::vector<Value> taken = fallback.value_or(std::vector<Value>{});
  const TomlNode* written = node.find(key);
  if (written && written->is_array()) {
    taken.clear();
    for (const TomlNode& one : written->array()) {
      const std::optional<Value> value = convert(one);
      if (!value) node.report_at(one, key, "each element must be " + element);
      if (value) taken.push_back(*value);
    }
  } else if (written || !fallback) {
    node.report_wrong(key, "a list [...], each element " + element);
  }
  TomlNode::Array array;
  for (const Value& value : taken) array.push_back({value, {}});
  node.record(key, std::move(array));
  return taken;
}

}  // namespace

double Settings::number(const Key& key, Range range, const std::optional<Stated<double>>& fallback) {
  node_->describe(key, range_text(range), shown(fallback), !fallback);
  return read<double>(
      *node_, key.name, [&](const TomlNode& node) { return as_number(node, range); }, value_of(fallback),
      stand_in(range), range_text(range));
}

std::int64_t Settings::integer(const Key& key, const Stated<std::int64_t>& low, const Stated<std::int64_t>& high,
                               const std::optional<Stated<std::int64_t>>& fallback) {
  node_->describe(key, integer_text(low, high), shown(fallback), !fallback);
  return read<std::int64_t>(
      *node_, key.name, [&](const TomlNode& node) { return as_integer(node, low.value, high.value); },
      value_of(fallback), low.value, integer_text(low.value, high.value));
}

std::optional<double> Settings::optional_number(const Key& key, Range range) {
  node_->describe(key, range_text(range), {}, false);
  return has(key.name) ? std::optional(number(key, range)) : std::nullopt;
}

std::optional<std::int64_t> Settings::optional_integer(const Key& key, const Stated<std::int64_t>& low,
                                                       const Stated<std::int64_t>& high) {
  node_->describe(key, integer_text(low, high), {}, false);
  return has(key.name) ? std::optional(integer(key, low, high)) : std::nullopt;
}

bool Settings::flag(const Key& key, std::optional<bool> fallback) {
  node_->describe(key, "true or false", fallback ? std::optional(*fallback ? "true" : "false") : std::nullopt,
                  !fallback);
  return read<bool>(*node_, key.name, as<bool>, fallback, false, "true or false");
}

std::optional<bool> Settings::optional_flag(const Key& key) {
  node_->describe(key, "true or false", {}, false);
  return has(key.name) ? std::optional(flag(key)) : std::nullopt;
}

std::string Settings::text(const Key& key, const std::optional<Stated<std::string>>& fallback) {
  node_->describe(key, "a string", shown(fallback), !fallback);
  return read<std::string>(*node_, key.name, as<std::string>, value_of(fallback), "", "a string");
}

std::optional<std::size_t> Settings::place_of_word(const Key& key, std::span<const Alternative> words,
                                                   std::optional<std::size_t> fallback,
                                                   std::string_view fallback_words) {
  std::vector<std::string> known;
  for (const Alternative& word : words) known.emplace_back(word.name);
  node_->entry(key.name).choices = known;
  if (node_->exploration) return node_->explored_word(key, words, fallback, fallback_words);

  const auto place_of = [&](const TomlNode& node) -> std::optional<std::size_t> {
    const auto* const name = std::get_if<std::string>(&node.value);
    const auto found = name ? std::ranges::find(known, *name) : known.end();
    return found == known.end() ? std::nullopt : std::optional<std::size_t>(found - known.begin());
  };
  const TomlNode* written = node_->find(key.name);
  const auto place = written ? place_of(*written) : std::nullopt;
  if (!place && (written || !fallback)) {
    const auto* const name = written ? std::get_if<std::string>(&written->value) : nullptr;
    node_->incomplete = true;
    if (name)
      node_->report_at(*written, key.name, must_be_one_of(*name, known, "\""));
    else
      node_->report_wrong(key.name, listed_words(known));
  }
  const auto taken = place ? place : fallback;
  node_->record(key.name, taken ? known[*taken] : "");
  return taken;
}

std::vector<double> Settings::numbers(const Key& key, Range range, const std::optional<std::vector<double>>& fallback) {
  node_->describe(key, "a list, each element " + range_text(range), shown(fallback), !fallback);
  return read_list<double>(
      *node_, key.name, [&](const TomlNode& node) { return as_number(node, range); }, fallback, range_text(range));
}

std::vector<std::int64_t> Settings::integers(const Key& key, const Stated<std::int64_t>& low,
                                             const Stated<std::int64_t>& high,
                                             const std::optional<std::vector<std::int64_t>>& fallback) {
  node_->describe(key, "a list, each element " + integer_text(low, high), shown(fallback), !fallback);
  return read_list<std::int64_t>(
      *node_, key.name, [&](const TomlNode& node) { return as_integer(node, low.value, high.value); }, fallback,
      integer_text(low.value, high.value));
}

std::vector<std::string> Settings::texts(const Key& key, const std::optional<std::vector<std::string>>& fallback) {
  node_->describe(key, "a list, each element a string", shown(fallback), !fallback);
  return read_list<std::string>(*node_, key.name, as<std::string>, fallback, "a string");
}

std::vector<std::string> Settings::keys() const {
  std::vector<std::string> result;
  if (node_->written)
    for (const TomlNode::Member& member : node_->written->table()) result.push_back(member.key);
  return result;
}

bool Settings::has(const Key& key) const {
  node_->entry(key.name);  // whoever asks knows the key, so it can be suggested
  if (!key.sentence.empty()) node_->describe(key, "a string", {}, false);
  return node_->exploration ? node_->explored_presence(key.name) : node_->find(key.name) != nullptr;
}

bool Settings::has_table(const Key& key) const {
  node_->entry(key.name);
  if (node_->exploration) return node_->explored_presence(key.name);
  const TomlNode* written = node_->find(key.name);
  return written && written->is_table();
}

void Settings::refuse(std::string_view key, std::string_view reason) {
  node_->entry(key);  // known, so that it is reported once
  if (node_->find(key)) fault(key, fmt::format("must be left out: {}", reason));
}

std::optional<std::string> Settings::word(std::string_view key) const {
  const TomlNode* written = node_->find(key);
  return written ? as<std::string>(*written) : std::nullopt;
}

std::string Settings::written(std::string_view key) const {
  const TomlNode* written = node_->find(key);
  const Node::Entry& entry = node_->entry(key);
  const std::string name = node_->full_key(key);
  if (written) return fmt::format("{}: {} = {}", written->place.text(), name, shortened(inline_toml(*written)));
  return fmt::format("{}: {}{}", node_->place.text(), name,
                     entry.value ? fmt::format(" = {} (the default)", inline_toml(*entry.value)) : "");
}

std::size_t Settings::faults_so_far() const { return node_->faults->size(); }

void Settings::leave_out(std::string_view key) { node_->entry(key).value.reset(); }

Settings Settings::section(const Key& described) {
  const std::string_view key = described.name;
  const TomlNode* written = node_->find(key);
  if (!described.sentence.empty()) node_->describe_table(described, KeyDescription::Kind::table);
  if (written && !written->is_table()) node_->report_wrong(key, fmt::format("a table, [{}]", node_->full_key(key)));
  Node::Entry& entry = node_->entry(key);
  if (entry.children.empty()) entry.children.push_back(node_->child(key, written, node_->full_key(key)));
  Settings result;
  result.node_ = entry.children.front();
  return result;
}

std::vector<Settings> Settings::sections(const Key& described) {
  const std::string_view key = described.name;
  const TomlNode* written = node_->find(key);
  const bool is_list = written && (written->is_array_of_tables() || (written->is_array() && written->array().empty()));
  if (written && !is_list) node_->report_wrong(key, fmt::format("an array of tables, [[{}]]", node_->full_key(key)));
  Node::Entry& entry = node_->entry(key);
  entry.is_array = true;
  if (node_->exploration) {  // as if it had one entry
    Settings one = section({key});
    node_->describe_table(described, KeyDescription::Kind::array_of_tables);
    return {one};
  }
  std::vector<Settings> result;
  for (std::size_t i = 0; is_list && i < written->array().size(); ++i) {
    const TomlNode& element = written->array()[i];
    if (entry.children.size() <= i) {
      entry.children.push_back(node_->child(key, &element, fmt::format("{}.{}", node_->full_key(key), i)));
    }
    result.emplace_back().node_ = entry.children[i];
  }
  return result;
}

void Settings::keep_as_written(const Key& key) {
  if (!key.sentence.empty()) node_->describe_table(key, KeyDescription::Kind::table);
  Node::Entry& entry = node_->entry(key.name);
  if (const TomlNode* written = node_->find(key.name)) entry.value = *written;
}

void Settings::fault(std::string_view key, std::string_view message) {
  if (key.empty()) {  // of the table as a whole
    if (!node_->silent) node_->faults->add(node_->place, fmt::format("{}; {}", node_->path, message));
    return;
  }
  const TomlNode* written = node_->find(key);
  const Node::Entry& entry = node_->entry(key);
  if (written) {
    // Whoever rejects a name does not read the keys that belong to it.
    if (std::holds_alternative<std::string>(written->value)) node_->incomplete = true;
    node_->report_at(*written, key, std::string(message));
  } else if (!node_->silent) {
    const std::string value = entry.value ? fmt::format(" = {} (the default)", inline_toml(*entry.value)) : "";
    node_->faults->add(node_->place, fmt::format("{}{}; {}", node_->full_key(key), value, message));
  }
}

}  // namespace syncopate
