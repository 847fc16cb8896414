#include "results/claims.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "results/result_rows.hpp"
#include "results/statistics.hpp"
#include "results/summary.hpp"
#include "workers/base/files.hpp"
#include "workers/base/terminal_text.hpp"

namespace syncopate {

namespace {

// What a claim is judged by: of each seed one number, of the rows that the claim means.
// Why a claim cannot be judged; all of these throw it.
struct Inconclusive : std::runtime_error {
  using std::runtime_error::runtime_error;
};

using BySeed = std::map<std::uint64_t, double>;

// The method's rows at the points that the claim chooses; at least one. A method that a key does not concern is at all.
std::vector<const ResultRow*> rows_of(const Claim& claim, const std::string& method, std::span<const ResultRow> rows);

// Null if the claim is of one method alone.
const ResultRow* other_of(const Claim& claim, const ResultRow& row, std::span<const ResultRow> rows);

// The row's measure, or its difference or ratio to the other's, of each seed that both have.
BySeed effects(const Claim& claim, const ResultRow& row, const ResultRow* other);

// A time to the target counts up to a horizon where a seed did not reach it (results/statistics.hpp).
struct RestrictedEffects {
  BySeed of_seeds;
  double horizon_s = 0;
  std::size_t own_reached = 0, other_reached = 0;  // by the horizon
};

// For a claim that one method is there sooner or later than another, and by no number: such times lie nearer to each
// other than those that are not known, so that they show a direction, but no size. None for other claims, and where all
// seeds reached the target, or none did.
std::optional<RestrictedEffects> restricted_effects(const Claim& claim, const ResultRow& row, const ResultRow* other);

// The slope of the effect over a swept key, by least squares.
BySeed slopes(const Claim& claim, const std::vector<const ResultRow*>& own, std::span<const ResultRow> rows);

// The value of the swept key at which the measure is best, the lowest of several. A run that did not reach its target
// is never the best.
BySeed best_values(const Claim& claim, const std::vector<const ResultRow*>& own);

std::optional<double> measured(const Claim& claim, const ResultRow& row, std::size_t run) {
  const Measure* measure = measure_named(claim.measure);
  return measure ? measure->value(row.runs[run]) : std::nullopt;
}

bool missed_its_target(const Claim& claim, const ResultRow& row, std::size_t run) {
  return claim.measure.find("_to_target") != std::string::npos && row.runs[run].time_to_target.has_value() &&
         !measured(claim, row, run);
}

double number_of(const Claim& claim, const ResultRow& row, std::size_t run) {
  if (const auto value = measured(claim, row, run)) return *value;
  throw Inconclusive(fmt::format("\"{}\", seed {}: has no {}", row.label, row.runs[run].seed, claim.measure));
}

// Throws where runs did not reach it: what they would have taken is not known.
void require_reached(std::size_t missed, std::size_t runs, const std::string& label, const std::string& what) {
  if (missed > 0 && missed == runs) throw Inconclusive(fmt::format("no run of \"{}\" reached {}", label, what));
  if (missed > 0)
    throw Inconclusive(fmt::format("{} of {} runs of \"{}\" did not reach {}", missed, runs, label, what));
}

double effect_of(Effect effect, double own, double other) {
  if (effect == Effect::ratio && other == 0) throw Inconclusive("a ratio to 0");
  return effect == Effect::value ? own : effect == Effect::difference ? own - other : own / other;
}

// Above or below no effect.
bool is_direction(const Claim& claim) {
  const double none = claim.effect == Effect::ratio ? 1 : 0;
  return claim.over.empty() && (claim.criterion.above == none || claim.criterion.below == none);
}

TimeToReach time_to_reach(const RunSummary& run) {
  const std::optional<double>& reached_s = run.time_to_target->time_s;
  return {reached_s.value_or(run.end_time_s), reached_s.has_value()};
}

using SeedValue = std::pair<const double, double>;

// What no number of a run that got there can be.
double worst(const Measure& measure) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  return measure.better == Better::less ? infinity : -infinity;
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

double at_key(const Claim& claim, const ResultRow& row) {
  if (const auto at = as_number(value_at(row, claim.over))) return *at;
  throw Inconclusive(fmt::format("\"{}\" has no number at {}", row.label, claim.over));
}

// Runs of two rows, by their places there.
struct Pair {
  std::size_t own = 0, other = 0;
};

std::vector<Pair> all_of(const ResultRow& row) {
  std::vector<Pair> runs(row.runs.size());
  for (std::size_t run = 0; run < runs.size(); ++run) runs[run].own = run;
  return runs;
}

std::vector<Pair> common_seeds(const ResultRow& row, const ResultRow& other) {
  std::vector<Pair> pairs;
  for (const Pair& run : all_of(row)) {
    const auto found = std::ranges::find(other.runs, row.runs[run.own].seed, &RunSummary::seed);
    if (found != other.runs.end()) pairs.push_back({run.own, static_cast<std::size_t>(found - other.runs.begin())});
  }
  return pairs;
}

BySeed at_equal_loss(const Claim& claim, const ResultRow& row, const ResultRow& other, const std::vector<Pair>& pairs) {
  BySeed found;
  for (const Pair& pair : pairs)
    if (const auto reached = to_equal_loss(claim.measure, row, pair.own, other, pair.other))
      found[row.runs[pair.own].seed] = effect_of(claim.effect, reached->own, reached->other);
  require_reached(pairs.size() - found.size(), pairs.size(), row.label, fmt::format("the loss of \"{}\"", other.label));
  return found;
}

BySeed effects(const Claim& claim, const ResultRow& row, const ResultRow* other) {
  const std::vector<Pair> pairs = other ? common_seeds(row, *other) : all_of(row);
  if (pairs.empty())
    throw Inconclusive(other ? fmt::format("\"{}\" and \"{}\" have no seed in common", row.label, other->label)
                             : fmt::format("\"{}\" has no finished run", row.label));
  if (other && is_equal_loss(claim.measure)) return at_equal_loss(claim, row, *other, pairs);
  const auto require_target = [&](const ResultRow& of, std::size_t Pair::*run) {
    const auto missed =
        std::ranges::count_if(pairs, [&](const Pair& pair) { return missed_its_target(claim, of, pair.*run); });
    require_reached(static_cast<std::size_t>(missed), pairs.size(), of.label, "the target");
  };
  require_target(row, &Pair::own);
  if (other) require_target(*other, &Pair::other);
  BySeed found;
  for (const Pair& pair : pairs) {
    const double own = number_of(claim, row, pair.own);
    found[row.runs[pair.own].seed] = other ? effect_of(claim.effect, own, number_of(claim, *other, pair.other)) : own;
  }
  return found;
}

std::optional<RestrictedEffects> restricted_effects(const Claim& claim, const ResultRow& row, const ResultRow* other) {
  if (!other || !is_direction(claim) || claim.measure != "time_to_target_s") return {};
  std::vector<std::uint64_t> seeds;
  std::vector<TimeToReach> own, others;
  for (const RunSummary& run : row.runs) {
    const auto paired = std::ranges::find(other->runs, run.seed, &RunSummary::seed);
    if (paired == other->runs.end() || !run.time_to_target || !paired->time_to_target) continue;
    seeds.push_back(run.seed);
    own.push_back(time_to_reach(run));
    others.push_back(time_to_reach(*paired));
  }
  std::vector<TimeToReach> all = own;
  all.insert(all.end(), others.begin(), others.end());
  const auto reached = std::ranges::count(all, true, &TimeToReach::is_reached);
  if (reached == 0 || reached == std::ssize(all)) return {};
  const double horizon_s = *common_horizon_s(all);
  const RestrictedTimes ours = restricted_times(own, horizon_s), theirs = restricted_times(others, horizon_s);
  RestrictedEffects found{
      .of_seeds = {}, .horizon_s = horizon_s, .own_reached = ours.reached, .other_reached = theirs.reached};
  for (std::size_t i = 0; i < seeds.size(); ++i)
    found.of_seeds[seeds[i]] = effect_of(claim.effect, ours.times_s[i], theirs.times_s[i]);
  return found;
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

BySeed slopes(const Claim& claim, const std::vector<const ResultRow*>& own, std::span<const ResultRow> rows) {
  std::map<std::uint64_t, std::vector<std::pair<double, double>>> points;
  for (const ResultRow* row : own) {
    const double at = at_key(claim, *row);
    if (claim.per_doubling && at <= 0) throw Inconclusive(fmt::format("{} = {} has no logarithm", claim.over, at));
    for (const auto& [seed, value] : effects(claim, *row, other_of(claim, *row, rows)))
      points[seed].emplace_back(claim.per_doubling ? std::log2(at) : at, value);
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

BySeed best_values(const Claim& claim, const std::vector<const ResultRow*>& own) {
  const Measure& measure = *measure_named(claim.measure);
  std::map<std::uint64_t, std::map<double, double>> points;  // of each seed the numbers by value of the key
  for (const ResultRow* row : own)
    for (std::size_t run = 0; run < row->runs.size(); ++run) {
      std::map<double, double>& of_seed = points[row->runs[run].seed];
      const bool is_last = missed_its_target(claim, *row, run);
      of_seed[at_key(claim, *row)] = is_last ? worst(measure) : number_of(claim, *row, run);
    }
  BySeed found;
  for (const auto& [seed, of_seed] : points) {
    if (of_seed.size() < own.size()) continue;  // a point that this seed lacks
    const auto best = measure.better == Better::less ? std::ranges::min_element(of_seed, {}, &SeedValue::second)
                                                     : std::ranges::max_element(of_seed, {}, &SeedValue::second);
    if (std::isfinite(best->second)) found[seed] = best->first;
  }
  const auto missed_all = [&](const ResultRow* row) {
    return std::ranges::all_of(all_of(*row), [&](const Pair& run) { return missed_its_target(claim, *row, run.own); });
  };
  if (std::ranges::all_of(own, missed_all)) require_reached(1, 1, claim.method, "the target");
  if (found.empty()) throw Inconclusive(fmt::format("no seed has a best value of {}", claim.over));
  return found;
}

struct Point {
  double step = 0, time_s = 0, loss = 0;
};

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields;
  std::istringstream stream(line);
  for (std::string field; std::getline(stream, field, ',');) fields.push_back(field);
  return fields;
}

std::vector<Point> points_of(const std::filesystem::path& file) {
  const auto text = read_file(file, any_size);
  if (!text) throw std::runtime_error(file.string() + ": not there; expected the run's evaluations");
  std::istringstream lines(*text);
  std::vector<std::string> heading;
  std::vector<Point> points;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line.front() == '#') continue;
    const std::vector<std::string> fields = fields_of(line);
    if (heading.empty()) {
      heading = fields;
      continue;
    }
    const auto number = [&](const char* column) {
      const auto found = std::ranges::find(heading, column);
      const auto index = static_cast<std::size_t>(found - heading.begin());
      if (found == heading.end() || index >= fields.size() || fields[index].empty())
        throw std::runtime_error(fmt::format("{}: a row has no {}", file.string(), column));
      return std::stod(fields[index]);
    };
    points.push_back({number("step"), number("time_s"), number("test_loss")});
  }
  return points;
}

}  // namespace

bool is_equal_loss(std::string_view measure) { return measure == time_to_equal_loss || measure == steps_to_equal_loss; }

std::optional<EqualLoss> to_equal_loss(std::string_view measure, const ResultRow& row, std::size_t run,
                                       const ResultRow& other, std::size_t other_run) {
  const std::vector<Point> own = points_of(row.directories.at(run) / "metrics.csv"),
                           others = points_of(other.directories.at(other_run) / "metrics.csv");
  if (others.empty()) return {};
  const Point& end = others.back();
  const auto reached = std::ranges::find_if(own, [&](const Point& point) { return point.loss <= end.loss; });
  if (reached == own.end()) return {};
  const auto of = [&](const Point& point) { return measure == time_to_equal_loss ? point.time_s : point.step; };
  return EqualLoss{of(*reached), of(end)};
}

namespace {

bool is_difference(const Claim& claim) { return claim.effect == Effect::difference || !claim.order.empty(); }

std::string with_unit(const std::string& bounds, const std::string& unit) {
  return unit.empty() ? bounds : bounds + " " + unit;
}

std::string kind_of(const Claim& claim) {
  if (claim.effect == Effect::best) return "the best value";
  if (claim.per_doubling) return "a slope per doubling";
  if (!claim.over.empty()) return "a slope";
  if (is_difference(claim)) return "a difference";
  return claim.effect == Effect::ratio ? "a ratio" : "a value";
}

}  // namespace

ShownEffect shown_effect(const Claim& claim) {
  if (claim.effect == Effect::ratio || claim.effect == Effect::best) return {};
  const Measure* measure = measure_named(claim.measure);
  if (!measure) return {.unit = claim.measure == steps_to_equal_loss ? "steps" : "s"};
  const std::string unit = measure->unit;
  const bool is_change = is_difference(claim) || !claim.over.empty();  // a slope is one, too
  return {.times = measure->shown_times, .unit = unit == "%" && is_change ? "points" : unit};
}

ShownEffect readable_effect(const Claim& claim, std::span<const JudgedPoint> points) {
  constexpr double hour_s = 3600, least_hours = 2;
  const ShownEffect effect = shown_effect(claim);
  if (effect.unit != "s") return effect;
  const Criterion& wanted = claim.criterion;
  double most_s =
      std::max({std::abs(wanted.above.value_or(0)), std::abs(wanted.below.value_or(0)), wanted.margin.value_or(0)});
  if (wanted.within) most_s = std::max({most_s, std::abs(wanted.within->low), std::abs(wanted.within->high)});
  for (const JudgedPoint& point : points) most_s = std::max(most_s, std::abs(point.mean));
  return most_s >= least_hours * hour_s ? ShownEffect{.times = effect.times / hour_s, .unit = "h"} : effect;
}

std::string subject_of(const Claim& claim) {
  if (!claim.order.empty()) return fmt::format("{}, {}", claim.measure, fmt::join(claim.order, " < "));
  std::string subject = fmt::format("{}, {}", claim.measure, claim.method);
  if (claim.effect == Effect::difference) subject += " less " + claim.against;
  if (claim.effect == Effect::ratio) subject += " divided by " + claim.against;
  return claim.over.empty() ? subject : subject + ", over " + claim.over;
}

std::string wanted_by(const Claim& claim, std::span<const JudgedPoint> points) {
  const ShownEffect effect = readable_effect(claim, points);
  const auto shown = [&effect](double number) { return shown_number(number * effect.times, 6); };
  if (!claim.order.empty()) return "differences above 0";
  const Criterion& wanted = claim.criterion;
  std::string bounds;
  if (wanted.above) bounds = "above " + shown(*wanted.above);
  if (wanted.below) bounds = "below " + shown(*wanted.below);
  if (wanted.within) bounds = fmt::format("from {} to {}", shown(wanted.within->low), shown(wanted.within->high));
  if (wanted.margin) {
    const bool is_ratio = claim.effect == Effect::ratio && claim.over.empty();
    return fmt::format("{} within {} of {}", kind_of(claim), with_unit(shown(*wanted.margin), effect.unit),
                       is_ratio ? 1 : 0);
  }
  return fmt::format("{} {}", kind_of(claim), with_unit(bounds, effect.unit));
}

namespace {

// Not where every seed has the same number, up to rounding.
bool varies(const JudgedPoint& point) {
  constexpr double rounding = 1e-12;
  return point.interval && point.interval->high - point.interval->low > rounding * std::abs(point.mean);
}

bool contradicts(const JudgedPoint& point) { return point.sign_flip_p && *point.sign_flip_p > significance_level; }

JudgedPoint judged(const Claim& claim, std::string label, const BySeed& of_seeds) {
  std::vector<double> values;
  for (const auto& [seed, value] : of_seeds) values.push_back(value);
  JudgedPoint point{.label = std::move(label),
                    .n = values.size(),
                    .mean = statistics(values).mean,
                    .interval = interval_of_mean(values, confidence_of(claim.criterion))};
  point.verdict = verdict_of(claim.criterion, claim.effect, point.interval);
  if (!varies(point)) return point;
  for (const double bound : bounds_of(claim.criterion, point.verdict, *point.interval))
    if (const auto p = sign_flip_p(values, bound)) point.sign_flip_p = std::max(p, point.sign_flip_p);
  if (contradicts(point)) point.verdict = Verdict::inconclusive;
  return point;
}

JudgedPoint judged(const Claim& claim, std::string label, const ResultRow& row, const ResultRow* other) {
  const auto restricted = restricted_effects(claim, row, other);
  if (!restricted) return judged(claim, std::move(label), effects(claim, row, other));
  JudgedPoint point = judged(claim, std::move(label), restricted->of_seeds);
  point.restricted = {restricted->horizon_s, restricted->own_reached, restricted->other_reached};
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
      points.push_back(
          judged(pair, fmt::format("{} above {}", row->label, claim.order[i]), *row, other_of(pair, *row, rows)));
  }
  return points;
}

std::vector<JudgedPoint> judge_points(const Claim& claim, std::span<const ResultRow> rows) {
  if (!claim.order.empty()) return judge_order(claim, rows);
  const std::vector<const ResultRow*> own = rows_of(claim, claim.method, rows);
  if (claim.effect == Effect::best) return {judged(claim, "", best_values(claim, own))};
  if (!claim.over.empty()) {
    Claim slope = claim;
    slope.effect = Effect::difference;  // a slope without effect is 0, also one of ratios
    return {judged(slope, "", slopes(claim, own, rows))};
  }
  if (own.size() > 1 && !claim.everywhere)
    throw Inconclusive(fmt::format("\"{}\" has {} rows; the claim must choose one", claim.method, own.size()));
  std::vector<JudgedPoint> points;
  for (const ResultRow* row : own)
    points.push_back(judged(claim, own.size() > 1 ? row->label : "", *row, other_of(claim, *row, rows)));
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

std::vector<double> bounds_of(const Criterion& criterion, Verdict verdict, const Interval& interval) {
  if (verdict == Verdict::inconclusive || criterion.margin) return {};
  if (criterion.above) return {*criterion.above};
  if (criterion.below) return {*criterion.below};
  if (!criterion.within) return {};
  if (verdict == Verdict::reproduced) return {criterion.within->low, criterion.within->high};
  return {interval.high < criterion.within->low ? criterion.within->low : criterion.within->high};
}

bool is_by_interval_alone(const JudgedPoint& point, const Criterion& criterion) {
  return can_flip_signs(point.n) && varies(point) && !criterion.margin && point.verdict != Verdict::inconclusive &&
         !point.sign_flip_p;
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
  const auto contradicted = std::ranges::find_if(result.points, contradicts);
  if (std::ranges::any_of(result.points, has_one_seed))
    result.reason = "one seed has no interval";
  else if (contradicted != result.points.end())
    result.reason = fmt::format("the interval excludes one answer, sign flips of the {} seeds do not: p = {:.2g}",
                                contradicted->n, *contradicted->sign_flip_p);
  else
    result.reason = both_answers;
  return result;
}

}  // namespace syncopate
