#include "experiments/sections/sweep.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>

#include "experiments/sections/swept_label.hpp"
#include "workers/settings/key_path.hpp"

namespace syncopate {
namespace {

// Keys may be quoted, "a.b" = [...], or not, a.b = [...]: then they are tables within tables.
void collect(const TomlNode& table, const std::string& prefix, std::vector<SweepAxis>& axes, FaultList& faults) {
  for (const auto& [name, place, value] : table.table()) {
    const std::string key = prefix.empty() ? name : fmt::format("{}.{}", prefix, name);
    if (value.is_table()) {
      collect(value, key, axes, faults);
    } else if (!value.is_array() || value.array().empty()) {
      faults.add(value.place, fmt::format("sweep.\"{}\" = {}; must be a list of values", key, inline_toml(value)));
    } else {
      try {
        axes.push_back({split_key(key), key, place, value.array(), {}});
      } catch (const KeyPathFault& fault) {
        faults.add(place, fmt::format("sweep.\"{}\"; {}", key, fault.what()));
      }
    }
  }
}

// What tells values apart where they are read: 1 and 1.0 are one number.
std::string as_read(const TomlNode& value) {
  if (const auto* integer = std::get_if<std::int64_t>(&value.value))
    return inline_toml({static_cast<double>(*integer), {}});
  if (!value.is_array()) return inline_toml(value);
  std::string text;
  for (const TomlNode& element : value.array()) text += as_read(element) + ",";
  return "[" + text + "]";
}

void check_values(const SweepAxis& axis, FaultList& faults) {
  std::set<std::string> seen;
  for (const TomlNode& value : axis.values)
    if (!seen.insert(as_read(value)).second)
      faults.add(value.place, fmt::format("sweep.\"{}\" = {}; must hold no value twice", axis.key, inline_toml(value)));
}

// The key with the numbers of elements instead of their names, as far as it leads somewhere.
std::vector<std::string> with_numbers(const TomlNode& root, std::vector<std::string> path) {
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
  } catch (const KeyPathFault&) {  // whoever assigns to it says so
  }
  return path;
}

bool begins_with(const std::vector<std::string>& path, const std::vector<std::string>& beginning) {
  return path.size() >= beginning.size() && std::equal(beginning.begin(), beginning.end(), path.begin());
}

// No axis may replace what another one puts into the document.
void check_overlaps(const TomlNode& root, const std::vector<SweepAxis>& axes, FaultList& faults) {
  std::vector<std::vector<std::string>> paths;
  for (const SweepAxis& axis : axes) paths.push_back(with_numbers(root, axis.path));
  for (std::size_t inner = 0; inner < axes.size(); ++inner)
    for (std::size_t outer = 0; outer < axes.size(); ++outer) {
      const bool same = paths[inner] == paths[outer];
      if (inner == outer || (same && inner < outer) || !begins_with(paths[inner], paths[outer])) continue;
      faults.add(axes[inner].place, fmt::format("sweep.\"{}\"; must not be swept together with \"{}\", which {}",
                                                axes[inner].key, axes[outer].key, same ? "is the same" : "holds it"));
    }
}

bool is_set_by_command_line(const TomlNode& root, const SweepAxis& axis) {
  try {
    const TomlNode* node = find(root, axis.path);
    return node && node->place.source == command_line_source;
  } catch (const KeyPathFault&) {
    return false;
  }
}

bool concerns_method(const TomlNode& root, const SweepAxis& axis, std::size_t method) {
  if (axis.path.front() != "methods" || axis.path.size() < 2) return true;
  const TomlNode* methods = root.find("methods");
  return methods && methods->is_array() && element_index(*methods, axis.path[1]) == method;
}

// Why a key must not be swept; empty: it may be.
std::string why_not_swept(const std::vector<std::string>& path) {
  if (path.front() == "seeds") return "the list of seeds has a run for each of them";
  if (path.front() == "name") return "it names the directory of all the runs";
  return path.front() == "sweep" ? "it is the sweep itself" : "";
}

}  // namespace

std::vector<SweepAxis> read_sweep(const TomlNode& root, FaultList& faults) {
  std::vector<SweepAxis> axes;
  const TomlNode* sweep = root.find("sweep");
  if (!sweep) return axes;
  if (!sweep->is_table()) {
    faults.add(sweep->place, fmt::format("sweep = {}; must be a table, [sweep]", inline_toml(*sweep)));
    return axes;
  }
  collect(*sweep, "", axes, faults);
  std::erase_if(axes, [&](const SweepAxis& axis) {
    const std::string why_not = why_not_swept(axis.path);
    if (!why_not.empty()) faults.add(axis.place, fmt::format("sweep.\"{}\"; must not be swept: {}", axis.key, why_not));
    return !why_not.empty() || is_set_by_command_line(root, axis);
  });
  for (SweepAxis& axis : axes) {
    check_values(axis, faults);
    axis.path = with_numbers(root, axis.path);  // names of elements may be swept themselves
    axis.labels = swept_labels(axis.values);
  }
  check_overlaps(root, axes, faults);
  return axes;
}

void write_sweep(TomlNode& root, const std::vector<SweepAxis>& axes) {
  const TomlNode* written = root.find("sweep");
  if (!written) return;
  const auto place = written->place;
  TomlNode sweep{TomlNode::Table{}, place};
  for (const SweepAxis& axis : axes) sweep.set(axis.key, axis.place, {axis.values, axis.place});
  if (axes.empty()) {
    root.erase("sweep");
  } else {
    root.set("sweep", place, std::move(sweep));
  }
}

std::uint64_t number_of_points(const std::vector<SweepAxis>& axes) {
  std::uint64_t number = 1;
  for (const SweepAxis& axis : axes) number = saturated_product(number, axis.values.size());
  return number;
}

std::vector<SweepPoint> sweep_points(const std::vector<SweepAxis>& axes) {
  std::vector<SweepPoint> points = {{}};
  for (const SweepAxis& axis : axes) {
    std::vector<SweepPoint> longer;
    for (const SweepPoint& point : points) {
      for (std::size_t i = 0; i < axis.values.size(); ++i) {
        longer.push_back(point);
        longer.back().push_back(i);
      }
    }
    points = std::move(longer);
  }
  return points;
}

void apply_sweep(TomlNode& root, const std::vector<SweepAxis>& axes, const SweepPoint& point, FaultList& faults) {
  for (std::size_t i = 0; i < axes.size(); ++i) {
    try {
      assign(root, axes[i].path, axes[i].place, axes[i].values[point[i]]);
    } catch (const KeyPathFault& fault) {
      faults.add(axes[i].place, fmt::format("sweep.\"{}\"; {}", axes[i].key, fault.what()));
    }
  }
}

std::vector<std::pair<std::string, std::string>> describe_point(const TomlNode& root,
                                                                const std::vector<SweepAxis>& axes,
                                                                const SweepPoint& point, std::size_t method) {
  std::vector<std::pair<std::string, std::string>> result;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (concerns_method(root, axes[i], method)) result.emplace_back(axes[i].key, axes[i].labels[point[i]]);
  }
  return result;
}

}  // namespace syncopate
