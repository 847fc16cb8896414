#include "results/tables/paired_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
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

// Up to the horizon that both rows' runs are known to.
std::optional<PairedMeasure> paired_times(const Measure& measure, const Pairs& pairs) {
  std::vector<TimeToReach> own, other, all;
  const auto add = [](std::vector<TimeToReach>& times, const std::vector<const RunSummary*>& runs) {
    for (const RunSummary* run : runs) {
      if (!run->time_to_target) return false;
      const std::optional<double> reached_s = run->time_to_target->time_s;
      times.push_back({reached_s.value_or(run->end_time_s), reached_s.has_value()});
    }
    return true;
  };
  if (!add(own, pairs.own) || !add(other, pairs.other)) return {};
  all = own;
  all.insert(all.end(), other.begin(), other.end());
  if (std::ranges::none_of(all, &TimeToReach::is_reached)) return {};  // there is nothing to compare
  const double horizon_s = *common_horizon_s(all);
  const RestrictedTimes own_times = restricted_times(own, horizon_s), other_times = restricted_times(other, horizon_s);
  PairedMeasure result{.measure = &measure, .horizon_s = horizon_s, .reached = own_times.reached};
  set_numbers(result, own_times.times_s, other_times.times_s);
  return result;
}

bool nobody_reached(const Pairs& pairs) {
  const auto missed = [](const RunSummary* run) { return run->time_to_target && !run->time_to_target->time_s; };
  return std::ranges::all_of(pairs.own, missed) && std::ranges::all_of(pairs.other, missed);
}

std::optional<PairedMeasure> paired_by_seed(const Measure& measure, const Pairs& pairs) {
  if (measure.name == time_to_target) return paired_times(measure, pairs);
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
  std::string own = shown_number(paired.measure->shown_times * paired.own.mean);
  if (paired.horizon_s) own += fmt::format(" ({}/{})", paired.reached, paired.own.n);
  return fmt::format("{}  {}", own, difference_text(paired.difference, paired.measure->shown_times));
}

std::string heading_of(const Measure& measure) {
  return measure.compared_by == ComparedBy::difference ? measure.heading : measure.compared_heading;
}

}  // namespace

bool is_exact(const PairedDifference& found) {
  constexpr double rounding = 1e-9;
  return found.interval && found.interval->high - found.interval->low <= rounding * std::abs(found.mean);
}

std::optional<PairedMeasure> paired_measure(const Measure& measure, const ResultRow& row, const ResultRow& other) {
  const Pairs pairs = pairs_of(row, other);
  return pairs.own.empty() ? std::nullopt : paired_by_seed(measure, pairs);
}

std::string difference_text(const PairedMeasure& paired) {
  return difference_text(paired.difference, paired.measure->shown_times);
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
    PairedRow paired{.row = &row, .other = other, .measures = {}};
    for (const Measure* measure : pairs.own.empty() ? std::span<const Measure* const>() : measures)
      if (auto found = paired_by_seed(*measure, pairs)) paired.measures.push_back(*found);
    paired.has_common_seed = !pairs.own.empty();
    const auto is_asked = [](const Measure* measure) { return measure->name == time_to_target; };
    paired.nobody_reached = std::ranges::any_of(measures, is_asked) && paired.has_common_seed && nobody_reached(pairs);
    result.push_back(std::move(paired));
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
  std::string unreached;
  for (const PairedRow& row : rows)
    if (row.nobody_reached) unreached += (unreached.empty() ? "" : ", ") + row.row->label;
  if (!unreached.empty())
    text += fmt::format("No time to the target is compared, since no run of either side reached it: {}.\n", unreached);
  const auto has_exact = [](const PairedRow& row) {
    return std::ranges::any_of(row.measures, [](const PairedMeasure& measure) {
      return is_exact(measure.difference) || (measure.ratio && is_exact(*measure.ratio));
    });
  };
  if (std::ranges::any_of(rows, has_exact))
    text += "(exact): it is the same for every seed, so there is no interval.\n";
  std::set<double> horizons;
  for (const PairedRow& row : rows)
    for (const PairedMeasure& measure : row.measures)
      if (measure.horizon_s) horizons.insert(*measure.horizon_s);
  if (horizons.empty()) return text;
  const std::string until =
      horizons.size() == 1
          ? shown_number(*horizons.begin()) + " s"
          : fmt::format("{} to {} s, row by row", shown_number(*horizons.begin()), shown_number(*horizons.rbegin()));
  return text + fmt::format(
                    "Times to the target are means restricted to {}, up to which all runs are known;\n"
                    "(k/n): k of n runs reached it by then.\n",
                    until);
}

}  // namespace syncopate
