#include "experiments/sections/sweep.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>

#include "experiments/sections/swept_keys.hpp"
#include "experiments/sections/variants.hpp"
#include "workers/settings/key_path.hpp"

namespace syncopate {
namespace {

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

std::vector<Change> all_changes(const SweepAxis& axis) {
  std::vector<Change> changes;
  for (const SweepEntry& entry : axis.entries)
    changes.insert(changes.end(), entry.changes.begin(), entry.changes.end());
  return changes;
}

// No axis may replace what another one puts into the document, nor a key of it another one's.
void check_overlaps(const SweptKeys& groups, const std::optional<SweepAxis>& variants, FaultList& faults) {
  struct Named {
    std::vector<std::string> path;
    std::string text;
    SourcePlace place;
  };
  std::vector<Named> all;
  if (variants)
    for (const Change& change : all_changes(*variants)) {
      const bool is_known = std::ranges::find(all, change.path, &Named::path) != all.end();
      if (!is_known) all.push_back({change.path, fmt::format("variants, \"{}\"", change.key), change.place});
    }
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

// As the faults of a point are called.
std::string text_of(const SweepEntry& entry, const Change& change) {
  const PointName& name = entry.names.front().name;
  return name.first == "variant" ? fmt::format("variant \"{}\", \"{}\"", name.second, change.key)
                                 : fmt::format("sweep.\"{}\"", change.key);
}

}  // namespace

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
  std::vector<SweepPoint> points = {{}};
  for (const SweepAxis& axis : axes) {
    std::vector<SweepPoint> longer;
    for (const SweepPoint& point : points) {
      for (std::size_t i = 0; i < axis.entries.size(); ++i) {
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
  for (std::size_t i = 0; i < axes.size(); ++i) {
    for (const auto& [name, methods] : axes[i].entries[point[i]].names)
      if (methods.empty() || methods.contains(method)) result.push_back(name);
  }
  return result;
}

}  // namespace syncopate
