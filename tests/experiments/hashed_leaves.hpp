// The leaves of a configuration (values and elements of lists), which determine a run's hash.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "experiments/sections/definition.hpp"
#include "experiments/sections/experiment.hpp"
#include "experiments/sections/variation.hpp"
#include "workers/config/settings.hpp"
#include "workers/config/toml.hpp"

namespace syncopate {

// Calls visit(path, leaf, table) for every leaf below the node. `table` contains the leaf.
using LeafVisit = std::function<void(const std::string& path, TomlNode& leaf, const TomlNode& table)>;
inline void for_each_leaf(TomlNode& node, const LeafVisit& visit, const std::string& path = "",
                          const TomlNode* table = nullptr) {
  const std::string prefix = path.empty() ? "" : path + ".";
  if (node.is_table()) {
    for (TomlNode::Member& member : node.table()) for_each_leaf(member.value, visit, prefix + member.key, &node);
  } else if (node.is_array() && !node.array().empty()) {
    for (std::size_t i = 0; i < node.array().size(); ++i)
      for_each_leaf(node.array()[i], visit, prefix + std::to_string(i), table);
  } else {
    visit(path, node, *table);
  }
}

// Returns a similar value of the same kind.
inline TomlNode changed(TomlNode leaf) {
  std::visit(
      [](auto& value) {
        using Value = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<Value, bool>)
          value = !value;
        else if constexpr (std::is_same_v<Value, std::int64_t>)
          value += value < std::numeric_limits<std::int64_t>::max() ? 1 : -1;
        else if constexpr (std::is_same_v<Value, double>)
          value = std::nextafter(value, std::isinf(value) ? 0 : std::numeric_limits<double>::infinity());
        else if constexpr (std::is_same_v<Value, std::string>)
          value += 'x';
        else if constexpr (std::is_same_v<Value, TomlNode::Array>)
          value.push_back({false, {}});
        else
          FAIL() << "no leaf of an experiment";
      },
      leaf.value);
  return leaf;
}

// Returns why a leaf is not part of the hash; empty if it is part of it.
inline std::string_view why_not_hashed(const std::string& path, const TomlNode& table) {
  if (path == "description") return "it is the title of plots";
  if (path.starts_with("recording.")) return "what is recorded beside a run decides nothing of it";
  if (path.starts_with("checkpoint.")) return "what a killed run goes on from decides nothing of it";
  if (path.ends_with(".file") && table.find("file_hash")) return "its content counts";
  if (path.ends_with(".start") && table.find("start_hash")) return "its content counts";
  if (path.find(".solved_for.") != std::string::npos) return "the number that was found counts";
  if (path.ends_with(".directory") && table.find("directory_hash")) return "its content counts";
  return "";
}

// Checks that each leaf of the run's configuration changes the run's hash, unless why_not_hashed gives a reason.
// Returns these reasons.
inline std::set<std::string_view> expect_every_leaf_hashed(const Run& run) {
  TomlNode resolved = parse_toml(run.resolved_toml, "resolved");
  EXPECT_EQ(configuration_hash(resolved), run.hash);
  std::set<std::string_view> reasons;
  for_each_leaf(resolved, [&](const std::string& path, TomlNode& leaf, const TomlNode& table) {
    const std::string_view reason = why_not_hashed(path, table);
    const TomlNode before = leaf;
    leaf = changed(before);
    EXPECT_EQ(configuration_hash(resolved) == run.hash, !reason.empty())
        << path << " = " << inline_toml(before) << " " << reason;
    leaf = before;
    if (!reason.empty()) reasons.insert(reason);
  });
  return reasons;
}

// Returns the document as written in an experiment file, at the first point of its sweep.
inline TomlNode written_document(const std::string& file, const std::vector<std::string>& overrides = {}) {
  TomlNode document = load_toml(file);
  FaultList faults;
  apply_command_line(document, overrides, faults);
  const std::vector<SweepAxis> axes = read_sweep(document, faults);
  apply_sweep(document, axes, sweep_points(axes).front(), faults);
  EXPECT_TRUE(faults.empty()) << faults.report();
  return document;
}

// Checks that each leaf written for a method is part of the resolved configuration of the method's first run.
inline void expect_every_written_leaf_resolved(TomlNode written, const Run& run) {
  TomlNode method = written.find("methods")->array().at(run.method_index);
  written.find("methods")->array() = {std::move(method)};
  for (const char* expanded : {"seeds", "sweep", "variants", "profiles", "tune", "claim"})  // these keys make the runs
    written.erase(expanded);
  TomlNode resolved = parse_toml(run.resolved_toml, "resolved");
  std::map<std::string, std::string> values;
  for_each_leaf(resolved, [&](const std::string& path, const TomlNode& leaf, const TomlNode&) {
    values[path] = inline_toml(leaf);
  });
  for_each_leaf(written, [&](std::string path, const TomlNode& leaf, const TomlNode&) {
    // The key `solved_for` has the target of a solved number.
    for (const std::string solved : {".coefficient.", ".steps."})
      if (const auto at = path.find(".period" + solved); at != std::string::npos)
        path.replace(at, 7 + solved.size(), ".period.solved_for.");
    auto value = values.find(path);
    // A common phase omits keys that have the same values in [training].
    constexpr std::string_view common = "training.common.";
    if (value == values.end() && path.starts_with(common))
      value = values.find("training." + path.substr(common.size()));
    if (value == values.end()) {
      ADD_FAILURE() << path << " = " << inline_toml(leaf) << " is written, and not in the configuration that is hashed";
      return;
    }
    const bool is_path = path.ends_with(".file") || path.ends_with(".directory");  // resolved to an absolute path
    EXPECT_TRUE(is_path || value->second == inline_toml(leaf) || value->second == inline_toml(leaf) + ".0")
        << path << " = " << value->second << " was written as " << inline_toml(leaf);
  });
}

}  // namespace syncopate
