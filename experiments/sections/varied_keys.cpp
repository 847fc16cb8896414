#include "experiments/sections/varied_keys.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <stdexcept>
#include <string_view>
#include <tuple>
#include <variant>

#include "workers/base/terminal_text.hpp"
#include "workers/config/patch.hpp"

namespace syncopate {

namespace {

// A plain value within tables and lists of tables. The examples are for a delay with bursts = { mean_on_steps = 5 }.
struct Leaf {
  std::string member;   // first part of the key: "bursts"
  std::string key;      // within the swept value: "bursts.mean_on_steps"
  std::string written;  // the value as text: "5"
};

void add_leaves(const TomlNode& node, const std::string& member, const std::string& path, std::vector<Leaf>& leaves) {
  const auto add_child = [&](const std::string& name, const TomlNode& child) {
    add_leaves(child, member.empty() ? name : member, path.empty() ? name : path + "." + name, leaves);
  };
  if (node.is_table()) {
    for (const TomlNode::Member& child : node.table()) add_child(toml_key(child.key), child.value);
  } else if (node.is_array_of_tables() && node.array().size() == 1 && path.empty()) {
    add_leaves(node.array().front(), member, path, leaves);  // a list of one delay needs no index
  } else if (node.is_array_of_tables()) {
    for (std::size_t i = 0; i < node.array().size(); ++i) add_child(std::to_string(i), node.array()[i]);
  } else {
    const auto* text = std::get_if<std::string>(&node.value);
    const bool is_nothing = node.is_array() && node.array().empty();
    leaves.push_back({member, path, text ? *text : is_nothing ? "none" : inline_toml(node)});
  }
}

// Keys that determine which other keys a table has. For example, delays and networks have kinds, optimizers have names.
constexpr std::array<std::string_view, 4> keys_of_kinds = {"kind", "name", "rule", "schedule"};

struct Value {
  bool is_plain = false;       // neither a table nor a list of tables
  std::string kind{};          // empty: no kind
  std::vector<Leaf> leaves{};  // all leaves except the kind
};

Value read_value(const TomlNode& node) {
  Value value{.is_plain = !node.is_table() && !node.is_array_of_tables()};
  add_leaves(node, "", "", value.leaves);
  const auto kind = std::ranges::find_if(
      value.leaves, [](const Leaf& leaf) { return std::ranges::find(keys_of_kinds, leaf.key) != keys_of_kinds.end(); });
  if (kind == value.leaves.end()) return value;
  value.kind = kind->written;
  value.leaves.erase(kind);
  return value;
}

// Counts the values with each kind, each member of a kind, and each leaf of a kind.
struct Counts {
  explicit Counts(const std::vector<Value>& values) {
    for (const Value& value : values) {
      ++of_kind[value.kind];
      std::set<std::string> members;
      for (const Leaf& leaf : value.leaves) {
        members.insert(leaf.member);
        ++with_leaf[{value.kind, leaf.key, leaf.written}];
      }
      for (const std::string& member : members) ++with_member[{value.kind, member}];
    }
  }
  std::map<std::string, int> of_kind;
  std::map<std::pair<std::string, std::string>, int> with_member;
  std::map<std::tuple<std::string, std::string, std::string>, int> with_leaf;
};

// Whether the member has the same leaves in all values of this kind that have the member.
bool is_alike(const std::string& member, const Value& value, const Counts& counts) {
  return std::ranges::all_of(value.leaves, [&](const Leaf& leaf) {
    return leaf.member != member ||
           counts.with_leaf.at({value.kind, leaf.key, leaf.written}) == counts.with_member.at({value.kind, member});
  });
}

// Returns "1.25e+09" for 1250000000.0, provided that it is shorter and reads back as the same number.
std::string short_number(const std::string& written) {
  constexpr double shortened_from = 1e4;
  double number = 0, shown = 0;
  const auto is_read = [](const std::string& text, double& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size();
  };
  if (!is_read(written, number) || std::abs(number) < shortened_from) return written;
  std::string text = fmt::format("{:.6g}", number);
  const bool is_same = is_read(text, shown) && shown == number;
  return is_same && text.size() < written.size() ? text : written;
}

// Returns a label from the leaves in which values of this kind differ. A table that only some values have, with equal
// leaves in all of these, is represented by its name alone.
std::string label_of(const Value& value, const Counts& counts, bool is_only_one) {
  if (value.is_plain) return value.leaves.front().written;
  std::string label = value.kind, last;
  for (const Leaf& leaf : value.leaves) {
    const int alike = counts.with_leaf.at({value.kind, leaf.key, leaf.written});
    if (alike == counts.of_kind.at(value.kind) && !is_only_one) continue;
    const bool is_within = leaf.key != leaf.member, is_name_enough = is_alike(leaf.member, value, counts);
    if (is_within && !is_name_enough && alike == counts.with_member.at({value.kind, leaf.member})) continue;
    std::string part =
        is_within && is_name_enough ? leaf.member : leaf.key + " = " + shortened(short_number(leaf.written), 16);
    if (part == last) continue;
    label += (label.empty() ? "" : "; ") + part;
    last = std::move(part);
  }
  return label;
}

constexpr int most_of_a_range = 1'000'000;
constexpr double slack = 1e-9;  // tolerance for rounding errors at the range's end, in steps

__extension__ using Wide = __int128;  // holds one step beyond the end of std::int64_t

struct RangeFault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

std::optional<double> number_at(const TomlNode& table, const char* key) {
  const TomlNode* node = table.find(key);
  if (!node) return {};
  if (const auto* integer = std::get_if<std::int64_t>(&node->value)) return static_cast<double>(*integer);
  const auto* number = std::get_if<double>(&node->value);
  if (number && std::isfinite(*number)) return *number;
  throw RangeFault(fmt::format("{} must be a number", key));
}

// Returns the values from, from + step, ... or from, from x factor, ... up to `to`.
std::vector<double> numbers_of(const TomlNode& table) {
  constexpr std::array known = {"from", "to", "step", "factor"};
  for (const TomlNode::Member& member : table.table())
    if (std::ranges::find(known, std::string_view(member.key)) == known.end())
      throw RangeFault(fmt::format("{}; unknown key; must be one of {}", member.key, fmt::join(known, ", ")));
  const auto from = number_at(table, "from"), to = number_at(table, "to"), step = number_at(table, "step"),
             factor = number_at(table, "factor");
  if (!from || !to || step.has_value() == factor.has_value())
    throw RangeFault("must be a list, or a range: { from = 1, to = 9, step = 2 } or { from = 1, to = 8, factor = 2 }");
  if (factor && !(*factor > 0 && *factor != 1)) throw RangeFault("factor must be above 0 and not 1");
  if (factor && !(*from > 0 && *to > 0)) throw RangeFault("from and to must be above 0 in a range with a factor");
  if (step && *step == 0) throw RangeFault("step must not be 0");
  const double steps = factor ? std::log(*to / *from) / std::log(*factor) : (*to - *from) / *step;
  if (steps < -slack)
    throw RangeFault(fmt::format("contains no value: {} leads away from `to`", factor ? "factor" : "step"));
  if (steps > most_of_a_range) throw RangeFault(fmt::format("must contain at most {} values", most_of_a_range));
  std::vector<double> numbers;
  for (int i = 0; i <= static_cast<int>(steps + slack); ++i)
    numbers.push_back(nearest_written(factor ? *from * std::pow(*factor, i) : *from + i * *step));
  return numbers;
}

// Returns the end of the range, rounded down to a whole number (or up if the range descends).
Wide whole_end(const TomlNode& to, bool upwards) {
  if (const auto* integer = std::get_if<std::int64_t>(&to.value)) return *integer;
  constexpr double beyond = 0x1p63;  // beyond every value of std::int64_t
  const double end = std::clamp(std::get<double>(to.value), -beyond, beyond);
  return static_cast<Wide>(upwards ? std::floor(end + slack) : std::ceil(end - slack));
}

// Returns the values of a range of whole numbers, limited to std::int64_t.
std::vector<std::int64_t> whole_numbers_of(const TomlNode& table) {
  const auto integer = [&](const char* key) -> Wide { return std::get<std::int64_t>(table.find(key)->value); };
  const bool multiplies = table.find("factor") != nullptr;
  const Wide change = integer(multiplies ? "factor" : "step");
  const bool upwards = multiplies || change > 0;
  constexpr Wide least = std::numeric_limits<std::int64_t>::min(), most = std::numeric_limits<std::int64_t>::max();
  const Wide end = std::clamp(whole_end(*table.find("to"), upwards), least, most);
  std::vector<std::int64_t> numbers;
  for (Wide value = integer("from"); upwards ? value <= end : value >= end;
       value = multiplies ? value * change : value + change)
    numbers.push_back(static_cast<std::int64_t>(value));
  if (numbers.empty()) throw RangeFault("contains no value: `to` is on the other side of `from`");
  return numbers;
}

bool is_whole(const TomlNode& table, const char* key) {
  const TomlNode* node = table.find(key);
  return !node || std::holds_alternative<std::int64_t>(node->value);
}

// Returns the values of a range. They are whole numbers if from, step and factor are.
TomlNode::Array values_of_range(const TomlNode& table) {
  const std::vector<double> numbers = numbers_of(table);
  TomlNode::Array values;
  if (is_whole(table, "from") && is_whole(table, "step") && is_whole(table, "factor"))
    for (const std::int64_t number : whole_numbers_of(table)) values.push_back({number, table.place});
  else
    for (const double number : numbers) values.push_back({number, table.place});
  return values;
}

// Returns the label in an element { label = "...", value = ... }; null for an element without a label.
const TomlNode* name_of(const TomlNode& element) {
  const bool is_named = element.is_table() && element.table().size() == 2 && element.find("value");
  return is_named ? element.find("label") : nullptr;
}

// Returns the value as text. The text is equal for values with the same meaning, such as 1 and 1.0.
std::string as_read(const TomlNode& value) {
  const auto* const number = std::get_if<double>(&value.value);
  if (number && *number == std::round(*number) && *number >= -0x1p63 && *number < 0x1p63)
    return inline_toml({static_cast<std::int64_t>(*number), {}});
  if (!value.is_array()) return inline_toml(value);
  std::string text;
  for (const TomlNode& element : value.array()) text += as_read(element) + ",";
  return "[" + text + "]";
}

}  // namespace

double nearest_written(double value) { return std::stod(fmt::format("{:.12g}", value)); }

std::vector<std::string> swept_labels(const TomlNode::Array& nodes) {
  std::vector<Value> values;
  for (const TomlNode& node : nodes) values.push_back(read_value(node));
  const Counts counts(values);
  std::vector<std::string> labels;
  std::map<std::string, int> uses;
  for (const Value& value : values) {
    labels.push_back(label_of(value, counts, values.size() == 1));
    ++uses[shortened(labels.back())];
  }
  for (std::size_t i = 0; i < labels.size(); ++i) {
    std::string label = shortened(labels[i]);
    // A number is added to labels that are equal after shortening, and to empty labels of tables that are all equal.
    const bool is_alone = uses.at(label) == 1 && !label.empty();
    labels[i] = is_alone ? std::move(label) : fmt::format("{}{}({})", label, label.empty() ? "" : " ", i + 1);
  }
  return labels;
}

bool read_values(const TomlNode& node, std::string_view table, VariedKey& key, FaultList& faults) {
  const std::size_t faults_before = faults.size();
  const auto fault = [&](const SourcePlace& place, const TomlNode& found, const std::string& text) {
    faults.add(place, fmt::format("{}.\"{}\" = {}; {}", table, key.key, shortened(inline_toml(found)), text));
  };
  std::vector<std::optional<std::string>> names;
  if (is_range(node)) {
    try {
      key.values = values_of_range(node);
      key.goes_by_steps = node.find("step") != nullptr;
    } catch (const RangeFault& problem) {
      fault(node.place, node, problem.what());
    }
  } else if (!node.is_array()) {
    fault(node.place, node, "must be a list of values");
  } else if (node.array().empty()) {
    fault(node.place, node, "must contain at least one value");
  } else {
    for (const TomlNode& element : node.array()) {
      const TomlNode* name = name_of(element);
      key.values.push_back(name ? *element.find("value") : element);
      const auto* text = name ? std::get_if<std::string>(&name->value) : nullptr;
      if (name && (!text || text->empty())) fault(name->place, element, "label must be a text");
      names.emplace_back(text ? std::optional(*text) : std::nullopt);
    }
  }
  std::set<std::string> seen;
  for (const TomlNode& value : key.values)
    if (!seen.insert(as_read(value)).second) fault(value.place, value, "must not be listed twice");
  if (faults.size() > faults_before) return false;
  key.labels = swept_labels(key.values);
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i]) key.labels[i] = *names[i];
  if (std::set(key.labels.begin(), key.labels.end()).size() < key.labels.size())
    fault(node.place, node, "must not repeat a label");
  return faults.size() == faults_before;
}

std::vector<VariedKey> read_varied_keys(const TomlNode& document, const TomlNode& table, std::string_view name,
                                        const std::function<bool(const std::string& member)>& is_other,
                                        const std::function<void(const VariedKey& key)>& check, FaultList& faults) {
  std::vector<VariedKey> keys;
  const auto read = [&](const auto& self, const TomlNode& within, const Path& above,
                        const std::string& prefix) -> void {
    for (const auto& [member, place, value] : within.table()) {
      if (prefix.empty() && is_other(member)) continue;
      VariedKey key{
          .key = prefix.empty() ? member : fmt::format("{}.{}", prefix, member), .path = above, .place = place};
      try {
        for (std::string& part : split_key(member)) key.path.push_back(std::move(part));
        key.path = with_numbers(document, std::move(key.path));
        if (value.is_table() && !is_range(value)) {
          self(self, value, key.path, key.key);
          continue;
        }
        check(key);
        if (read_values(value, name, key, faults)) keys.push_back(std::move(key));
      } catch (const KeyPathFault& fault) {
        faults.add(place, fmt::format("{}.\"{}\"; {}", name, key.key, fault.what()));
      }
    }
  };
  read(read, table, {}, "");
  return keys;
}

std::string label_of(const VariedKey& key, const TomlNode& value) {
  const std::string written = inline_toml(value);
  for (std::size_t i = 0; i < key.labels.size(); ++i)
    if (inline_toml(key.values[i]) == written) return key.labels[i];
  return written;
}

std::optional<std::vector<double>> numbers_of(const VariedKey& key) {
  std::vector<double> numbers;
  for (const TomlNode& value : key.values) {
    if (const auto* integer = std::get_if<std::int64_t>(&value.value))
      numbers.push_back(static_cast<double>(*integer));
    else if (const auto* number = std::get_if<double>(&value.value); number && std::isfinite(*number))
      numbers.push_back(*number);
    else
      return {};
  }
  return numbers;
}

std::optional<TomlNode> next_beyond(const VariedKey& key, bool above, double share) {
  std::optional<std::vector<double>> numbers = numbers_of(key);
  if (!numbers || numbers->size() < 2) return {};
  std::ranges::sort(*numbers);
  const double edge = above ? numbers->back() : numbers->front();
  const double neighbour = above ? *(numbers->end() - 2) : (*numbers)[1];
  const double whole = key.goes_by_steps || numbers->front() <= 0 ? edge - neighbour : edge * (edge / neighbour) - edge;
  const double beyond = edge + share * whole;
  const bool is_whole = std::ranges::all_of(
      key.values, [](const TomlNode& value) { return std::holds_alternative<std::int64_t>(value.value); });
  const double rounded = is_whole ? std::round(beyond) : nearest_written(beyond);
  if (!std::isfinite(rounded) || std::abs(rounded) > 1e15 || (above ? rounded <= edge : rounded >= edge)) return {};
  TomlNode value{rounded, key.place};
  if (is_whole) value.value = static_cast<std::int64_t>(rounded);
  return value;
}

}  // namespace syncopate
