#include "results/tables/ranking.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
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

// Without what is swept for a method alone.
Point common_point(const ResultRow& row) {
  Point point = row.runs.front().sweep;
  std::erase_if(point, [](const auto& value) { return value.first.starts_with("methods."); });
  return point;
}

std::string name_of(const ResultRow& row) {
  Point own = row.runs.front().sweep;
  std::erase_if(own, [](const auto& value) { return !value.first.starts_with("methods."); });
  return run_label(row.method, own) + (row.on_wall_clock ? ", under MPI" : "");
}

bool is_part(const Point& part, const Point& whole) {
  return std::ranges::all_of(part, [&](const auto& value) { return std::ranges::find(whole, value) != whole.end(); });
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

// Of times to the target, up to when all of the rows' runs are known; none of other measures.
std::optional<double> horizon_of(const std::vector<const ResultRow*>& rows, const Measure& measure) {
  if (std::string_view(measure.name) != "time_to_target_s") return {};
  std::vector<TimeToReach> all;
  for (const ResultRow* row : rows)
    for (const TimeToReach& time : times_of(*row)) all.push_back(time);
  return common_horizon_s(all);
}

Ranking ranking_of(const Point& point, const std::vector<const ResultRow*>& rows, const Measure& measure) {
  Ranking ranking{.point = run_label("", point), .rows = {}};
  ranking.point.erase(0, ranking.point.find_first_not_of(", "));
  const std::optional<double> horizon_s = horizon_of(rows, measure);
  std::size_t reached = 0;
  for (const ResultRow* row : rows)
    if (const std::vector<double> values = values_of(*row, measure, horizon_s); !values.empty()) {
      ranking.rows.push_back({.row = row, .mean = statistics(values).mean});
      if (!horizon_s) continue;
      ranking.rows.back().reached = restricted_times(times_of(*row), *horizon_s).reached;
      reached += static_cast<std::size_t>(std::ranges::count_if(times_of(*row), &TimeToReach::is_reached));
    }
  if (horizon_s && reached == 0) ranking.rows.clear();
  const double sign = measure.better == Better::more ? -1 : 1;
  std::ranges::stable_sort(ranking.rows, {}, [&](const RankedRow& ranked) { return sign * ranked.mean; });
  for (std::size_t i = 1; i < ranking.rows.size(); ++i)
    ranking.rows[i].to_best = paired_measure(measure, *ranking.rows[i].row, *ranking.rows.front().row);
  return ranking;
}

std::vector<std::string> names(const std::vector<RankedRow>& rows, bool behind) {
  std::vector<std::string> names;
  for (std::size_t i = 1; i < rows.size(); ++i)
    if (rows[i].is_behind() == behind)
      names.push_back(name_of(*rows[i].row) + (rows[i].to_best ? "" : " (not compared: no common seed)"));
  return names;
}

constexpr const char* nobody = "nobody reached the target";

std::string mean_text(const RankedRow& ranked, const Measure& measure) {
  std::string text = shown_number(measure.shown_times * ranked.mean);
  if (ranked.reached) text += fmt::format(" ({}/{})", *ranked.reached, ranked.row->runs.size());
  return text;
}

std::string joined(const std::vector<std::string>& names) {
  return names.empty() ? "-" : fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

std::vector<Ranking> rankings(std::span<const ResultRow> rows, const Measure& measure) {
  if (measure.better == Better::neither)
    throw std::invalid_argument(fmt::format("of {} neither more nor less is better", measure.name));
  std::vector<const ResultRow*> ranked;
  for (const ResultRow& row : rows) {
    const bool has_times = horizon_of({&row}, measure).has_value();
    if (has_times || !values_of(row, measure, {}).empty()) ranked.push_back(&row);
  }
  if (ranked.empty()) throw std::invalid_argument(fmt::format("no run has {}", measure.name));
  std::vector<Point> points;
  for (const ResultRow* row : ranked)
    if (const Point point = common_point(*row); std::ranges::find(points, point) == points.end())
      points.push_back(point);
  std::vector<Ranking> result;
  for (const Point& point : points) {
    const auto is_within_another = [&](const Point& other) { return other != point && is_part(point, other); };
    if (std::ranges::any_of(points, is_within_another)) continue;
    std::vector<const ResultRow*> here;
    std::ranges::copy_if(ranked, std::back_inserter(here),
                         [&](const ResultRow* row) { return is_part(common_point(*row), point); });
    result.push_back(ranking_of(point, here, measure));
  }
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
                     i == 0           ? ""
                     : ranked.to_best ? difference_text(*ranked.to_best)
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
  const std::string restricted = std::string_view(measure.name) == "time_to_target_s"
                                     ? "Times to the target are restricted means, up to when all runs of a point are "
                                       "known; (k/n): k of n runs reached it.\n"
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
