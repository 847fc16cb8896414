#include "results/tables/paired_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "results/statistics/restricted_time.hpp"
#include "results/tables/result_table.hpp"
#include "workers/process/shown_number.hpp"
#include "workers/settings/nearest_name.hpp"

namespace syncopate {
namespace {

constexpr std::string_view time_to_target = "time_to_target_s";
constexpr std::string_view exact = "(exact)";  // in place of an interval

// Of the runs of both rows, seed by seed.
struct Pairs {
  std::vector<const RunSummary*> own, other;
};

Pairs pairs_of(const ResultRow& row, const ResultRow& other) {
  Pairs pairs;
  for (const RunSummary& run : row.runs) {
    const auto found = std::ranges::find(other.runs, run.seed, &RunSummary::seed);
    if (found == other.runs.end()) continue;
    pairs.own.push_back(&run);
    pairs.other.push_back(&*found);
  }
  return pairs;
}

void set_numbers(PairedMeasure& result, const std::vector<double>& own, const std::vector<double>& other) {
  std::vector<double> differences, ratios;
  constexpr double rounding = 1e-12;  // of sums in another order
  for (std::size_t i = 0; i < own.size(); ++i) {
    const double difference = own[i] - other[i];
    const bool are_alike = std::abs(difference) <= rounding * std::max(std::abs(own[i]), std::abs(other[i]));
    differences.push_back(are_alike ? 0 : difference);
    const bool inverse = result.measure->compared_by == ComparedBy::speed_up;
    if (own[i] > 0 && other[i] > 0) ratios.push_back((inverse ? other[i] / own[i] : own[i] / other[i]) - 1);
  }
  result.own = statistics(own);
  result.other = statistics(other);
  result.difference = paired_difference(differences);
  if (ratios.size() == own.size()) result.ratio = paired_difference(ratios);
}

TimeToReach time_of(const RunSummary& run) {
  const std::optional<double>& reached_s = run.time_to_target->time_s;
  return {reached_s.value_or(run.end_time_s), reached_s.has_value()};
}

bool have_target(const std::vector<const RunSummary*>& runs) {
  return std::ranges::all_of(runs, [](const RunSummary* run) { return run->time_to_target.has_value(); });
}

bool none_reached(const std::vector<const RunSummary*>& runs) {
  return std::ranges::all_of(runs,
                             [](const RunSummary* run) { return run->time_to_target && !time_of(*run).is_reached; });
}

// How much longer the row's runs take at least: each went on to its end without reaching the target.
std::optional<PairedMeasure> least_difference(const Measure& measure, const Pairs& pairs) {
  PairedMeasure result{.measure = &measure, .is_bound = true};
  std::vector<double> differences;
  double until_s = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < pairs.own.size(); ++i) {
    const TimeToReach own = time_of(*pairs.own[i]), other = time_of(*pairs.other[i]);
    if (!other.is_reached) return {};
    differences.push_back(own.time_s - other.time_s);
    until_s = std::min(until_s, own.time_s);
  }
  result.horizon_s = until_s;
  result.own = {.n = pairs.own.size(), .mean = until_s};
  result.difference = {.n = differences.size(), .mean = statistics(differences).mean};
  return result;
}

std::optional<PairedMeasure> paired_times(const Measure& measure, const Pairs& pairs, std::optional<double> horizon_s) {
  if (!have_target(pairs.own) || !have_target(pairs.other) || none_reached(pairs.other)) return {};
  if (none_reached(pairs.own)) return least_difference(measure, pairs);
  std::vector<TimeToReach> own, other;
  for (const RunSummary* run : pairs.own) own.push_back(time_of(*run));
  for (const RunSummary* run : pairs.other) other.push_back(time_of(*run));
  const RestrictedTimes own_times = restricted_times(own, horizon_s.value()),
                        other_times = restricted_times(other, horizon_s.value());
  PairedMeasure result{.measure = &measure, .horizon_s = horizon_s, .reached = own_times.reached};
  set_numbers(result, own_times.times_s, other_times.times_s);
  return result;
}

std::optional<PairedMeasure> paired_by_seed(const Measure& measure, const Pairs& pairs,
                                            std::optional<double> horizon_s) {
  if (measure.name == time_to_target) return paired_times(measure, pairs, horizon_s);
  std::vector<double> own, other;
  for (std::size_t i = 0; i < pairs.own.size(); ++i) {
    const auto mine = measure.value(*pairs.own[i]), theirs = measure.value(*pairs.other[i]);
    if (!mine || !theirs) return {};
    own.push_back(*mine);
    other.push_back(*theirs);
  }
  PairedMeasure result{.measure = &measure};
  set_numbers(result, own, other);
  return result;
}

double half_width(const PairedDifference& found) { return (found.interval->high - found.interval->low) / 2; }

std::string difference_text(const PairedDifference& found, double times) {
  const bool has_width = found.interval && !is_exact(found);
  const SamePlace text = SamePlace::of(times * found.mean, has_width ? times * half_width(found) : 0);
  if (is_exact(found) && found.mean == 0) return fmt::format("0 {}", exact);
  if (is_exact(found)) return fmt::format("{} {}", text(times * found.mean, true), exact);
  if (!found.interval) return text(times * found.mean, true);
  return fmt::format("{} [{}, {}]{}", text(times * found.mean, true), text(times * found.interval->low, true),
                     text(times * found.interval->high, true), found.is_significant() ? "*" : "");
}

std::string ratio_text(const PairedDifference& ratio) {
  if (!ratio.interval) return with_decimals(1 + ratio.mean, 4);
  const SamePlace text = SamePlace::of(1 + ratio.mean, is_exact(ratio) ? 0 : half_width(ratio));
  if (is_exact(ratio)) return fmt::format("{} {}", text(1 + ratio.mean), exact);
  return fmt::format("{} [{}, {}]{}", text(1 + ratio.mean), text(1 + ratio.interval->low),
                     text(1 + ratio.interval->high), ratio.is_significant() ? "*" : "");
}

std::string cell_of(const PairedMeasure& paired) {
  if (paired.measure->compared_by != ComparedBy::difference) return paired.ratio ? ratio_text(*paired.ratio) : "-";
  std::string own = (paired.is_bound ? "> " : "") + shown_number(paired.measure->shown_times * paired.own.mean);
  if (paired.horizon_s) own += fmt::format(" ({}/{})", paired.reached, paired.own.n);
  return fmt::format("{}  {}", own, difference_text(paired));
}

// Of rows that are compared with the same other.
std::optional<double> horizon_of(std::span<const PairedRow> rows, const ResultRow* other) {
  std::vector<const ResultRow*> compared{other};
  for (const PairedRow& row : rows)
    if (row.other == other && row.has_common_seed) compared.push_back(row.row);
  return target_horizon_s(compared);
}

std::string heading_of(const Measure& measure) {
  return measure.compared_by == ComparedBy::difference ? measure.heading : measure.compared_heading;
}

}  // namespace

bool is_exact(const PairedDifference& found) {
  constexpr double rounding = 1e-9;
  return found.interval && found.interval->high - found.interval->low <= rounding * std::abs(found.mean);
}

std::optional<double> target_horizon_s(std::span<const ResultRow* const> rows) {
  std::vector<TimeToReach> all;
  for (const ResultRow* row : rows) {
    std::vector<TimeToReach> times;
    for (const RunSummary& run : row->runs)
      if (run.time_to_target) times.push_back(time_of(run));
    if (std::ranges::any_of(times, &TimeToReach::is_reached)) all.insert(all.end(), times.begin(), times.end());
  }
  return common_horizon_s(all);
}

std::optional<PairedMeasure> paired_measure(const Measure& measure, const ResultRow& row, const ResultRow& other,
                                            std::optional<double> horizon_s) {
  const Pairs pairs = pairs_of(row, other);
  return pairs.own.empty() ? std::nullopt : paired_by_seed(measure, pairs, horizon_s);
}

std::string difference_text(const PairedMeasure& paired) {
  const std::string text = difference_text(paired.difference, paired.measure->shown_times);
  return paired.is_bound ? "> " + text : text;
}

std::vector<PairedRow> paired_rows(std::span<const ResultRow> rows, const std::string& against,
                                   std::span<const Measure* const> measures) {
  const auto is_meant = [&](const ResultRow& row) { return row.method == against || row.label == against; };
  if (std::ranges::none_of(rows, is_meant)) {
    std::set<std::string> known;
    for (const ResultRow& row : rows) known.insert(row.method);
    throw std::invalid_argument(
        fmt::format("\"{}\" is no method of these runs; {}", against,
                    must_be_one_of(against, std::vector<std::string>(known.begin(), known.end()))));
  }
  std::vector<PairedRow> result;
  bool any_other = false, has_common_seed = false;
  for (const ResultRow& row : rows) {
    const ResultRow* other = is_meant(row) ? nullptr : row_to_compare_with(rows, row, against);
    if (!other) continue;
    any_other = true;
    const Pairs pairs = pairs_of(row, *other);
    has_common_seed |= !pairs.own.empty();
    result.push_back({.row = &row, .other = other, .measures = {}, .has_common_seed = !pairs.own.empty()});
  }
  const auto is_asked = [](const Measure* measure) { return measure->name == time_to_target; };
  const bool asks_for_times = std::ranges::any_of(measures, is_asked);
  std::map<const ResultRow*, std::optional<double>> horizons;
  for (PairedRow& paired : result) {
    if (!paired.has_common_seed) continue;
    const Pairs pairs = pairs_of(*paired.row, *paired.other);
    const auto [horizon_s, is_new] = horizons.try_emplace(paired.other);
    if (is_new && asks_for_times) horizon_s->second = horizon_of(result, paired.other);
    for (const Measure* measure : measures)
      if (auto found = paired_by_seed(*measure, pairs, horizon_s->second)) paired.measures.push_back(*found);
    paired.nobody_reached = asks_for_times && none_reached(pairs.own) && none_reached(pairs.other);
    paired.other_missed =
        asks_for_times && !paired.nobody_reached && have_target(pairs.own) && none_reached(pairs.other);
  }
  if (!has_common_seed)
    throw std::invalid_argument(any_other ? fmt::format("no run has a seed in common with one of \"{}\"", against)
                                          : fmt::format("there is nothing to compare with \"{}\"", against));
  return result;
}

TextTable paired_table(std::span<const PairedRow> rows) {
  std::vector<const Measure*> shown;
  for (const Measure& measure : measures())
    if (std::ranges::any_of(rows, [&](const PairedRow& row) {
          return std::ranges::find(row.measures, &measure, &PairedMeasure::measure) != row.measures.end();
        }))
      shown.push_back(&measure);
  TextTable table;
  table.add_column("method", Align::left);
  for (const Measure* measure : shown) table.add_column(heading_of(*measure), Align::right);
  table.add_column("n", Align::right);
  for (const PairedRow& row : rows) {
    std::vector<std::string> cells{row.row->label};
    for (const Measure* measure : shown) {
      const auto found = std::ranges::find(row.measures, measure, &PairedMeasure::measure);
      cells.push_back(found == row.measures.end() ? "-" : cell_of(*found));
    }
    cells.push_back(row.measures.empty() ? "-" : std::to_string(row.measures.front().difference.n));
    table.add_row(std::move(cells));
  }
  return table;
}

std::string paired_notes(std::span<const PairedRow> rows, const std::string& against) {
  std::string text = fmt::format(
      "Against \"{}\": the mean, and its difference over common seeds; of S_eff, speed-up and bytes the mean ratio.\n"
      "In brackets: the 95 % interval of the mean (Student's t). *: it excludes that both are alike, and so does the\n"
      "sign-flip test, where 6 seeds or more let it.\n",
      against);
  const auto has_one_seed = [](const PairedRow& row) {
    return !row.measures.empty() && row.measures.front().difference.n < 2;
  };
  if (std::ranges::any_of(rows, has_one_seed)) text += "One common seed has no interval.\n";
  std::string apart;
  for (const PairedRow& row : rows)
    if (!row.has_common_seed) apart += (apart.empty() ? "" : ", ") + row.row->label;
  if (!apart.empty()) text += fmt::format("Without a seed in common, and so without a difference: {}.\n", apart);
  std::string unreached, without_other;
  for (const PairedRow& row : rows) {
    if (row.nobody_reached) unreached += (unreached.empty() ? "" : ", ") + row.row->label;
    if (row.other_missed) without_other += (without_other.empty() ? "" : ", ") + row.row->label;
  }
  if (!unreached.empty())
    text += fmt::format("No time to the target is compared, since no run of either side reached it: {}.\n", unreached);
  if (!without_other.empty())
    text += fmt::format("No time to the target is compared, since no run of \"{}\" reached it: {}.\n", against,
                        without_other);
  const auto has_exact = [](const PairedRow& row) {
    return std::ranges::any_of(row.measures, [](const PairedMeasure& measure) {
      return is_exact(measure.difference) || (measure.ratio && is_exact(*measure.ratio));
    });
  };
  if (std::ranges::any_of(rows, has_exact))
    text += "(exact): it is the same for every seed, so there is no interval.\n";
  std::set<double> horizons;
  bool has_bound = false;
  for (const PairedRow& row : rows)
    for (const PairedMeasure& measure : row.measures) {
      has_bound |= measure.is_bound;
      if (measure.horizon_s && !measure.is_bound) horizons.insert(*measure.horizon_s);
    }
  if (!horizons.empty()) {
    const std::string until = horizons.size() == 1
                                  ? shown_number(*horizons.begin()) + " s"
                                  : fmt::format("{} to {} s, point by point", shown_number(*horizons.begin()),
                                                shown_number(*horizons.rbegin()));
    text += fmt::format(
        "Times to the target are means restricted to {}, up to which they are known of all runs of\n"
        "methods that reached it; (k/n): k of n runs reached it by then.\n",
        until);
  }
  if (has_bound)
    text +=
        "> T (0/n): no run reached the target, and the first of them ended at T. The difference is the least that\n"
        "it can be: it has no interval and no star.\n";
  return text;
}

}  // namespace syncopate
