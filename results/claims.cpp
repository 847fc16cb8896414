#include "results/claims.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "results/statistics.hpp"
#include "workers/base/terminal_text.hpp"

namespace syncopate {

namespace {

constexpr const char* both_answers = "the interval holds both answers";  // the reason if no other is given

// Thrown if a claim cannot be judged; what() is the reason.
struct Inconclusive : std::runtime_error {
  using std::runtime_error::runtime_error;
};

using BySeed = std::map<std::uint64_t, double>;  // one number per seed

std::optional<double> measured(const Claim& claim, const RunSummary& run) {
  const Measure* measure = measure_named(claim.measure);
  return measure ? measured(*measure, run) : std::nullopt;
}

bool missed_its_target(const Claim& claim, const RunSummary& run) {
  return claim.measure.find("_to_target") != std::string::npos && run.time_to_target.has_value() &&
         !measured(claim, run);
}

double number_of(const Claim& claim, const ResultRow& row, const RunSummary& run) {
  if (const auto value = measured(claim, run)) return *value;
  throw Inconclusive(fmt::format("\"{}\", seed {}: has no {}", row.label, run.seed, claim.measure));
}

[[noreturn]] void fail_without_target(const std::string& label) {
  throw Inconclusive(fmt::format("no run of \"{}\" reached the target", label));
}

// Throws if some runs of the row did not reach the target, because their times are then unknown.
void require_target(const Claim& claim, const ResultRow& row, const std::vector<const RunSummary*>& runs) {
  const auto missed =
      std::ranges::count_if(runs, [&](const RunSummary* run) { return missed_its_target(claim, *run); });
  if (missed > 0 && missed == std::ssize(runs)) fail_without_target(row.label);
  if (missed > 0)
    throw Inconclusive(fmt::format("{} of {} runs of \"{}\" did not reach the target", missed, runs.size(), row.label));
}

double effect_of(Effect effect, double own, double other) {
  if (effect == Effect::ratio && other == 0) throw Inconclusive("the ratio has the divisor 0");
  return effect == Effect::value ? own : effect == Effect::difference ? own - other : own / other;
}

// Whether the claim is only about the direction of an effect: that it lies above or below 0 (for a ratio: 1).
bool is_direction(const Claim& claim) {
  const double none = claim.effect == Effect::ratio ? 1 : 0;
  return claim.over.empty() && (claim.criterion.above == none || claim.criterion.below == none);
}

// The row's value of a swept or configured key; empty if the row has no such key.
std::string value_at(const ResultRow& row, const std::string& key) {
  for (const auto& [swept, value] : row.runs.front().sweep)
    if (swept == key) return value;
  const auto found = row.point.find(key);
  return found == row.point.end() ? "" : found->second;
}

// Whether the row has these values. If the row lacks a key, any value matches: the key does not apply to its method.
bool is_at(const ResultRow& row, const std::map<std::string, std::string>& where) {
  return std::ranges::all_of(where, [&](const auto& wanted) {
    const std::string value = value_at(row, wanted.first);
    return value.empty() || is_same_value(value, wanted.second);
  });
}

double at_key(const Claim& claim, const ResultRow& row) {
  if (const auto at = number_in(value_at(row, claim.over))) return *at;
  throw Inconclusive(fmt::format("\"{}\" has no numeric value of {}", row.label, claim.over));
}

// The training loss at each evaluation of a run of the row. `column`: the evaluations' column for LossAt::at.
std::vector<LossAt> losses_by(const char* column, const ResultRow& row, const RunSummary* run) {
  const std::filesystem::path& directory = row.directories.at(static_cast<std::size_t>(run - row.runs.data()));
  std::vector<LossAt> losses;
  for (const CsvRow& evaluation : evaluations_of(directory, *run)) {
    const auto number = [&](const char* name) {
      if (const auto value = number_in(field(evaluation, name))) return *value;
      throw std::runtime_error(fmt::format("{}: an evaluation has no {}", directory.string(), name));
    };
    losses.push_back({number(column), number("train_loss")});
  }
  return losses;
}

BySeed at_equal_loss(const Claim& claim, const ResultRow& row, const ResultRow& other, const Pairs& pairs) {
  const char* const column = claim.measure == time_to_equal_loss ? "time_s" : "step";
  BySeed found;
  for (std::size_t i = 0; i < pairs.own.size(); ++i) {
    const std::vector<LossPassage> passages =
        passages_through_equal_losses(losses_by(column, row, pairs.own[i]), losses_by(column, other, pairs.other[i]));
    if (passages.empty()) continue;
    found[pairs.own[i]->seed] = claim.effect == Effect::ratio ? ratio_of(passages) : difference_of(passages);
  }
  if (found.size() < pairs.own.size())
    throw Inconclusive(
        fmt::format("for {} of {} seeds \"{}\" and \"{}\" have no equal losses: their smoothed training losses do not "
                    "overlap, or a run has fewer than 6 evaluations or a loss that is not positive",
                    pairs.own.size() - found.size(), pairs.own.size(), row.label, other.label));
  return found;
}

// For each seed the row's measure, or with another row the difference or ratio of both rows' measures.
BySeed effects(const Claim& claim, const ResultRow& row, const ResultRow* other) {
  const Pairs pairs = pairs_of(row, other ? *other : row);
  if (pairs.own.empty())
    throw Inconclusive(other ? fmt::format("\"{}\" and \"{}\" have no seed in common", row.label, other->label)
                             : fmt::format("\"{}\" has no finished run", row.label));
  if (other && is_equal_loss(claim.measure)) return at_equal_loss(claim, row, *other, pairs);
  require_target(claim, row, pairs.own);
  if (other) require_target(claim, *other, pairs.other);
  BySeed found;
  for (std::size_t i = 0; i < pairs.own.size(); ++i) {
    const double own = number_of(claim, row, *pairs.own[i]);
    found[pairs.own[i]->seed] = other ? effect_of(claim.effect, own, number_of(claim, *other, *pairs.other[i])) : own;
  }
  return found;
}

// Effects on times to the target, with times beyond a horizon replaced by the horizon.
struct RestrictedEffects {
  BySeed of_seeds;
  Restriction restriction;
};

// For claims that one method reaches the target sooner or later than another, if only some seeds reached it; otherwise
// nullopt. Restricted times differ by less than unknown times, so they show an effect's direction, but not its size.
std::optional<RestrictedEffects> restricted_effects(const Claim& claim, const ResultRow& row, const ResultRow* other) {
  if (!other || !is_direction(claim) || claim.measure != "time_to_target_s") return {};
  std::vector<std::uint64_t> seeds;
  std::vector<TimeToReach> own, others;
  const Pairs pairs = pairs_of(row, *other);
  for (std::size_t i = 0; i < pairs.own.size(); ++i) {
    if (!pairs.own[i]->time_to_target || !pairs.other[i]->time_to_target) continue;
    seeds.push_back(pairs.own[i]->seed);
    own.push_back(time_to_reach(*pairs.own[i]));
    others.push_back(time_to_reach(*pairs.other[i]));
  }
  std::vector<TimeToReach> all = own;
  all.insert(all.end(), others.begin(), others.end());
  const auto reached = std::ranges::count(all, true, &TimeToReach::is_reached);
  if (reached == 0 || reached == std::ssize(all)) return {};
  const double horizon_s = *common_horizon_s(all);
  const RestrictedTimes ours = restricted_times(own, horizon_s), theirs = restricted_times(others, horizon_s);
  RestrictedEffects found{.of_seeds = {}, .restriction = {horizon_s, ours.reached, theirs.reached}};
  for (std::size_t i = 0; i < seeds.size(); ++i)
    found.of_seeds[seeds[i]] = effect_of(claim.effect, ours.times_s[i], theirs.times_s[i]);
  return found;
}

// The method's rows at the points that the claim selects. Contains at least one.
std::vector<const ResultRow*> rows_of(const Claim& claim, const std::string& method, std::span<const ResultRow> rows) {
  std::vector<const ResultRow*> found;
  for (const ResultRow& row : rows)
    if ((row.method == method || row.label == method) && !row.on_wall_clock && is_at(row, claim.where))
      found.push_back(&row);
  if (found.empty()) throw Inconclusive(fmt::format("there is no finished run of \"{}\"", method));
  return found;
}

// The row of the method that the claim compares with; null if the claim is about one method.
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

// For each seed the slope of the effect over a swept key, fitted by least squares.
BySeed slopes(const Claim& claim, const std::vector<const ResultRow*>& own, std::span<const ResultRow> rows) {
  std::map<std::uint64_t, std::vector<std::pair<double, double>>> points;
  for (const ResultRow* row : own) {
    const double at = at_key(claim, *row);
    if (claim.per_doubling && at <= 0) throw Inconclusive(fmt::format("{} = {} has no logarithm", claim.over, at));
    if (claim.over_sqrt_log && at < 1)
      throw Inconclusive(fmt::format("{} = {} is below 1, so its logarithm has no square root", claim.over, at));
    const double x = claim.per_doubling ? std::log2(at) : claim.over_sqrt_log ? std::sqrt(2 * std::log(at)) : at;
    for (const auto& [seed, value] : effects(claim, *row, other_of(claim, *row, rows)))
      points[seed].emplace_back(x, value);
  }
  BySeed found;
  for (const auto& [seed, of_seed] : points) {
    if (of_seed.size() < own.size()) continue;  // this seed has no run at some point
    if (const auto slope = least_squares_slope(of_seed)) found[seed] = *slope;
  }
  if (found.empty()) throw Inconclusive(fmt::format("no seed has the two points of {} that a slope needs", claim.over));
  return found;
}

// For each seed, the value of the swept key at which the measure is best (the lowest such value if there are several).
// A run that missed its target is never the best.
BySeed best_values(const Claim& claim, const std::vector<const ResultRow*>& own) {
  constexpr double worst = std::numeric_limits<double>::infinity();  // for runs that did not reach their target
  const double sign = measure_named(claim.measure)->better == Better::less ? 1 : -1;
  std::map<std::uint64_t, std::map<double, double>> points;  // by seed and value of the key: the less, the better
  for (const ResultRow* row : own) {
    const double at = at_key(claim, *row);
    for (const RunSummary& run : row->runs)
      points[run.seed][at] = missed_its_target(claim, run) ? worst : sign * number_of(claim, *row, run);
  }
  BySeed found;
  for (const auto& [seed, of_seed] : points) {
    if (of_seed.size() < own.size()) continue;  // this seed has no run at some point
    const auto best = std::ranges::min_element(of_seed, {}, [](const auto& at) { return at.second; });
    if (std::isfinite(best->second)) found[seed] = best->first;
  }
  const auto missed_all = [&](const ResultRow* row) {
    return std::ranges::all_of(row->runs, [&](const RunSummary& run) { return missed_its_target(claim, run); });
  };
  if (std::ranges::all_of(own, missed_all)) fail_without_target(claim.method);
  if (found.empty()) throw Inconclusive(fmt::format("no seed has a best value of {}", claim.over));
  return found;
}

bool is_difference(const Claim& claim) { return claim.effect == Effect::difference || !claim.order.empty(); }

std::string with_unit(const std::string& bounds, const std::string& unit) {
  if (unit.empty()) return bounds;
  return bounds == "1" && unit == "points" ? "1 point" : bounds + " " + unit;
}

std::string kind_of(const Claim& claim) {
  if (claim.effect == Effect::best) return "the best value";
  if (claim.per_doubling) return "a slope per doubling";
  if (claim.over_sqrt_log) return fmt::format("a slope over sqrt(2 ln {})", claim.over);
  if (!claim.over.empty()) return "a slope";
  if (is_difference(claim)) return "a difference";
  return claim.effect == Effect::ratio ? "a ratio" : "a value";
}

// Whether the seeds' numbers differ by more than rounding.
bool varies(const JudgedPoint& point) {
  constexpr double rounding = 1e-12;
  return point.interval && point.interval->high - point.interval->low > rounding * std::abs(point.mean);
}

bool contradicts(const JudgedPoint& point) { return point.sign_flip_p && *point.sign_flip_p > significance_level; }

// The criterion's bound that the interval excludes, on which the verdict depends. Empty for an inconclusive verdict,
// and for a margin, whose interval is equivalent to two one-sided tests.
std::vector<double> bounds_of(const Criterion& criterion, Verdict verdict, const Interval& interval) {
  if (verdict == Verdict::inconclusive || criterion.margin) return {};
  if (criterion.above) return {*criterion.above};
  if (criterion.below) return {*criterion.below};
  if (!criterion.within) return {};
  if (verdict == Verdict::reproduced) return {criterion.within->low, criterion.within->high};
  return {interval.high < criterion.within->low ? criterion.within->low : criterion.within->high};
}

// For ratios, the mean and the sign-flip test use logarithms. Then A / B and B / A lead to the same verdict, and a
// noisy denominator does not raise the mean.
JudgedPoint judged(const Claim& claim, std::string label, const BySeed& of_seeds) {
  const bool is_ratio = claim.effect == Effect::ratio;
  std::vector<double> values;
  for (const auto& [seed, value] : of_seeds) {
    if (is_ratio && value <= 0) throw Inconclusive(fmt::format("a ratio of {:.4g} has no logarithm", value));
    values.push_back(is_ratio ? std::log(value) : value);
  }
  const auto shown = [&](double value) { return is_ratio ? std::exp(value) : value; };
  JudgedPoint point{.label = std::move(label), .n = values.size(), .mean = shown(statistics(values).mean)};
  if (const auto interval = interval_of_mean(values, confidence_of(claim.criterion)))
    point.interval = {shown(interval->low), shown(interval->high)};
  point.verdict = verdict_of(claim.criterion, claim.effect, point.interval);
  if (!varies(point)) return point;
  for (const double bound : bounds_of(claim.criterion, point.verdict, *point.interval)) {
    if (is_ratio && bound <= 0) continue;  // all ratios are above this bound
    if (const auto p = sign_flip_p(values, is_ratio ? std::log(bound) : bound))
      point.sign_flip_p = std::max(p, point.sign_flip_p);
  }
  if (contradicts(point)) point.verdict = Verdict::inconclusive;
  return point;
}

JudgedPoint judged(const Claim& claim, std::string label, const ResultRow& row, const ResultRow* other) {
  const auto restricted = restricted_effects(claim, row, other);
  if (!restricted) return judged(claim, std::move(label), effects(claim, row, other));
  JudgedPoint point = judged(claim, std::move(label), restricted->of_seeds);
  point.restricted = restricted->restriction;
  return point;
}

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
    slope.effect = Effect::difference;  // a slope of a ratio also shows no effect if it is 0, not 1
    return {judged(slope, "", slopes(claim, own, rows))};
  }
  if (own.size() > 1 && !claim.everywhere)
    throw Inconclusive(fmt::format("\"{}\" has {} rows; the claim must select one", claim.method, own.size()));
  std::vector<JudgedPoint> points;
  for (const ResultRow* row : own)
    points.push_back(judged(claim, own.size() > 1 ? row->label : "", *row, other_of(claim, *row, rows)));
  return points;
}

constexpr std::array effect_names = {"value", "difference", "ratio", "best"};           // in Effect's order
constexpr std::array verdict_names = {"reproduced", "not reproduced", "inconclusive"};  // in Verdict's order

const char* name_of(ClaimClass of_class) { return claim_class_names.at(static_cast<std::size_t>(of_class)); }

// The unit for readers: hours instead of seconds if the criterion's or a measured time is at least two hours.
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

// The point's result in the displayed unit, such as percent instead of a share.
std::string figure_of(JudgedPoint point, const ShownEffect& effect) {
  point.mean *= effect.times;
  if (point.interval) point.interval = {point.interval->low * effect.times, point.interval->high * effect.times};
  const double half = point.interval ? (point.interval->high - point.interval->low) / 2 : 0;
  const SamePlace text(point.mean, half);
  std::string figure = text(point.mean);
  if (!effect.unit.empty()) figure += " " + effect.unit;
  if (point.interval) figure += fmt::format(" [{}, {}]", text(point.interval->low), text(point.interval->high));
  figure += fmt::format(", n = {}", point.n);
  const bool is_in_hours = effect.unit == "h";
  if (const auto& restricted = point.restricted)
    figure += fmt::format(" (up to {} {}, reached by {} and {})",
                          shown_number(is_in_hours ? restricted->horizon_s * effect.times : restricted->horizon_s),
                          is_in_hours ? "h" : "s", restricted->own_reached, restricted->other_reached);
  return figure;
}

// A mark for claims that were judged before the sign-flip test was introduced; otherwise empty.
const char* rule_of(const ClaimResult& result) {
  const bool has_margin = result.claim.order.empty() && result.claim.criterion.margin.has_value();
  const auto is_by_interval_alone = [&](const JudgedPoint& point) {
    return can_flip_signs(point.n) && varies(point) && !has_margin && point.verdict != Verdict::inconclusive &&
           !point.sign_flip_p;
  };
  return std::ranges::any_of(result.points, is_by_interval_alone) ? " (t alone)" : "";
}

std::string paper_of(const Claim& claim) {
  if (!claim.published) return "-";
  return fmt::format("{} ({}; {})", claim.published->figure, claim.published->source, claim.published->certainty);
}

// The criterion's kind: "number" (bounds around the published number), "range" (others), "direction" or "margin".
const char* tested_by(const Claim& claim) {
  const Criterion& wanted = claim.criterion;
  if (!claim.order.empty() || wanted.above || wanted.below) return "direction";
  if (wanted.margin) return "margin";
  const std::optional<double> printed = claim.published ? claim.published->value : std::nullopt;
  return printed && wanted.within && wanted.within->holds(*printed) ? "number" : "range";
}

// "headline (direction)", followed by a mark if the claim was added when results were known.
std::string class_of(const Claim& claim) {
  return fmt::format("{} ({}){}", name_of(claim.claim_class), tested_by(claim), claim.added_after_results ? " +" : "");
}

struct VerdictCounts {
  std::array<int, 3> counts{};  // in the order of Verdict

  void add(Verdict verdict) { ++counts[static_cast<std::size_t>(verdict)]; }
  std::string text() const {
    return fmt::format("{} reproduced, {} not reproduced, {} inconclusive", counts[0], counts[1], counts[2]);
  }
};

// Whether the table's interval and criterion already explain the verdict.
bool goes_without_saying(const ClaimResult& result) { return result.reason.empty() || result.reason == both_answers; }

std::string verdict_text(const ClaimResult& result) {
  const std::string verdict = to_string(result.verdict) + rule_of(result);
  return goes_without_saying(result) ? verdict : fmt::format("{}: {}", verdict, result.reason);
}

}  // namespace

bool is_equal_loss(std::string_view measure) { return measure == time_to_equal_loss || measure == steps_to_equal_loss; }

ShownEffect shown_effect(const Claim& claim) {
  if (claim.effect == Effect::ratio || claim.effect == Effect::best) return {};
  const Measure* measure = measure_named(claim.measure);
  if (!measure) return {.unit = claim.measure == steps_to_equal_loss ? "steps" : "s"};
  const std::string unit = measure->unit;
  const bool is_change = is_difference(claim) || !claim.over.empty();  // a slope is a change, as a difference is
  return {.times = measure->shown_times, .unit = unit == "%" && is_change ? "points" : unit};
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

std::string to_string(Verdict verdict) { return verdict_names.at(static_cast<std::size_t>(verdict)); }

double confidence_of(const Criterion& criterion) { return criterion.margin ? 0.9 : 0.95; }

Verdict verdict_of(const Criterion& criterion, Effect effect, const std::optional<Interval>& interval) {
  if (!interval) return Verdict::inconclusive;
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const double none = effect == Effect::ratio ? 1 : 0;
  const auto verdict = [](bool meets, bool misses) {
    return meets ? Verdict::reproduced : misses ? Verdict::not_reproduced : Verdict::inconclusive;
  };
  // `above` and `below` exclude their bound: an effect of exactly this size does not meet the criterion.
  if (criterion.above) return verdict(interval->low > *criterion.above, interval->high <= *criterion.above);
  if (criterion.below) return verdict(interval->high < *criterion.below, interval->low >= *criterion.below);
  const Interval wanted = criterion.margin ? Interval{none - *criterion.margin, none + *criterion.margin}
                                           : criterion.within.value_or(Interval{-infinity, infinity});
  return verdict(wanted.low <= interval->low && interval->high <= wanted.high,
                 interval->high < wanted.low || wanted.high < interval->low);
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

// An interval is the list of its ends.
static void to_json(Json& json, const Interval& interval) { json = {interval.low, interval.high}; }
static void from_json(const Json& json, Interval& interval) { interval = {json.at(0), json.at(1)}; }

template <typename AnyJson>
void list_members(JsonMembers<AnyJson> members, Listed<Restriction, AnyJson>& restricted) {
  members("horizon_s", restricted.horizon_s);
  members("own_reached", restricted.own_reached);
  members("other_reached", restricted.other_reached);
}

template <typename AnyJson>
void list_members(JsonMembers<AnyJson> members, Listed<PublishedFigure, AnyJson>& published) {
  members("figure", published.figure);
  members("source", published.source);
  members("certainty", published.certainty);
  members.if_any("value", published.value);
}

template <typename AnyJson>
void list_members(JsonMembers<AnyJson> members, Listed<Criterion, AnyJson>& wanted) {
  if constexpr (!members.reads) members.json = Json::object();
  members.if_any("above", wanted.above);
  members.if_any("below", wanted.below);
  members.if_any("within", wanted.within);
  members.if_any("margin", wanted.margin);
}

template <typename AnyJson>
void list_members(JsonMembers<AnyJson> members, Listed<JudgedPoint, AnyJson>& point) {
  members("label", point.label);
  members("n", point.n);
  members("mean", point.mean);
  members("interval", point.interval, true);
  members.named("verdict", point.verdict, verdict_names);
  members.if_any("sign_flip_p", point.sign_flip_p);
  members.if_any("restricted", point.restricted);
}

template <typename AnyJson>
void list_members(JsonMembers<AnyJson> members, Listed<ClaimResult, AnyJson>& result) {
  auto& claim = result.claim;
  members("sentence", claim.sentence);
  if (members.has("class", true)) members.named("class", claim.claim_class, claim_class_names);
  members("measure", claim.measure);
  members("added_after_results", claim.added_after_results, claim.added_after_results);
  members("method", claim.method, claim.order.empty());
  members("against", claim.against, claim.order.empty() && !claim.against.empty());
  if (members.has("as", claim.order.empty())) members.named("as", claim.effect, effect_names);
  members("order", claim.order, !claim.order.empty());
  members("where", claim.where, !claim.where.empty());
  members("everywhere", claim.everywhere, claim.everywhere);
  members("over", claim.over, !claim.over.empty());
  members("per_doubling", claim.per_doubling, !claim.over.empty());
  members("over_sqrt_log", claim.over_sqrt_log, !claim.over.empty() && claim.over_sqrt_log);
  members("criterion", claim.criterion);
  members.if_any("paper", claim.published);
  if constexpr (!members.reads) {
    const ShownEffect shown = shown_effect(claim);  // follows from the claim; for programs that display claims.json
    members.json["shown"] = {{"times", shown.times}, {"unit", shown.unit}};
  }
  members.named("verdict", result.verdict, verdict_names);
  members("reason", result.reason);
  members("points", result.points);
}

template <typename AnyJson>
void list_members(JsonMembers<AnyJson> members, Listed<JudgedClaims, AnyJson>& claims) {
  members("experiment", claims.experiment);
  members("description", claims.description);
  members("runs", claims.runs);
  members("commit", claims.commit);
  members("processor", claims.processor);
  members("cores", claims.cores);
  members("time", claims.time);
  members("claims", claims.results);
  members.if_any("judged_runs", claims.judged_runs);
}

std::string to_json(const JudgedClaims& claims) {
  Json json{{"schema_version", claims_schema_version}};
  list_members(JsonMembers<Json>{json}, claims);
  return with_digest(json);
}

std::optional<JudgedClaims> claims_from_json(const std::string& text, int schema_version) try {
  const Json json = Json::parse(text);
  if (json.at("schema_version") != schema_version) return {};
  if (!is_as_written(text, json, "claims", "judged_runs")) return {};
  return json.get<JudgedClaims>();
} catch (const std::exception&) {  // not JSON, a missing key, a wrong type
  return {};
}

std::string our_figure(const ClaimResult& result) {
  if (result.points.empty()) return "-";
  const ShownEffect effect = readable_effect(result.claim, result.points);
  if (result.points.size() == 1) return figure_of(result.points.front(), effect);
  const auto [lowest, highest] = std::ranges::minmax_element(result.points, {}, &JudgedPoint::mean);
  return fmt::format("{} to {}, {} points", figure_of(*lowest, effect), figure_of(*highest, effect),
                     result.points.size());
}

std::string scoreboard_text(std::span<const JudgedClaims> experiments, std::size_t width) {
  constexpr std::size_t place = 16, place_of_figures = 24;
  const std::string indent(place, ' ');
  std::string text;
  const auto add = [&](const char* what, const std::string& figures) {
    text += fold_lines(fmt::format("{}{:<8}{}\n", indent, what, figures), width, place_of_figures);
  };
  for (const JudgedClaims& experiment : experiments) {
    text += fmt::format("{}{}\n", text.empty() ? "" : "\n", printable(experiment.experiment));
    for (const ClaimResult& result : experiment.results) {
      text += fold_lines(fmt::format("{:<{}}{}\n", to_string(result.verdict), place, printable(result.claim.sentence)),
                         width, place);
      add("class:", class_of(result.claim));
      if (result.claim.published) add("paper:", printable(paper_of(result.claim)));
      add("wanted:", printable(subject_of(result.claim)) + ": " + wanted_by(result.claim, result.points));
      add("ours:", our_figure(result) + rule_of(result));
      if (!goes_without_saying(result)) add("reason:", printable(result.reason));
    }
  }
  return text;
}

TextTable scoreboard_table(std::span<const JudgedClaims> experiments) {
  TextTable table;
  for (const char* const heading : {"experiment", "claim", "class", "wanted", "paper", "ours", "verdict"})
    table.add_column(heading, Align::left);
  for (const JudgedClaims& experiment : experiments)
    for (const ClaimResult& result : experiment.results)
      table.add_row({experiment.experiment, result.claim.sentence, class_of(result.claim),
                     wanted_by(result.claim, result.points), paper_of(result.claim), our_figure(result),
                     verdict_text(result)});
  return table;
}

std::string scoreboard_notes(std::span<const JudgedClaims> experiments) {
  constexpr const char* alone_note =
      "(t alone): judged by the interval alone, before a sign-flip test over 6 to 20 seeds had to agree.\n";
  constexpr const char* restricted_note =
      "(up to T s, reached by k and m): not all seeds reached the target; times count up to T (restricted means).\n";
  std::map<ClaimClass, VerdictCounts> by_class;
  VerdictCounts all;
  int directions = 0, added = 0;
  bool alone = false, restricted = false;
  for (const JudgedClaims& experiment : experiments)
    for (const ClaimResult& result : experiment.results) {
      by_class[result.claim.claim_class].add(result.verdict);
      all.add(result.verdict);
      if (std::string_view(tested_by(result.claim)) == "direction") ++directions;
      if (result.claim.added_after_results) ++added;
      alone = alone || *rule_of(result) != '\0';
      restricted = restricted || std::ranges::any_of(result.points, [](const JudgedPoint& point) {
                     return point.restricted.has_value();
                   });
    }
  std::string text = all.text() + ".\n";
  for (const auto& [of_class, counts] : by_class)
    if (by_class.size() > 1) text += fmt::format("- {}: {}\n", name_of(of_class), counts.text());
  if (by_class.size() > 1) text += "\n";
  if (const double by_chance = directions * significance_level / 2; by_chance >= 1)
    text += fmt::format(
        "{} claims are directions. If no method differed from another, about {:.0f} of them would be called "
        "reproduced\n"
        "by chance: no verdict is corrected for the number of claims.\n",
        directions, by_chance);
  if (added > 0)
    text += fmt::format("+: added or changed when results of the same runs were known ({} claims).\n", added);
  return text +
         "In brackets: the 95 % interval of the mean over n seeds (90 % where a margin is claimed);\n"
         "where it holds both answers, or another reason is given, a claim is inconclusive.\n" +
         (alone ? alone_note : "") + (restricted ? restricted_note : "");
}

}  // namespace syncopate
