#include "results/result_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace syncopate {

namespace {

using Sweep = std::vector<std::pair<std::string, std::string>>;

// A row, and everything that distinguishes it from other rows.
struct Group {
  std::size_t method_index = 0;
  std::size_t point_index = 0;
  Sweep sweep;
  std::map<std::string, std::string> of_method;
  ResultRow row;

  auto key() const { return std::tuple(row.method, sweep, of_method, row.point, row.on_wall_clock); }
};

using Leaves = std::map<std::string, std::string>;

bool is_part(const Sweep& part, const Sweep& whole) {
  return std::ranges::all_of(part, [&](const auto& value) { return std::ranges::find(whole, value) != whole.end(); });
}

// Swept keys and values that name points. A run made without the sweep, but at one of its points, gets that point's
// names.
class Names {
 public:
  void add(const Group& group) {
    std::vector<Sweep>& known = of_configurations_[configuration(group)];
    if (std::ranges::find(known, group.sweep) == known.end()) known.push_back(group.sweep);
  }

  // The names of the point of the sweep that matches the group; if none or several match, the group's own names.
  Sweep of(const Group& group) const {
    std::vector<const Sweep*> longer;
    for (const Sweep& other : of_configurations_.at(configuration(group)))
      if (other.size() > group.sweep.size() && is_part(group.sweep, other)) longer.push_back(&other);
    return longer.size() == 1 ? *longer.front() : group.sweep;
  }

 private:
  using Configuration = std::tuple<std::string, Leaves, Leaves>;
  static Configuration configuration(const Group& group) {
    return {group.row.method, group.of_method, group.row.point};
  }

  std::map<Configuration, std::vector<Sweep>> of_configurations_{};
};

// The order of swept values: numbers by size, texts in the order of the sweep, or alphabetically if it is unknown.
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
    const auto x = number_in(a.second), y = number_in(b.second);
    if (x && y && *x != *y) return *x < *y;
    if (x.has_value() != y.has_value()) return x.has_value();
    return std::pair(first_points_.at(a), a.second) < std::pair(first_points_.at(b), b.second);
  }

  std::map<Value, std::size_t> first_points_;  // the first point_index with each value
};

// For a label: the keys of `own` whose values differ from those of some of the groups, with these values.
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

// Appends keys with differing values to labels that several rows share, and to labels of rows made outside the sweep.
void tell_apart(std::vector<Group>& groups) {
  std::map<std::string, std::vector<const Group*>> by_label, by_method;
  for (const Group& group : groups) {
    by_label[group.row.label].push_back(&group);
    by_method[group.row.method].push_back(&group);
  }
  std::vector<std::string> additions(groups.size());
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const Group& group = groups[i];
    std::vector<const Group*> alike = by_label[group.row.label];
    for (const Group* other : by_method[group.row.method])
      if (other->sweep.size() > group.sweep.size() && is_part(group.sweep, other->sweep)) alike.push_back(other);
    if (alike.size() < 2) continue;
    additions[i] = differences(
                       group.row.point, alike, [](const Group& other) -> const auto& { return other.row.point; }) +
                   differences(
                       group.of_method, alike, [](const Group& other) -> const auto& { return other.of_method; });
    if (group.row.on_wall_clock) additions[i] += ", under MPI";
  }
  for (std::size_t i = 0; i < groups.size(); ++i) groups[i].row.label += additions[i];
}

// Whether the key may not apply to some methods, because they can override it or use another model or data set.
bool may_not_concern_all(const std::string& key) {
  return key.starts_with("training.") || key.starts_with("models.") || key.starts_with("datasets.");
}

}  // namespace

std::vector<TimeToReach> times_to_target(const ResultRow& row) {
  std::vector<TimeToReach> times;
  for (const RunSummary& run : row.runs)
    if (run.time_to_target) times.push_back(time_to_reach(run));
  return times;
}

std::vector<std::string> differing_keys(const ResultRow& a, const ResultRow& b) {
  std::vector<std::string> keys;
  for (const auto& [one, other] : {std::pair(&a, &b), std::pair(&b, &a)})
    for (const auto& [key, value] : one->point) {
      const auto found = other->point.find(key);
      const bool differs =
          found == other->point.end() ? !may_not_concern_all(key) : one == &a && found->second != value;
      if (differs) keys.push_back(key);
    }
  return keys;
}

Sweep common_point(const ResultRow& row) {
  Sweep point = row.runs.front().sweep;
  std::erase_if(point, [](const auto& value) { return value.first.starts_with("methods."); });
  return point;
}

bool is_at_point_of(const ResultRow& row, const ResultRow& there, std::span<const ResultRow* const> rows) {
  const Sweep own = common_point(row), point = common_point(there);
  if (!is_part(own, point)) return false;
  // If another row of this method is at the point by its names, the missing keys apply to the method.
  const auto is_rival = [&](const ResultRow* other) {
    return other != &row && other->method == row.method && common_point(*other) == point;
  };
  if (std::ranges::any_of(rows, is_rival)) return false;
  const std::vector<std::string> differing = differing_keys(row, there);
  if (differing.empty()) return true;
  // If not, a value in the file may equal the method's override, so `row` may still be at a point of the sweep.
  const auto stands_at = [&](const ResultRow* other) {
    return common_point(*other).size() == point.size() && differing_keys(row, *other).empty();
  };
  return std::ranges::all_of(differing, may_not_concern_all) && std::ranges::any_of(rows, stands_at);
}

std::vector<ResultRow> result_rows(std::span<const FoundRun> runs) {
  const std::vector<std::string> varied = varied_keys(runs);
  std::vector<std::pair<Group, const FoundRun*>> of_runs;
  Names names;
  for (const FoundRun& run : runs) {
    if (run.summary.status != RunStatus::finished) continue;
    Group group{
        .method_index = run.summary.method_index,
        .point_index = run.summary.point_index,
        .sweep = run.summary.sweep,
        .of_method = run.of_method,
        .row = {
            .label = {}, .method = run.summary.method, .on_wall_clock = run.on_wall_clock, .point = {}, .runs = {}}};
    for (const std::string& key : varied)
      if (const auto found = run.configuration.find(key); found != run.configuration.end())
        group.row.point.insert(*found);
    names.add(group);
    of_runs.emplace_back(std::move(group), &run);
  }
  std::vector<Group> groups;
  std::map<decltype(std::declval<Group>().key()), std::size_t> places;
  for (auto& [group, run] : of_runs) {
    group.sweep = names.of(group);
    if (group.sweep != run->summary.sweep)
      group.point_index = std::numeric_limits<std::size_t>::max();  // the run comes from another file
    group.row.label = run_label(group.row.method, group.sweep);
    const auto [known, is_new] = places.emplace(group.key(), groups.size());
    if (is_new) groups.push_back(group);
    groups[known->second].point_index = std::min(groups[known->second].point_index, group.point_index);
    ResultRow& row = groups[known->second].row;
    const auto after = std::ranges::upper_bound(row.runs, run->summary.seed, {}, &RunSummary::seed);
    const auto index = after - row.runs.begin();
    row.directories.insert(row.directories.begin() + index, run->directory);
    row.runs.insert(after, run->summary)->sweep = group.sweep;
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
    return other.point.contains(key) ? other.point.at(key) : std::string();
  };
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
  throw std::invalid_argument(fmt::format("\"{}\" is ambiguous: it can mean {}; name one of them", against, labels));
}

}  // namespace syncopate
