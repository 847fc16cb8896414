#include "results/claims/verdict.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "results/claims/effects.hpp"
#include "results/statistics/statistics.hpp"

namespace syncopate {
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
