#include "results/claims/verdict.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <stdexcept>
#include <utility>

#include "results/claims/equal_loss.hpp"
#include "results/rows/measures.hpp"
#include "results/statistics/statistics.hpp"

namespace syncopate {
namespace {

// Why a claim cannot be judged.
struct Inconclusive : std::runtime_error {
  using std::runtime_error::runtime_error;
};

using BySeed = std::map<std::uint64_t, double>;

double number_of(const Claim& claim, const ResultRow& row, std::size_t run) {
  const Measure* measure = measure_named(claim.measure);
  const auto value = measure ? measure->value(row.runs[run]) : std::nullopt;
  if (value) return *value;
  const bool is_censored = claim.measure == "time_to_target_s" && row.runs[run].time_to_target.has_value();
  throw Inconclusive(fmt::format("\"{}\", seed {}: {}", row.label, row.runs[run].seed,
                                 is_censored ? "did not reach the target" : "has no " + claim.measure));
}

double effect_of(Effect effect, double own, double other) {
  if (effect == Effect::ratio && other == 0) throw Inconclusive("a ratio to 0");
  return effect == Effect::value ? own : effect == Effect::difference ? own - other : own / other;
}

// Of each seed that both rows have.
BySeed effects(const Claim& claim, const ResultRow& row, const ResultRow* other) {
  BySeed found;
  for (std::size_t run = 0; run < row.runs.size(); ++run) {
    const std::uint64_t seed = row.runs[run].seed;
    if (!other) {
      found[seed] = number_of(claim, row, run);
      continue;
    }
    const auto paired = std::ranges::find(other->runs, seed, &RunSummary::seed);
    if (paired == other->runs.end()) continue;
    const auto other_run = static_cast<std::size_t>(paired - other->runs.begin());
    if (is_equal_loss(claim.measure)) {
      const auto pair = to_equal_loss(claim.measure, row, run, *other, other_run);
      if (!pair)
        throw Inconclusive(
            fmt::format("\"{}\", seed {}: did not reach the loss of \"{}\"", row.label, seed, other->label));
      found[seed] = effect_of(claim.effect, pair->own, pair->other);
    } else {
      const double own = number_of(claim, row, run);
      found[seed] = effect_of(claim.effect, own, number_of(claim, *other, other_run));
    }
  }
  if (found.empty())
    throw Inconclusive(other ? fmt::format("\"{}\" and \"{}\" have no seed in common", row.label, other->label)
                             : fmt::format("\"{}\" has no finished run", row.label));
  return found;
}

std::optional<double> as_number(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

// What the row has there, as it is swept or configured; empty if nothing.
std::string value_at(const ResultRow& row, const std::string& key) {
  for (const auto& [swept, value] : row.runs.front().sweep)
    if (swept == key) return value;
  const auto found = row.point.find(key);
  return found == row.point.end() ? "" : found->second;
}

bool is_same_value(const std::string& a, const std::string& b) {
  const auto x = as_number(a), y = as_number(b);
  return a == b || (x && y && *x == *y) || "\"" + a + "\"" == b;
}

// A method that a key does not concern has no value there, and is at every point.
bool is_at(const ResultRow& row, const std::map<std::string, std::string>& where) {
  return std::ranges::all_of(where, [&](const auto& wanted) {
    const std::string value = value_at(row, wanted.first);
    return value.empty() || is_same_value(value, wanted.second);
  });
}

std::vector<const ResultRow*> rows_of(const Claim& claim, const std::string& method, std::span<const ResultRow> rows) {
  std::vector<const ResultRow*> found;
  for (const ResultRow& row : rows)
    if ((row.method == method || row.label == method) && !row.on_wall_clock && is_at(row, claim.where))
      found.push_back(&row);
  if (found.empty()) throw Inconclusive(fmt::format("there is no finished run of \"{}\"", method));
  return found;
}

const ResultRow* other_of(const Claim& claim, const ResultRow& row, std::span<const ResultRow> rows) {
  if (claim.against.empty()) return nullptr;
  try {
    const ResultRow* other = row_to_compare_with(rows, row, claim.against);
    if (other) return other;
  } catch (const std::invalid_argument& fault) {
    throw Inconclusive(fault.what());
  }
  throw Inconclusive(
      fmt::format("there is no finished run of \"{}\" to compare \"{}\" with", claim.against, row.label));
}

JudgedPoint judged(const Claim& claim, std::string label, const BySeed& of_seeds) {
  std::vector<double> values;
  for (const auto& [seed, value] : of_seeds) values.push_back(value);
  JudgedPoint point{.label = std::move(label),
                    .n = values.size(),
                    .mean = statistics(values).mean,
                    .interval = interval_of_mean(values, confidence_of(claim.criterion))};
  point.verdict = verdict_of(claim.criterion, claim.effect, point.interval);
  return point;
}

// Of each next method against the one before.
std::vector<JudgedPoint> judge_order(const Claim& claim, std::span<const ResultRow> rows) {
  std::vector<JudgedPoint> points;
  for (std::size_t i = 0; i + 1 < claim.order.size(); ++i) {
    Claim pair = claim;
    pair.effect = Effect::difference;
    pair.against = claim.order[i];
    pair.criterion = {.above = 0.0};
    for (const ResultRow* row : rows_of(claim, claim.order[i + 1], rows))
      points.push_back(judged(pair, fmt::format("{} above {}", row->label, claim.order[i]),
                              effects(pair, *row, other_of(pair, *row, rows))));
  }
  return points;
}

// Least squares, per seed.
BySeed slopes(const Claim& claim, const std::vector<const ResultRow*>& own, std::span<const ResultRow> rows) {
  std::map<std::uint64_t, std::vector<std::pair<double, double>>> points;
  for (const ResultRow* row : own) {
    const auto at = as_number(value_at(*row, claim.over));
    if (!at) throw Inconclusive(fmt::format("\"{}\" has no number at {}", row->label, claim.over));
    if (claim.per_doubling && *at <= 0) throw Inconclusive(fmt::format("{} = {} has no logarithm", claim.over, *at));
    for (const auto& [seed, value] : effects(claim, *row, other_of(claim, *row, rows)))
      points[seed].emplace_back(claim.per_doubling ? std::log2(*at) : *at, value);
  }
  BySeed found;
  for (const auto& [seed, of_seed] : points) {
    if (of_seed.size() < own.size()) continue;  // a point that this seed lacks
    double x = 0, y = 0, xx = 0, xy = 0;
    for (const auto& [at, value] : of_seed) {
      x += at / static_cast<double>(of_seed.size());
      y += value / static_cast<double>(of_seed.size());
    }
    for (const auto& [at, value] : of_seed) {
      xx += (at - x) * (at - x);
      xy += (at - x) * (value - y);
    }
    if (xx > 0) found[seed] = xy / xx;
  }
  if (found.empty()) throw Inconclusive(fmt::format("there are no two points of {}", claim.over));
  return found;
}

std::vector<JudgedPoint> judge_points(const Claim& claim, std::span<const ResultRow> rows) {
  if (!claim.order.empty()) return judge_order(claim, rows);
  const std::vector<const ResultRow*> own = rows_of(claim, claim.method, rows);
  if (!claim.over.empty()) {
    Claim slope = claim;
    slope.effect = Effect::difference;  // a slope without effect is 0, also one of ratios
    return {judged(slope, "", slopes(claim, own, rows))};
  }
  if (own.size() > 1 && !claim.everywhere)
    throw Inconclusive(fmt::format("\"{}\" has {} rows; the claim must choose one", claim.method, own.size()));
  std::vector<JudgedPoint> points;
  for (const ResultRow* row : own)
    points.push_back(
        judged(claim, own.size() > 1 ? row->label : "", effects(claim, *row, other_of(claim, *row, rows))));
  return points;
}

}  // namespace

std::string to_string(Verdict verdict) {
  return verdict == Verdict::reproduced       ? "reproduced"
         : verdict == Verdict::not_reproduced ? "not reproduced"
                                              : "inconclusive";
}

double confidence_of(const Criterion& criterion) { return criterion.margin ? 0.9 : 0.95; }

Verdict verdict_of(const Criterion& criterion, Effect effect, const std::optional<Interval>& interval) {
  if (!interval) return Verdict::inconclusive;
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const double none = effect == Effect::ratio ? 1 : 0;
  // Bounds of a direction are open: an effect of exactly this size does not show it.
  if (criterion.above)
    return interval->low > *criterion.above     ? Verdict::reproduced
           : interval->high <= *criterion.above ? Verdict::not_reproduced
                                                : Verdict::inconclusive;
  if (criterion.below)
    return interval->high < *criterion.below   ? Verdict::reproduced
           : interval->low >= *criterion.below ? Verdict::not_reproduced
                                               : Verdict::inconclusive;
  const Interval wanted = criterion.margin ? Interval{none - *criterion.margin, none + *criterion.margin}
                                           : criterion.within.value_or(Interval{-infinity, infinity});
  if (wanted.low <= interval->low && interval->high <= wanted.high) return Verdict::reproduced;
  if (interval->high < wanted.low || wanted.high < interval->low) return Verdict::not_reproduced;
  return Verdict::inconclusive;
}

ClaimResult judge(const Claim& claim, std::span<const ResultRow> rows) {
  ClaimResult result{.claim = claim, .verdict = Verdict::inconclusive, .reason = {}, .points = {}};
  try {
    result.points = judge_points(claim, rows);
  } catch (const Inconclusive& reason) {
    result.reason = reason.what();
    return result;
  }
  const auto count = [&](Verdict verdict) { return std::ranges::count(result.points, verdict, &JudgedPoint::verdict); };
  if (count(Verdict::not_reproduced) > 0)
    result.verdict = Verdict::not_reproduced;
  else if (count(Verdict::inconclusive) == 0)
    result.verdict = Verdict::reproduced;
  if (result.verdict != Verdict::inconclusive) return result;
  const auto has_one_seed = [](const JudgedPoint& point) { return point.n < 2; };
  result.reason =
      std::ranges::any_of(result.points, has_one_seed) ? "one seed has no interval" : "the interval holds both answers";
  return result;
}

}  // namespace syncopate
