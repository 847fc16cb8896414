#include "results/tables/result_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <compare>
#include <optional>
#include <set>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "results/run/run_label.hpp"

namespace syncopate {
namespace {

std::optional<double> number_of(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return number;
}

using Sweep = std::vector<std::pair<std::string, std::string>>;

// What is in a row, and what tells it apart from the others.
struct Group {
  std::size_t method_index = 0;
  std::size_t point_index = 0;
  Sweep sweep;
  std::map<std::string, std::string> of_method;
  ResultRow row;

  auto key() const { return std::tie(row.method, sweep, of_method, row.point, row.on_wall_clock); }
};

// How values of what is swept follow each other: numbers by their size, texts in the order of the sweep, those of runs
// that do not tell it by their letters.
class SweepOrder {
 public:
  explicit SweepOrder(const std::vector<Group>& groups) {
    for (const Group& group : groups)
      for (const auto& value : group.sweep) {
        const auto [known, is_new] = first_points_.emplace(value, group.point_index);
        if (!is_new) known->second = std::min(known->second, group.point_index);
      }
  }

  bool operator()(const Sweep& a, const Sweep& b) const {
    return std::ranges::lexicographical_compare(a, b, [this](const auto& x, const auto& y) {
      return x.first != y.first ? x.first < y.first : comes_before(x, y);
    });
  }

 private:
  using Value = Sweep::value_type;

  bool comes_before(const Value& a, const Value& b) const {
    const auto x = number_of(a.second), y = number_of(b.second);
    if (x && y && *x != *y) return *x < *y;
    if (x.has_value() != y.has_value()) return x.has_value();
    return std::pair(first_points_.at(a), a.second) < std::pair(first_points_.at(b), b.second);
  }

  std::map<Value, std::size_t> first_points_;  // at which a value stands
};

// Keys and values in which the maps differ, as far as `own` has them.
std::string differences(const std::map<std::string, std::string>& own, const std::vector<const Group*>& alike,
                        const std::map<std::string, std::string>& (*of)(const Group&)) {
  std::string text;
  for (const auto& leaf : own) {
    const auto differs = [&](const Group* other) {
      const auto found = of(*other).find(leaf.first);
      return found == of(*other).end() || found->second != leaf.second;
    };
    if (std::ranges::any_of(alike, differs)) text += fmt::format(", {} = {}", leaf.first, leaf.second);
  }
  return text;
}

void tell_apart(std::vector<Group>& groups) {
  std::map<std::string, std::vector<const Group*>> by_label;
  for (const Group& group : groups) by_label[group.row.label].push_back(&group);
  std::vector<std::string> additions(groups.size());
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const std::vector<const Group*>& alike = by_label[groups[i].row.label];
    if (alike.size() < 2) continue;
    const Group& group = groups[i];
    additions[i] = differences(
                       group.row.point, alike, [](const Group& other) -> const auto& { return other.row.point; }) +
                   differences(
                       group.of_method, alike, [](const Group& other) -> const auto& { return other.of_method; });
    if (group.row.on_wall_clock) additions[i] += ", under MPI";
  }
  for (std::size_t i = 0; i < groups.size(); ++i) groups[i].row.label += additions[i];
}

}  // namespace

std::vector<ResultRow> result_rows(std::span<const FoundRun> runs) {
  const std::vector<std::string> varied = varied_keys(runs);
  std::vector<Group> groups;
  for (const FoundRun& run : runs) {
    if (run.summary.status != RunStatus::finished) continue;
    Group group{.method_index = run.summary.method_index,
                .point_index = run.summary.point_index,
                .sweep = run.summary.sweep,
                .of_method = run.of_method,
                .row = {.label = run_label(run.summary.method, run.summary.sweep),
                        .method = run.summary.method,
                        .on_wall_clock = run.on_wall_clock,
                        .point = {},
                        .runs = {}}};
    for (const std::string& key : varied)
      if (const auto found = run.configuration.find(key); found != run.configuration.end())
        group.row.point.insert(*found);
    const auto known = std::ranges::find_if(groups, [&](const Group& other) { return other.key() == group.key(); });
    Group& place = known == groups.end() ? groups.emplace_back(std::move(group)) : *known;
    const auto after = std::ranges::upper_bound(place.row.runs, run.summary.seed, {}, &RunSummary::seed);
    const auto index = after - place.row.runs.begin();
    place.row.directories.insert(place.row.directories.begin() + index, run.directory);
    place.row.runs.insert(after, run.summary);
  }
  tell_apart(groups);
  std::ranges::stable_sort(groups, [comes_before = SweepOrder(groups)](const Group& a, const Group& b) {
    return a.method_index != b.method_index ? a.method_index < b.method_index : comes_before(a.sweep, b.sweep);
  });
  std::vector<ResultRow> rows;
  for (Group& group : groups) rows.push_back(std::move(group.row));
  return rows;
}

const ResultRow* row_to_compare_with(std::span<const ResultRow> rows, const ResultRow& row,
                                     const std::string& against) {
  if (const auto named = std::ranges::find(rows, against, &ResultRow::label);
      named != rows.end() && named->method != against)
    return &*named;
  std::set<std::string> keys;
  for (const ResultRow& other : rows)
    for (const auto& [key, value] : other.point) keys.insert(key);
  const auto value_at = [](const ResultRow& other, const std::string& key) {
    const auto value = other.point.find(key);
    return value == other.point.end() ? std::string() : value->second;
  };
  // What varies for the other method itself.
  const auto varies = [&](const std::string& key) {
    std::set<std::string> values;
    for (const ResultRow& other : rows)
      if (other.method == against) values.insert(value_at(other, key));
    return values.size() > 1;
  };
  std::erase_if(keys, [&](const std::string& key) { return !varies(key); });
  std::vector<const ResultRow*> found;
  for (const ResultRow& other : rows) {
    if (other.method != against || other.on_wall_clock != row.on_wall_clock) continue;
    const auto is_same = [&](const std::string& key) { return value_at(other, key) == value_at(row, key); };
    if (std::ranges::all_of(keys, is_same)) found.push_back(&other);
  }
  if (found.size() < 2) return found.empty() ? nullptr : found.front();
  std::string labels;
  for (const ResultRow* other : found) labels += fmt::format("{}\"{}\"", labels.empty() ? "" : ", ", other->label);
  throw std::invalid_argument(fmt::format("\"{}\" is one of several: {}; name one of them", against, labels));
}

}  // namespace syncopate
