#include "results/result_table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "workers/base/terminal_text.hpp"

namespace syncopate {

namespace {

// "peak = 0.1, threshold_s = 0.07"
std::string values_text(const KeyValues& values) {
  const std::string text = run_label("", values);
  return text.starts_with(", ") ? text.substr(2) : text;
}

std::string name_of(const ResultRow& row) {
  KeyValues own = row.runs.front().sweep;
  std::erase_if(own, [](const auto& value) { return !value.first.starts_with("methods."); });
  return run_label(row.method, own) + (row.on_wall_clock ? ", under MPI" : "");
}

using Seeds = std::vector<RunSummary>;
using Value = std::function<std::optional<double>(const RunSummary&)>;

Statistics over(std::span<const RunSummary> seeds, const Value& value) {
  std::vector<double> values;
  for (const RunSummary& seed : seeds)
    if (const auto found = value(seed)) values.push_back(*found);
  return statistics(values);
}

bool is_time_to_target(const Measure& measure) { return std::string_view(measure.name) == "time_to_target_s"; }

// Whether, for each common seed, the row's run lasted at least until the other row's run reached the target.
bool outlasts(const ResultRow& row, const ResultRow& other) {
  return std::ranges::all_of(row.runs, [&](const RunSummary& run) {
    const auto found = std::ranges::find(other.runs, run.seed, &RunSummary::seed);
    return found == other.runs.end() || (found->time_to_target && found->time_to_target->time_s.has_value() &&
                                         run.end_time_s >= *found->time_to_target->time_s);
  });
}

// Ranks rows that have the measure. In a ranking by time to the target, rows whose runs all missed it rank last.
Ranking ranking_of(const KeyValues& point, const std::vector<const ResultRow*>& rows, const Measure& measure) {
  Ranking ranking{.point = values_text(point), .rows = {}};
  const bool of_times = is_time_to_target(measure);
  const std::optional<double> horizon_s = of_times ? target_horizon_s(rows) : std::nullopt;
  if (of_times && !horizon_s) return ranking;
  for (const ResultRow* row : rows) {
    const std::vector<TimeToReach> times = times_to_target(row->runs);
    if (!of_times) {
      ranking.rows.push_back({.row = row, .mean = over(row->runs, measure.value).mean});
    } else if (std::ranges::any_of(times, &TimeToReach::is_reached)) {
      const RestrictedTimes restricted = restricted_times(times, *horizon_s);
      ranking.rows.push_back({.row = row, .mean = statistics(restricted.times_s).mean, .reached = restricted.reached});
    } else {
      const double until_s = std::ranges::min(times, {}, &TimeToReach::time_s).time_s;
      ranking.rows.push_back({.row = row, .mean = until_s, .reached = 0, .is_missed = true});
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
  KeyValues point;
  std::vector<const ResultRow*> rows;
};

// Whether two rows of a point have the same name. One experiment file makes no such rows, but several files can.
bool has_twins(const std::vector<const ResultRow*>& rows) {
  std::set<std::string> known;
  return std::ranges::any_of(rows, [&](const ResultRow* row) { return !known.insert(name_of(*row)).second; });
}

// Adds the row to the point with the same configuration, or to a new point that is named after the configuration.
void add_by_configuration(std::vector<PointRows>& places, const ResultRow* row) {
  const auto is_same = [&](const PointRows& place) { return differing_keys(*row, *place.rows.front()).empty(); };
  const auto found = std::ranges::find_if(places, is_same);
  if (found != places.end()) return found->rows.push_back(row);
  PointRows place{.point = common_point(*row), .rows = {row}};
  for (const auto& value : row->point)
    if (std::ranges::find(place.point, value.first, &KeyValues::value_type::first) == place.point.end())
      place.point.push_back(value);
  places.push_back(std::move(place));
}

// The points of the sweep, then the points of runs that were made outside the sweep.
std::vector<PointRows> places_of(const std::vector<const ResultRow*>& rows) {
  std::size_t names = 0;
  for (const ResultRow* row : rows) names = std::max(names, common_point(*row).size());
  const auto has_all_names = [names](const ResultRow* row) { return common_point(*row).size() == names; };
  std::vector<PointRows> places, beside;
  std::vector<const ResultRow*> named;
  std::ranges::copy_if(rows, std::back_inserter(named), has_all_names);
  for (const auto& [point, members] : grouped_by([](const ResultRow* row) { return common_point(*row); }, named)) {
    std::vector<PointRows> parts;
    if (has_twins(members))
      for (const ResultRow* row : members) add_by_configuration(parts, row);
    if (parts.size() < 2) parts = {{.point = point, .rows = members}};
    std::ranges::move(parts, std::back_inserter(places));
  }
  const std::size_t with_names = places.size();
  for (const ResultRow* row : rows) {
    if (has_all_names(row)) continue;
    bool is_there = false;
    for (std::size_t i = 0; i < with_names; ++i)
      if (is_at_point_of(*row, *places[i].rows.front(), rows)) {
        places[i].rows.push_back(row);
        is_there = true;
      }
    if (!is_there) add_by_configuration(beside, row);
  }
  std::ranges::move(beside, std::back_inserter(places));
  for (PointRows& place : places)  // rows get the order of the table
    std::ranges::sort(place.rows, {},
                      [&](const ResultRow* row) { return std::ranges::find(rows, row) - rows.begin(); });
  return places;
}

std::string names_text(const std::vector<RankedRow>& rows, bool behind) {
  std::vector<std::string> names;
  for (std::size_t i = 1; i < rows.size(); ++i)
    if (rows[i].is_behind() == behind)
      names.push_back(name_of(*rows[i].row) + (rows[i].is_missed ? " (no run reached it)"
                                               : rows[i].to_best ? ""
                                                                 : " (not compared: no common seed)"));
  return names.empty() ? "-" : fmt::format("{}", fmt::join(names, ", "));
}

constexpr const char* nobody = "nobody reached the target";

std::string mean_text(const RankedRow& ranked, const Measure& measure) {
  std::string text = (ranked.is_missed ? "> " : "") + shown_number(measure.shown_times * ranked.mean);
  if (ranked.reached) text += fmt::format(" ({}/{})", *ranked.reached, ranked.row->runs.size());
  return text;
}

constexpr std::size_t preferred_width = 120;

// The mean with three digits and an SI prefix, which keeps a column of counts narrow.
std::string scaled_text(const Statistics& statistics) {
  if (statistics.n == 0) return "-";
  constexpr double rounds_to_1 = 0.9995;  // a number from this one on becomes 1 if rounded to three digits
  for (const auto& [factor, prefix] :
       {std::pair{1e18, "E"}, {1e15, "P"}, {1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}})
    if (std::abs(statistics.mean) >= rounds_to_1 * factor)
      return fmt::format("{:.3g}{}", statistics.mean / factor, prefix);
  return fmt::format("{:.3g}", statistics.mean);
}

std::string seconds_text(double seconds) { return SamePlace(seconds, 0)(seconds); }

std::string in_percent(const Statistics& statistics) {
  return mean_and_deviation({statistics.n, statistics.mean * 100, statistics.std * 100});
}

struct Column {
  std::string heading;
  std::string (*text)(const Statistics&);
  Value value;
  bool shows_zeros = true;  // false: the column is left out if the value is 0 in all rows
  std::string (*of_seeds)(std::span<const RunSummary>) = nullptr;  // replaces `text` for columns that are not means
  bool shows_alone = true;  // false: the column is left out if no run has a prediction
};

// The simulated time, and in brackets the time by the method's formula, as means over seeds. If there are several
// formulas, takes the last one, which makes the fewest assumptions.
std::string step_time_text(std::span<const RunSummary> seeds) {
  const auto simulated = over(seeds, &RunSummary::step_time_s);
  const auto predicted = over(seeds, [](const RunSummary& run) {
    return run.predicted.empty() ? std::nullopt : std::optional(run.predicted.back().prediction.step_time_s);
  });
  const std::string text = seconds_text(simulated.mean);
  return predicted.n == 0 ? text + " (-)" : fmt::format("{} ({})", text, seconds_text(predicted.mean));
}

bool has_prediction(const RunSummary& run) { return !run.predicted.empty(); }

std::vector<Column> columns_of_values(const std::string& clock) {
  return {
      {"accuracy\n%", in_percent, &RunSummary::final_test_accuracy},
      {"test\nloss", mean_and_deviation, &RunSummary::final_test_loss},
      {"time\ns", mean_and_deviation, &RunSummary::end_time_s},
      {"to target\ns", nullptr, {}, true, time_to_target_text},  // not a mean over seeds, because times are censored
      {"s/step\n(formula)", nullptr, {}, true, step_time_text, false},
      {"dropped\n%", in_percent, &RunSummary::drop_rate},
      {"staleness\nsteps", mean_and_deviation, &RunSummary::mean_staleness, false},
      {"sent\nbytes", scaled_text, &RunSummary::communicated_bytes},
      {"syncs", scaled_text, &RunSummary::rounds},
      {"samples/s\n" + clock, scaled_text, &RunSummary::samples_per_virtual_s},
      {"samples/s\nhost", scaled_text, &RunSummary::samples_per_host_s},
  };
}

using Methods = std::map<std::string, std::string>;  // names to show, by the names in the runs
const std::string& method_of(const RunSummary& run, const Methods& named) {
  const auto found = named.find(run.method);
  return found == named.end() ? run.method : found->second;
}

// Lists the formulas of the times in brackets, one per line, with the methods that use them. If a method's rows use
// different formulas, lists these rows instead of the method.
std::string formulas_text(std::span<const RunSummary> runs, const Methods& named) {
  const auto formula_of = [](const RunSummary* run) { return run->predicted.back().prediction.formula; };
  std::vector<const RunSummary*> predicted;
  std::map<std::string, std::set<std::string>> formulas_of;  // formulas by method
  bool is_sampled = false;
  for (const RunSummary& run : runs) {
    if (run.status != RunStatus::finished || !has_prediction(run)) continue;
    predicted.push_back(&run);
    formulas_of[method_of(run, named)].insert(formula_of(&run));
    is_sampled |= run.predicted.back().prediction.is_sampled;
  }
  std::string text;
  for (const auto& [formula, with_formula] : grouped_by(formula_of, predicted)) {
    std::vector<std::string> methods;
    for (const RunSummary* run : with_formula) {
      const std::string& name = method_of(*run, named);
      const std::string label = printable(formulas_of[name].size() == 1 ? name : run_label(*run));
      if (std::ranges::find(methods, label) == methods.end()) methods.push_back(label);
    }
    std::string line = "(formula) by " + formula + ":";
    const bool holds_comma = std::ranges::any_of(methods, [](const auto& one) { return one.find(',') != one.npos; });
    const char* const between = holds_comma ? ";" : ",";  // labels contain commas
    for (const std::string& method : methods) {
      if (line.size() + method.size() + 2 > preferred_width) {
        text += line + "\n";
        line.assign(1, ' ');
      }
      line += " " + method + (&method == &methods.back() ? "" : between);
    }
    text += line + "\n";
  }
  if (text.find("E[T]") != std::string::npos)
    text += "E[T]: the expected time of the slowest worker's step, without drops.\n";
  return is_sampled ? text + note_of_sampled() : text;
}

std::string own_training_of(const RunSummary& run) {
  std::string keys;
  for (const auto& own : run.own_training) {
    const bool is_swept = std::ranges::any_of(run.sweep, [&own](const auto& swept) {
      return swept.first.starts_with("methods.") && swept.first.ends_with(".training." + own.first);
    });
    if (!is_swept) keys += fmt::format("{}{} = {}", keys.empty() ? "" : ", ", own.first, shortened(own.second));
  }
  return keys;
}

// Lists the rows' overrides of [training], one line per row. Three or more rows of a method with the same overrides
// have one line. Leaves out swept keys, which the table shows.
std::string own_training_text(const std::vector<std::pair<std::string, Seeds>>& rows, const Methods& named) {
  std::map<std::string, int> number;                             // number of rows by method
  std::map<std::pair<std::string, std::string>, int> with_keys;  // number of rows by method and overrides
  for (const auto& [label, seeds] : rows) {
    ++number[method_of(seeds.front(), named)];
    ++with_keys[{method_of(seeds.front(), named), own_training_of(seeds.front())}];
  }
  std::string text;
  for (const auto& [label, seeds] : rows) {
    const std::string keys = own_training_of(seeds.front()), &method = method_of(seeds.front(), named);
    int& alike = with_keys[{method, keys}];
    if (keys.empty() || alike == 0) continue;
    std::string who = label;
    if (alike >= 3) {
      who = alike == number[method] ? method : fmt::format("{} ({} of {} rows)", method, alike, number[method]);
      alike = 0;  // the line of these rows is done
    }
    text += fmt::format("[training] of {}: {}\n", printable(who), printable(keys));
  }
  return text;
}

std::string note_of_links(std::span<const RunSummary> runs) {
  std::vector<std::pair<std::string, bool>> rows;
  for (const RunSummary& run : runs)
    if (run.status == RunStatus::finished) rows.emplace_back(printable(run_label(run)), run.has_unshared_links);
  return unshared_links_text(rows);
}

std::string cell(const Column& column, const Seeds& seeds) {
  return column.text ? column.text(over(seeds, column.value)) : column.of_seeds(seeds);
}

using Columns = std::map<std::string, std::string>;

// The value without TOML's quotes if it is a text; otherwise unchanged.
std::string plain(const std::string& value) {
  const bool is_text = value.size() >= 2 && value.front() == '"' && value.back() == '"';
  return is_text ? value.substr(1, value.size() - 2) : value;
}

// The run's settings by column: keys of its file, of its method and of the sweep.
Columns settings_of(const FoundRun& run) {
  Columns columns;
  for (const auto& [key, value] : run.configuration) columns[key] = plain(value);
  for (const auto& [key, value] : run.of_method)
    if (key != "label") columns["method." + key] = plain(value);
  for (const auto& [key, value] : run.summary.sweep) columns[column_of(key)] = value;
  return columns;
}

std::string short_names(const std::vector<std::string>& keys) {
  std::string text;
  for (const std::string& key : keys) {
    const std::string one = values_text({{key, ""}});
    text += (text.empty() ? "" : ", ") + one.substr(0, one.find(" = "));
  }
  return text;
}

// How the method's mean is restricted, if trials missed their target; otherwise empty.
std::string restriction(const TunedMethod& method, const TriedSetting& chosen) {
  if (!method.horizon) return {};
  return fmt::format(", restricted to {}, by which {} of its {} trials reached the target",
                     shown_number(*method.horizon), method.reached(chosen), chosen.trials.size());
}

std::string line_of(const TunedMethod& method, const Tuning& tuning) {
  const std::string who = run_label(method.method, method.point);
  const std::string numbers = fmt::format("{} settings in {} trials", method.settings.size(), method.trials());
  if (!method.chosen) return fmt::format("{}: not tuned: none of {} has a {}\n", who, numbers, tuning.measure);
  const TriedSetting& chosen = method.settings[*method.chosen];
  std::string line = fmt::format("{}: tuned, {} is the best of {} by {} ({}{})", who, values_text(chosen.values),
                                 numbers, tuning.measure, shown_number(*chosen.mean), restriction(method, chosen));
  if (!method.extended.empty()) line += fmt::format("; the grid of {} was extended", short_names(method.extended));
  if (!method.at_edge.empty())
    line += fmt::format("; {} {} at the edge of the grid", short_names(method.at_edge),
                        method.at_edge.size() == 1 ? "is" : "are");
  return line + "\n";
}

}  // namespace

bool RankedRow::is_behind() const {
  return is_missed ? outlasts_best : to_best && to_best->difference.is_significant();
}

std::vector<Ranking> rankings(std::span<const ResultRow> rows, const Measure& measure) {
  if (measure.better == Better::neither)
    throw std::invalid_argument(
        fmt::format("cannot rank by {}: neither larger nor smaller values are better", measure.name));
  std::vector<const ResultRow*> ranked;
  for (const ResultRow& row : rows) {
    const bool has_measure =
        is_time_to_target(measure) ? !times_to_target(row.runs).empty() : over(row.runs, measure.value).n > 0;
    if (has_measure) ranked.push_back(&row);
  }
  if (ranked.empty()) throw std::invalid_argument(fmt::format("no run has {}", measure.name));
  std::vector<Ranking> result;
  for (const PointRows& place : places_of(ranked)) result.push_back(ranking_of(place.point, place.rows, measure));
  if (std::ranges::all_of(result, [](const Ranking& ranking) { return ranking.rows.empty(); }))
    throw std::invalid_argument("no run reached the target");
  return result;
}

TextTable ranking_table(std::span<const Ranking> rankings, const Measure& measure) {
  TextTable table({{"point", Align::left},
                   {"rank", Align::right},
                   {"method", Align::left},
                   {measure.heading, Align::right},
                   {"less the best's", Align::right},
                   {"n", Align::right}});
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
  TextTable table({{"point", Align::left},
                   {"best", Align::left},
                   {"not told apart from it", Align::left},
                   {"behind", Align::left}});
  for (const Ranking& ranking : rankings)
    if (ranking.rows.empty())
      table.add_row({ranking.point, nobody, "-", "-"});
    else
      table.add_row({ranking.point, name_of(*ranking.rows.front().row), names_text(ranking.rows, false),
                     names_text(ranking.rows, true)});
  return table;
}

std::string ranking_notes(const Measure& measure) {
  const std::string restricted =
      is_time_to_target(measure)
          ? "Times to the target are restricted means: later and unknown times count as the time of the first run that "
            "ended\nwithout reaching the target, at each point. (k/n): k of n runs reached the target by then. "
            "> T (0/n): no run of the\nmethod reached it, and the first one ended at T; its difference has no "
            "interval, and it is behind if all its runs\nended later than the best method reached the target.\n"
          : "";
  return restricted +
         fmt::format(
             "Ranked by {}; {} is better. In brackets: the 95 % interval of the mean difference over common seeds "
             "(Student's\nt). A method with * is behind the best one: the interval excludes 0, and with 6 to 20 seeds "
             "so "
             "does the sign-flip\ntest. The other methods are not told apart from the best one. The intervals "
             "ignore that the same runs chose it.\n",
             measure.name, measure.better == Better::more ? "more" : "less");
}

std::string unshared_links_text(std::span<const std::pair<std::string, bool>> rows) {
  std::vector<std::string> labels;
  for (const auto& [label, is_unshared] : rows)
    if (is_unshared && std::ranges::find(labels, label) == labels.end()) labels.push_back(label);
  if (labels.empty()) return {};
  const bool are_all = std::ranges::all_of(rows, &std::pair<std::string, bool>::second);
  const std::string whose = are_all ? "" : fmt::format(" by {}", fmt::join(labels, "; "));
  return fold_lines(
      fmt::format("Links are not shared{}: no message waits for another one (network.contention = false).\n", whose),
      preferred_width);
}

std::string mean_and_deviation(const Statistics& statistics) {
  if (statistics.n == 0) return "-";
  const SamePlace text(statistics.mean, statistics.std);
  if (!(statistics.std > 0)) return text(statistics.mean);
  return fmt::format("{} +- {}", text(statistics.mean), text(statistics.std));
}

std::string time_to_target_text(std::span<const RunSummary> seeds) {
  const std::vector<TimeToReach> times = times_to_target(seeds);
  std::vector<double> reached, censored;
  for (const TimeToReach& time : times) (time.is_reached ? reached : censored).push_back(time.time_s);
  if (times.empty()) return "-";
  if (censored.empty()) return mean_and_deviation(statistics(reached));
  return fmt::format("> {} ({}/{})", seconds_text(std::ranges::min(censored)), reached.size(), times.size());
}

ResultTable result_columns(std::span<const RunSummary> runs, const std::string& clock,
                           const std::map<std::string, std::string>& methods) {
  std::vector<RunSummary> finished;
  std::ranges::copy_if(runs, std::back_inserter(finished),
                       [](const RunSummary& run) { return run.status == RunStatus::finished; });
  const auto rows = grouped_by([](const RunSummary& run) { return run_label(run); }, finished);
  ResultTable result;
  if (rows.empty()) return result;
  std::vector<const Column*> shown;
  std::vector<std::pair<std::string, Align>> headings{{"method", Align::left}};
  const std::vector<Column> columns = columns_of_values(clock);
  for (const Column& column : columns) {
    const bool means_nothing = std::ranges::all_of(rows, [&column](const auto& row) {
      return cell(column, row.second) == "-" || (!column.shows_zeros && over(row.second, column.value).mean == 0);
    });
    if (means_nothing || (!column.shows_alone && std::ranges::none_of(runs, has_prediction))) continue;
    shown.push_back(&column);
    headings.emplace_back(column.heading, Align::right);
  }
  headings.emplace_back("n", Align::right);
  result.table = TextTable(headings);
  bool censored = false, deviates = false;
  for (const auto& [label, seeds] : rows) {
    std::vector<std::string> cells{label};
    for (const Column* column : shown) {
      cells.push_back(cell(*column, seeds));
      censored |= cells.back().front() == '>';
    }
    deviates |=
        std::ranges::any_of(cells, [](const std::string& one) { return one.find(" +- ") != std::string::npos; });
    cells.push_back(std::to_string(seeds.size()));
    result.table.add_row(std::move(cells));
  }
  if (std::ranges::any_of(shown, [](const Column* column) { return column->of_seeds == step_time_text; }))
    result.notes += formulas_text(runs, methods);
  result.notes += own_training_text(rows, methods);
  result.notes += note_of_links(runs);
  if (deviates) result.notes += "+-: standard deviation over n seeds.\n";
  const auto has_target = [](const RunSummary& run) { return run.time_to_target.has_value(); };
  const auto has_reached = [&](const RunSummary& run) { return has_target(run) && run.time_to_target->time_s; };
  if (censored && std::ranges::none_of(runs, has_reached))
    result.notes += "No run reached the target. > T (0/n): none of n seeds reached it by time T.\n";
  else if (censored)
    result.notes += "> T (k/n): k of n seeds reached the target; the others did not reach it by time T.\n";
  return result;
}

std::string result_table(std::span<const RunSummary> runs, const std::string& clock, std::size_t width) {
  const auto [table, lines] = result_columns(runs, clock);
  if (table.width() == 0) return {};
  const std::string notes = fold_lines(lines, width);
  if (table.width() <= (width > 0 ? width : preferred_width)) return table.text() + notes;
  return (width > 0 ? table.squeezed().folded_text(width) : table.squeezed().text()) + notes;
}

std::string overrun_warnings(std::span<const RunSummary> runs) {
  std::string text;
  for (const RunSummary& run : runs) {
    const std::string warning = run.status == RunStatus::finished ? run.overrun_warning() : std::string{};
    if (!warning.empty()) text += fmt::format("{}: {}\n", printable(label_with_seed(run)), warning);
  }
  return text;
}

std::string failure_table(std::span<const RunSummary> runs, std::size_t width) {
  TextTable table({{"method", Align::left}, {"seed", Align::right}, {"status", Align::left}, {"reason", Align::left}});
  bool any = false;
  std::string notes;
  for (const RunSummary& run : runs) {
    if (run.status == RunStatus::finished) continue;
    any = true;
    table.add_row({run_label(run), std::to_string(run.seed), to_string(run.status), short_reason(run.reason)});
    notes += note_of_reason(label_with_seed(run), run.reason);
  }
  if (!any) return {};
  const std::string text = width > 0 ? table.folded_text(width) : table.text();
  return notes.empty() ? text : text + "\n" + fold_lines(notes, width);
}

std::string note_of_sampled() {
  return fmt::format(
      "\"sampled\": the formula uses the delays of up to {} of the run's own steps. For runs with no more steps than "
      "that,\nagreement with the formula is no evidence.\n",
      most_sampled_steps);
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char character : text) quoted += character == '"' ? std::string("\"\"") : std::string(1, character);
  return quoted + '"';
}

TidyTables tidy_tables(std::span<const FoundRun> runs) {
  std::vector<Columns> settings;
  for (const FoundRun& run : runs) settings.push_back(settings_of(run));
  std::vector<Keyed> members;
  for (std::size_t i = 0; i < runs.size(); ++i)
    members.emplace_back(runs[i].summary.experiment + "\n" + runs[i].summary.method, &settings[i]);
  const std::vector<std::string> varied = varied_keys(members);
  const bool has_trials = std::ranges::any_of(runs, &FoundRun::is_trial);
  std::string heading = "experiment,method,seed,clock,hash";
  if (has_trials) heading += ",trial";
  for (const std::string& column : varied) heading += "," + csv_field(column);

  TidyTables tables{.runs_csv = heading + ",status", .evaluations_csv = {}};
  for (const Measure& measure : measures()) tables.runs_csv += fmt::format(",{}", measure.name);
  tables.runs_csv += "\n";
  std::string rows_heading;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const RunSummary& summary = runs[i].summary;
    std::string identity = fmt::format("{},{},{},{},{}", csv_field(summary.experiment), csv_field(summary.method),
                                       summary.seed, runs[i].on_wall_clock ? "wall" : "virtual", summary.hash);
    if (has_trials) identity += runs[i].is_trial ? ",true" : ",false";
    for (const std::string& column : varied) {
      const auto found = settings[i].find(column);
      identity += "," + (found == settings[i].end() ? "" : csv_field(found->second));
    }
    tables.runs_csv += identity + "," + to_string(summary.status);
    for (const Measure& measure : measures()) {
      const auto value = measure.value(summary);
      tables.runs_csv += value ? fmt::format(",{}", *value) : ",";
    }
    tables.runs_csv += "\n";

    const std::vector<std::string> lines = evaluation_lines(runs[i].directory);
    if (lines.empty()) continue;
    if (!rows_heading.empty() && rows_heading != lines.front())
      throw std::runtime_error(fmt::format("{}: has the columns {}; expected {}",
                                           (runs[i].directory / "metrics.csv").string(), lines.front(), rows_heading));
    rows_heading = lines.front();
    for (std::size_t row = 1; row < lines.size(); ++row)
      tables.evaluations_csv += fmt::format("{},{}\n", identity, lines[row]);
  }
  tables.evaluations_csv = heading + "," + rows_heading + "\n" + tables.evaluations_csv;
  return tables;
}

std::string tuning_lines(const Tuning& tuning) {
  std::string text;
  for (const TunedMethod& method : tuning.methods) text += line_of(method, tuning);
  if (!text.empty() && !tuning.where.empty())
    text += fmt::format("Settings were tuned at \"{}\" and used at all points.\n", values_text(tuning.where));
  return text;
}

std::string tuning_lines(const std::filesystem::path& experiment_directory, bool mpi) {
  const std::filesystem::path file = experiment_directory / tuning_file(mpi);
  const auto text = read_file(file);
  if (!text) return {};
  if (const auto tuning = tuning_from_json(*text)) return tuning_lines(*tuning);
  throw ResultsDirectoryFault(fmt::format(
      "{}: is not a list of trials of schema version {}, or was changed after it was written; the experiment's next "
      "start writes it again",
      file.string(), tuning_schema_version));
}

}  // namespace syncopate
