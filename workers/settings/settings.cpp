#include "workers/settings/settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <system_error>

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

std::string describe(const Range& range) {
  std::string text = range.high_open && std::isinf(range.high) ? "a finite number" : "a number";
  const bool has_low = !std::isinf(range.low);
  if (has_low) text += fmt::format(" {} {}", range.low_open ? "above" : "of at least", range.low);
  if (!std::isinf(range.high)) {
    text += fmt::format("{} {} {}", has_low ? " and" : "", range.high_open ? "below" : "at most", range.high);
  }
  return text;
}

std::string describe_integer(std::int64_t low, std::int64_t high) {
  constexpr auto unbounded = std::numeric_limits<std::int64_t>::max();
  if (high == unbounded && low == std::numeric_limits<std::int64_t>::min()) return "an integer";
  return high == unbounded ? fmt::format("an integer of at least {}", low)
                           : fmt::format("an integer from {} to {}", low, high);
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

// What all readers share: the written value if it is right, else the fallback; what is taken is recorded.
template <typename Value, typename Node>
Value read(Node& node, std::string_view key, const std::function<std::optional<Value>(const TomlNode&)>& convert,
           const std::optional<Value>& fallback, Value stand_in, const std::string& must_be) {
  std::optional<Value> value;
  const TomlNode* written = node.find(key);
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

// Where a name was sought after the first place.
std::string second_of(const std::vector<std::filesystem::path>& places) {
  return places.size() > 1 ? fmt::format(", nor {}", std::filesystem::absolute(places[1]).string()) : "";
}

// Also a link that leads nowhere.
bool exists_as_anything(const std::filesystem::path& place) {
  std::error_code ignored;
  return std::filesystem::symlink_status(place, ignored).type() != std::filesystem::file_type::not_found;
}

}  // namespace

double Settings::number(std::string_view key, Range range, std::optional<double> fallback) {
  return read<double>(
      *node_, key, [&](const TomlNode& node) { return as_number(node, range); }, fallback, stand_in(range),
      describe(range));
}

std::int64_t Settings::integer(std::string_view key, std::int64_t low, std::int64_t high,
                               std::optional<std::int64_t> fallback) {
  return read<std::int64_t>(
      *node_, key, [&](const TomlNode& node) { return as_integer(node, low, high); }, fallback, low,
      describe_integer(low, high));
}

bool Settings::flag(std::string_view key, std::optional<bool> fallback) {
  return read<bool>(*node_, key, as<bool>, fallback, false, "true or false");
}

std::string Settings::text(std::string_view key, std::optional<std::string> fallback) {
  return read<std::string>(*node_, key, as<std::string>, fallback, "", "a string");
}

std::string Settings::choice(std::string_view key, std::span<const std::string_view> names,
                             std::optional<std::string> fallback) {
  const std::vector<std::string> known(names.begin(), names.end());
  std::string must_be;
  for (const std::string& name : known) must_be += fmt::format("{}\"{}\"", must_be.empty() ? "" : ", ", name);
  if (known.size() > 1) must_be = "one of " + must_be;
  node_->entry(key).choices = known;
  const TomlNode* written = node_->find(key);
  const auto* name = written ? std::get_if<std::string>(&written->value) : nullptr;
  if (name) must_be += suggestion(*name, known);

  const auto one_of = [&](const TomlNode& node) -> std::optional<std::string> {
    const auto found =
        std::ranges::find(known, std::get_if<std::string>(&node.value) ? std::get<std::string>(node.value) : "");
    return found == known.end() ? std::nullopt : std::optional(*found);
  };
  if (written ? !one_of(*written) : !fallback) node_->incomplete = true;
  return read<std::string>(*node_, key, one_of, fallback, "", must_be);
}

std::vector<double> Settings::numbers(std::string_view key, Range range, std::optional<std::vector<double>> fallback) {
  return read_list<double>(
      *node_, key, [&](const TomlNode& node) { return as_number(node, range); }, fallback, describe(range));
}

std::vector<std::int64_t> Settings::integers(std::string_view key, std::int64_t low, std::int64_t high,
                                             std::optional<std::vector<std::int64_t>> fallback) {
  return read_list<std::int64_t>(
      *node_, key, [&](const TomlNode& node) { return as_integer(node, low, high); }, fallback,
      describe_integer(low, high));
}

std::filesystem::path Settings::file(std::string_view key) {
  namespace fs = std::filesystem;
  const std::size_t faults = faults_so_far();
  const fs::path named = text(key);
  if (faults_so_far() > faults) return {};
  std::error_code ignored;
  const std::vector<fs::path> places = node_->places_of(named);
  for (const fs::path& place : places) {
    if (!fs::is_regular_file(place, ignored)) continue;
    node_->record(key, fs::absolute(place).lexically_normal().string());
    return place;
  }
  const auto other = std::ranges::find_if(places, [&](const fs::path& place) { return fs::exists(place, ignored); });
  if (other != places.end() && !named.empty()) {
    fault(key, fmt::format("{} is {}; must be a file", other->string(),
                           fs::is_directory(*other, ignored) ? "a directory" : "a device or a pipe"));
  } else {
    fault(key, named.empty() ? "must be the name of a file"
                             : fmt::format("there is no file {}{}", places.front().string(), second_of(places)));
  }
  return {};
}

std::filesystem::path Settings::directory(std::string_view key) {
  namespace fs = std::filesystem;
  const std::size_t faults = faults_so_far();
  const fs::path named = text(key);
  if (faults_so_far() > faults) return {};
  std::error_code ignored;
  const std::vector<fs::path> places = node_->places_of(named);
  auto found = std::ranges::find_if(places, [&](const fs::path& place) { return fs::is_directory(place, ignored); });
  if (found == places.end()) found = std::ranges::find_if(places, exists_as_anything);
  if (found == places.end()) {
    fault(key, fmt::format("{}: no such directory{}", places.front().string(), second_of(places)));
    return {};
  }
  node_->record(key, fs::absolute(*found).lexically_normal().string());
  return *found;
}

std::vector<std::string> Settings::keys() const {
  std::vector<std::string> result;
  if (node_->written)
    for (const TomlNode::Member& member : node_->written->table()) result.push_back(member.key);
  return result;
}

bool Settings::has(std::string_view key) const {
  node_->entry(key);  // whoever asks knows the key, so it can be suggested
  return node_->find(key) != nullptr;
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

Settings Settings::section(std::string_view key) {
  const TomlNode* written = node_->find(key);
  if (written && !written->is_table()) node_->report_wrong(key, fmt::format("a table, [{}]", node_->full_key(key)));
  Node::Entry& entry = node_->entry(key);
  if (entry.children.empty()) entry.children.push_back(node_->child(key, written, node_->full_key(key)));
  Settings result;
  result.node_ = entry.children.front();
  return result;
}

std::vector<Settings> Settings::sections(std::string_view key) {
  const TomlNode* written = node_->find(key);
  const bool is_list = written && (written->is_array_of_tables() || (written->is_array() && written->array().empty()));
  if (written && !is_list) node_->report_wrong(key, fmt::format("an array of tables, [[{}]]", node_->full_key(key)));
  Node::Entry& entry = node_->entry(key);
  entry.is_array = true;
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

void Settings::fault(std::string_view key, std::string_view message) {
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
