#include "experiments/sections/variation.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string_view>
#include <variant>

#include "experiments/sections/definition.hpp"
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
    const bool is_nothing = node.is_array() && node.array().empty();
    leaves.push_back({member, path, is_nothing ? "none" : plain_text(node)});
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

// Numbers of values with a {kind}, with a {kind, member}, and with a leaf {kind, key, written}.
using Counts = std::map<std::vector<std::string>, int>;

Counts counts_of(const std::vector<Value>& values) {
  Counts counts;
  for (const Value& value : values) {
    std::set<std::vector<std::string>> found = {{value.kind}};
    for (const Leaf& leaf : value.leaves)
      found.insert({{value.kind, leaf.member}, {value.kind, leaf.key, leaf.written}});
    for (const std::vector<std::string>& one : found) ++counts[one];
  }
  return counts;
}

// Whether the member has the same leaves in all values of this kind that have the member.
bool is_alike(const std::string& member, const Value& value, const Counts& counts) {
  return std::ranges::all_of(value.leaves, [&](const Leaf& leaf) {
    return leaf.member != member || counts.at({value.kind, leaf.key, leaf.written}) == counts.at({value.kind, member});
  });
}

// Returns "1.25e+09" for 1250000000.0, provided that it is shorter and reads back as the same number.
std::string short_number(const std::string& written) {
  constexpr double shortened_from = 1e4;
  const std::optional<double> number = number_in(written);
  if (!number || std::abs(*number) < shortened_from) return written;
  std::string text = fmt::format("{:.6g}", *number);
  return number_in(text) == number && text.size() < written.size() ? text : written;
}

// Returns a label from the leaves in which values of this kind differ. A table that only some values have, with equal
// leaves in all of these, is represented by its name alone.
std::string label_of(const Value& value, const Counts& counts, bool is_only_one) {
  if (value.is_plain) return value.leaves.front().written;
  std::string label = value.kind, last;
  for (const Leaf& leaf : value.leaves) {
    const int alike = counts.at({value.kind, leaf.key, leaf.written});
    if (alike == counts.at({value.kind}) && !is_only_one) continue;
    const bool is_within = leaf.key != leaf.member, is_name_enough = is_alike(leaf.member, value, counts);
    if (is_within && !is_name_enough && alike == counts.at({value.kind, leaf.member})) continue;
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

// Rounds to 12 significant digits, to undo rounding errors: 0.3 for 0.1 + 2 x 0.1.
double nearest_written(double value) { return std::stod(fmt::format("{:.12g}", value)); }

std::optional<double> number_at(const TomlNode& table, const char* key) {
  const TomlNode* node = table.find(key);
  const std::optional<double> number = number_in(node);
  if (!node || (number && std::isfinite(*number))) return number;
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

std::vector<std::string> swept_labels(const TomlNode::Array& nodes) {
  std::vector<Value> values;
  for (const TomlNode& node : nodes) values.push_back(read_value(node));
  const Counts counts = counts_of(values);
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
    const std::optional<double> number = number_in(&value);
    if (!number || !std::isfinite(*number)) return {};
    numbers.push_back(*number);
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

namespace {

// Keys of [sweep] in groups. The keys in one list of `zip` form a group: they vary together and have equally many
// values. Every other key is a group of its own.
using SweptKeys = std::vector<std::vector<VariedKey>>;

constexpr const char* zip = "zip";

void check_swept(const VariedKey& swept) {
  const std::string& key = swept.path.front();
  const auto must_not = [](const char* reason) { throw KeyPathFault(fmt::format("must not be swept: {}", reason)); };
  if (key == "seeds") must_not("each seed in the list is run anyway");
  if (key == "name") must_not("it names the directory of all runs");
  if (key == "description") must_not("it is the title of plots; put quotes around a text with commas");
  if (key == "sweep" || key == "variants" || key == "profiles" || key == "tune") must_not("it is not a key of a run");
}

// Removes keys of the file's [sweep] that the command line sweeps as well.
void leave_to_command_line(std::vector<VariedKey>& keys) {
  std::set<std::vector<std::string>> paths;
  const auto is_of_command_line = [](const VariedKey& key) { return key.place.source == command_line_source; };
  for (const VariedKey& key : keys)
    if (is_of_command_line(key)) paths.insert(key.path);
  std::erase_if(keys, [&](const VariedKey& key) { return !is_of_command_line(key) && paths.contains(key.path); });
}

// Returns the lists of keys in `zip`, which is one list, ["a", "b"], or several, [["a", "b"], ["c", "d"]].
std::vector<TomlNode> lists_to_zip(const TomlNode& root, FaultList& faults) {
  const TomlNode* node = root.find("sweep")->find(zip);
  if (!node) return {};
  const auto is_list_of_texts = [](const TomlNode& list) {
    return list.is_array() && list.array().size() > 1 && std::ranges::all_of(list.array(), [](const TomlNode& key) {
             return std::holds_alternative<std::string>(key.value);
           });
  };
  if (is_list_of_texts(*node)) return {*node};
  if (node->is_array() && !node->array().empty() && std::ranges::all_of(node->array(), is_list_of_texts))
    return node->array();
  faults.add(node->place, fmt::format("sweep.zip = {}; must be a list of at least two swept keys, or of such lists",
                                      inline_toml(*node)));
  return {};
}

// Returns the positions of the listed keys. Empty if one is not swept: a fault, unless the command line sets that key.
std::vector<std::size_t> named_by(const TomlNode& root, const TomlNode& list, const std::vector<VariedKey>& keys,
                                  FaultList& faults) {
  std::vector<std::size_t> named;
  bool is_left_out = false;
  for (const TomlNode& name : list.array()) {
    const auto& text = std::get<std::string>(name.value);
    try {
      const std::vector<std::string> path = with_numbers(root, split_key(text));
      const auto found = std::ranges::find(keys, path, &VariedKey::path);
      if (found != keys.end()) {
        named.push_back(static_cast<std::size_t>(found - keys.begin()));
      } else if (is_set_by_command_line(root, path)) {
        is_left_out = true;
      } else {
        std::vector<std::string> known;
        for (const VariedKey& key : keys) known.push_back(key.key);
        throw KeyPathFault(fmt::format("must be a key of [sweep]{}", suggestion(text, known)));
      }
    } catch (const KeyPathFault& fault) {
      faults.add(name.place, fmt::format("sweep.zip, \"{}\"; {}", text, fault.what()));
      return {};
    }
  }
  if (is_left_out) return {};
  for (const std::size_t key : named)
    if (keys[key].values.size() != keys[named.front()].values.size()) {
      faults.add(list.place, fmt::format("sweep.zip = {}; must be keys with equal numbers of values: \"{}\" has {}, "
                                         "\"{}\" has {}",
                                         inline_toml(list), keys[named.front()].key, keys[named.front()].values.size(),
                                         keys[key].key, keys[key].values.size()));
      return {};
    }
  return named;
}

// Reads [sweep] in the order of the groups' first keys. Leaves out faulty keys, and keys that the command line sets.
SweptKeys read_swept_keys(const TomlNode& root, FaultList& faults) {
  const TomlNode* sweep = root.find("sweep");
  if (!sweep || !require_table(*sweep, "sweep", "a table, [sweep]", faults)) return {};
  const std::size_t faults_before = faults.size();
  std::vector<VariedKey> keys = read_varied_keys(
      root, *sweep, "sweep", [](const std::string& member) { return member == zip; }, check_swept, faults);
  if (keys.empty() && faults.size() == faults_before)
    faults.add(sweep->place, "sweep; must contain a key with its values, such as \"cluster.workers\" = [2, 4]");
  std::erase_if(keys, [&root](const VariedKey& key) { return is_set_by_command_line(root, key.path); });
  if (faults.size() > faults_before) return {};  // `keys` lacks keys, so the check of groups would report false faults
  leave_to_command_line(keys);
  std::vector<std::size_t> first_of(keys.size());  // by key: the position of the first key in its group
  std::iota(first_of.begin(), first_of.end(), 0);
  std::set<std::size_t> zipped;
  for (const TomlNode& list : lists_to_zip(root, faults)) {
    const std::vector<std::size_t> group = named_by(root, list, keys, faults);
    for (const std::size_t key : group) {
      if (!zipped.insert(key).second)
        faults.add(list.place,
                   fmt::format("sweep.zip = {}; must not list \"{}\" twice", inline_toml(list), keys[key].key));
      first_of[key] = std::ranges::min(group);
    }
  }
  std::map<std::size_t, std::vector<VariedKey>> groups;
  for (std::size_t i = 0; i < keys.size(); ++i) groups[first_of[i]].push_back(std::move(keys[i]));
  SweptKeys result;
  for (auto& [first, group] : groups) result.push_back(std::move(group));
  return result;
}

// Returns a table [sweep] that reads back as these keys.
TomlNode written(const SweptKeys& groups, const SourcePlace& place) {
  TomlNode sweep{TomlNode::Table{}, place};
  TomlNode::Array zips;
  for (const std::vector<VariedKey>& group : groups) {
    TomlNode::Array names;
    for (const VariedKey& key : group) {
      const std::vector<std::string> usual = swept_labels(key.values);
      TomlNode::Array values;
      for (std::size_t i = 0; i < key.values.size(); ++i) {
        if (key.labels[i] == usual[i]) {
          values.push_back(key.values[i]);
          continue;
        }
        TomlNode named;
        named.set("label", {}, {key.labels[i], {}});
        named.set("value", {}, key.values[i]);
        values.push_back(std::move(named));
      }
      sweep.set(key.key, key.place, {std::move(values), key.place});
      names.push_back({key.key, {}});
    }
    if (group.size() > 1) zips.push_back({std::move(names), {}});
  }
  if (!zips.empty()) sweep.set(zip, {}, {std::move(zips), {}});
  return sweep;
}

// Returns the indices of the methods that the patches affect; empty: all methods.
std::set<std::size_t> methods_of(std::span<const Patch> patches) {
  std::set<std::size_t> methods;
  for (const Patch& patch : patches) {
    if (patch.path.size() < 2 || patch.path.front() != "methods") return {};
    std::size_t method = 0;
    const std::string& text = patch.path[1];
    if (std::from_chars(text.data(), text.data() + text.size(), method).ec != std::errc()) return {};
    methods.insert(method);
  }
  return methods;
}

std::string text_of(const std::vector<PointName>& sweep) {
  std::string text;
  for (const auto& [key, value] : sweep) text += fmt::format("{}\"{}\" = {}", text.empty() ? "" : ", ", key, value);
  return text;
}

const char* solved_key(const TomlNode& period) { return period.find("coefficient") ? "coefficient" : "steps"; }

SweepAxis axis_of(const std::vector<VariedKey>& group) {
  SweepAxis axis{.place = group.front().place, .entries = {}};
  axis.entries.resize(group.front().values.size());
  for (std::size_t i = 0; i < axis.entries.size(); ++i)
    for (const VariedKey& key : group) {
      SourcePlace place = key.place;
      place.origin = "[sweep]";
      axis.entries[i].patches.push_back({key.path, key.values[i], std::move(place), key.key});
      const Patch& patch = axis.entries[i].patches.back();
      axis.entries[i].names.push_back({{key.key, key.labels[i]}, methods_of(std::span(&patch, 1))});
    }
  return axis;
}

// Checks that a variant, a profile or [tune.trials] does not set keys that concern the whole file.
void check_keys(const TomlNode& table, const std::string& name, FaultList& faults) {
  for (const char* const key : {"name", "seeds", "sweep", "variants", "profiles", "claim", "tune"}) {
    const std::string_view of_file = key;
    const bool is_of_profile = name.starts_with("profiles") && (of_file == "seeds" || of_file == "tune");
    const TomlNode* found = table.find(key);
    if (found && !is_of_profile)
      faults.add(found->place,
                 fmt::format("{}.{}; must be a key of a run: this key concerns the whole file", name, key));
  }
}

// Reads [[variants]]: label = "..." and further keys (see patches_of). Returns nullopt if there are no variants, or
// after one of these faults: a missing or repeated label, or a key that cannot be resolved.
std::optional<SweepAxis> read_variants(const TomlNode& root, FaultList& faults) {
  const TomlNode* variants = root.find("variants");
  if (!variants) return {};
  const std::size_t faults_before = faults.size();
  if (!variants->is_array_of_tables()) {
    faults.add(variants->place, "variants; must be tables, [[variants]]");
    return {};
  }
  SweepAxis axis{.place = variants->place, .entries = {}};
  std::set<std::string> labels;
  std::vector<Patch> all;
  for (std::size_t i = 0; i < variants->array().size(); ++i) {
    const TomlNode& variant = variants->array()[i];
    const TomlNode* labelled = variant.find("label");
    const SourcePlace& place = (labelled ? *labelled : variant).place;
    const std::string name = fmt::format("variants.{}", i), label(text_in(labelled));
    if (label.empty())
      faults.add(place, fmt::format("{}.label; must be the variant's name", name));
    else if (!labels.insert(label).second)
      faults.add(place, fmt::format("{}.label = \"{}\"; must be a name that no other variant has", name, label));
    std::vector<Patch> patches = patches_of_runs(root, variant, name, fmt::format("variant \"{}\"", label), faults);
    all.insert(all.end(), patches.begin(), patches.end());
    axis.entries.push_back({std::move(patches), {{{"variant", label}, {}}}});
  }
  for (SweepEntry& entry : axis.entries) entry.names.front().methods = methods_of(all);
  if (faults.size() > faults_before) return {};
  return axis;
}

// Checks that no axis changes a key, or a part of a table, that another axis changes.
void check_overlaps(const SweptKeys& groups, const std::optional<SweepAxis>& variants, FaultList& faults) {
  struct Named {
    Path path;
    std::string text;
    SourcePlace place;
  };
  std::vector<Named> all;
  if (variants)
    for (const SweepEntry& entry : variants->entries)
      for (const Patch& patch : entry.patches)
        if (std::ranges::find(all, patch.path, &Named::path) == all.end())
          all.push_back({patch.path, fmt::format("variants, \"{}\"", patch.key), patch.place});
  const std::size_t first_key = all.size();
  for (const std::vector<VariedKey>& group : groups)
    for (const VariedKey& key : group) all.push_back({key.path, fmt::format("sweep.\"{}\"", key.key), key.place});
  for (Named& one : all) one.place.origin.clear();  // the text already names the origin
  for (std::size_t inner = 0; inner < all.size(); ++inner)
    for (std::size_t outer = 0; outer < all.size(); ++outer) {
      const bool same = all[inner].path == all[outer].path, both_of_variants = inner < first_key && outer < first_key;
      if (inner == outer || both_of_variants || (same && inner < outer)) continue;
      if (!begins_with(all[inner].path, all[outer].path)) continue;
      faults.add(all[inner].place, fmt::format("{}; must not be swept together with {}, which {}", all[inner].text,
                                               all[outer].text, same ? "is the same key" : "contains this key"));
    }
}

// Compares numbers by their size, and other values, which come after all numbers, as texts.
bool comes_before(const std::string& a, const std::string& b) {
  const auto x = number_in(a), y = number_in(b);
  if (x && y && *x != *y) return *x < *y;
  return x.has_value() != y.has_value() ? x.has_value() : a < b;
}

}  // namespace

std::string why_not_swept(const SweptNames& swept, const std::string& key, const std::optional<std::string>& value) {
  std::vector<std::string> known;
  const auto found = swept.find(key);
  if (found == swept.end()) {
    for (const auto& [other, values] : swept) known.push_back(other);
    const NamesToChoose choice = names_to_choose(key, known);
    return fmt::format("{}\"{}\" must be a swept key, {}{}", choice.before, key,
                       known.empty() ? "but the file sweeps nothing and has no variants" : "one of " + choice.list,
                       choice.after);
  }
  if (!value || found->second.contains(*value)) return {};
  known.assign(found->second.begin(), found->second.end());
  std::ranges::sort(known, comes_before);
  const NamesToChoose choice = names_to_choose(*value, known);
  return fmt::format("{}\"{}\" = {} must be a value of the sweep, one of {}{}", choice.before, key, *value, choice.list,
                     choice.after);
}

std::vector<Patch> patches_of_runs(const TomlNode& root, const TomlNode& table, const std::string& name,
                                   const std::string& origin, FaultList& faults) {
  check_keys(table, name, faults);
  std::vector<Patch> patches = patches_of(root, table, name, origin, faults);
  std::erase_if(patches, [&](const Patch& patch) { return is_set_by_command_line(root, patch.path); });
  return patches;
}

void keep_what_is_equal(std::vector<PointName>& sweep, const std::vector<PointName>& other) {
  std::erase_if(sweep, [&other](const auto& swept) { return std::ranges::find(other, swept) == other.end(); });
}

std::vector<Run> runs_of(const Expansion& all, const Tuned& tuned) {
  std::vector<Run> runs;
  std::map<std::string, std::size_t> places;  // indices in `runs`, by fingerprint and method
  for (std::size_t point = 0; point < all.points.size(); ++point)
    for (std::size_t method = 0; method < all.methods; ++method) {
      const auto patches = tuned ? tuned(point, method) : std::vector<Patch>();
      if (!patches) continue;
      TomlNode root = all.documents[point];
      for (const Patch& patch : *patches) apply(root, patch);
      for (const std::uint64_t seed : all.seeds) {
        Run run = plan_run(document_of_run(root, method, seed), all.file, all.options);
        run.method_index = method;
        run.point_index = point;
        run.sweep = describe_point(all.axes, all.points[point], method);
        const auto [known, is_new] = places.emplace(fmt::format("{} {}", run.fingerprint, run.method), runs.size());
        if (is_new) {
          runs.push_back(std::move(run));
          continue;
        }
        Run& earlier = runs[known->second];
        if (earlier.hash != run.hash)
          keep_what_is_equal(earlier.sweep, run.sweep);
        else if (earlier.sweep != run.sweep)
          throw ConfigurationFault(
              fmt::format("{}: sweep; {} and {} make the same run of \"{}\"; must not list a value twice",
                          all.axes.front().place.text(), text_of(earlier.sweep), text_of(run.sweep), run.method));
      }
    }
  return runs;
}

std::string solved_note(const TomlNode& method) {
  const TomlNode* const rounds = found_at(method, {"period", solved_for, "rounds"});
  const TomlNode* const found = found_at(method, {"period", solved_for, "found"});
  if (!rounds || !found) return "";
  const TomlNode* const period = method.find("period");
  const char* const key = solved_key(*period);
  const auto asked = std::get<std::int64_t>(rounds->value), made = std::get<std::int64_t>(found->value);
  std::string note =
      fmt::format("period.{} = {} makes {}", key, inline_toml(*period->find(key)), counted(made, "round"));
  if (made != asked) note += fmt::format(", the nearest possible number to {}", asked);
  return note;
}

TomlNode with_numbers_as_asked(TomlNode document) {
  TomlNode* methods = document.find("methods");
  if (!methods || !methods->is_array_of_tables()) return document;
  for (TomlNode& method : methods->array()) {
    TomlNode* period = method.find("period");
    const TomlNode* solved = period ? period->find(solved_for) : nullptr;
    if (!solved) continue;
    TomlNode asked;
    for (const char* const key : {"share", "rounds"})
      if (const TomlNode* value = solved->find(key); value && asked.table().empty()) asked.set(key, {}, *value);
    if (asked.table().empty()) continue;
    period->set(solved_key(*period), {}, std::move(asked));
    period->erase(solved_for);
  }
  return document;
}

std::vector<SweepAxis> read_sweep(TomlNode& root, FaultList& faults) {
  const std::optional<SweepAxis> variants = read_variants(root, faults);
  const SweptKeys keys = read_swept_keys(root, faults);
  check_overlaps(keys, variants, faults);
  std::vector<SweepAxis> axes;
  if (variants) axes.push_back(*variants);
  for (const std::vector<VariedKey>& group : keys) axes.push_back(axis_of(group));
  if (const TomlNode* sweep = root.find("sweep")) {
    const SourcePlace place = sweep->place;
    if (keys.empty())
      root.erase("sweep");
    else
      root.set("sweep", place, written(keys, place));
  }
  return axes;
}

std::uint64_t number_of_points(const std::vector<SweepAxis>& axes) {
  std::uint64_t number = 1;
  for (const SweepAxis& axis : axes) number = saturated_product(number, axis.entries.size());
  return number;
}

std::vector<SweepPoint> sweep_points(const std::vector<SweepAxis>& axes) {
  return combinations(axes, [](const SweepAxis& axis) { return axis.entries.size(); });
}

void apply_sweep(TomlNode& root, const std::vector<SweepAxis>& axes, const SweepPoint& point, FaultList& faults) {
  for (std::size_t i = 0; i < axes.size(); ++i) apply(root, axes[i].entries[point[i]].patches, faults);
}

std::vector<PointName> describe_point(const std::vector<SweepAxis>& axes, const SweepPoint& point, std::size_t method) {
  std::vector<PointName> result;
  for (std::size_t i = 0; i < axes.size(); ++i)
    for (const auto& [name, methods] : axes[i].entries[point[i]].names)
      if (methods.empty() || methods.contains(method)) result.push_back(name);
  return result;
}

void apply_profiles(TomlNode& root, std::span<const std::string> names, FaultList& faults) {
  const TomlNode* written = root.find("profiles");
  const TomlNode profiles = written ? *written : TomlNode{};
  root.erase("profiles");
  if (!require_table(profiles, "profiles", "tables, [profiles.NAME]", faults)) return;
  std::vector<std::string> known;
  for (const TomlNode::Member& member : profiles.table()) {
    known.push_back(member.key);
    const std::string name = fmt::format("profiles.{}", member.key);
    if (!require_table(member.value, name, "a table", faults)) continue;
    check_keys(member.value, name, faults);
    patches_of(root, member.value, name, "", faults);  // reports faults even of profiles that are not requested
  }
  for (const std::string& name : names) {
    const TomlNode* profile = profiles.find(name);
    if (!profile) {
      const std::string list = known.empty() ? "the file has no [profiles]" : must_be_one_of(name, known);
      faults.add({std::string(command_line_source)}, fmt::format("--profile {}; {}", name, list));
      continue;
    }
    if (!profile->is_table()) continue;
    FaultList again;
    for (const Patch& patch :
         patches_of(root, *profile, fmt::format("profiles.{}", name), fmt::format("profile \"{}\"", name), again))
      apply(root, patch);
  }
}

}  // namespace syncopate
