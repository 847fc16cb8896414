#include "experiments/sections/swept_label.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "workers/process/printable.hpp"

namespace syncopate {
namespace {

// The value at the end of tables, and of lists of tables.
struct Leaf {
  std::string member;   // of the swept table: bursts
  std::string key;      // bursts.mean_on_steps
  std::string written;  // 5
};

void add_leaves(const TomlNode& node, const std::string& member, const std::string& path, std::vector<Leaf>& leaves) {
  const auto add_child = [&](const std::string& name, const TomlNode& child) {
    add_leaves(child, member.empty() ? name : member, path.empty() ? name : path + "." + name, leaves);
  };
  if (node.is_table()) {
    for (const TomlNode::Member& child : node.table()) add_child(toml_key(child.key), child.value);
  } else if (node.is_array_of_tables() && node.array().size() == 1 && path.empty()) {
    add_leaves(node.array().front(), member, path, leaves);  // one delay alone needs no number
  } else if (node.is_array_of_tables()) {
    for (std::size_t i = 0; i < node.array().size(); ++i) add_child(std::to_string(i), node.array()[i]);
  } else {
    const auto* text = std::get_if<std::string>(&node.value);
    const bool is_nothing = node.is_array() && node.array().empty();
    leaves.push_back({member, path, text ? *text : is_nothing ? "none" : inline_toml(node)});
  }
}

// What says which keys a table has beside it: delays and networks have kinds, optimizers and compressions names, and
// so on.
constexpr std::array<std::string_view, 4> keys_of_kinds = {"kind", "name", "rule", "schedule"};

struct Value {
  bool is_plain = false;       // neither a table nor a list of tables
  std::string kind{};          // empty: it has none
  std::vector<Leaf> leaves{};  // without the kind
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

// How many values of each kind there are, how many of these have a member, and how many a leaf.
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

// Whether all values of a kind that have a member have the same of it.
bool is_alike(const std::string& member, const Value& value, const Counts& counts) {
  return std::ranges::all_of(value.leaves, [&](const Leaf& leaf) {
    return leaf.member != member ||
           counts.with_leaf.at({value.kind, leaf.key, leaf.written}) == counts.with_member.at({value.kind, member});
  });
}

// "1.25e+09" of 1250000000.0, where that is the same number.
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

// What a kind's values differ by: leaves; of a table that some have, and these alike, its name.
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

}  // namespace

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
    // Values that begin alike, and other spellings of one value.
    const bool is_alone = uses.at(label) == 1 && !label.empty();
    labels[i] = is_alone ? std::move(label) : fmt::format("{}{}({})", label, label.empty() ? "" : " ", i + 1);
  }
  return labels;
}

}  // namespace syncopate
