#include "experiments/sections/variation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string_view>
#include <tuple>
#include <variant>

#include "experiments/sections/definition.hpp"
#include "workers/base/terminal_text.hpp"
#include "workers/config/key_path.hpp"

namespace syncopate {

namespace {

// A key of [sweep].
struct SweptKey {
  std::vector<std::string> path;  // elements of lists by their numbers: their names may be swept themselves
  std::string key;                // as written
  SourcePlace place{};
  SweptValues swept{};
};

// Swept keys by groups, which `zip` makes: keys of a group vary together, and have equal numbers of values.
using SweptKeys = std::vector<std::vector<SweptKey>>;

constexpr const char* zip = "zip";

// Why a key must not be swept; empty: it may be.
std::string why_not_swept(const std::vector<std::string>& path) {
  const std::string& key = path.front();
  if (key == "seeds") return "the list of seeds has a run for each of them";
  if (key == "name") return "it names the directory of all the runs";
  if (key == "description") return "it is the title of plots; a text with commas stands in quotes";
  const bool is_of_file = key == "sweep" || key == "variants" || key == "profiles" || key == "tune";
  return is_of_file ? "it is no key of a run" : "";
}

// Keys may be quoted, "a.b" = [...], or tables within tables, a.b = [...].
void collect(const TomlNode& root, const TomlNode& table, const std::string& prefix, std::vector<SweptKey>& keys,
             FaultList& faults) {
  for (const auto& [name, place, value] : table.table()) {
    if (prefix.empty() && name == zip) continue;
    const std::string key = prefix.empty() ? name : fmt::format("{}.{}", prefix, name);
    if (value.is_table() && !is_range(value)) {
      collect(root, value, key, keys, faults);
      continue;
    }
    try {
      SweptKey read{.path = with_numbers(root, split_key(key)), .key = key, .place = place};
      if (const std::string why_not = why_not_swept(read.path); !why_not.empty())
        throw KeyPathFault(fmt::format("must not be swept: {}", why_not));
      auto swept = read_swept_values(value, "sweep", key, faults);
      if (!swept || is_set_by_command_line(root, read.path)) continue;
      read.swept = std::move(*swept);
      keys.push_back(std::move(read));
    } catch (const KeyPathFault& fault) {
      faults.add(place, fmt::format("sweep.\"{}\"; {}", key, fault.what()));
    }
  }
}

// Removes the file's keys that the command line sweeps, too.
void leave_to_command_line(std::vector<SweptKey>& keys) {
  std::set<std::vector<std::string>> paths;
  const auto is_of_command_line = [](const SweptKey& key) { return key.place.source == command_line_source; };
  for (const SweptKey& key : keys)
    if (is_of_command_line(key)) paths.insert(key.path);
  std::erase_if(keys, [&](const SweptKey& key) { return !is_of_command_line(key) && paths.contains(key.path); });
}

// zip = ["a", "b"], or several such lists.
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

// Indices of the list's keys; empty if one is not swept, which the command line may have caused.
std::vector<std::size_t> named_by(const TomlNode& root, const TomlNode& list, const std::vector<SweptKey>& keys,
                                  FaultList& faults) {
  std::vector<std::size_t> named;
  bool is_left_out = false;
  for (const TomlNode& name : list.array()) {
    const auto& text = std::get<std::string>(name.value);
    try {
      const std::vector<std::string> path = with_numbers(root, split_key(text));
      const auto found = std::ranges::find(keys, path, &SweptKey::path);
      if (found != keys.end()) {
        named.push_back(static_cast<std::size_t>(found - keys.begin()));
      } else if (is_set_by_command_line(root, path)) {
        is_left_out = true;
      } else {
        std::vector<std::string> known;
        for (const SweptKey& key : keys) known.push_back(key.key);
        throw KeyPathFault(fmt::format("must be a key of [sweep]{}", suggestion(text, known)));
      }
    } catch (const KeyPathFault& fault) {
      faults.add(name.place, fmt::format("sweep.zip, \"{}\"; {}", text, fault.what()));
      return {};
    }
  }
  if (is_left_out) return {};
  for (const std::size_t key : named)
    if (keys[key].swept.values.size() != keys[named.front()].swept.values.size()) {
      faults.add(list.place,
                 fmt::format("sweep.zip = {}; must be keys of as many values: \"{}\" has {}, \"{}\" has {}",
                             inline_toml(list), keys[named.front()].key, keys[named.front()].swept.values.size(),
                             keys[key].key, keys[key].swept.values.size()));
      return {};
    }
  return named;
}

// Whether the table of [sweep], or one in it, names nothing to sweep.
bool sweeps_nothing(const TomlNode& table) {
  return std::ranges::all_of(table.table(), [](const TomlNode::Member& member) {
    return member.value.is_table() && !is_range(member.value) && sweeps_nothing(member.value);
  });
}

// In the order of the file, a group at its first key. Leaves out faulty keys, and those that the command line sets.
SweptKeys read_swept_keys(const TomlNode& root, FaultList& faults) {
  const TomlNode* sweep = root.find("sweep");
  if (!sweep) return {};
  if (!sweep->is_table()) {
    faults.add(sweep->place, fmt::format("sweep = {}; must be a table, [sweep]", inline_toml(*sweep)));
    return {};
  }
  if (sweeps_nothing(*sweep)) {
    faults.add(sweep->place, "sweep; must hold a key with its values, such as \"cluster.workers\" = [2, 4]");
    return {};
  }
  const std::size_t faults_before = faults.size();
  std::vector<SweptKey> keys;
  collect(root, *sweep, "", keys, faults);
  if (faults.size() > faults_before) return {};  // keys are missing, which would make groups look faulty
  leave_to_command_line(keys);
  std::vector<std::optional<std::size_t>> group_of(keys.size());
  std::size_t groups = 0;
  for (const TomlNode& list : lists_to_zip(root, faults)) {
    for (const std::size_t key : named_by(root, list, keys, faults)) {
      if (group_of[key])
        faults.add(list.place,
                   fmt::format("sweep.zip = {}; \"{}\" stands there twice", inline_toml(list), keys[key].key));
      group_of[key] = groups;
    }
    ++groups;
  }
  SweptKeys result;
  std::vector<std::optional<std::size_t>> place_of(groups);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (group_of[i] && place_of[*group_of[i]]) {
      result[*place_of[*group_of[i]]].push_back(std::move(keys[i]));
      continue;
    }
    if (group_of[i]) place_of[*group_of[i]] = result.size();
    result.emplace_back().push_back(std::move(keys[i]));
  }
  return result;
}

// The table [sweep] that reads back to these keys.
TomlNode written(const SweptKeys& groups, const SourcePlace& place) {
  TomlNode sweep{TomlNode::Table{}, place};
  TomlNode::Array zips;
  for (const std::vector<SweptKey>& group : groups) {
    TomlNode::Array names;
    for (const SweptKey& key : group) {
      const std::vector<std::string> usual = swept_labels(key.swept.values);
      TomlNode::Array values;
      for (std::size_t i = 0; i < key.swept.values.size(); ++i) {
        if (key.swept.labels[i] == usual[i]) {
          values.push_back(key.swept.values[i]);
          continue;
        }
        TomlNode named;
        named.set("label", {}, {key.swept.labels[i], {}});
        named.set("value", {}, key.swept.values[i]);
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

// The parts between commas outside of quotes and brackets.
std::vector<std::string_view> parts_of(std::string_view text) {
  std::vector<std::string_view> parts;
  std::size_t begin = 0;
  int depth = 0;
  char quote = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (quote) {
      if (c == quote) quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '[' || c == '{') {
      ++depth;
    } else if (c == ']' || c == '}') {
      --depth;
    } else if (c == ',' && depth == 0) {
      parts.push_back(text.substr(begin, at - begin));
      begin = at + 1;
    }
  }
  parts.push_back(text.substr(begin));
  return parts;
}

struct CommandLineList {
  std::string key;
  TomlNode values;  // a list, or a range
};

// From "key=a,b,c" or a range; nullopt for a single value.
std::optional<CommandLineList> list_of(const std::string& change) {
  Override parsed = parse_override(change);
  const auto has = [&parsed](const char* key) { return parsed.value.find(key) != nullptr; };
  if (parsed.value.is_table() && has("from") && has("to") && (has("step") || has("factor")))
    return CommandLineList{parsed.key, std::move(parsed.value)};
  const auto* text = std::get_if<std::string>(&parsed.value.value);
  // A text in quotes has been read as TOML.
  if (!text || parsed.value.place.source == command_line_source) return {};
  const std::vector<std::string_view> parts = parts_of(*text);
  if (parts.size() < 2) return {};
  const SourcePlace command_line{std::string(command_line_source)};
  TomlNode::Array values;
  for (const std::string_view part : parts) {
    Override element = parse_override(fmt::format("value={}", part));
    if (!element.why_no_toml.empty()) throw KeyPathFault(element.why_no_toml);
    TomlNode& value = element.value;
    const auto* word = std::get_if<std::string>(&value.value);
    if (word && word->empty() && value.place.source != command_line_source)
      throw KeyPathFault("an element of the list is empty");
    value.place = command_line;
    values.push_back(std::move(value));
  }
  return CommandLineList{parsed.key, {std::move(values), command_line}};
}

void sweep(TomlNode& root, CommandLineList list) {
  const SourcePlace command_line{std::string(command_line_source)};
  const std::vector<std::string> path = split_key(list.key);
  if (path.front() == "seeds" || path.front() == "sweep") return assign(root, path, command_line, list.values);
  if (!root.find("sweep")) root.set("sweep", command_line, {TomlNode::Table{}, command_line});
  if (!root.find("sweep")->is_table()) throw KeyPathFault("cannot be swept beside a sweep that is no table");
  root.find("sweep")->set(list.key, command_line, std::move(list.values));
}

using Path = std::vector<std::string>;

class TableReader {
 public:
  TableReader(const TomlNode& root, std::string name, FaultList& faults)
      : root_(root), name_(std::move(name)), faults_(faults) {}

  std::vector<Change> read(const TomlNode& table) {
    if (const TomlNode* keys = table.find("remove")) add_removals(*keys);
    add_table(table, {}, "");
    return std::move(changes_);
  }

 private:
  void fault(const SourcePlace& place, const std::string& text) {
    faults_.add(place, fmt::format("{}.{}", name_, text));
  }

  void add_removals(const TomlNode& keys) {
    const bool is_list = keys.is_array() && std::ranges::all_of(keys.array(), [](const TomlNode& key) {
                           return std::holds_alternative<std::string>(key.value);
                         });
    if (!is_list) return fault(keys.place, fmt::format("remove = {}; must be a list of keys", inline_toml(keys)));
    for (const TomlNode& key : keys.array()) {
      const auto& text = std::get<std::string>(key.value);
      try {
        Path path = with_numbers(root_, split_key(text));
        if (!found_at(root_, path)) throw KeyPathFault("must be a key that the file has");
        changes_.push_back({std::move(path), text, key.place, {}});
      } catch (const KeyPathFault& problem) {
        fault(key.place, fmt::format("remove = \"{}\"; {}", text, problem.what()));
      }
    }
  }

  void add_table(const TomlNode& table, const Path& above, const std::string& prefix) {
    for (const TomlNode::Member& member : table.table()) {
      if (above.empty() && (member.key == "remove" || member.key == "label")) continue;
      const std::string key = prefix.empty() ? member.key : fmt::format("{}.{}", prefix, member.key);
      try {
        Path path = above;
        for (std::string& part : split_key(member.key)) path.push_back(std::move(part));
        add(member, with_numbers(root_, std::move(path)), key);
      } catch (const KeyPathFault& problem) {
        fault(member.place, fmt::format("{}; {}", key, problem.what()));
      }
    }
  }

  void add(const TomlNode::Member& member, const Path& path, const std::string& key) {
    const TomlNode* there = found_at(root_, path);
    if (there && member.value.is_table()) {
      if (there->is_array_of_tables()) return add_elements(member.value, *there, path, key);
      if (there->is_table() && !names_another(*there, member.value)) return add_table(member.value, path, key);
    }
    const Path above(path.begin(), path.end() - 1);
    const TomlNode* table = above.empty() ? &root_ : found_at(root_, above);
    if (table && table->is_table())
      for (const std::string& other : other_forms(*table, path.back())) {
        Path removed = above;
        removed.push_back(other);
        changes_.push_back({std::move(removed), key, member.place, {}});
      }
    changes_.push_back({path, key, member.place, member.value});
  }

  // [variants.methods.DropCompute]: keys of the element of this name.
  void add_elements(const TomlNode& table, const TomlNode& list, const Path& path, const std::string& prefix) {
    for (const TomlNode::Member& member : table.table()) {
      const std::string key = fmt::format("{}.{}", prefix, member.key);
      try {
        Path element = path;
        element.push_back(std::to_string(element_index(list, member.key)));
        add(member, element, key);
      } catch (const KeyPathFault& problem) {
        fault(member.place, fmt::format("{}; {}", key, problem.what()));
      }
    }
  }

  const TomlNode& root_;
  std::string name_;
  FaultList& faults_;
  std::vector<Change> changes_;
};

// The changes by a table of keys. Keys may be written with dots and quotes ("cluster.workers"), or as tables within
// tables, also of a method (methods.DropCompute.threshold_s). They replace the document's keys one by one; but a table
// that names another kind, optimizer, schedule, rule or form replaces the whole table, and a length in epochs (steps, a
// share) replaces one in other units. `remove = ["a.b"]` removes keys. `name`: of the table, for faults.
std::vector<Change> changes_of(const TomlNode& root, const TomlNode& table, const std::string& name,
                               FaultList& faults) {
  return TableReader(root, name, faults).read(table);
}

// Indices of the methods that the changes concern; empty: all.
std::set<std::size_t> methods_of(std::span<const Change> changes) {
  std::set<std::size_t> methods;
  for (const Change& change : changes) {
    if (change.path.size() < 2 || change.path.front() != "methods") return {};
    std::size_t method = 0;
    const std::string& text = change.path[1];
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

// `places`: indices of runs by their fingerprints.
void add_runs(const Expansion& all, std::size_t point, const Tuned& tuned, std::map<std::string, std::size_t>& places,
              ExpandedRuns& made) {
  std::vector<Run>& runs = made.runs;
  for (std::size_t method = 0; method < all.methods; ++method) {
    const auto changes = tuned ? tuned(point, method) : std::vector<Change>();
    if (!changes) continue;
    TomlNode root = all.documents[point];
    for (const Change& change : *changes) apply(root, change);
    for (const std::uint64_t seed : all.seeds) {
      Run run = plan_run(document_of_run(root, method, seed), all.file, all.options);
      run.method_index = method;
      run.point_index = point;
      run.sweep = describe_point(all.axes, all.points[point], method);
      const auto [place, is_new] = places.emplace(fmt::format("{} {}", run.fingerprint, run.method), runs.size());
      if (!is_new && runs[place->second].hash != run.hash)
        keep_what_is_equal(runs[place->second].sweep, run.sweep);
      else if (!is_new && runs[place->second].sweep != run.sweep)
        throw ConfigurationFault(fmt::format(
            "{}: sweep; {} and {} make the same run of \"{}\"; must hold no value twice", all.axes.front().place.text(),
            text_of(runs[place->second].sweep), text_of(run.sweep), run.method));
      if (!is_new) continue;
      runs.push_back(std::move(run));
      made.points.push_back(point);
    }
  }
}

const char* solved_key(const TomlNode& period) { return period.find("coefficient") ? "coefficient" : "steps"; }

SweepAxis axis_of(const std::vector<SweptKey>& group) {
  SweepAxis axis{.place = group.front().place, .entries = {}};
  axis.entries.resize(group.front().swept.values.size());
  for (std::size_t i = 0; i < axis.entries.size(); ++i)
    for (const SweptKey& key : group) {
      axis.entries[i].changes.push_back({key.path, key.key, key.place, key.swept.values[i]});
      const Change& change = axis.entries[i].changes.back();
      axis.entries[i].names.push_back({{key.key, key.swept.labels[i]}, methods_of(std::span(&change, 1))});
    }
  return axis;
}

// Keys of the whole file must not be in a variant or profile.
void check_keys(const TomlNode& table, const std::string& name, FaultList& faults) {
  for (const char* const key : {"name", "seeds", "sweep", "variants", "profiles", "claim", "tune"}) {
    const std::string_view of_file = key;
    const bool is_of_profile = name.starts_with("profiles") && (of_file == "seeds" || of_file == "tune");
    const TomlNode* found = table.find(key);
    if (found && !is_of_profile)
      faults.add(found->place, fmt::format("{}.{}; must be a key of a run: this one is the whole file's", name, key));
  }
}

std::string label_of(const TomlNode& variant, const std::string& name, FaultList& faults) {
  const TomlNode* node = variant.find("label");
  const auto* label = node ? std::get_if<std::string>(&node->value) : nullptr;
  if (label && !label->empty()) return *label;
  faults.add(node ? node->place : variant.place, fmt::format("{}.label; must be the variant's name", name));
  return "";
}

// [[variants]] label = "...", and keys as changes_of reads them. nullopt if there are none, or after a fault: no label,
// a repeated label, a key that cannot be followed.
std::optional<SweepAxis> read_variants(const TomlNode& root, FaultList& faults) {
  const TomlNode* variants = root.find("variants");
  if (!variants) return {};
  const std::size_t faults_before = faults.size();
  if (!variants->is_array_of_tables()) {
    faults.add(variants->place, "variants; must be tables, [[variants]], at least one");
    return {};
  }
  SweepAxis axis{.place = variants->place, .entries = {}};
  std::set<std::string> labels;
  std::vector<Change> all;
  for (std::size_t i = 0; i < variants->array().size(); ++i) {
    const TomlNode& variant = variants->array()[i];
    const std::string name = fmt::format("variants.{}", i), label = label_of(variant, name, faults);
    if (!label.empty() && !labels.insert(label).second)
      faults.add(variant.find("label")->place,
                 fmt::format("{}.label = \"{}\"; must be a name that no other variant has", name, label));
    check_keys(variant, name, faults);
    std::vector<Change> changes = changes_of(root, variant, name, faults);
    std::erase_if(changes, [&](const Change& change) { return is_set_by_command_line(root, change.path); });
    all.insert(all.end(), changes.begin(), changes.end());
    axis.entries.push_back({std::move(changes), {{{"variant", label}, {}}}});
  }
  for (SweepEntry& entry : axis.entries) entry.names.front().methods = methods_of(all);
  if (faults.size() > faults_before) return {};
  return axis;
}

// No axis may change a key, or a part of a table, that another one changes.
void check_overlaps(const SweptKeys& groups, const std::optional<SweepAxis>& variants, FaultList& faults) {
  struct Named {
    std::vector<std::string> path;
    std::string text;
    SourcePlace place;
  };
  std::vector<Named> all;
  if (variants)
    for (const SweepEntry& entry : variants->entries)
      for (const Change& change : entry.changes)
        if (std::ranges::find(all, change.path, &Named::path) == all.end())
          all.push_back({change.path, fmt::format("variants, \"{}\"", change.key), change.place});
  const std::size_t first_key = all.size();
  for (const std::vector<SweptKey>& group : groups)
    for (const SweptKey& key : group) all.push_back({key.path, fmt::format("sweep.\"{}\"", key.key), key.place});
  for (std::size_t inner = 0; inner < all.size(); ++inner)
    for (std::size_t outer = 0; outer < all.size(); ++outer) {
      const bool same = all[inner].path == all[outer].path, both_of_variants = inner < first_key && outer < first_key;
      if (inner == outer || both_of_variants || (same && inner < outer)) continue;
      if (!begins_with(all[inner].path, all[outer].path)) continue;
      faults.add(all[inner].place, fmt::format("{}; must not be swept together with {}, which {}", all[inner].text,
                                               all[outer].text, same ? "is the same" : "holds it"));
    }
}

// For faults of a point.
std::string text_of(const SweepEntry& entry, const Change& change) {
  const PointName& name = entry.names.front().name;
  return name.first == "variant" ? fmt::format("variant \"{}\", \"{}\"", name.second, change.key)
                                 : fmt::format("sweep.\"{}\"", change.key);
}

// A value within tables and lists of tables.
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

// Keys that determine which others a table has: delays and networks have kinds, optimizers names, and so on.
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

// Numbers of values of each kind, of those with a member, and of those with a leaf.
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

// Whether all values of the kind that have the member have the same leaves in it.
bool is_alike(const std::string& member, const Value& value, const Counts& counts) {
  return std::ranges::all_of(value.leaves, [&](const Leaf& leaf) {
    return leaf.member != member ||
           counts.with_leaf.at({value.kind, leaf.key, leaf.written}) == counts.with_member.at({value.kind, member});
  });
}

// "1.25e+09" for 1250000000.0, if that is the same number.
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

// The leaves in which the kind's values differ; for a table that only some have, all alike, its name.
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
constexpr double slack = 1e-9;  // for rounding of the last value

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

// from, from + step, ... or from, from x factor, ... up to `to`.
std::vector<double> numbers_of(const TomlNode& table) {
  constexpr std::array known = {"from", "to", "step", "factor"};
  for (const TomlNode::Member& member : table.table())
    if (std::ranges::find(known, std::string_view(member.key)) == known.end())
      throw RangeFault(fmt::format("{}; unknown key; must be one of {}", member.key, fmt::join(known, ", ")));
  const auto from = number_at(table, "from"), to = number_at(table, "to"), step = number_at(table, "step"),
             factor = number_at(table, "factor");
  if (!from || !to || step.has_value() == factor.has_value())
    throw RangeFault(
        "must be a list, or a range: { from = 1, to = 9, step = 2 }, or a factor in the place of the step");
  if (factor && !(*factor > 0 && *factor != 1)) throw RangeFault("factor must be above 0 and not 1");
  if (factor && !(*from > 0 && *to > 0)) throw RangeFault("from and to must be above 0 beside a factor");
  if (step && *step == 0) throw RangeFault("step must not be 0");
  const double steps = factor ? std::log(*to / *from) / std::log(*factor) : (*to - *from) / *step;
  if (steps < -slack)
    throw RangeFault(fmt::format("holds no value: {} leads away from `to`", factor ? "factor" : "step"));
  if (steps > most_of_a_range) throw RangeFault(fmt::format("must hold at most {} values", most_of_a_range));
  std::vector<double> numbers;
  for (int i = 0; i <= static_cast<int>(steps + slack); ++i)
    numbers.push_back(nearest_written(factor ? *from * std::pow(*factor, i) : *from + i * *step));
  return numbers;
}

// The end of the range as a whole number: rounded down, or up if the range descends.
Wide whole_end(const TomlNode& to, bool upwards) {
  if (const auto* integer = std::get_if<std::int64_t>(&to.value)) return *integer;
  constexpr double beyond = 0x1p63;  // further than any value
  const double end = std::clamp(std::get<double>(to.value), -beyond, beyond);
  return static_cast<Wide>(upwards ? std::floor(end + slack) : std::ceil(end - slack));
}

// The values of a range of whole numbers, within std::int64_t.
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
  if (numbers.empty()) throw RangeFault("holds no value: `to` is on the other side of `from`");
  return numbers;
}

bool is_whole(const TomlNode& table, const char* key) {
  const TomlNode* node = table.find(key);
  return !node || std::holds_alternative<std::int64_t>(node->value);
}

// Whole numbers if the range has no others.
TomlNode::Array values_of_range(const TomlNode& table) {
  const std::vector<double> numbers = numbers_of(table);
  TomlNode::Array values;
  if (is_whole(table, "from") && is_whole(table, "step") && is_whole(table, "factor"))
    for (const std::int64_t number : whole_numbers_of(table)) values.push_back({number, table.place});
  else
    for (const double number : numbers) values.push_back({number, table.place});
  return values;
}

// The name of an element { label = "...", value = ... }; null if it is a value itself.
const TomlNode* name_of(const TomlNode& element) {
  const bool is_named = element.is_table() && element.table().size() == 2 && element.find("value");
  return is_named ? element.find("label") : nullptr;
}

// Equal for values that are read as the same: 1 and 1.0 are one number.
std::string as_read(const TomlNode& value) {
  const auto* const number = std::get_if<double>(&value.value);
  if (number && *number == std::round(*number) && *number >= -0x1p63 && *number < 0x1p63)
    return inline_toml({static_cast<std::int64_t>(*number), {}});
  if (!value.is_array()) return inline_toml(value);
  std::string text;
  for (const TomlNode& element : value.array()) text += as_read(element) + ",";
  return "[" + text + "]";
}

// "warmup" for warmup_steps, warmup_epochs and warmup_share, one length in different units; else empty.
std::string_view length_of(std::string_view key) {
  if (key == "rounds" || key == "share") return "rounds";  // that a number is solved for
  for (const std::string_view unit : {"_steps", "_epochs", "_seconds", "_share", "_step", "_epoch"})
    if (key.ends_with(unit)) return key.substr(0, key.size() - unit.size());
  return {};
}

}  // namespace

void apply_command_line(TomlNode& root, std::span<const std::string> changes, FaultList& faults) {
  const auto has_empty_sweep = [&root] {
    const TomlNode* const swept = root.find("sweep");
    return swept && swept->is_table() && sweeps_nothing(*swept);
  };
  const bool was_empty = has_empty_sweep();
  for (std::size_t i = 0; i < changes.size(); ++i) {
    try {
      std::optional<CommandLineList> list = changes[i].starts_with('~') ? std::nullopt : list_of(changes[i]);
      if (list) {
        sweep(root, std::move(*list));
        continue;
      }
    } catch (const KeyPathFault& problem) {
      faults.add({std::string(command_line_source)}, fmt::format("{}; {}", shortened(changes[i]), problem.what()));
      continue;
    }
    apply_overrides(root, changes.subspan(i, 1), faults);
  }
  if (!was_empty && has_empty_sweep()) root.erase("sweep");  // its last key was removed
}

const TomlNode* found_at(const TomlNode& root, const Path& path) {
  try {
    return find(root, path);
  } catch (const KeyPathFault&) {  // an element that is not there
    return nullptr;
  }
}

Path with_numbers(const TomlNode& root, Path path) {
  const TomlNode* node = &root;
  try {
    for (std::string& part : path) {
      if (!node) break;
      if (node->is_array()) {
        const std::size_t index = element_index(*node, part);
        part = std::to_string(index);
        node = &node->array()[index];
      } else {
        node = node->find(part);
      }
    }
  } catch (const KeyPathFault&) {  // reported when it is assigned to
  }
  return path;
}

void apply(TomlNode& root, const Change& change) {
  if (change.value)
    assign(root, change.path, change.place, *change.value);
  else
    remove(root, change.path);
}

bool begins_with(const Path& path, const Path& beginning) {
  return path.size() >= beginning.size() && std::equal(beginning.begin(), beginning.end(), path.begin());
}

bool is_set_by_command_line(const TomlNode& root, const Path& path) {
  const TomlNode* node = found_at(root, path);
  return node && node->place.source == command_line_source;
}

void keep_what_is_equal(std::vector<PointName>& sweep, const std::vector<PointName>& other) {
  std::erase_if(sweep, [&other](const auto& swept) { return std::ranges::find(other, swept) == other.end(); });
}

ExpandedRuns runs_of(const Expansion& all, const Tuned& tuned) {
  ExpandedRuns made;
  std::map<std::string, std::size_t> places;
  for (std::size_t point = 0; point < all.points.size(); ++point) add_runs(all, point, tuned, places, made);
  return made;
}

std::string solved_note(const TomlNode& method) {
  const TomlNode* period = method.find("period");
  const TomlNode* told = period ? period->find(solved_for) : nullptr;
  const TomlNode *rounds = told ? told->find("rounds") : nullptr, *found = told ? told->find("found") : nullptr;
  if (!rounds || !found) return "";
  const char* const key = solved_key(*period);
  const auto asked = std::get<std::int64_t>(rounds->value), made = std::get<std::int64_t>(found->value);
  std::string note = fmt::format("period.{} = {} makes {} {}", key, inline_toml(*period->find(key)), made,
                                 made == 1 ? "round" : "rounds");
  if (made != asked) note += fmt::format(", the nearest to {} that there is", asked);
  return note;
}

TomlNode with_numbers_as_asked(TomlNode document) {
  TomlNode* methods = document.find("methods");
  if (!methods || !methods->is_array_of_tables()) return document;
  for (TomlNode& method : methods->array()) {
    TomlNode* period = method.find("period");
    const TomlNode* told = period ? period->find(solved_for) : nullptr;
    if (!told) continue;
    TomlNode asked;
    for (const char* const key : {"share", "rounds"})
      if (const TomlNode* value = told->find(key); value && asked.table().empty()) asked.set(key, {}, *value);
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
  for (const std::vector<SweptKey>& group : keys) axes.push_back(axis_of(group));
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
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const SweepEntry& entry = axes[i].entries[point[i]];
    for (const Change& change : entry.changes) {
      try {
        apply(root, change);
      } catch (const KeyPathFault& fault) {
        faults.add(change.place, fmt::format("{}; {}", text_of(entry, change), fault.what()));
      }
    }
  }
}

std::vector<PointName> describe_point(const std::vector<SweepAxis>& axes, const SweepPoint& point, std::size_t method) {
  std::vector<PointName> result;
  for (std::size_t i = 0; i < axes.size(); ++i)
    for (const auto& [name, methods] : axes[i].entries[point[i]].names)
      if (methods.empty() || methods.contains(method)) result.push_back(name);
  return result;
}

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
    // Values with equal beginnings, and other spellings of one value, get numbers.
    const bool is_alone = uses.at(label) == 1 && !label.empty();
    labels[i] = is_alone ? std::move(label) : fmt::format("{}{}({})", label, label.empty() ? "" : " ", i + 1);
  }
  return labels;
}

bool is_range(const TomlNode& node) {
  const auto is_plain = [](const TomlNode* member) { return member && !member->is_table() && !member->is_array(); };
  return node.is_table() && (is_plain(node.find("from")) || is_plain(node.find("to")));
}

std::optional<SweptValues> read_swept_values(const TomlNode& node, const std::string& table, const std::string& key,
                                             FaultList& faults) {
  const std::size_t faults_before = faults.size();
  const auto fault = [&](const SourcePlace& place, const TomlNode& found, const std::string& text) {
    faults.add(place, fmt::format("{}.\"{}\" = {}; {}", table, key, shortened(inline_toml(found)), text));
  };
  SweptValues result;
  std::vector<std::optional<std::string>> names;
  if (is_range(node)) {
    try {
      result.values = values_of_range(node);
    } catch (const RangeFault& problem) {
      fault(node.place, node, problem.what());
    }
  } else if (!node.is_array()) {
    fault(node.place, node, "must be a list of values");
  } else if (node.array().empty()) {
    fault(node.place, node, "must hold a value");
  } else {
    for (const TomlNode& element : node.array()) {
      const TomlNode* name = name_of(element);
      result.values.push_back(name ? *element.find("value") : element);
      const auto* text = name ? std::get_if<std::string>(&name->value) : nullptr;
      if (name && (!text || text->empty())) fault(name->place, element, "label must be a text");
      names.emplace_back(text ? std::optional(*text) : std::nullopt);
    }
  }
  std::set<std::string> seen;
  for (const TomlNode& value : result.values)
    if (!seen.insert(as_read(value)).second) fault(value.place, value, "must hold no value twice");
  if (faults.size() > faults_before) return {};
  result.labels = swept_labels(result.values);
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i]) result.labels[i] = *names[i];
  if (std::set(result.labels.begin(), result.labels.end()).size() < result.labels.size()) {
    fault(node.place, node, "must hold no label twice");
    return {};
  }
  return result;
}

std::string deciding_key(const TomlNode& common, const TomlNode& own) {
  const auto differs = [&](const char* key) { return own.find(key) && !is_same(common.find(key), own.find(key)); };
  for (const char* const key : {"name", "schedule", "kind", "rule"})
    if (differs(key)) return key;
  if (!common.find("label") && differs("algorithm"))
    return "algorithm";  // of a phase; one of [[methods]] keeps its name
  // For randaugment; an optimizer may have a form beside its name.
  return !common.find("name") && differs("form") ? "form" : "";
}

bool names_another(const TomlNode& common, const TomlNode& own) { return !deciding_key(common, own).empty(); }

std::vector<std::string> other_forms(const TomlNode& table, const std::string& key) {
  std::vector<std::string> others;
  const std::string_view length = length_of(key);
  if (length.empty()) return others;
  for (const TomlNode::Member& other : table.table())
    if (other.key != key && length_of(other.key) == length) others.push_back(other.key);
  return others;
}

void apply_profiles(TomlNode& root, std::span<const std::string> names, FaultList& faults) {
  const TomlNode* written = root.find("profiles");
  const TomlNode profiles = written ? *written : TomlNode{};
  root.erase("profiles");
  if (!profiles.is_table()) {
    faults.add(profiles.place, fmt::format("profiles = {}; must be tables, [profiles.NAME]", inline_toml(profiles)));
    return;
  }
  std::vector<std::string> known;
  for (const TomlNode::Member& member : profiles.table()) {
    known.push_back(member.key);
    const std::string name = fmt::format("profiles.{}", member.key);
    if (!member.value.is_table()) {
      faults.add(member.value.place, fmt::format("{} = {}; must be a table", name, inline_toml(member.value)));
      continue;
    }
    check_keys(member.value, name, faults);
    changes_of(root, member.value, name, faults);  // reports faults of profiles that are not asked for, too
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
    for (const Change& change : changes_of(root, *profile, fmt::format("profiles.{}", name), again))
      apply(root, change);
  }
}

}  // namespace syncopate
