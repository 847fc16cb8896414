// Whether a claim is reproduced by the runs that are there.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "results/claims/claim.hpp"
#include "results/statistics/paired_difference.hpp"
#include "results/tables/result_rows.hpp"

namespace syncopate {

enum class Verdict { reproduced, not_reproduced, inconclusive };
std::string to_string(Verdict verdict);  // "reproduced", "not reproduced", "inconclusive"

// At one point of what is swept, or of one pair of neighbours of an order.
struct JudgedPoint {
  std::string label;  // empty where there is one alone
  std::size_t n = 0;  // seeds
  double mean = 0;
  std::optional<Interval> interval{};  // of the criterion's confidence; none below two seeds
  Verdict verdict = Verdict::inconclusive;
};

struct ClaimResult {
  Claim claim;
  Verdict verdict = Verdict::inconclusive;
  std::string reason;  // where it is inconclusive: why
  std::vector<JudgedPoint> points;
};

// By the interval of the mean over seeds, for this criterion: wholly where the criterion wants it, reproduced; wholly
// outside, not reproduced; else, and below two seeds, inconclusive.
Verdict verdict_of(const Criterion& criterion, Effect effect, const std::optional<Interval>& interval);

// 0.9 for a margin (two one-sided tests at 5 %), else 0.95.
double confidence_of(const Criterion& criterion);

// The reason where nothing else is in the way.
inline constexpr const char* both_answers = "the interval holds both answers";

// Of the rows of one experiment. Several points: reproduced where all are, not reproduced where one is not. A method, a
// point or a number that is not there makes the claim inconclusive, with the reason. Throws std::runtime_error where a
// run's evaluations cannot be read.
ClaimResult judge(const Claim& claim, std::span<const ResultRow> rows);

}  // namespace syncopate
