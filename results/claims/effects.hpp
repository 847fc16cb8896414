// What a claim is judged by: of each seed one number, of the rows that the claim means.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "results/claims/claim.hpp"
#include "results/tables/result_rows.hpp"

namespace syncopate {

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

// A time to the target counts up to a horizon where a seed did not reach it (results/statistics/restricted_time.hpp).
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

}  // namespace syncopate
