#include "results/claims/effects.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "results/claims/equal_loss.hpp"
#include "results/rows/measures.hpp"
#include "results/statistics/restricted_time.hpp"

namespace syncopate {
namespace {

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

using Point = std::pair<const double, double>;

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

}  // namespace

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
    const auto best = measure.better == Better::less ? std::ranges::min_element(of_seed, {}, &Point::second)
                                                     : std::ranges::max_element(of_seed, {}, &Point::second);
    if (std::isfinite(best->second)) found[seed] = best->first;
  }
  const auto missed_all = [&](const ResultRow* row) {
    return std::ranges::all_of(all_of(*row), [&](const Pair& run) { return missed_its_target(claim, *row, run.own); });
  };
  if (std::ranges::all_of(own, missed_all)) require_reached(1, 1, claim.method, "the target");
  if (found.empty()) throw Inconclusive(fmt::format("no seed has a best value of {}", claim.over));
  return found;
}

}  // namespace syncopate
