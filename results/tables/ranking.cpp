#include "results/tables/ranking.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <set>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "results/run/run_label.hpp"
#include "results/statistics/restricted_time.hpp"
#include "results/statistics/statistics.hpp"
#include "workers/process/shown_number.hpp"

namespace syncopate {
namespace {

using Point = std::vector<std::pair<std::string, std::string>>;

std::string name_of(const ResultRow& row) {
  Point own = row.runs.front().sweep;
  std::erase_if(own, [](const auto& value) { return !value.first.starts_with("methods."); });
  return run_label(row.method, own) + (row.on_wall_clock ? ", under MPI" : "");
}

std::vector<TimeToReach> times_of(const ResultRow& row) {
  std::vector<TimeToReach> times;
  for (const RunSummary& run : row.runs)
    if (run.time_to_target)
      times.push_back({run.time_to_target->time_s.value_or(run.end_time_s), run.time_to_target->time_s.has_value()});
  return times;
}

std::vector<double> values_of(const ResultRow& row, const Measure& measure, std::optional<double> horizon_s) {
  if (horizon_s) return restricted_times(times_of(row), *horizon_s).times_s;
  std::vector<double> values;
  for (const RunSummary& run : row.runs)
    if (const auto value = measure.value(run)) values.push_back(*value);
  return values;
}

bool is_time_to_target(const Measure& measure) { return std::string_view(measure.name) == "time_to_target_s"; }

// When the first of its runs ended, where none reached the target.
std::optional<double> missed_until_s(const ResultRow& row) {
  const std::vector<TimeToReach> times = times_of(row);
  if (times.empty() || std::ranges::any_of(times, &TimeToReach::is_reached)) return {};
  return std::ranges::min(times, {}, &TimeToReach::time_s).time_s;
}

// Whether each of the row's runs ended later than the other's run of its seed reached the target.
bool outlasts(const ResultRow& row, const ResultRow& other) {
  return std::ranges::all_of(row.runs, [&](const RunSummary& run) {
    const auto found = std::ranges::find(other.runs, run.seed, &RunSummary::seed);
    return found == other.runs.end() || (found->time_to_target && found->time_to_target->time_s.has_value() &&
                                         run.end_time_s >= *found->time_to_target->time_s);
  });
}

// Times to the target: rows of which no run reached it are the last, since they have no time.
Ranking ranking_of(const Point& point, const std::vector<const ResultRow*>& rows, const Measure& measure) {
  Ranking ranking{.point = run_label("", point), .rows = {}};
  ranking.point.erase(0, std::min(ranking.point.size(), ranking.point.find_first_not_of(", ")));
  const bool of_times = is_time_to_target(measure);
  const std::optional<double> horizon_s = of_times ? target_horizon_s(rows) : std::nullopt;
  if (of_times && !horizon_s) return ranking;
  for (const ResultRow* row : rows) {
    const std::optional<double> until_s = of_times ? missed_until_s(*row) : std::nullopt;
    if (until_s) {
      ranking.rows.push_back({.row = row, .mean = *until_s, .reached = 0, .is_missed = true});
    } else if (const std::vector<double> values = values_of(*row, measure, horizon_s); !values.empty()) {
      ranking.rows.push_back({.row = row, .mean = statistics(values).mean});
      if (horizon_s) ranking.rows.back().reached = restricted_times(times_of(*row), *horizon_s).reached;
    }
  }
  const double sign = measure.better == Better::more ? -1 : 1;
  std::ranges::stable_sort(ranking.rows, {},
                           [&](const RankedRow& ranked) { return std::pair(ranked.is_missed, sign * ranked.mean); });
  for (std::size_t i = 1; i < ranking.rows.size(); ++i) {
    RankedRow& ranked = ranking.rows[i];
    ranked.to_best = paired_measure(measure, *ranked.row, *ranking.rows.front().row, horizon_s);
    ranked.outlasts_best = ranked.is_missed && ranked.to_best && outlasts(*ranked.row, *ranking.rows.front().row);
  }
  return ranking;
}

struct PointRows {
  Point point;
  std::vector<const ResultRow*> rows;
};

// Rows that one file cannot have made: of one name, at one point.
bool has_twins(const std::vector<const ResultRow*>& rows) {
  std::set<std::string> known;
  return std::ranges::any_of(rows, [&](const ResultRow* row) { return !known.insert(name_of(*row)).second; });
}

// The row's point is that of a place whose configuration it has, or a new one, which is called by its configuration.
void add_by_configuration(std::vector<PointRows>& places, const ResultRow* row) {
  const auto is_same = [&](const PointRows& place) { return differing_keys(*row, *place.rows.front()).empty(); };
  const auto found = std::ranges::find_if(places, is_same);
  if (found != places.end()) return found->rows.push_back(row);
  PointRows place{.point = common_point(*row), .rows = {row}};
  for (const auto& value : row->point)
    if (std::ranges::find(place.point, value.first, &Point::value_type::first) == place.point.end())
      place.point.push_back(value);
  places.push_back(std::move(place));
}

// Points with all names, and those of runs that were made beside the sweep.
std::vector<PointRows> places_of(const std::vector<const ResultRow*>& rows) {
  std::size_t names = 0;
  for (const ResultRow* row : rows) names = std::max(names, common_point(*row).size());
  std::vector<PointRows> named;
  std::map<Point, std::size_t> known;
  std::vector<const ResultRow*> unnamed;
  for (const ResultRow* row : rows) {
    const Point point = common_point(*row);
    if (point.size() < names) {
      unnamed.push_back(row);
      continue;
    }
    const auto [place, is_new] = known.emplace(point, named.size());
    if (is_new) named.push_back({.point = point, .rows = {}});
    named[place->second].rows.push_back(row);
  }
  std::vector<PointRows> places, beside;
  for (PointRows& place : named) {
    if (!has_twins(place.rows)) {
      places.push_back(std::move(place));
      continue;
    }
    std::vector<PointRows> parts;
    for (const ResultRow* row : place.rows) add_by_configuration(parts, row);
    if (parts.size() == 1) parts.front().point = place.point;
    std::ranges::move(parts, std::back_inserter(places));
  }
  const std::size_t with_names = places.size();
  for (const ResultRow* row : unnamed) {
    bool is_there = false;
    for (std::size_t i = 0; i < with_names; ++i)
      if (is_at_point_of(*row, *places[i].rows.front(), rows)) {
        places[i].rows.push_back(row);
        is_there = true;
      }
    if (!is_there) add_by_configuration(beside, row);
  }
  std::ranges::move(beside, std::back_inserter(places));
  for (PointRows& place : places)  // in the order of the table
    std::ranges::sort(place.rows, {},
                      [&](const ResultRow* row) { return std::ranges::find(rows, row) - rows.begin(); });
  return places;
}

std::vector<std::string> names(const std::vector<RankedRow>& rows, bool behind) {
  std::vector<std::string> names;
  for (std::size_t i = 1; i < rows.size(); ++i)
    if (rows[i].is_behind() == behind)
      names.push_back(name_of(*rows[i].row) + (rows[i].is_missed ? " (no run reached it)"
                                               : rows[i].to_best ? ""
                                                                 : " (not compared: no common seed)"));
  return names;
}

constexpr const char* nobody = "nobody reached the target";

std::string mean_text(const RankedRow& ranked, const Measure& measure) {
  std::string text = (ranked.is_missed ? "> " : "") + shown_number(measure.shown_times * ranked.mean);
  if (ranked.reached) text += fmt::format(" ({}/{})", *ranked.reached, ranked.row->runs.size());
  return text;
}

std::string joined(const std::vector<std::string>& names) {
  return names.empty() ? "-" : fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

bool RankedRow::is_behind() const {
  return is_missed ? outlasts_best : to_best && to_best->difference.is_significant();
}

std::vector<Ranking> rankings(std::span<const ResultRow> rows, const Measure& measure) {
  if (measure.better == Better::neither)
    throw std::invalid_argument(fmt::format("of {} neither more nor less is better", measure.name));
  std::vector<const ResultRow*> ranked;
  for (const ResultRow& row : rows) {
    const bool has_times = is_time_to_target(measure) && !times_of(row).empty();
    if (has_times || !values_of(row, measure, {}).empty()) ranked.push_back(&row);
  }
  if (ranked.empty()) throw std::invalid_argument(fmt::format("no run has {}", measure.name));
  std::vector<Ranking> result;
  for (const PointRows& place : places_of(ranked)) result.push_back(ranking_of(place.point, place.rows, measure));
  if (std::ranges::all_of(result, [](const Ranking& ranking) { return ranking.rows.empty(); }))
    throw std::invalid_argument("no run reached the target");
  return result;
}

TextTable ranking_table(std::span<const Ranking> rankings, const Measure& measure) {
  TextTable table;
  table.add_column("point", Align::left);
  table.add_column("rank", Align::right);
  table.add_column("method", Align::left);
  table.add_column(measure.heading, Align::right);
  table.add_column("less the best's", Align::right);
  table.add_column("n", Align::right);
  for (const Ranking& ranking : rankings) {
    if (ranking.rows.empty()) table.add_row({ranking.point, "-", nobody, "-", "", "-"});
    for (std::size_t i = 0; i < ranking.rows.size(); ++i) {
      const RankedRow& ranked = ranking.rows[i];
      table.add_row({i == 0 ? ranking.point : "", std::to_string(i + 1), name_of(*ranked.row),
                     mean_text(ranked, measure),
                     i == 0             ? ""
                     : ranked.to_best   ? difference_text(*ranked.to_best)
                     : ranked.is_missed ? "-"
                                        : "no common seed",
                     std::to_string(ranked.row->runs.size())});
    }
  }
  return table;
}

TextTable which_when_table(std::span<const Ranking> rankings) {
  TextTable table;
  table.add_column("point", Align::left);
  table.add_column("best", Align::left);
  table.add_column("not told apart from it", Align::left);
  table.add_column("behind", Align::left);
  for (const Ranking& ranking : rankings)
    if (ranking.rows.empty())
      table.add_row({ranking.point, nobody, "-", "-"});
    else
      table.add_row({ranking.point, name_of(*ranking.rows.front().row), joined(names(ranking.rows, false)),
                     joined(names(ranking.rows, true))});
  return table;
}

std::string ranking_notes(const Measure& measure) {
  const std::string restricted =
      is_time_to_target(measure)
          ? "Times to the target are restricted means, up to when they are known of all runs of a point's methods "
            "that\n"
            "reached it; (k/n): k of n runs reached it. > T (0/n): no run did, and the first ended at T; the method "
            "is\n"
            "behind if all its runs went on beyond the best's times, and its difference has no interval.\n"
          : "";
  return restricted +
         fmt::format(
             "By {}, {} is better. In brackets: the 95 % interval of the mean difference over common seeds (Student's "
             "t).\n"
             "*, and \"behind\": it excludes that both are alike, and so does the sign-flip test, where 6 seeds or "
             "more let "
             "it;\n"
             "else the two are not told apart. That the best was chosen by the same runs is not in the intervals.\n",
             measure.name, measure.better == Better::more ? "more" : "less");
}

}  // namespace syncopate
