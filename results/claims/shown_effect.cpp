#include "results/claims/shown_effect.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "results/rows/measures.hpp"
#include "workers/process/shown_number.hpp"

namespace syncopate {
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

}  // namespace syncopate
